"""The durable state as rows (section, key, value): what an image keeps in SQLite and a snapshot in blobs.

Rows are canonical: two gateways that applied the same entries have the same rows, and so the same digest.
All numbers are big-endian, columns of runs are little-endian int64 / uint32 arrays.

The row of META begins with the format version of all rows. From version 3 on every value ends with a u32
CRC-32C, begun with the number of the section, over the key and the value before it: rows are believed at
every start, and snapshots are made of them.
"""

import hashlib
import struct
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from crc32c import crc32c

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.files import ObjectState
from ledger.group_rows import (
    decode_offset_key,
    decode_quota_key,
    decode_resource_key,
    encode_group_row,
    encode_offset_key,
    encode_offset_row,
    encode_quota_row,
    encode_resource_row,
    restore_group,
    restore_offset,
    restore_quota,
    restore_resource,
)
from ledger.partitions import PartitionLog
from ledger.producers import BATCH_BYTES, ProducerState
from ledger.records import LedgerRestored, TopicCreated, decode_records, encode_record
from ledger.runs import RunChunk, RunsCopy
from ledger.state import Dirty, LedgerState
from ledger.topics import Topic
from ledger.types import Buffer, TopicId

FORMAT_VERSION = 3
"""The newest that is read, and the one that is written. Version 1 had neither groups nor settings, version 2
has both, and neither has checksums. What is read of them is dirty, so that the next write makes them all of
this version."""
FIRST_VERSION_WITH_CRC = 3

META, TOPIC, PARTITION, CHUNK, PRODUCER, OBJECT, RESTORED = range(7)
GROUP, OFFSET, QUOTA, RESOURCE_CONFIG = range(7, 11)

_META = struct.Struct(">HqqqqqqqH")
_TOPIC = struct.Struct(">q")
_PARTITION = struct.Struct(">16siqqqI?")
_CHUNK = struct.Struct(">II")
_PRODUCER = struct.Struct(">hqH")
_OBJECT = struct.Struct(">qqqIH")
_NUMBER = struct.Struct(">I")
_NUMBER_SERIAL = struct.Struct(">II")
_NUMBER_PRODUCER = struct.Struct(">Iq")
_VERSION = struct.Struct(">H")
_CRC = struct.Struct(">I")


class Row(NamedTuple):
    """`value` None: the row is gone."""

    section: int
    key: bytes
    value: bytes | None


def sealed(section: int, key: bytes, body: bytes | None) -> Row:
    """The row with its CRC-32C behind the body; None stays None."""
    return Row(section, key, body + _CRC.pack(_crc(section, key, body)) if body is not None else None)


def _crc(section: int, key: bytes, body: Buffer) -> int:
    return int(crc32c(body, crc32c(key, section)))


class PartitionCopy(NamedTuple):
    """What commits changed of a partition, as it is when this is made: at little cost, and to be encoded
    later, a few partitions at a time, as all chunks together are large."""

    log: PartitionLog
    log_start: int
    high_watermark: int
    layout_version: int
    next_serial: int
    deleted: bool
    chunks: Sequence[RunsCopy]
    producers: Sequence[tuple[int, int, bytes, int]]
    """(producer id, epoch, packed batches, last time)."""

    def rows(self) -> Iterator[Row]:
        number = self.log.number
        yield sealed(PARTITION, _NUMBER.pack(number), self._partition())
        for runs in self.chunks:
            yield sealed(CHUNK, _NUMBER_SERIAL.pack(number, runs.chunk.serial), _encode_chunk(runs))
        for producer_id, epoch, packed, last_ms in self.producers:
            value = _encode_producer(ProducerState(epoch, packed, last_ms))
            yield sealed(PRODUCER, _NUMBER_PRODUCER.pack(number, producer_id), value)

    def _partition(self) -> bytes:
        return _PARTITION.pack(
            self.log.topic_id,
            self.log.index,
            self.log_start,
            self.high_watermark,
            self.layout_version,
            self.next_serial,
            self.deleted,
        )


