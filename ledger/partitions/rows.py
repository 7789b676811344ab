"""Image rows of partitions, of their runs in chunks, and of their producers.

Numbers are big-endian, columns of runs are little-endian arrays of integers.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ledger.errors import StoreDamaged
from ledger.machine import Section
from ledger.partitions.logs import PartitionRange
from ledger.partitions.producers import BATCH_BYTES, ProducerState
from ledger.partitions.runs import RunChunk, RunsCopy
from ledger.partitions.state import PartitionLog
from ledger.records import LEVEL_WITH_ORIGINS
from ledger.rows import Row, sealed
from ledger.state import Dirty, LedgerState
from ledger.types import TopicId

PARTITION, CHUNK, PRODUCER = 2, 3, 4

_PARTITION = struct.Struct(">16siqqqI?")
_CHUNK = struct.Struct(">II")
_PRODUCER = struct.Struct(">hqH")
_NUMBER = struct.Struct(">I")
_NUMBER_SERIAL = struct.Struct(">II")
_NUMBER_PRODUCER = struct.Struct(">Iq")


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
    gone_chunks: Sequence[int]
    """Serials."""
    producers: Sequence[tuple[int, int, bytes, int]]
    """(producer id, epoch, packed batches, last time)."""
    narrow: bool
    """Runs are written as feature level 1 has them."""

    def rows(self) -> Iterator[Row]:
        number = self.log.number
        yield sealed(PARTITION, _NUMBER.pack(number), self._partition())
        for runs in self.chunks:
            yield sealed(
                CHUNK, _NUMBER_SERIAL.pack(number, runs.chunk.serial), _encode_chunk(runs, self.narrow)
            )
        yield from gone_chunk_rows(number, self.gone_chunks)
        for producer_id, epoch, packed, last_ms in self.producers:
            value = _encode_producer(ProducerState(epoch, packed, last_ms))
            yield sealed(PRODUCER, _NUMBER_PRODUCER.pack(number, producer_id), value)

    def row_keys(self) -> Iterator[tuple[int, Any]]:
        """(section, key) of each of these rows."""
        number = self.log.number
        yield PARTITION, number
        for runs in self.chunks:
            yield CHUNK, (number, runs.chunk.serial)
        for serial in self.gone_chunks:
            yield CHUNK, (number, serial)
        for producer_id, *_ in self.producers:
            yield PRODUCER, (number, producer_id)

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


def is_narrow(feature_level: int) -> bool:
    """Whether runs are written with object numbers of 32 bits."""
    return feature_level < LEVEL_WITH_ORIGINS


def copy_changes(log: PartitionLog, dirty: Dirty, narrow: bool) -> PartitionCopy:
    """What changed since the image was last written, but for the rows that `dirty` names."""
    grown, gone = {chunk.serial: chunk for chunk in log.grown_chunks()}, list[int]()
    for serial in dirty.chunks.pop(log.number, ()):
        if (chunk := log.chunk(serial)) is not None:
            grown[serial] = chunk
        else:
            gone.append(serial)
    chunks = [chunk.copy() for chunk in grown.values()]
    if dirty[CHUNK]:
        chunks = [copy for copy in chunks if (log.number, copy.chunk.serial) not in dirty[CHUNK]]
        gone = [serial for serial in gone if (log.number, serial) not in dirty[CHUNK]]
    unsaved: Iterable[int] = log.unsaved_producers or ()
    if dirty[PRODUCER]:
        # Among them all that are gone.
        unsaved = [producer_id for producer_id in unsaved if (log.number, producer_id) not in dirty[PRODUCER]]
    copy = _copy(log, chunks, unsaved, narrow)._replace(gone_chunks=gone)
    log.is_imaged()
    return copy


def copy_whole(log: PartitionLog, narrow: bool) -> PartitionCopy:
    """All of it."""
    return _copy(log, [chunk.copy() for chunk in log.chunks], log.producers, narrow)


def _copy(
    log: PartitionLog, chunks: Sequence[RunsCopy], producer_ids: Iterable[int], narrow: bool
) -> PartitionCopy:
    known = log.producers
    producers = [
        (producer_id, producer.epoch, producer.packed, producer.last_ms)
        for producer_id in producer_ids
        if (producer := known.get(producer_id)) is not None
    ]
    return PartitionCopy(
        log,
        log.log_start,
        log.high_watermark,
        log.layout_version,
        log.next_serial,
        log.deleted,
        chunks,
        (),
        producers,
        narrow,
    )


def note_in_partition(state: LedgerState, section: int, key: Any) -> bool:
    """Note in its partition that this row could not be written. False where the partition cannot
    say that: a producer that is gone, and the partition itself, is for `state.dirty` to name."""
    if section not in (CHUNK, PRODUCER):
        return False
    number, name = key
    log = state.logs.get(number)
    if log is None:
        return False
    if section == CHUNK:
        state.dirty.chunks.setdefault(number, set()).add(name)
    else:
        if name not in log.producers:
            return False
        log.is_not_saved(name)
    state.dirty[PARTITION].add(number)
    return True


def blank_row(found: PartitionRange, number: int) -> Row:
    """The row of a partition that nothing has ever concerned."""
    return sealed(PARTITION, _NUMBER.pack(number), _encode_blank(found, number))


def gone_row(number: int) -> Row:
    return Row(PARTITION, _NUMBER.pack(number), None)


def gone_chunk_rows(number: int, serials: Iterable[int]) -> Iterator[Row]:
    return (Row(CHUNK, _NUMBER_SERIAL.pack(number, serial), None) for serial in serials)


def _partitions(state: LedgerState) -> Iterable[int]:
    return state.logs.numbers()


def _chunks(state: LedgerState) -> Iterable[tuple[int, int]]:
    return ((number, chunk.serial) for number, log in state.logs.items() for chunk in log.chunks)


def _producers(state: LedgerState) -> Iterable[tuple[int, int]]:
    return ((number, producer_id) for number, log in state.logs.items() for producer_id in log.producers)


def _number_of(key: bytes) -> int:
    (number,) = _NUMBER.unpack(key)
    return int(number)


def _pack_serial(key: tuple[int, int]) -> bytes:
    return _NUMBER_SERIAL.pack(*key)


def _pack_producer(key: tuple[int, int]) -> bytes:
    return _NUMBER_PRODUCER.pack(*key)


def _partition_row(state: LedgerState, number: int) -> bytes | None:
    log = state.logs.get(number)
    if log is not None:
        return _encode_partition(log)
    found = state.logs.range_of(number)
    return _encode_blank(found, number) if found is not None else None


def _chunk_row(state: LedgerState, key: tuple[int, int]) -> bytes | None:
    number, serial = key
    log = state.logs.get(number)
    chunk = log.chunk(serial) if log is not None else None
    return _encode_chunk(chunk.copy(), is_narrow(state.feature_level)) if chunk is not None else None


def _producer_row(state: LedgerState, key: tuple[int, int]) -> bytes | None:
    number, producer_id = key
    log = state.logs.get(number)
    producer = log.producers.get(producer_id) if log is not None else None
    return _encode_producer(producer) if producer is not None else None


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


def _encode_blank(found: PartitionRange, number: int) -> bytes:
    return _PARTITION.pack(found.topic_id, found.index_of(number), 0, 0, 0, 0, False)


def _encode_chunk(chunk: RunsCopy, narrow: bool) -> bytes:
    head = _CHUNK.pack(chunk.chunk.trimmed + chunk.head, chunk.end - chunk.head)
    return b"".join([head, *chunk.columns(narrow)])


def _encode_producer(producer: ProducerState) -> bytes:
    batches = len(producer.packed) // BATCH_BYTES
    return _PRODUCER.pack(producer.epoch, producer.last_ms, batches) + producer.packed


class RestoredNumbers:
    """Numbers of the partitions of live topics, by index, until their topics are restored."""

    def __init__(self) -> None:
        self.by_topic: dict[TopicId, dict[int, int]] = {}
        self.count = 0


def _restore_partitions(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    restored = state.part(RestoredNumbers)
    for key, value in rows:
        (number,) = _NUMBER.unpack(key)
        topic_id, index, log_start, high_watermark, layout, serial, deleted = _PARTITION.unpack(value)
        if deleted:
            state.logs.deleted += 1
        else:
            restored.count += 1
            restored.by_topic.setdefault(TopicId(topic_id), {})[index] = number
            if not (log_start or high_watermark or layout or serial):
                continue
        log = PartitionLog(number, TopicId(topic_id), index)
        log.log_start, log.high_watermark, log.layout_version = log_start, high_watermark, layout
        log.next_serial, log.deleted = serial, deleted
        state.logs[number] = log


def _restore_chunks(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    narrow = is_narrow(state.image_level)
    for key, value in sorted(rows):
        number, serial = _NUMBER_SERIAL.unpack(key)
        trimmed, count = _CHUNK.unpack_from(value)
        chunk = RunChunk(serial, trimmed)
        chunk.fill(memoryview(value)[_CHUNK.size :], count, narrow)
        state.logs[number].put_back(chunk)


def _restore_producers(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    for key, value in rows:
        number, producer_id = _NUMBER_PRODUCER.unpack(key)
        epoch, last_ms, count = _PRODUCER.unpack_from(value)
        packed = value[_PRODUCER.size :]
        if len(packed) != count * BATCH_BYTES:
            raise StoreDamaged("the row of a producer in an image does not have the length it claims")
        state.logs[number].put_producer(producer_id, ProducerState(epoch, packed, last_ms))
        state.producer_count += 1


def complete(state: LedgerState) -> None:
    # Those of live topics are checked with these.
    if state.next_number <= max(state.logs, default=-1):
        raise StoreDamaged("the next partition number of an image is taken")
    for log in state.logs.values():
        _check_partition(log)
        log.is_imaged()
        if log.droppable(1):
            state.draining[log.number] = log


def _check_partition(log: PartitionLog) -> None:
    where = f"partition number {log.number} of an image"
    end = log.chunks[-1].last + 1 if log.chunks else log.log_start
    if log.high_watermark != end or not 0 <= log.log_start <= end:
        raise StoreDamaged(
            f"{where} has log start {log.log_start}, high watermark {log.high_watermark} and runs up to {end}"
        )
    serials = [chunk.serial for chunk in log.chunks]
    # Only swaps leave gaps, and then the objects know how many runs there are.
    is_whole = serials == list(range(log.next_serial - len(serials), log.next_serial))
    if serials and not is_whole and (not log.layout_version or serials[-1] >= log.next_serial):
        raise StoreDamaged(
            f"chunks of {where} are missing: there are {serials}, the next is {log.next_serial}"
        )
    for producer_id, producer in log.producers.items():
        if any(base >= log.high_watermark for _, _, base in producer.batches):
            raise StoreDamaged(f"producer {producer_id} of {where} has a batch after the high watermark")


SECTIONS = (
    Section(PARTITION, _partitions, _NUMBER.pack, _number_of, _partition_row, _restore_partitions),
    Section(CHUNK, _chunks, _pack_serial, _NUMBER_SERIAL.unpack, _chunk_row, _restore_chunks),
    Section(PRODUCER, _producers, _pack_producer, _NUMBER_PRODUCER.unpack, _producer_row, _restore_producers),
)
