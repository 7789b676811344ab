"""One commit of offsets in flight, without a task: completed by the shard, or at its deadline."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import structlog

from gateway.completion import Completion
from gateway.coordination.ledger import Ledger
from gateway.timers.deadlines import Deadlines
from ledger.errors import ErrorName, StoreUnavailable
from ledger.groups.requests import CommitOffsets, OffsetsStored
from ledger.groups.state import OffsetRow
from ledger.requests import LedgerResult, Refused

log = structlog.get_logger(__name__)

OUTCOME_UNKNOWN: Final = ErrorName.COORDINATOR_NOT_AVAILABLE
"""The outcome is unknown: the client repeats the request."""
NOT_COORDINATOR: Final = ErrorName.NOT_COORDINATOR
"""Certainly not committed: the client looks its coordinator up again."""


class OffsetCommit:
    """The shard's completion of one commit: completes its caller with an error's name for each row, NONE for
    a committed one. Once it is done, the shard drops what it has not begun of it."""

    __slots__ = ("_completion", "_deadlines", "_errors", "_left", "_refusal", "_tick")

    def __init__(self, completion: Completion[list[ErrorName]], deadlines: Deadlines) -> None:
        self._completion: Completion[list[ErrorName]] | None = completion
        self._deadlines = deadlines
        self._refusal: asyncio.Task[None] | None = None
        self._errors: list[ErrorName] = []
        self._left = 1
        """Parts without a result, and one while parts are being submitted."""
        self._tick = 0

    def done(self) -> bool:
        return self._completion is None

    def set_result(self, result: LedgerResult, /) -> None:
        self.end(_errors(result, len(self._errors)))

    def set_exception(self, error: Exception, /) -> None:
        """From the shard; or TimeoutError at the deadline: parts without a result are OUTCOME_UNKNOWN."""
        if type(error) is not TimeoutError:
            self._errors = [error_name(error)] * len(self._errors)
        elif self._refusal is not None:
            self._refusal.cancel()
        self.end(self._errors)

    def submit(self, shard: Ledger, request: CommitOffsets, deadline: float) -> None:
        """Commit all rows at once."""
        self._errors = [OUTCOME_UNKNOWN] * len(request.rows)
        shard.submit_for(self, request)
        if self._completion is not None:
            self._tick = self._deadlines.add(deadline, self)

    def submit_parts(
        self,
        shard: Ledger,
        group_id: str,
        rows: Sequence[OffsetRow],
        errors: list[ErrorName],
        parts: Sequence[list[int]],
        deadline: float,
    ) -> None:
        """Commit the rows of these parts (indexes of rows), each by a request of its own; `errors` of all
        others stay."""
        self._errors = errors
        self._left += len(parts)
        for part in parts:
            for i in part:
                errors[i] = OUTCOME_UNKNOWN
            shard.submit_for(_OffsetCommitPart(self, part), CommitOffsets(group_id, [rows[i] for i in part]))
        if self._left > 1:
            self._tick = self._deadlines.add(deadline, self)
        self._end_part()

    def refuse(
        self, confirm: Callable[[], Coroutine[Any, Any, list[ErrorName]]], count: int, deadline: float
    ) -> None:
        """Complete with what `confirm` returns for `count` rows. `confirm` is not called if the commit is
        cancelled at once."""
        self._errors = [OUTCOME_UNKNOWN] * count
        self._tick = self._deadlines.add(deadline, self)
        self._refusal = asyncio.get_running_loop().create_task(self._refuse(confirm))

    def refuse_part(self, confirm: Callable[[], Coroutine[Any, Any, ErrorName]], part: Sequence[int]) -> None:
        """Before `submit_parts`: complete these rows with what `confirm` returns."""
        self._left += 1
        self._refusal = asyncio.get_running_loop().create_task(self._refuse_part(confirm, part))

    async def _refuse_part(
        self, confirm: Callable[[], Coroutine[Any, Any, ErrorName]], part: Sequence[int]
    ) -> None:
        error = OUTCOME_UNKNOWN
        try:
            error = await confirm()
        except Exception:
            log.exception("offsets.proof_failed")
        self.complete_part(part, [error] * len(part))

    async def _refuse(self, confirm: Callable[[], Coroutine[Any, Any, list[ErrorName]]]) -> None:
        try:
            errors = await confirm()
        except Exception:
            log.exception("offsets.proof_failed")
            errors = self._errors
        self.end(errors)

    def _end_part(self) -> None:
        self._left -= 1
        if not self._left:
            self.end(self._errors)

    def complete_part(self, part: Sequence[int], errors: Sequence[ErrorName]) -> None:
        """The outcome of a part."""
        for i, error in zip(part, errors, strict=True):
            self._errors[i] = error
        self._end_part()

    def end(self, errors: list[ErrorName]) -> None:
        completion, self._completion = self._completion, None
        if self._tick:
            self._deadlines.remove(self._tick, self)
        if completion is None:
            return
        # An error here must not keep the shard from completing others.
        try:
            completion.set_result(errors)
        except asyncio.InvalidStateError:
            pass  # a future whose caller was cancelled in this iteration of the event loop
        except Exception:
            log.exception("offsets.not_told")

    def cancel(self) -> None:
        """The caller is not completed. What is in a journal entry already is committed."""
        self._completion = None
        if self._refusal is not None:
            self._refusal.cancel()
        if self._tick:
            self._deadlines.remove(self._tick, self)


class _OffsetCommitPart:
    """One of several requests to the shard."""

    __slots__ = ("_commit", "_rows")

    def __init__(self, commit: OffsetCommit, rows: Sequence[int]) -> None:
        self._commit = commit
        self._rows = rows

    def done(self) -> bool:
        return self._commit.done()

    def set_result(self, result: LedgerResult, /) -> None:
        self._commit.complete_part(self._rows, _errors(result, len(self._rows)))

    def set_exception(self, error: Exception, /) -> None:
        self._commit.complete_part(self._rows, [error_name(error)] * len(self._rows))


def _errors(result: LedgerResult, count: int) -> list[ErrorName]:
    if isinstance(result, OffsetsStored):
        none = ErrorName.NONE
        return [none if refused is None else refused.error for refused in result.results]
    assert isinstance(result, Refused), result
    return [result.error] * count


def error_name(error: BaseException) -> ErrorName:
    """The error's name that a client gets for a commit that failed in the store."""
    return NOT_COORDINATOR if isinstance(error, StoreUnavailable) else OUTCOME_UNKNOWN
