"""Deciding swaps and pins."""

from typing import Final, NamedTuple

from ledger.batch.header import HEADER_BYTES
from ledger.errors import ErrorName
from ledger.keys import created_ms, segment_name
from ledger.machine import Decision
from ledger.objects.state import max_object_number
from ledger.overlay import Overlay
from ledger.partitions.markers import MAX_PRODUCER_ID, marker_run
from ledger.partitions.spans import RunSpan
from ledger.partitions.state import PartitionLog
from ledger.records import LEVEL_WITH_SEGMENTS
from ledger.requests import Done, Refused
from ledger.state import LedgerState
from ledger.swaps.records import PinReleased, PinTaken, SegmentsSwapped
from ledger.swaps.requests import (
    JOB_BYTES,
    MAX_SEGMENT_BYTES,
    MAX_SWAPPED_RUNS,
    SEGMENT_HEAD_BYTES,
    SEGMENT_TRAILER_BYTES,
    Pinned,
    ReleasePin,
    SwapMarker,
    Swapped,
    SwapSegments,
    TakePin,
)
from ledger.swaps.state import MAX_PINS, Pin, Pins, SwapKey, SwapResults, SwapsOfEntry

MAX_CHUNK_RUNS: Final = 4_096
"""No swap leaves a chunk with more, where a few runs become very many."""
_I32 = 2**31
_I64 = 2**63
_STALE = ErrorName.INVALID_UPDATE_VERSION
_NO_PIN = "the job has no pin: it has expired, or the ledger was restored or moved meanwhile; begin again"


def swap_segments(state: LedgerState, overlay: Overlay, request: SwapSegments, now_ms: int) -> Decision:
    key = SwapKey(
        request.job,
        request.attempt,
        request.topic_id,
        request.partition,
        request.first,
        request.last,
        request.layout_version,
    )
    log_start = overlay.part(SwapsOfEntry).results.get(key)
    if log_start is None and (kept := state.part(SwapResults).of(key)) is not None:
        log_start = kept.log_start
    if log_start is not None:
        return Decision(Swapped(key.layout_version + 1, log_start, duplicate=True))
    found = _find(state, overlay, request)
    if isinstance(found, Refused | Swapped):
        return Decision(found)
    return _swapped(state, overlay, request, key, found)


class _Found(NamedTuple):
    log: PartitionLog
    span: RunSpan
    log_start: int


def _find(state: LedgerState, overlay: Overlay, request: SwapSegments) -> Refused | Swapped | _Found:
    """What may be swapped, or the result without a record."""
    if state.feature_level < LEVEL_WITH_SEGMENTS:
        return _refused_level(state, "segments")
    if flaw := _flaw(request):
        return Refused(ErrorName.INVALID_REQUEST, flaw)
    pin = _pin_of(state.part(Pins), overlay.part(SwapsOfEntry).pins, request.job)
    if pin is None:
        return Refused(ErrorName.UNKNOWN_MEMBER_ID, _NO_PIN)
    topic = state.topics.by_id.get(request.topic_id)
    is_there = topic is not None and request.topic_id not in overlay.deleted
    if topic is None or not is_there or not 0 <= request.partition < len(topic.partitions):
        return Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)
    log = topic.partitions[request.partition]
    if log.number in overlay.swapped or log.number in overlay.dropped:
        return _busy("other runs of the partition are taken away")
    if request.layout_version != log.layout_version:
        reason = f"the partition's layout version is {log.layout_version} by now: plan again"
        return Refused(_STALE, reason)
    log_start = overlay.log_start.get(log.number, log.log_start)
    if request.last < log_start:
        return Swapped(log.layout_version, log_start)
    return _segments_refused(state, overlay, request, pin) or _in_partition(overlay, request, log, log_start)


