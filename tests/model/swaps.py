"""Swaps and pins as the model expects them: which request is taken, and which batches a segment holds."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from ledger.errors import ErrorName
from ledger.keys import created_ms
from ledger.requests import Done, LedgerResult, Refused, Request
from ledger.state import LedgerState
from ledger.swaps.requests import Pinned, ReleasePin, Swapped, SwapSegments, TakePin
from ledger.swaps.state import SwapKey
from ledger.types import TopicId
from tests.support.swapping import swap_of

JOBS = [bytes([number]) * 16 for number in (1, 2)]
Place = tuple[str, int]
Where = tuple[TopicId, int]


def key_of(request: SwapSegments) -> SwapKey:
    named = request.job, request.attempt, request.topic_id, request.partition
    return SwapKey(*named, request.first, request.last, request.layout_version)


@dataclass
class ModelSwaps:
    """What is durable. `pins`: the entry and the time of each; `kept`: log starts of first results."""

    pins: dict[bytes, Pinned] = field(default_factory=dict)
    kept: dict[SwapKey, int] = field(default_factory=dict)
    layouts: dict[Where, int] = field(default_factory=dict)
    copied: dict[Place, Sequence[Place]] = field(default_factory=dict)
    """By run of a segment: where its batches were at first."""

    @property
    def oldest_ms(self) -> int:
        return min([pin.started_ms for pin in self.pins.values()], default=2**63 - 1)


class SwapsOfAnEntry:
    """What one entry has decided so far."""

    def __init__(self, model: ModelSwaps, state: LedgerState, now_ms: int) -> None:
        self._model = model
        self._state = state
        self._now_ms = now_ms
        self._pins = dict(model.pins)
        self._results: dict[SwapKey, int] = {}
        self._named: set[str] = set()
        self._events: list[SwapKey | bytes] = []
        """Swaps that were taken, and jobs whose pins were released, in order."""
        self.busy: set[Where] = set()
        """Partitions of which runs were swapped or dropped."""
        self.grown: set[Where] = set()
        """Partitions to which batches were appended."""

    def judge_pin(self, request: TakePin | ReleasePin, result: LedgerResult) -> None:
        if isinstance(request, ReleasePin):
            assert result == Done(int(request.job in self._pins))
            if self._pins.pop(request.job, None) is not None:
                self._events.append(request.job)
            return
        pin = self._pins.setdefault(request.job, Pinned(self._state.applied, self._now_ms))
        assert result == pin

    def judge(self, request: SwapSegments, result: LedgerResult, log_start: int | None) -> set[int]:
        """`log_start` of the partition, None if that is not there. Returns the objects that lose runs."""
        key, where = key_of(request), (request.topic_id, request.partition)
        first = self._results.get(key, self._model.kept.get(key))
        if first is not None:
            assert result == Swapped(key.layout_version + 1, first, duplicate=True)
            return set()
        error = self._refusal(request, log_start)
        if error is not None:
            assert isinstance(result, Refused) and result.error == error, (error, result)
            return set()
        assert log_start is not None
        layout = self._model.layouts.get(where, 0)
        if request.last < log_start:
            assert result == Swapped(layout, log_start)
            return set()
        assert result == Swapped(layout + 1, log_start), result
        self._results[key] = log_start
        self._named.update(segment.locator for segment in request.segments)
        self._events.append(key)
        self.busy.add(where)
        span = self._state.topics.by_id[where[0]].partitions[where[1]].span(request.first, request.last)
        assert span is not None
        return set(span.objects())

    def _refusal(self, request: SwapSegments, log_start: int | None) -> ErrorName | None:
        where = request.topic_id, request.partition
        pin = self._pins.get(request.job)
        if pin is None:
            return ErrorName.UNKNOWN_MEMBER_ID
        if log_start is None:
            return ErrorName.UNKNOWN_TOPIC_OR_PARTITION
        if where in self.busy:
            return ErrorName.COORDINATOR_NOT_AVAILABLE
        if request.layout_version != self._model.layouts.get(where, 0):
            return ErrorName.INVALID_UPDATE_VERSION
        if request.last < log_start:
            return None
        locators = [segment.locator for segment in request.segments]
        if any(one in self._named or one in self._state.objects.by_locator for one in locators):
            return ErrorName.INVALID_REQUEST
        if any(created_ms(one) < pin.started_ms for one in locators):
            return ErrorName.KAFKA_STORAGE_ERROR
        return self._refusal_of_range(request, where)

    def _refusal_of_range(self, request: SwapSegments, where: Where) -> ErrorName | None:
        """Which runs there are, the model does not know."""
        runs = list(self._state.topics.by_id[where[0]].partitions[where[1]].runs())
        begins = request.first in [run.base for run in runs]
        if not begins or request.last not in [run.last for run in runs]:
            return ErrorName.INVALID_UPDATE_VERSION
        is_last = request.last == runs[-1].last
        return ErrorName.COORDINATOR_NOT_AVAILABLE if is_last and where in self.grown else None

    def end(self) -> None:
        model = self._model
        for event in self._events:
            if isinstance(event, bytes):
                model.kept = {key: start for key, start in model.kept.items() if key.job != event}
                continue
            model.kept[event] = self._results[event]
            model.layouts[event.topic_id, event.partition] = event.layout_version + 1
        model.pins = self._pins


def anything_of_swaps(
    choose: random.Random, state: LedgerState, planned: Sequence[SwapSegments], now_ms: int
) -> Request:
    """A plan of what is there now, an earlier one, or a request for a pin."""
    job, kind = choose.choice(JOBS), choose.random()
    if kind < 0.15:
        return TakePin(job)
    if kind < 0.25:
        return ReleasePin(job)
    if kind < 0.45 and planned:
        return choose.choice(planned)
    logs = [log for topic in state.topics.by_name.values() for log in topic.partitions[:] if log.run_count]
    if not logs:
        return TakePin(job)
    log = choose.choice(logs)
    runs = list(log.runs())
    first = choose.randrange(len(runs))
    some = runs[first : first + choose.randint(1, 7)]
    at_ms = max(now_ms, state.entry_time_ms)
    join, segments, attempt = choose.randint(1, 4), choose.randint(1, 2), choose.randrange(2)
    return swap_of(log, some, at_ms, join=join, segments=segments, job=job, attempt=attempt)
