"""The durable state as rows (section, key, value): what an image keeps in SQLite and a snapshot in blobs.

Rows are canonical: two gateways that applied the same entries have the same rows, and so the same digest.
The row of META is written here and begins with the format version of all rows; each feature has its own rows
in its module `rows`.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.partitions.rows import PARTITION, PartitionCopy, put_back_copies, take_copies
from ledger.registry import REGISTRY, Registry
from ledger.rows import META, Row, opened, sealed
from ledger.state import Dirty, LedgerState

FORMAT_VERSION = 3
"""The newest that is read, and the one that is written. Version 1 had neither groups nor settings, version 2
has both, and neither has checksums. What is read of them is dirty, so that the next write makes them all of
this version."""
FIRST_VERSION_WITH_CRC = 3

_META = struct.Struct(">HqqqqqqqH")
_VERSION = struct.Struct(">H")


def all_rows(state: LedgerState, registry: Registry = REGISTRY) -> Iterator[Row]:
    """Every row of the state."""
    return _rows(state, everything(state, registry), registry)


def everything(state: LedgerState, registry: Registry = REGISTRY) -> Dirty:
    """All keys, for an image that begins empty."""
    dirty = Dirty()
    for section in registry.sections:
        if not section.always:
            dirty[section.number] = set(section.keys(state))
    return dirty


def take_dirty_rows(state: LedgerState, registry: Registry = REGISTRY) -> list[Row]:
    """Rows that changed since the last call, which are then counted as clean."""
    rows, partitions = take_dirty(state, registry)
    rows += (row for copy in partitions for row in copy.rows())
    return sorted(rows, key=lambda row: row.section)


def take_dirty(state: LedgerState, registry: Registry = REGISTRY) -> tuple[list[Row], list[PartitionCopy]]:
    """The same: all rows but those that are still to be encoded."""
    dirty, state.dirty = state.dirty, Dirty()
    copies = take_copies(state, dirty)
    return list(_rows(state, dirty, registry)), copies


def drop_dirty(state: LedgerState) -> None:
    """There is no image: what will never be written need not be remembered."""
    dirty, state.dirty = state.dirty, Dirty()
    for number in dirty[PARTITION]:
        if (log := state.logs.get(number)) is not None:
            log.is_imaged()


def put_back_dirty(
    state: LedgerState,
    rows: Iterable[Row],
    copies: Iterable[PartitionCopy] = (),
    registry: Registry = REGISTRY,
) -> None:
    """The rows could not be written: they are dirty again."""
    put_back_copies(state.dirty, copies)
    decoders = {section.number: section.decode_key for section in registry.sections if not section.always}
    for section, key, _ in rows:
        if section in decoders:
            state.dirty[section].add(decoders[section](key))


def meta_row(state: LedgerState) -> Row:
    cluster = state.cluster_id.encode()
    head = _META.pack(
        FORMAT_VERSION,
        state.applied,
        state.epoch,
        state.entry_time_ms,
        state.next_number,
        state.next_producer_id,
        state.objects.next_number,
        state.objects.floor_ms,
        len(cluster),
    )
    return sealed(META, b"", head + cluster)


def _rows(state: LedgerState, dirty: Dirty, registry: Registry) -> Iterator[Row]:
    yield meta_row(state)
    for section in registry.written:
        number, encode_key, encode = section.number, section.encode_key, section.encode
        for key in section.keys(state) if section.always else dirty.get(number, ()):
            yield sealed(number, encode_key(key), encode(state, key))


def restore(rows: Iterable[Row], registry: Registry = REGISTRY) -> LedgerState:
    """The state that the rows say. StoreDamaged if they do not match their checksums or do not fit together,
    StoreTooNew if their format is not known here. What an older format had is all dirty."""
    state = LedgerState()
    try:
        version, sections = _opened(list(rows), registry)
        _restore_meta(state, sections.get(META, []))
        for section in registry.sections:
            section.restore(state, sections.get(section.number, ()))
    except (struct.error, KeyError, IndexError, TypeError, ValueError) as error:
        raise StoreDamaged(f"the rows of an image do not fit together: {error!r}") from error
    for machine in registry.machines:
        if machine.complete is not None:
            machine.complete(state)
    if version < FORMAT_VERSION:
        state.dirty = everything(state, registry)
    return state


_Sections = dict[int, list[tuple[bytes, bytes]]]
"""Keys and values by section."""


def _opened(rows: Sequence[Row], registry: Registry) -> tuple[int, _Sections]:
    """The format version, and the values without their checksums, which are checked."""
    version = _version_of(rows)
    known = {META, *(section.number for section in registry.sections)}
    sections: _Sections = {}
    for section, key, value in rows:
        if section not in known:
            raise StoreDamaged(f"an image has no section {section!r}")
        body = value or b""
        if version >= FIRST_VERSION_WITH_CRC:
            body = opened(section, key, body)
        sections.setdefault(section, []).append((key, body))
    return version, sections


def _version_of(rows: Iterable[Row]) -> int:
    (value,) = [row.value or b"" for row in rows if row.section == META]
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
        _, sections = _opened([row for row in rows if row.section == META], REGISTRY)
        _restore_meta(state, sections[META])
    except (struct.error, TypeError, ValueError) as error:
        raise StoreDamaged(f"the first row of an image cannot be read: {error!r}") from error
    return state.cluster_id


def _restore_meta(state: LedgerState, rows: list[tuple[bytes, bytes]]) -> None:
    ((_, value),) = rows
    head = _META.unpack_from(value)
    _, state.applied, state.epoch, state.entry_time_ms, state.next_number = head[:5]
    state.next_producer_id, state.objects.next_number, state.objects.floor_ms, cluster_bytes = head[5:]
    if len(value) != _META.size + cluster_bytes:
        raise StoreDamaged("the first row of an image does not have the length it claims")
    state.cluster_id = value[_META.size :].decode()
