"""Applying the metadata records of swaps and pins."""

from collections.abc import Sequence

from ledger.errors import StoreDamaged
from ledger.keys import created_ms
from ledger.objects.apply import announce
from ledger.objects.records import FloorRaised
from ledger.objects.rows import OBJECT
from ledger.objects.state import DATA_STORE, ObjectState, Origin
from ledger.objects.uploads import ObjectKind
from ledger.partitions.apply import changing
from ledger.partitions.rows import PARTITION
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState
from ledger.swaps.records import PinReleased, PinTaken, SegmentsSwapped
from ledger.swaps.requests import SegmentFile
from ledger.swaps.rows import PIN, SWAP_RESULT
from ledger.swaps.state import KeptResult, Pin, Pins, Place, SwapKey, SwapResults


def segments_swapped(state: LedgerState, record: SegmentsSwapped) -> None:
    """StoreDamaged if the partition is not as it was when this was decided: the entry is applied for the
    second time, or to another state."""
    log = changing(state, record.number)
    span = log.span(record.first, record.last)
    expected = record.layout_version - 1, record.replaced
    if span is None or (log.layout_version, span.run_count()) != expected:
        raise StoreDamaged(
            f"runs {record.first} to {record.last} of partition number {record.number} are swapped, and its "
            f"layout version {log.layout_version} has no such runs"
        )
    segments = [_register(state, segment) for segment in record.segments]
    runs = [
        Run(base, last, segments[at].number, start, size, max_timestamp, dense=False)
        for at, start, size, base, last, max_timestamp in record.runs
    ]
    released = span.objects()
    state.dirty.chunks.setdefault(log.number, set()).update(log.replace(span, runs))
    log.layout_version = record.layout_version
    # No plan of a job has runs that are inside of entries. One that has is not refused.
    state.objects.inline_runs.remove(log.number, record.first, record.last)
    for run in record.runs:
        segments[run.segment].live_runs += 1
    _release(state, released, segments)
    state.dirty[PARTITION].add(log.number)
    if log.droppable(1):
        state.draining[log.number] = log
    else:
        state.draining.pop(log.number, None)
    _keep_result(state, log, record)


def _register(state: LedgerState, segment: SegmentFile) -> ObjectState:
    origin = Origin(ObjectKind.SEGMENT, DATA_STORE, created_ms(segment.locator), None)
    stored = state.objects.register(segment.locator, origin)
    stored.size = segment.object_bytes
    state.dirty[OBJECT].add(stored.number)
    return stored


def _release(state: LedgerState, released: Sequence[int], segments: Sequence[ObjectState]) -> None:
    announce(state, set(released))
    state.dirty[OBJECT].update(state.objects.release(released, state.entry_time_ms))
    for stored in segments:
        # All that it has may be below the log start by now.
        state.objects.close_if_empty(stored, state.entry_time_ms)


def _keep_result(state: LedgerState, log: PartitionLog, record: SegmentsSwapped) -> None:
    results, pin = state.part(SwapResults), state.part(Pins).get(record.job)
    of_job, before = (record.job, record.attempt), record.layout_version - 1
    key = SwapKey(*of_job, log.topic_id, log.index, record.first, record.last, before)
    started_ms = pin.started_ms if pin is not None else state.entry_time_ms
    _drop(state, results.overflowing())
    place = state.applied, log.number
    results.keep(place, KeptResult(key, log.log_start, started_ms))
    state.dirty[SWAP_RESULT].add(place)


def pin_taken(state: LedgerState, record: PinTaken) -> None:
    pins = state.part(Pins)
    pins[record.job] = Pin(state.applied, state.entry_time_ms)
    state.objects.pinned_ms = pins.oldest_ms
    state.dirty[PIN].add(record.job)


def pin_released(state: LedgerState, record: PinReleased) -> None:
    pins = state.part(Pins)
    pins.pop(record.job, None)
    state.objects.pinned_ms = pins.oldest_ms
    state.dirty[PIN].add(record.job)
    _drop(state, state.part(SwapResults).of_job(record.job))


def floor_raised(state: LedgerState, record: FloorRaised) -> None:
    _drop(state, state.part(SwapResults).below(record.floor_ms))


def _drop(state: LedgerState, places: Sequence[Place]) -> None:
    if state.cut is not None:
        for place in places:
            state.cut.keep_row(SWAP_RESULT, place)
    state.part(SwapResults).drop(places)
    state.dirty[SWAP_RESULT].update(places)
