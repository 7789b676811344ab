"""One commit of offsets under way, without a task: told by the shard, or by its deadline."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias

import structlog

from gateway.coordination.deadlines import Deadlines
from gateway.coordination.shard import Shard
from ledger.errors import StoreUnavailable
from ledger.groups import OffsetRow
from ledger.requests import Answer, CommitOffsets, OffsetsStored, Refused

log = structlog.get_logger(__name__)

NONE: Final = "NONE"
NOT_NOW: Final = "COORDINATOR_NOT_AVAILABLE"
"""Whether it was done is not known, or it could not be looked up: ask again."""
NOT_HERE: Final = "NOT_COORDINATOR"
"""For certain not done: look for the coordinator again."""

Tell: TypeAlias = Callable[[list[str]], None]
"""Gets one error's name a row, NONE for a committed one."""


class Commit:
    """Asks the shard and tells once, unless it is cancelled. What is over is not begun by the shard."""

    __slots__ = ("_deadlines", "_denying", "_errors", "_left", "_tell", "_tick")

    def __init__(self, tell: Tell, deadlines: Deadlines) -> None:
        self._tell: Tell | None = tell
        self._deadlines = deadlines
        self._denying: asyncio.Task[None] | None = None
        self._errors: list[str] = []
        self._left = 1
        """Parts that are not told, and one while parts are being submitted."""
        self._tick = 0

    def done(self) -> bool:
        return self._tell is None

    def set_result(self, answer: Answer, /) -> None:
        self.end(_errors(answer, len(self._errors)))

    def set_exception(self, error: Exception, /) -> None:
        self.end([why_not_stored(error)] * len(self._errors))

    def submit(self, shard: Shard, request: CommitOffsets, deadline: float) -> None:
        """Commit all rows at once."""
        self._errors = [NOT_NOW] * len(request.rows)
        shard.submit_for(self, request)
        if self._tell is not None:
            self._tick = self._deadlines.add(deadline, self)

    def submit_parts(
        self,
        shard: Shard,
        group_id: str,
        rows: Sequence[OffsetRow],
        errors: list[str],
        parts: Sequence[list[int]],
        deadline: float,
    ) -> None:
        """Commit the rows of these parts (indexes of rows), each by a request of its own; `errors` of all
        others stay."""
        self._errors = errors
        self._left += len(parts)
        for part in parts:
            for i in part:
                errors[i] = NOT_NOW
            shard.submit_for(_Part(self, part), CommitOffsets(group_id, [rows[i] for i in part]))
        if self._left > 1:
            self._tick = self._deadlines.add(deadline, self)
        self.part_told()

    def deny(self, proof: Callable[[], Coroutine[Any, Any, list[str]]], count: int, deadline: float) -> None:
        """Tell what the proof gives, for so many rows. It is not begun if this is cancelled at once."""
        self._errors = [NOT_NOW] * count
        self._tick = self._deadlines.add(deadline, self)
        self._denying = asyncio.get_running_loop().create_task(self._deny(proof))

    async def _deny(self, proof: Callable[[], Coroutine[Any, Any, list[str]]]) -> None:
        try:
            errors = await proof()
        except Exception:
            log.exception("offsets.proof_failed")
            errors = self._errors
        self.end(errors)

    def part_told(self) -> None:
        self._left -= 1
        if not self._left:
            self.end(self._errors)

    def note(self, part: Sequence[int], errors: Sequence[str]) -> None:
        """What became of a part."""
        for i, error in zip(part, errors, strict=True):
            self._errors[i] = error
        self.part_told()

    def end(self, errors: list[str]) -> None:
        tell, self._tell = self._tell, None
        if self._tick:
            self._deadlines.leave(self._tick, self)
        if tell is None:
            return
        # The shard goes on with others, whatever becomes of this one.
        try:
            tell(errors)
        except Exception:
            log.exception("offsets.not_told")

    def expire(self) -> None:
        """What is not told yet is not known."""
        if self._denying is not None:
            self._denying.cancel()
        self.end(self._errors)

    def cancel(self) -> None:
        """Nobody is told. What is in an entry already is committed."""
        self._tell = None
        if self._denying is not None:
            self._denying.cancel()
        if self._tick:
            self._deadlines.leave(self._tick, self)


class _Part:
    """What the shard tells of one of several requests."""

    __slots__ = ("_commit", "_rows")

    def __init__(self, commit: Commit, rows: Sequence[int]) -> None:
        self._commit = commit
        self._rows = rows

    def done(self) -> bool:
        return self._commit.done()

    def set_result(self, answer: Answer, /) -> None:
        self._commit.note(self._rows, _errors(answer, len(self._rows)))

    def set_exception(self, error: Exception, /) -> None:
        self._commit.note(self._rows, [why_not_stored(error)] * len(self._rows))


def _errors(answer: Answer, count: int) -> list[str]:
    if isinstance(answer, OffsetsStored):
        return [NONE if result is None else result.error for result in answer.results]
    assert isinstance(answer, Refused), answer
    return [answer.error] * count


def why_not_stored(error: BaseException) -> str:
    """The name of what a client is told."""
    return NOT_HERE if isinstance(error, StoreUnavailable) else NOT_NOW