def _in_partition(
    overlay: Overlay, request: SwapSegments, log: PartitionLog, log_start: int
) -> Refused | _Found:
    span = log.span(request.first, request.last)
    if span is None:
        reason = f"no runs begin with {request.first} and end with {request.last}: plan again"
        return Refused(_STALE, reason)
    if span.is_last and log.number in overlay.next_offset:
        return _busy("the last run of the partition may go on")
    # Each chunk has a live run at least.
    chunks = span.end - span.begin
    if chunks > MAX_SWAPPED_RUNS + 2 or span.run_count() > MAX_SWAPPED_RUNS:
        return Refused(ErrorName.INVALID_REQUEST, f"a swap covers at most {MAX_SWAPPED_RUNS:,} runs")
    if span.kept + len(request.runs) > MAX_CHUNK_RUNS * chunks:
        return Refused(ErrorName.INVALID_REQUEST, "so few runs cannot become so many: make larger ones")
    begin = request.runs[0].base
    if begin != request.first and begin > log_start:
        return Refused(ErrorName.INVALID_REQUEST, f"offsets from {request.first} are in no run of a segment")
    if flaw := _markers_flaw(span, request):
        return Refused(ErrorName.INVALID_REQUEST, flaw)
    return _Found(log, span, log_start)


def _markers_flaw(span: RunSpan, request: SwapSegments) -> str:
    """What is wrong with the markers of a swap; else empty."""
    # Those before it were dropped meanwhile.
    given = [marker for marker in request.markers if marker.offset >= span.base]
    live = span.markers()
    if len(given) != len(live):
        return f"{len(live)} ends of transactions are there, and the swap has {len(given)}"
    runs = iter(request.runs)
    run = next(runs)
    for run_of_marker, marker in zip(live, given, strict=True):
        offset, producer_id, epoch, is_commit, timestamp = marker
        if run_of_marker != marker_run(producer_id, epoch, is_commit, offset, timestamp):
            return f"the end of a transaction at offset {run_of_marker.base} is another than {marker}"
        while run.last < offset:
            run = next(runs)
        if offset < run.base:
            return f"the end of a transaction at offset {offset} is in no run of a segment"
    return ""


def _segments_refused(
    state: LedgerState, overlay: Overlay, request: SwapSegments, pin: Pin
) -> Refused | None:
    for locator, _ in request.segments:
        if locator in state.objects.by_locator or locator in overlay.object_bytes:
            return Refused(
                ErrorName.INVALID_REQUEST, f"{locator} was named before: keys are never used again"
            )
        # No floor passes a pin, so the sweep may not have deleted it.
        if created_ms(locator) < pin.started_ms:
            reason = f"{locator} is older than the pin of its job: store it again under a new key"
            return Refused(ErrorName.KAFKA_STORAGE_ERROR, reason)
    numbers = state.objects.next_number + overlay.new_objects + len(request.segments) - 1
    if numbers > max_object_number(state.feature_level):
        return Refused(ErrorName.KAFKA_STORAGE_ERROR, "all numbers of objects are used up")
    return None


def _swapped(
    state: LedgerState, overlay: Overlay, request: SwapSegments, key: SwapKey, found: _Found
) -> Decision:
    log, span, log_start = found
    layout_version = log.layout_version + 1
    record = SegmentsSwapped(
        log.number,
        request.job,
        request.attempt,
        request.first,
        request.last,
        layout_version,
        span.run_count(),
        request.segments,
        [run for run in request.runs if run.last >= log_start],
    )
    overlay.swapped.add(log.number)
    overlay.touched_objects.update(span.objects())
    overlay.new_objects += len(request.segments)
    overlay.object_bytes.update(request.segments)
    overlay.part(SwapsOfEntry).results[key] = log_start
    return Decision(Swapped(layout_version, log_start), (record,))


def _busy(reason: str) -> Refused:
    return Refused(ErrorName.COORDINATOR_NOT_AVAILABLE, f"in the same journal entry {reason}: try again")


def _refused_level(state: LedgerState, what: str) -> Refused:
    return Refused(
        ErrorName.UNSUPPORTED_VERSION,
        f"the ledger has feature level {state.feature_level}, and {what} need level {LEVEL_WITH_SEGMENTS}: "
        f"start the gateway once with ledger.feature_level = {LEVEL_WITH_SEGMENTS}",
    )


