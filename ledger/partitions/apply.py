"""Applying the metadata records of offsets, runs and producers."""

from ledger.keys import is_placed
from ledger.objects.apply import announce
from ledger.objects.rows import OBJECT, UPLOADER
from ledger.objects.state import ObjectState
from ledger.objects.uploads import ObjectKind, Upload
from ledger.partitions.isolation_rows import drop_below_start
from ledger.partitions.producers import MAX_SEQUENCE, ProducerState
from ledger.partitions.records import (
    FileCommitted,
    ProducerIdsReserved,
    ProducersExpired,
    RecordsDeleted,
    RunsDropped,
)
from ledger.partitions.rows import CHUNK, PARTITION, PRODUCER
from ledger.partitions.state import PartitionLog
from ledger.state import Cut, LedgerState


def file_committed(state: LedgerState, record: FileCommitted) -> None:
    objects = state.objects
    if state.cut is not None:
        _keep(state, state.cut, record)
    stored = objects.register(record.locator, record.origin)
    objects.grow(stored, record.object_bytes)
    state.dirty[OBJECT].add(stored.number)
    object_number, logs, touched = stored.number, state.logs, state.touched
    starts: list[int] = []
    bases: list[int] = []
    now_ms, runs, left = state.entry_time_ms, iter(record.runs), 0
    for batch_size, records, _, producer_id, epoch, first, _ in record.batches:
        if not left:
            # The first batch of its run.
            number, start, size, base, last, max_timestamp, left = next(runs)
            log = touched[number] = logs[number]
            if log.append(object_number, start, size, base, last, max_timestamp):
                stored.live_runs += 1
        left -= 1
        starts.append(start)
        bases.append(base)
        if producer_id >= 0:
            producer = log.producers.get(producer_id)
            if producer is None:
                producer = ProducerState(epoch)
                log.put_producer(producer_id, producer)
                state.producer_count += 1
            # The last sequence wraps after 2^31 - 1.
            producer.record(epoch, first, (first + records - 1) & MAX_SEQUENCE, base, now_ms)
            unsaved = log.unsaved_producers
            if unsaved is None:
                unsaved = log.unsaved_producers = set()
            unsaved.add(producer_id)
        start += batch_size
        base += records
    if is_placed(record.locator):
        _placed(state, stored, record)
    else:
        objects.remember(stored, starts, bases)
    if record.upload is not None:
        _uploaded(state, record.upload, stored, min(starts), max(starts))
    state.dirty[PARTITION].update(touched)


def _keep(state: LedgerState, cut: Cut, record: FileCommitted) -> None:
    """What this commit is about to change."""
    known = state.objects.by_locator.get(record.locator)
    if known is not None:
        announce(state, [known.number])
    for run in record.runs:
        cut.keep(run[0])


def _placed(state: LedgerState, stored: ObjectState, record: FileCommitted) -> None:
    if stored.kind == ObjectKind.INLINE:
        for number, _, _, base, *_ in record.runs:
            state.objects.inline_runs.add(number, base)


def _uploaded(state: LedgerState, upload: Upload, stored: ObjectState, first: int, last: int) -> None:
    settled = state.objects.uploaded(upload, stored, first, last, state.entry_time_ms)
    announce(state, (known.number for known, _ in settled))
    for known, draft in settled:
        state.objects.drop_results(known, draft)
    state.dirty[OBJECT].update(known.number for known, _ in settled)
    state.dirty[UPLOADER].add(upload.uploader)


def records_deleted(state: LedgerState, record: RecordsDeleted) -> None:
    log = changing(state, record.number)
    log.log_start = record.log_start
    drop_below_start(state, log)
    state.touched[log.number] = log
    state.dirty[PARTITION].add(log.number)
    if log.droppable(1):
        state.draining[log.number] = log


def runs_dropped(state: LedgerState, record: RunsDropped) -> None:
    log = changing(state, record.number)
    numbers, emptied = log.drop(record.count)
    state.dirty[PARTITION].add(log.number)
    state.dirty[CHUNK].update((log.number, serial) for serial in emptied)
    if log.chunks:
        state.dirty[CHUNK].add((log.number, log.chunks[0].serial))
    announce(state, numbers)
    state.dirty[OBJECT].update(state.objects.release(numbers, state.entry_time_ms))
    if record.number in state.objects.inline_runs:
        first = next(log.runs(), None)
        end = first.base if first is not None else log.high_watermark
        state.objects.inline_runs.remove(record.number, 0, end - 1)
    if not log.droppable(1):
        del state.draining[log.number]
        if log.deleted:
            del state.logs[log.number]
            state.logs.deleted -= 1


def producer_ids_reserved(state: LedgerState, record: ProducerIdsReserved) -> None:
    state.next_producer_id = record.next_id


def producers_expired(state: LedgerState, record: ProducersExpired) -> None:
    for number, producer_id in record.pairs:
        if number in state.logs and changing(state, number).forget_producer(producer_id):
            state.producer_count -= 1
        state.dirty[PRODUCER].add((number, producer_id))


def changing(state: LedgerState, number: int) -> PartitionLog:
    """The partition of this number, before it changes."""
    if state.cut is not None:
        state.cut.keep(number)
    return state.logs[number]
