"""One request of a producer that the shard has, without a task: completed by it, or at the deadline."""

from collections.abc import Callable
from typing import Final

import structlog

from gateway.completion import Completion
from gateway.coordination.ledger import Ledger
from gateway.timers.deadlines import Deadlines
from ledger.errors import ErrorName, StoreError
from ledger.requests import LedgerResult, Refused, Request

log = structlog.get_logger(__name__)

RETRIABLE: Final = ErrorName.COORDINATOR_NOT_AVAILABLE
"""Clients look the coordinator up and send the request again."""


class PendingRequest:
    """The shard's completion of one request: completes its caller with the result, or with RETRIABLE if the
    request failed or its outcome is unknown. Once it is done, the shard drops what it has not begun of it."""

    __slots__ = ("_completion", "_deadlines", "_observe", "_tick")

    def __init__(
        self,
        completion: Completion[LedgerResult],
        deadlines: Deadlines,
        observe: Callable[[LedgerResult], None],
    ) -> None:
        """`observe` gets the shard's result before the caller does."""
        self._completion: Completion[LedgerResult] | None = completion
        self._deadlines = deadlines
        self._observe = observe
        self._tick = 0

    def submit(self, shard: Ledger, request: Request, deadline: float) -> None:
        shard.submit_for(self, request)
        if self._completion is not None:
            self._tick = self._deadlines.add(deadline, self)

    def done(self) -> bool:
        return self._completion is None

    def set_result(self, result: LedgerResult, /) -> None:
        completion = self._taken()
        if completion is not None:
            self._complete(completion, result)

    def set_exception(self, error: Exception, /) -> None:
        """From the shard; or TimeoutError at the deadline."""
        completion = self._taken()
        if completion is None:
            return
        if isinstance(error, (StoreError, TimeoutError)):
            self._complete(completion, Refused(RETRIABLE, str(error)))
        else:
            completion.set_exception(error)

    def cancel(self) -> None:
        """The caller is not completed. What is in a journal entry already counts."""
        self._taken()

    def _taken(self) -> Completion[LedgerResult] | None:
        completion, self._completion = self._completion, None
        if self._tick:
            self._deadlines.remove(self._tick, self)
        return completion

    def _complete(self, completion: Completion[LedgerResult], result: LedgerResult) -> None:
        # An error here must not keep the shard from completing others, nor the caller from its result.
        try:
            try:
                self._observe(result)
            finally:
                if not completion.done():
                    completion.set_result(result)
        except Exception:
            log.exception("transactions.not_answered")