def _flaw(request: SwapSegments) -> str:
    """What is wrong with it, whatever the ledger holds; else empty. All that passes can be journaled."""
    if len(request.job) != JOB_BYTES or not -_I32 <= request.attempt < _I32:
        return f"a job has an id of {JOB_BYTES} bytes, and attempts of 32 bits"
    if not 0 <= request.first <= request.last < _I64:
        return f"offsets from {request.first} to {request.last} are no range"
    if not 1 <= len(request.segments) <= len(request.runs) <= MAX_SWAPPED_RUNS:
        return f"a swap enters 1 to {MAX_SWAPPED_RUNS:,} runs, in as many segments at most"
    if request.runs[-1].last != request.last:
        return f"offsets up to {request.last} are in no run of a segment"
    if any(not _is_marker(marker) for marker in request.markers):
        return "an end of a transaction that cannot be"
    return _segments_flaw(request) or _runs_flaw(request)


def _is_marker(marker: SwapMarker) -> bool:
    return 0 <= marker.producer_id <= MAX_PRODUCER_ID and 0 <= marker.epoch < 2**15


def _segments_flaw(request: SwapSegments) -> str:
    for locator, object_bytes in request.segments:
        name = segment_name(locator)
        if name is None or (name.topic_id, name.partition) != (request.topic_id, request.partition):
            return f"{locator!r} is no key of a segment of this partition"
        if not SEGMENT_HEAD_BYTES + SEGMENT_TRAILER_BYTES < object_bytes <= MAX_SEGMENT_BYTES:
            return f"{locator} has {object_bytes} bytes"
    if len({locator for locator, _ in request.segments}) < len(request.segments):
        return "a segment is named twice"
    return ""


def _runs_flaw(request: SwapSegments) -> str:
    at, end, offset = -1, 0, request.first
    for segment, start, size, base, last, max_timestamp in request.runs:
        if segment != at or segment < 0:
            if segment != at + 1 or segment >= len(request.segments):
                return "segments are not in the order of their runs"
            at, end = segment, SEGMENT_HEAD_BYTES
        if start < end or size < HEADER_BYTES:
            return f"the run at {start} of segment {at} is no run, or not behind the one before"
        end = start + size
        if end > request.segments[at].object_bytes - SEGMENT_TRAILER_BYTES:
            return f"the run at {start} of segment {at} leaves the segment"
        if not offset <= base <= last <= request.last:
            return f"offsets {base} to {last} of a run are not behind those of the one before"
        if not -_I64 <= max_timestamp < _I64:
            return f"{max_timestamp} is no timestamp"
        offset = last + 1
    return "" if at == len(request.segments) - 1 else f"segment {at + 1} has no run"


def take_pin(state: LedgerState, overlay: Overlay, request: TakePin, now_ms: int) -> Decision:
    if state.feature_level < LEVEL_WITH_SEGMENTS:
        return Decision(_refused_level(state, "pins"))
    if len(request.job) != JOB_BYTES:
        return Decision(Refused(ErrorName.INVALID_REQUEST, f"a job has an id of {JOB_BYTES} bytes"))
    pins, decided = state.part(Pins), overlay.part(SwapsOfEntry).pins
    pin = _pin_of(pins, decided, request.job)
    if pin is not None:
        return Decision(Pinned(*pin))
    living = len(pins) + sum((pin is not None) - (job in pins) for job, pin in decided.items())
    if living >= MAX_PINS:
        return Decision(Refused(ErrorName.POLICY_VIOLATION, f"{MAX_PINS} jobs have a pin: end others first"))
    decided[request.job] = pin = Pin(state.applied, now_ms)
    return Decision(Pinned(*pin), (PinTaken(request.job),))


def release_pin(state: LedgerState, overlay: Overlay, request: ReleasePin, now_ms: int) -> Decision:
    decided = overlay.part(SwapsOfEntry).pins
    if _pin_of(state.part(Pins), decided, request.job) is None:
        return Decision(Done(0))
    decided[request.job] = None
    return Decision(Done(1), (PinReleased(request.job),))


def _pin_of(pins: Pins, decided: dict[bytes, Pin | None], job: bytes) -> Pin | None:
    return decided[job] if job in decided else pins.get(job)