def all_rows(state: LedgerState) -> Iterator[Row]:
    """Every row of the state."""
    yield meta_row(state)
    yield from _restored_rows(state)
    yield from _rows(state, everything(state))


def everything(state: LedgerState) -> Dirty:
    """All keys, for an image that begins empty."""
    return Dirty(
        set(state.topics.by_id),
        set(state.logs),
        {(number, chunk.serial) for number, log in state.logs.items() for chunk in log.chunks},
        {(number, producer_id) for number, log in state.logs.items() for producer_id in log.producers},
        set(state.files.by_number),
        set(state.groups.by_id),
        {(group_id, key) for group_id, held in state.groups.offsets.items() for key in held},
        set(state.quotas.by_entity),
        set(state.resource_configs.by_resource),
    )


def take_dirty_rows(state: LedgerState) -> list[Row]:
    """Rows that changed since the last call, which are then counted as clean."""
    rows, partitions = take_dirty(state)
    rows += (row for copy in partitions for row in copy.rows())
    return sorted(rows, key=lambda row: row.section)


def take_dirty(state: LedgerState) -> tuple[list[Row], list[PartitionCopy]]:
    """The same: all rows but those that are still to be encoded."""
    dirty, state.dirty = state.dirty, Dirty()
    copies = [_copy(log, dirty) for n in dirty.partitions if (log := state.logs.get(n)) is not None]
    dirty.partitions = {number for number in dirty.partitions if number not in state.logs}
    return [meta_row(state), *_restored_rows(state), *_rows(state, dirty)], copies


def _copy(log: PartitionLog, dirty: Dirty) -> PartitionCopy:
    chunks = [chunk.copy() for chunk in log.grown_chunks()]
    if dirty.chunks:
        chunks = [copy for copy in chunks if (log.number, copy.chunk.serial) not in dirty.chunks]
    unsaved = log.unsaved_producers
    if dirty.producers:
        # Among them all that are gone.
        unsaved = {producer_id for producer_id in unsaved if (log.number, producer_id) not in dirty.producers}
    producers = [
        (producer_id, known.epoch, known.packed, known.last_ms)
        for producer_id in unsaved
        if (known := log.producers.get(producer_id)) is not None
    ]
    log.is_imaged()
    return PartitionCopy(
        log,
        log.log_start,
        log.high_watermark,
        log.layout_version,
        log.next_serial,
        log.deleted,
        chunks,
        producers,
    )


def drop_dirty(state: LedgerState) -> None:
    """There is no image: what nobody will write need not be remembered."""
    dirty, state.dirty = state.dirty, Dirty()
    for number in dirty.partitions:
        if (log := state.logs.get(number)) is not None:
            log.is_imaged()


def put_back_dirty(state: LedgerState, rows: Iterable[Row], copies: Iterable[PartitionCopy] = ()) -> None:
    """The rows could not be written: they are dirty again."""
    for copy in copies:
        number = copy.log.number
        state.dirty.partitions.add(number)
        state.dirty.chunks.update((number, runs.chunk.serial) for runs in copy.chunks)
        state.dirty.producers.update((number, producer_id) for producer_id, *_ in copy.producers)
    for section, key, _ in rows:
        if section == TOPIC:
            state.dirty.topics.add(TopicId(key))
        elif section == PARTITION:
            state.dirty.partitions.add(*_NUMBER.unpack(key))
        elif section == CHUNK:
            state.dirty.chunks.add(_NUMBER_SERIAL.unpack(key))
        elif section == PRODUCER:
            state.dirty.producers.add(_NUMBER_PRODUCER.unpack(key))
        elif section == OBJECT:
            state.dirty.objects.add(*_NUMBER.unpack(key))
        elif section == GROUP:
            state.dirty.groups.add(key.decode())
        elif section == OFFSET:
            state.dirty.offsets.add(decode_offset_key(key))
        elif section == QUOTA:
            state.dirty.quotas.add(decode_quota_key(key))
        elif section == RESOURCE_CONFIG:
            state.dirty.resource_configs.add(decode_resource_key(key))


