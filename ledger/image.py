"""The durable state as rows (section, key, value): what an image keeps in SQLite and a snapshot in blobs.

Rows are canonical: two gateways that applied the same entries have the same rows, and so the same digest.
The row of META is written here and begins with the format version of all rows; each feature has its own rows
in its module `rows`.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.machine import Section
from ledger.objects.rows import OBJECT
from ledger.partitions.rows import CHUNK, PARTITION, PRODUCER, note_in_partition
from ledger.records import LEVEL_WITH_ORIGINS, NEWEST_LEVEL
from ledger.registry import REGISTRY, Registry
from ledger.rows import META, Row, all_opened, opened, sealed
from ledger.state import Dirty, LedgerState

FORMAT_VERSION = 4
"""The newest that is read. Version 1 had neither groups nor settings, version 2 has both, and neither has
checksums. Version 3 is written at feature level 1, version 4 from level 2 on: its first row has the level,
objects have their origins and numbers of 64 bits, and there are uploaders. What is read of a version that is
not written any more is dirty, so that the next write makes all rows of one version."""
FIRST_VERSION_WITH_CRC = 3
FIRST_VERSION_WITH_LEVEL = 4

Keys: TypeAlias = Mapping[int, Iterable[Any]]
"""Keys of image rows by section."""
KeyDecoders: TypeAlias = Mapping[int, Callable[[bytes], Any]]

_META = struct.Struct(">HqqqqqqqH")
_LEVEL = struct.Struct(">H")
_VERSION = struct.Struct(">H")


def all_rows(state: LedgerState, registry: Registry = REGISTRY) -> Iterator[Row]:
    """Every row of the state."""
    return rows_of(state, _all_keys(state, registry), registry)


def everything(state: LedgerState, registry: Registry = REGISTRY) -> Dirty:
    """All keys, for an image that begins empty. Runs and producers are noted in their partitions, so that
    they are copied one partition after the other."""
    dirty = Dirty()
    dirty.update({number: set(keys) for number, keys in everything_but_partitions(state, registry).items()})
    dirty[PARTITION] = set(state.logs)
    for log in state.logs.values():
        log.is_not_imaged()
        log.unsaved_producers = set(log.producers) or None
    dirty.created = {found.first_number: found for found in state.logs.ranges()}
    return dirty


def rows_that_levels_change(state: LedgerState) -> Dirty:
    """Keys of the rows that the feature level writes in another way than the level of the image, besides the
    first row. Runs are noted in their partitions, so that they are copied one partition after the other."""
    dirty = Dirty()
    if state.image_level >= LEVEL_WITH_ORIGINS:
        return dirty
    dirty[OBJECT] = set(state.objects.by_number)
    for number, log in state.logs.items():
        if log.chunks:
            log.is_not_imaged()
            dirty[PARTITION].add(number)
    return dirty


def everything_but_partitions(state: LedgerState, registry: Registry = REGISTRY) -> Keys:
    """All keys but those of partitions, their runs and producers."""
    return {
        number: keys
        for number, keys in _all_keys(state, registry).items()
        if number not in (PARTITION, CHUNK, PRODUCER)
    }


def _all_keys(state: LedgerState, registry: Registry) -> Keys:
    return {section.number: section.keys(state) for section in registry.sections if not section.always}


def drop_dirty(state: LedgerState) -> Iterator[None]:
    """There is no image: what will never be written need not be remembered. In small steps, between which
    entries may be applied."""
    dirty, state.dirty = state.dirty, Dirty()
    for number in dirty[PARTITION]:
        if (log := state.logs.get(number)) is not None:
            log.is_imaged()
        yield


def put_back_row(state: LedgerState, row: Row, decoders: KeyDecoders) -> None:
    if row.section in decoders:
        put_back(state, row.section, decoders[row.section](row.key))


def put_back(state: LedgerState, section: int, key: Any) -> None:
    """This row could not be written: it is dirty again. Runs and producers are noted in their partitions, so
    that the next cut copies them one partition after the other, too."""
    named = state.dirty[section]
    if key not in named and not note_in_partition(state, section, key):
        named.add(key)


def key_decoders(registry: Registry = REGISTRY) -> KeyDecoders:
    """Of all sections but those that are always written."""
    return {section.number: section.decode_key for section in registry.sections if not section.always}


def meta_row(state: LedgerState) -> Row:
    cluster = state.cluster_id.encode()
    version = format_version(state.feature_level)
    level = _LEVEL.pack(state.feature_level) if version >= FIRST_VERSION_WITH_LEVEL else b""
    head = _META.pack(
        version,
        state.applied,
        state.epoch,
        state.entry_time_ms,
        state.next_number,
        state.next_producer_id,
        state.objects.next_number,
        state.objects.floor_ms,
        len(cluster),
    )
    return sealed(META, b"", head + level + cluster)


def format_version(feature_level: int) -> int:
    """The version of the rows that is written at this level."""
    return FORMAT_VERSION if feature_level >= LEVEL_WITH_ORIGINS else FIRST_VERSION_WITH_CRC


def rows_of(state: LedgerState, dirty: Keys, registry: Registry) -> Iterator[Row]:
    """The row of META, those that are always written, and those of these keys."""
    yield meta_row(state)
    for section in registry.written:
        number, encode_key, encode = section.number, section.encode_key, section.encode
        for key in section.keys(state) if section.always else dirty.get(number, ()):
            yield sealed(number, encode_key(key), encode(state, key))


def row_of(state: LedgerState, section: Section, key: Any) -> Row:
    return sealed(section.number, section.encode_key(key), section.encode(state, key))


def restore(rows: Iterable[Row], registry: Registry = REGISTRY) -> LedgerState:
    """The state that the rows say. StoreDamaged if they do not match their checksums or do not fit together,
    StoreTooNew if their format is not known here. What an older format had is all dirty."""
    state = LedgerState()
    try:
        sections = _by_section(rows, registry)
        version = _version_of(sections[META])
        _restore_meta(state, _bodies(META, sections.pop(META), version))
        for section in registry.sections:
            # Of each section the rows are let go before those of the next are opened.
            section.restore(state, _bodies(section.number, sections.pop(section.number, []), version))
    except (struct.error, KeyError, IndexError, TypeError, ValueError) as error:
        raise StoreDamaged(f"the rows of an image do not fit together: {error!r}") from error
    for machine in registry.machines:
        if machine.complete is not None:
            machine.complete(state)
    if version < format_version(state.feature_level):
        state.dirty = everything(state, registry)
    return state


_Pairs: TypeAlias = list[tuple[bytes, bytes]]
"""Keys and values of the rows of one section."""


def _by_section(rows: Iterable[Row], registry: Registry) -> dict[int, _Pairs]:
    sections: dict[int, _Pairs] = {META: [], **{section.number: [] for section in registry.sections}}
    for section, key, value in rows:
        if section not in sections:
            raise StoreDamaged(f"an image has no section {section!r}")
        sections[section].append((key, value or b""))
    return sections


def _bodies(section: int, pairs: _Pairs, version: int) -> _Pairs:
    """Without their checksums, which are checked."""
    return all_opened(section, pairs) if version >= FIRST_VERSION_WITH_CRC else pairs


def _version_of(meta: _Pairs) -> int:
    """The format version of all rows, from the first one."""
    ((_, value),) = meta
    (version,) = _VERSION.unpack_from(value)
    if version > FORMAT_VERSION:
        # Of whatever version, this row ends with its checksum: else the number may be damaged.
        opened(META, b"", value)
        raise StoreTooNew(f"the image has format version {version}; this build reads {FORMAT_VERSION}")
    return int(version)


def cluster_id_of(rows: Iterable[Row]) -> str:
    """The cluster that the rows are of. StoreDamaged or StoreTooNew if they do not say."""
    state = LedgerState()
    try:
        meta = [(row.key, row.value or b"") for row in rows if row.section == META]
        _restore_meta(state, _bodies(META, meta, _version_of(meta)))
    except (struct.error, TypeError, ValueError) as error:
        raise StoreDamaged(f"the first row of an image cannot be read: {error!r}") from error
    return state.cluster_id


def _restore_meta(state: LedgerState, rows: _Pairs) -> None:
    ((_, value),) = rows
    head = _META.unpack_from(value)
    version, state.applied, state.epoch, state.entry_time_ms, state.next_number = head[:5]
    state.next_producer_id, state.objects.next_number, state.objects.floor_ms, cluster_bytes = head[5:]
    pos = _META.size
    if version >= FIRST_VERSION_WITH_LEVEL:
        (level,) = _LEVEL.unpack_from(value, pos)
        if level > NEWEST_LEVEL:
            raise StoreTooNew(f"the image has feature level {level}; this build knows up to {NEWEST_LEVEL}")
        state.feature_level = state.image_level = level
        pos += _LEVEL.size
    if len(value) != pos + cluster_bytes:
        raise StoreDamaged("the first row of an image does not have the length it claims")
    state.cluster_id = value[pos:].decode()
