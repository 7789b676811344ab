"""Deciding which runs inside of entries an object takes the place of."""

from itertools import pairwise

from ledger.batch.header import HEADER_BYTES
from ledger.errors import ErrorName
from ledger.inline.records import InlineMoved, MovedRange
from ledger.inline.requests import MAX_MOVED_RUNS, MAX_MOVES, MoveInline, RangeMove
from ledger.keys import created_ms, is_wal
from ledger.machine import Decision
from ledger.objects.state import max_object_number
from ledger.objects.uploads import ObjectKind
from ledger.overlay import Overlay
from ledger.partitions.requests import StaleObject
from ledger.partitions.spans import RunSpan
from ledger.partitions.state import PartitionLog
from ledger.records import LEVEL_WITH_PLACED
from ledger.requests import Done, Refused
from ledger.state import LedgerState


def move_inline(state: LedgerState, overlay: Overlay, request: MoveInline, now_ms: int) -> Decision:
    if state.feature_level < LEVEL_WITH_PLACED:
        reason = f"the ledger has feature level {state.feature_level}, which has no batches inside of entries"
        return Decision(Refused(ErrorName.UNSUPPORTED_VERSION, reason))
    if flaw := _flaw(request):
        return Decision(Refused(ErrorName.INVALID_REQUEST, flaw))
    known = state.objects.by_locator.get(request.locator)
    is_closed = known is not None and (known.closed or known.number in overlay.touched_objects)
    if is_closed or created_ms(request.locator) < overlay.floor_ms:
        return Decision(StaleObject())
    is_new = known is None and request.locator not in overlay.object_bytes
    numbers = state.objects.next_number + overlay.new_objects
    if is_new and numbers > max_object_number(state.feature_level):
        return Decision(Refused(ErrorName.KAFKA_STORAGE_ERROR, "all numbers of objects are used up"))
    found = [(move, *there) for move in request.moves if (there := _find(state, overlay, move)) is not None]
    if not found:
        return Decision(Done(0))
    for _, log, span in found:
        overlay.swapped.add(log.number)
        overlay.touched_objects.update(span.objects())
    overlay.new_objects += is_new
    before = max(overlay.object_bytes.get(request.locator, 0), known.size if known is not None else 0)
    overlay.object_bytes[request.locator] = max(before, request.object_bytes)
    ranges = [
        MovedRange(log.number, move.first, move.last, move.replaced, move.runs) for move, log, _ in found
    ]
    return Decision(Done(len(ranges)), (InlineMoved(request.locator, request.object_bytes, ranges),))


def _find(state: LedgerState, overlay: Overlay, move: RangeMove) -> tuple[PartitionLog, RunSpan] | None:
    """The runs that are meant, if they are still there and nothing else in this entry concerns them."""
    topic = state.topics.by_id.get(move.topic_id)
    is_there = topic is not None and move.topic_id not in overlay.deleted
    if topic is None or not is_there or not 0 <= move.partition < len(topic.partitions):
        return None
    log = topic.partitions[move.partition]
    if log.number in overlay.swapped or log.number in overlay.dropped:
        return None
    span = log.span(move.first, move.last)
    if span is None or span.run_count() != move.replaced:
        return None
    # The last one of the partition may be among them: no run that is inside of an entry ever grows.
    objects = state.objects.by_number
    return (log, span) if all(objects[n].kind == ObjectKind.INLINE for n in span.objects()) else None


def _flaw(request: MoveInline) -> str:
    """What is wrong with it, whatever the ledger holds; else empty."""
    if not is_wal(request.locator):
        return f"{request.locator!r} is no key of a WAL object"
    replaced = sum(move.replaced for move in request.moves)
    if len(request.moves) > 1 and (len(request.moves) > MAX_MOVES or replaced > MAX_MOVED_RUNS):
        return f"a request moves at most {MAX_MOVES} ranges and {MAX_MOVED_RUNS:,} runs"
    return next((flaw for move in request.moves if (flaw := _range_flaw(move, request.object_bytes))), "")


def _range_flaw(move: RangeMove, object_bytes: int) -> str:
    runs = move.runs
    if not runs or (runs[0].base, runs[-1].last) != (move.first, move.last) or len(runs) > move.replaced:
        return f"offsets from {move.first} to {move.last} are in other runs"
    if any(before.last + 1 != run.base for before, run in pairwise(runs)):
        return f"the runs of offsets from {move.first} to {move.last} have gaps"
    for run in runs:
        if not (0 <= run.start <= run.start + run.size <= object_bytes and run.size >= HEADER_BYTES):
            return f"the run at {run.start} leaves the object"
        if not 0 <= run.base <= run.last:
            return f"offsets from {run.base} to {run.last} are no range"
    return ""