def digest(rows: Iterable[Row]) -> bytes:
    """SHA-256 over the rows in order of section and key."""
    total = hashlib.sha256()
    for section, key, value in sorted(rows):
        total.update(struct.pack(">BHI", section, len(key), len(value or b"")) + key + (value or b""))
    return total.digest()


def meta_row(state: LedgerState) -> Row:
    cluster = state.cluster_id.encode()
    head = _META.pack(
        FORMAT_VERSION,
        state.applied,
        state.epoch,
        state.entry_time_ms,
        state.next_number,
        state.next_producer_id,
        state.files.next_number,
        state.files.floor_ms,
        len(cluster),
    )
    return sealed(META, b"", head + cluster)


def _restored_rows(state: LedgerState) -> Iterator[Row]:
    # Always all of them: there are as many as operators have restored backups.
    for at, record in enumerate(state.restores):
        yield sealed(RESTORED, _NUMBER.pack(at), encode_record(record))


def _rows(state: LedgerState, dirty: Dirty) -> Iterator[Row]:
    for topic_id in dirty.topics:
        topic = state.topics.by_id.get(topic_id)
        yield sealed(TOPIC, bytes(topic_id), _encode_topic(topic) if topic is not None else None)
    for number in dirty.partitions:
        log = state.logs.get(number)
        yield sealed(PARTITION, _NUMBER.pack(number), _encode_partition(log) if log is not None else None)
    for number, serial in dirty.chunks:
        chunk = _chunk(state.logs.get(number), serial)
        value = _encode_chunk(chunk.copy()) if chunk is not None else None
        yield sealed(CHUNK, _NUMBER_SERIAL.pack(number, serial), value)
    for number, producer_id in dirty.producers:
        log = state.logs.get(number)
        producer = log.producers.get(producer_id) if log is not None else None
        value = _encode_producer(producer) if producer is not None else None
        yield sealed(PRODUCER, _NUMBER_PRODUCER.pack(number, producer_id), value)
    for number in dirty.objects:
        stored = state.files.by_number.get(number)
        yield sealed(OBJECT, _NUMBER.pack(number), _encode_object(stored) if stored is not None else None)

    yield from _group_rows(state, dirty)
    for entity in dirty.quotas:
        yield sealed(QUOTA, *encode_quota_row(state, entity))
    for resource in dirty.resource_configs:
        yield sealed(RESOURCE_CONFIG, *encode_resource_row(state, resource))


def _group_rows(state: LedgerState, dirty: Dirty) -> Iterator[Row]:
    for group_id in dirty.groups:
        group = state.groups.by_id.get(group_id)
        yield sealed(GROUP, group_id.encode(), encode_group_row(group) if group is not None else None)
    for group_id, key in dirty.offsets:
        held = state.groups.offsets.get(group_id)
        committed = held.get(key) if held is not None else None
        value = encode_offset_row(committed) if committed is not None else None
        yield sealed(OFFSET, encode_offset_key(group_id, key), value)


def _chunk(log: PartitionLog | None, serial: int) -> RunChunk | None:
    # Serials of a partition's chunks are consecutive.
    if log is None or not log.chunks:
        return None
    at = serial - log.chunks[0].serial
    return log.chunks[at] if 0 <= at < len(log.chunks) else None


def _encode_topic(topic: Topic) -> bytes:
    first = topic.partitions[0].number
    record = TopicCreated(topic.topic_id, topic.name, first, len(topic.partitions), topic.configs)
    return _TOPIC.pack(topic.created_ms) + encode_record(record)


