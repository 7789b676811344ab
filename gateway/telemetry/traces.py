"""Traces of Produce requests: how long one waited for its draft, for the segment store and for the journal.

A request that is not sampled costs a comparison. A sampled one notes times; its spans are made when they have
ended. `gateway/telemetry/otel.py` has the SDK of OpenTelemetry, which is loaded only where traces are
enabled.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from gateway.completion import Completion

CANCELLED: Final = "CANCELLED"
"""As in the metrics: the client left before it had a response."""
NO_ERROR: Final = "NONE"

Attributes: TypeAlias = Mapping[str, str | int | bool]


class RequestTrace(Protocol):
    """The span of one sampled request."""

    began_ns: int
    """Unix time, as all times here."""

    def stage(self, name: str, began_ns: int, ended_ns: int, attributes: Attributes) -> None:
        """Add a span below it, which has ended."""
        ...

    def end(self, error: str) -> None:
        """The request has its response, or will not have one. Nothing happens if it has ended."""
        ...


class Traces(Protocol):
    def now_ns(self) -> int: ...

    def begin(self, name: str, attributes: Callable[[], Attributes]) -> RequestTrace | None:
        """A request begins; None if it is not sampled."""
        ...


class DraftTrace:
    """The stages of one draft, which belong to every sampled request that has batches in it."""

    __slots__ = ("_attributes", "_now_ns", "_requests", "_stored_ns", "_taken_ns")

    def __init__(
        self, number: int, batches: int, requests: Iterable[RequestTrace], now_ns: Callable[[], int]
    ) -> None:
        self._attributes: dict[str, str | int | bool] = {
            "dragoman.draft": number,
            "dragoman.draft.batches": batches,
        }
        self._requests = requests
        self._now_ns = now_ns
        self._taken_ns = now_ns()
        self._stored_ns = 0

    def stored(self) -> None:
        """Its batches are in the segment store, or that has failed."""
        self._stored_ns = self._now_ns()

    def end(self, error: str = NO_ERROR) -> None:
        """Its journal entry is durable, or the draft has failed. Called before the requests are completed."""
        ended_ns, stored_ns, taken_ns = self._now_ns(), self._stored_ns, self._taken_ns
        attributes = {**self._attributes, "dragoman.error": error}
        for request in self._requests:
            request.stage("draft.wait", request.began_ns, taken_ns, self._attributes)
            if not stored_ns:
                # One write of the journal has taken batches and entry.
                request.stage("journal.append", taken_ns, ended_ns, attributes)
            else:
                request.stage("segments.write", taken_ns, stored_ns, self._attributes)
                request.stage("journal.commit", stored_ns, ended_ns, attributes)


def trace_of_draft(traces: Traces, number: int, requests: Iterable[RequestTrace | None]) -> DraftTrace | None:
    """`requests`: of each batch. None if none of them is sampled."""
    sampled: dict[RequestTrace, None] = {}
    batches = 0
    for request in requests:
        batches += 1
        if request is not None:
            sampled[request] = None
    return DraftTrace(number, batches, tuple(sampled), traces.now_ns) if sampled else None


class TracedCompletion:
    """Ends the trace of a request with its response."""

    __slots__ = ("_completion", "_error", "_trace")

    def __init__(self, trace: RequestTrace, completion: Completion[Any], error: Callable[[], str]) -> None:
        self._trace = trace
        self._completion = completion
        self._error = error

    def done(self) -> bool:
        return self._completion.done()

    def set_result(self, result: Any, /) -> None:
        self._trace.end(self._error())
        self._completion.set_result(result)

    def set_exception(self, error: Exception, /) -> None:
        self._trace.end(type(error).__name__)
        self._completion.set_exception(error)
