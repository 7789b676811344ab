"""How the result of a request reaches its caller, where the caller has no task that awaits it."""

from typing import Protocol, TypeVar

Result = TypeVar("Result", contravariant=True)


class Completion(Protocol[Result]):
    """Completion callback. Called exactly once, on the event loop, after the journal entry is durable.

    An `asyncio.Future` satisfies it. One of the two setters is called, unless the caller has cancelled the
    request before: then neither is. A completion may start further requests, and never raises.
    """

    def done(self) -> bool:
        """Whether no result is wanted any more: it was called, or the caller has cancelled the request."""
        ...

    def set_result(self, result: Result, /) -> None: ...

    def set_exception(self, error: Exception, /) -> None:
        """There will be no result. The component that calls this defines what each error means. The shard's
        StoreUnavailable means that nothing was done; after any other error of it the outcome is unknown."""
        ...


class Cancellable(Protocol):
    """A request under way. An `asyncio.Task` or `Future` satisfies it."""

    def cancel(self) -> object:
        """The result is not wanted any more, and the completion is not called."""
        ...