def _encode_partition(log: PartitionLog) -> bytes:
    return _PARTITION.pack(
        log.topic_id,
        log.index,
        log.log_start,
        log.high_watermark,
        log.layout_version,
        log.next_serial,
        log.deleted,
    )


def _little(column: "array[int]") -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def _from_little(typecode: str, data: memoryview) -> "array[int]":
    column = array(typecode)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _encode_chunk(chunk: RunsCopy) -> bytes:
    head = _CHUNK.pack(chunk.chunk.trimmed + chunk.head, chunk.end - chunk.head)
    return b"".join([head, *chunk.columns()])


def _encode_producer(producer: ProducerState) -> bytes:
    batches = len(producer.packed) // BATCH_BYTES
    return _PRODUCER.pack(producer.epoch, producer.last_ms, batches) + producer.packed


def _encode_object(stored: ObjectState) -> bytes:
    locator = stored.locator.encode()
    head = _OBJECT.pack(stored.size, stored.live_runs, stored.closed_ms, len(stored.starts), len(locator))
    return b"".join((head, locator, _little(stored.starts), _little(stored.bases)))


def restore(rows: Iterable[Row]) -> LedgerState:
    """The state that the rows say. StoreDamaged if they do not match their checksums or do not fit together,
    StoreTooNew if their format is not known here. What an older format had is all dirty."""
    state = LedgerState()
    try:
        version, sections = _opened(list(rows))
        _restore_meta(state, sections.get(META, []))
        partitions = _restore_partitions(state, sections.get(PARTITION, []))
        _restore_topics(state, sections.get(TOPIC, []), partitions)
        _restore_chunks(state, sections.get(CHUNK, []))
        _restore_producers(state, sections.get(PRODUCER, []))
        _restore_objects(state, sections.get(OBJECT, []))
        _restore_restores(state, sections.get(RESTORED, []))
        for section, restore_row in _RESTORE.items():
            for key, value in sections.get(section, []):
                restore_row(state, key, value)
    except (struct.error, KeyError, IndexError, TypeError, ValueError) as error:
        raise StoreDamaged(f"the rows of an image do not fit together: {error!r}") from error
    check_together(state)
    for log in state.logs.values():
        log.is_imaged()
        if log.droppable(1):
            state.draining[log.number] = log
    state.groups.find_dead(state.topics.by_id)
    if version < FORMAT_VERSION:
        state.dirty = everything(state)
    return state


_Sections = dict[int, list[tuple[bytes, bytes]]]
"""Keys and values by section."""


def _opened(rows: Sequence[Row]) -> tuple[int, _Sections]:
    """The format version, and the values without their checksums, which are checked."""
    version = _version_of(rows)
    sections: _Sections = {}
    for section, key, value in rows:
        if section not in _SECTIONS:
            raise StoreDamaged(f"an image has no section {section!r}")
        body = value or b""
        if version >= FIRST_VERSION_WITH_CRC:
            body = _body(section, key, body)
        sections.setdefault(section, []).append((key, body))
    return version, sections


def _body(section: int, key: bytes, value: bytes) -> bytes:
    body = value[: -_CRC.size]
    if value[-_CRC.size :] != _CRC.pack(_crc(section, key, body)):
        raise StoreDamaged(f"row {key.hex()} of section {section} of an image does not match its CRC-32C")
    return body


def _version_of(rows: Iterable[Row]) -> int:
    (value,) = [row.value or b"" for row in rows if row.section == META]
    (version,) = _VERSION.unpack_from(value)
    if version > FORMAT_VERSION:
        # Of whatever version, this row ends with its checksum: else the number may be damaged.
        _body(META, b"", value)
        raise StoreTooNew(f"the image has format version {version}; this build reads {FORMAT_VERSION}")
    return int(version)


