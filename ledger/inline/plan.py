"""Which runs inside of entries go into an object together, and what becomes of them there."""

from collections.abc import Container, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from ledger.batch.header import read_header, walk_whole
from ledger.inline.requests import MAX_MOVED_RUNS, MAX_MOVES, MovedRun, MoveInline, RangeMove
from ledger.partitions.runs import Run, are_of_one_age, later_timestamp
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState
from ledger.types import Buffer, DraftBatch

MAX_RUN_BYTES: Final = 4 * 1024 * 1024
"""Joined runs are no larger: a fetch or a retention sees runs as wholes."""
MAX_RANGE_RUNS: Final = 500
MAX_LOOKED_AT: Final = 1_000
"""Runs, in one step."""
OBJECT_BYTES: Final = 16 * 1024 * 1024
"""No more go into one object: they are held in memory."""


class InlineRange(NamedTuple):
    """Adjacent live runs of a partition, all inside of entries."""

    log: PartitionLog
    runs: Sequence[Run]

    @property
    def size(self) -> int:
        return sum([run.size for run in self.runs])


def inline_ranges(state: LedgerState, log: PartitionLog) -> Iterator[InlineRange]:
    """All ranges of a partition, while its state does not change."""
    offset: int | None = 0
    while offset is not None:
        look = look_from(state, log, offset)
        yield from look.ranges
        offset = look.next_offset


class InlineLook(NamedTuple):
    """What is among some runs of a partition."""

    ranges: Sequence[InlineRange]
    """Each of at most MAX_RANGE_RUNS."""
    runs: int
    """That were looked at."""
    next_offset: int | None
    """Of the next look; None at the end."""


def look_from(state: LedgerState, log: PartitionLog, offset: int) -> InlineLook:
    """The ranges among MAX_LOOKED_AT runs of a partition, from the next one on that is inside of an entry."""
    base = _first_inline(state, log, max(offset, log.log_start))
    ranges, held = list[InlineRange](), list[Run]()
    if base is None or log.deleted:
        return InlineLook(ranges, 0, None)
    looked, inline = 0, state.objects.inline
    for run in islice(log.runs_from(base), MAX_LOOKED_AT):
        looked, offset = looked + 1, run.last + 1
        # A marker, which is in no object, is none of them.
        is_inline = run.object_number in inline
        if held and (not is_inline or len(held) == MAX_RANGE_RUNS or held[-1].last + 1 != run.base):
            ranges.append(InlineRange(log, held))
            held = []
        if is_inline:
            held.append(run)
    if held:
        ranges.append(InlineRange(log, held))
    return InlineLook(ranges, looked, offset if looked == MAX_LOOKED_AT else None)


class MissingLook(NamedTuple):
    """Which runs inside of entries are missing, among some runs of a partition."""

    end: int
    """Below this offset no other run is inside of an entry."""
    runs: int
    """That were looked at."""
    next_offset: int | None
    """Of the next look; None where a run begins that is not missing, or at the end."""


def look_past_missing(
    state: LedgerState, log: PartitionLog, offset: int, missing: Container[int]
) -> MissingLook:
    """As `look_from`, for a partition whose runs below `offset` are moved or missing. `missing`: numbers of
    objects whose bytes are not there."""
    look = look_from(state, log, offset)
    for found in look.ranges:
        for run in found.runs:
            if run.object_number not in missing:
                return MissingLook(offset, look.runs, None)
            offset = run.last + 1
    return MissingLook(offset, look.runs, look.next_offset)


def readable_end(state: LedgerState, log: PartitionLog, passed: int = 0) -> int:
    """The offset at which the first run begins that is inside of an entry and will be moved; the high
    watermark if there is none. What was inside of an entry that is lost is not waited for, nor anything below
    `passed`."""
    base = _first_inline(state, log, max(log.log_start, passed))
    return base if base is not None else log.high_watermark


def _first_inline(state: LedgerState, log: PartitionLog, offset: int) -> int | None:
    """Where the first run inside of an entry begins, of those that hold `offset` or are after it."""
    if log.number not in state.objects.inline_runs:
        return None
    run = next(log.runs_from(offset), None)
    return state.objects.inline_runs.first(log.number, run.base) if run is not None else None


def without(found: InlineRange, missing: Sequence[Run]) -> list[InlineRange]:
    """What is left of a range if these of its runs cannot be read."""
    gone, parts, held = set(missing), list[InlineRange](), list[Run]()
    for run in found.runs:
        if run not in gone:
            held.append(run)
        elif held:
            parts.append(InlineRange(found.log, held))
            held = []
    return [*parts, InlineRange(found.log, held)] if held else parts


def batches_of(found: InlineRange, run: Run, data: Buffer) -> Iterator[DraftBatch]:
    """The batches of a run. What is damaged comes as one batch, as it is: so it is no worse elsewhere."""
    topic_id, partition, view = found.log.topic_id, found.log.index, memoryview(data)
    end, left = 0, run.last - run.base + 1
    for batch in walk_whole(view):
        end, count = batch.position + batch.size_bytes, batch.last_offset_delta + 1
        if not 0 < count <= left:
            end = batch.position
            break
        left -= count
        header = read_header(view, batch.position)
        producer = header.producer_id, header.producer_epoch, header.base_sequence
        yield DraftBatch(topic_id, partition, view[batch.position : end], count, *producer)
    if end < len(view):
        yield DraftBatch(topic_id, partition, view[end:], max(left, 1))


def moved(found: InlineRange, starts: Sequence[int]) -> RangeMove:
    """The move of a range, of which each run begins at one of `starts` in the object. Runs that are adjacent
    there become one, if retention may see them as one."""
    runs: list[MovedRun] = []
    for run, start in zip(found.runs, starts, strict=True):
        before = runs[-1] if runs else None
        if before is not None and _goes_on(before, run, start):
            stamp = later_timestamp(before.max_timestamp, run.max_timestamp)
            runs[-1] = MovedRun(before.start, before.size + run.size, before.base, run.last, stamp)
        else:
            runs.append(MovedRun(start, run.size, run.base, run.last, run.max_timestamp))
    log = found.log
    return RangeMove(log.topic_id, log.index, runs[0].base, runs[-1].last, len(found.runs), runs)


def _goes_on(before: MovedRun, run: Run, start: int) -> bool:
    return (
        before.start + before.size == start
        and before.last + 1 == run.base
        and before.size + run.size <= MAX_RUN_BYTES
        and are_of_one_age(before.max_timestamp, run.max_timestamp)
    )


def requests_of(locator: str, object_bytes: int, moves: Sequence[RangeMove]) -> Iterator[MoveInline]:
    """One after the other, as an entry takes them."""
    part: list[RangeMove] = []
    replaced = 0
    # Of a partition one range can be moved in an entry.
    for move in moves:
        is_again = any(
            (each.topic_id, each.partition) == (move.topic_id, move.partition) for each in part[-1:]
        )
        if part and (is_again or len(part) == MAX_MOVES or replaced + move.replaced > MAX_MOVED_RUNS):
            yield MoveInline(locator, object_bytes, part)
            part, replaced = [], 0
        part.append(move)
        replaced += move.replaced
    if part:
        yield MoveInline(locator, object_bytes, part)
