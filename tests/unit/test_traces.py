"""Traces of requests: what a draft says of its stages, and how many requests are traced at most."""

import asyncio
from dataclasses import dataclass, field
from itertools import count

from gateway.telemetry.otel import MAX_TRACES_PER_S, OtelTraces
from gateway.telemetry.traces import Attributes, RequestTrace, TracedCompletion, trace_of_draft

NOWHERE = "http://127.0.0.1:1/v1/traces"


@dataclass(eq=False)
class Recorded:
    """A request whose stages are kept."""

    began_ns: int = 0
    stages: list[tuple[str, int, int, object]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def stage(self, name: str, began_ns: int, ended_ns: int, attributes: Attributes) -> None:
        self.stages.append((name, began_ns, ended_ns, attributes.get("dragoman.error")))

    def end(self, error: str) -> None:
        self.ended.append(error)


class Recording:
    """Traces with a clock that counts."""

    def __init__(self) -> None:
        self._clock = count(1)

    def now_ns(self) -> int:
        return next(self._clock)

    def begin(self, name: str, attributes: object) -> RequestTrace | None:
        return Recorded(self.now_ns())


def test_a_draft_without_sampled_requests_has_no_trace() -> None:
    assert trace_of_draft(Recording(), 1, [None, None]) is None


def test_a_request_with_several_batches_in_a_draft_has_its_stages_once() -> None:
    first, second = Recorded(), Recorded()
    draft = trace_of_draft(Recording(), 7, [first, None, first, second])
    assert draft is not None
    draft.stored()
    draft.end()
    expected = [
        ("draft.wait", 0, 1, None),
        ("segments.write", 1, 2, None),
        ("journal.commit", 2, 3, "NONE"),
    ]
    assert first.stages == second.stages == expected


def test_a_draft_that_fails_says_with_what() -> None:
    request = Recorded()
    draft = trace_of_draft(Recording(), 7, [request])
    assert draft is not None
    draft.end("StoreUnavailable")
    assert request.stages[-1] == ("journal.append", 1, 2, "StoreUnavailable")


async def test_a_trace_ends_before_its_response_may_start_other_requests() -> None:
    request = Recorded()
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    completion = TracedCompletion(request, answered, lambda: "NONE")
    assert not completion.done()
    completion.set_result(b"response")
    assert (await answered, request.ended) == (b"response", ["NONE"])


async def test_no_more_than_so_many_requests_a_second_are_traced() -> None:
    traces = OtelTraces(NOWHERE, 1, "0", 1)
    began = [traces.begin("Produce", dict) for _ in range(5 * MAX_TRACES_PER_S)]
    # They may be of two seconds.
    assert MAX_TRACES_PER_S <= sum(one is not None for one in began) <= 2 * MAX_TRACES_PER_S
    await traces.close()