def cluster_id_of(rows: Iterable[Row]) -> str:
    """The cluster that the rows are of. StoreDamaged or StoreTooNew if they do not say."""
    state = LedgerState()
    try:
        _, sections = _opened([row for row in rows if row.section == META])
        _restore_meta(state, sections[META])
    except (struct.error, TypeError, ValueError) as error:
        raise StoreDamaged(f"the first row of an image cannot be read: {error!r}") from error
    return state.cluster_id


def check_together(state: LedgerState) -> None:
    """What different rows say of the same thing must agree, or one of them is missing. StoreDamaged."""
    live: Counter[int] = Counter()
    listed = 0
    for log in state.logs.values():
        _check_partition(log)
        listed += not log.deleted
        for chunk in log.chunks:
            live.update(chunk.object_numbers(chunk.head, len(chunk)))
    if listed != sum(len(topic.partitions) for topic in state.topics.by_id.values()):
        raise StoreDamaged("the topics of an image do not have the partitions that are there")
    for stored in state.files.by_number.values():
        runs = live.pop(stored.number, 0)
        if stored.live_runs != runs or stored.closed != (runs == 0):
            raise StoreDamaged(
                f"object {stored.number} of an image should have {stored.live_runs} runs, and {runs} name it"
            )
    if live:
        raise StoreDamaged(f"runs of an image name object {min(live)}, which it has not")
    if state.next_number <= max(state.logs, default=-1):
        raise StoreDamaged("the next partition number of an image is taken")
    if state.files.next_number <= max(state.files.by_number, default=-1):
        raise StoreDamaged("the next object number of an image is taken")


def _check_partition(log: PartitionLog) -> None:
    where = f"partition number {log.number} of an image"
    end = log.chunks[-1].last + 1 if log.chunks else log.log_start
    if log.high_watermark != end or not 0 <= log.log_start <= end:
        raise StoreDamaged(
            f"{where} has log start {log.log_start}, high watermark {log.high_watermark} and runs up to {end}"
        )
    serials = [chunk.serial for chunk in log.chunks]
    if serials and serials != list(range(log.next_serial - len(serials), log.next_serial)):
        raise StoreDamaged(
            f"chunks of {where} are missing: there are {serials}, the next is {log.next_serial}"
        )
    for producer_id, producer in log.producers.items():
        if any(base >= log.high_watermark for _, _, base in producer.batches):
            raise StoreDamaged(f"producer {producer_id} of {where} has a batch behind the high watermark")


def _restore_meta(state: LedgerState, rows: list[tuple[bytes, bytes]]) -> None:
    ((_, value),) = rows
    head = _META.unpack_from(value)
    _, state.applied, state.epoch, state.entry_time_ms, state.next_number = head[:5]
    state.next_producer_id, state.files.next_number, state.files.floor_ms, cluster_bytes = head[5:]
    if len(value) != _META.size + cluster_bytes:
        raise StoreDamaged("the first row of an image does not have the length it claims")
    state.cluster_id = value[_META.size :].decode()


def _restore_partitions(
    state: LedgerState, rows: list[tuple[bytes, bytes]]
) -> dict[bytes, dict[int, PartitionLog]]:
    by_topic: dict[bytes, dict[int, PartitionLog]] = {}
    for key, value in rows:
        (number,) = _NUMBER.unpack(key)
        topic_id, index, log_start, high_watermark, layout, serial, deleted = _PARTITION.unpack(value)
        log = PartitionLog(number, TopicId(topic_id), index)
        log.log_start, log.high_watermark, log.layout_version = log_start, high_watermark, layout
        log.next_serial, log.deleted = serial, deleted
        state.logs[number] = log
        by_topic.setdefault(topic_id, {})[index] = log
    return by_topic


def _restore_topics(
    state: LedgerState, rows: list[tuple[bytes, bytes]], partitions: dict[bytes, dict[int, PartitionLog]]
) -> None:
    for _, value in rows:
        (created_ms,) = _TOPIC.unpack_from(value)
        (record,) = decode_records(memoryview(value)[_TOPIC.size :], 1)
        assert isinstance(record, TopicCreated)
        logs = partitions[record.topic_id]
        ordered = [logs[index] for index in range(record.partitions)]
        state.topics.add(Topic(record.name, record.topic_id, ordered, record.configs, created_ms))


def _restore_chunks(state: LedgerState, rows: list[tuple[bytes, bytes]]) -> None:
    for key, value in sorted(rows):
        number, serial = _NUMBER_SERIAL.unpack(key)
        trimmed, count = _CHUNK.unpack_from(value)
        chunk = RunChunk(serial, trimmed)
        chunk.fill(memoryview(value)[_CHUNK.size :], count)
        state.logs[number].put_back(chunk)


def _restore_producers(state: LedgerState, rows: list[tuple[bytes, bytes]]) -> None:
    for key, value in rows:
        number, producer_id = _NUMBER_PRODUCER.unpack(key)
        epoch, last_ms, count = _PRODUCER.unpack_from(value)
        packed = value[_PRODUCER.size :]
        if len(packed) != count * BATCH_BYTES:
            raise StoreDamaged("the row of a producer in an image does not have the length it claims")
        state.logs[number].producers[producer_id] = ProducerState(epoch, packed, last_ms)
        state.producer_count += 1


def _restore_objects(state: LedgerState, rows: list[tuple[bytes, bytes]]) -> None:
    for key, value in sorted(rows):
        (number,) = _NUMBER.unpack(key)
        size, live_runs, closed_ms, answers, locator_bytes = _OBJECT.unpack_from(value)
        view = memoryview(value)[_OBJECT.size :]
        stored = ObjectState(number, str(view[:locator_bytes], "utf-8"))
        view = view[locator_bytes:]
        stored.size, stored.live_runs, stored.closed_ms = size, live_runs, closed_ms
        split = answers * stored.starts.itemsize
        if len(view) != split + answers * stored.bases.itemsize:
            raise StoreDamaged("the row of an object in an image does not have the length it claims")
        stored.starts = _from_little("I", view[:split])
        stored.bases = _from_little("q", view[split:])
        state.files.put_back(stored)


def _restore_restores(state: LedgerState, rows: list[tuple[bytes, bytes]]) -> None:
    for _, value in sorted(rows):
        (record,) = decode_records(value, 1)
        assert isinstance(record, LedgerRestored)
        state.apply(record)


_RESTORE: Mapping[int, Callable[[LedgerState, bytes, bytes], None]] = {
    GROUP: restore_group,
    OFFSET: restore_offset,
    QUOTA: restore_quota,
    RESOURCE_CONFIG: restore_resource,
}

_SECTIONS = frozenset((META, TOPIC, PARTITION, CHUNK, PRODUCER, OBJECT, RESTORED, *_RESTORE))

ROW_HEAD = struct.Struct(">BHI")


def pack_rows(rows: Iterable[Row]) -> bytes:
    """Rows back to back: `u8 section | u16 key length | u32 value length | key | value`."""
    return b"".join(
        ROW_HEAD.pack(section, len(key), len(value or b"")) + key + (value or b"")
        for section, key, value in rows
    )


def unpack_rows(data: memoryview) -> Iterator[Row]:
    """The reverse of `pack_rows`. StoreDamaged if the lengths do not add up."""
    pos = 0
    while pos < len(data):
        if pos + ROW_HEAD.size > len(data):
            raise StoreDamaged("the rows of a snapshot are cut short")
        section, key_bytes, value_bytes = ROW_HEAD.unpack_from(data, pos)
        pos += ROW_HEAD.size
        end = pos + key_bytes + value_bytes
        if end > len(data):
            raise StoreDamaged("a row of a snapshot is cut short")
        yield Row(section, bytes(data[pos : pos + key_bytes]), bytes(data[pos + key_bytes : end]))
        pos = end
