"""Requests to one bucket: deadlines, retries within a budget, hedges, and a bound on what is under way."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from adapters.hedging import SHARE, Attempts, Hedges, Verdict
from adapters.retries import MAX_TRIES, RetryBudget, retry_wait_s
from adapters.s3.failures import Request, too_long, uncertain
from adapters.s3.results import (
    Absent,
    Failed,
    Found,
    OutOfRange,
    Page,
    PutResult,
    Refused,
    Stored,
    judge_other,
    judge_own_put,
    judge_put,
    put_outcome,
)
from adapters.s3.transport import PAGE, Transport
from adapters.turns import turn
from ledger.errors import OutcomeUnknown, StoreUnavailable

T = TypeVar("T")
R = TypeVar("R")

DEADLINE_S: Final = 30.0
ATTEMPT_S: Final = 8.0
SLOWEST_BYTES_A_S: Final = 2 * 1024 * 1024
"""An attempt gets ATTEMPT_S, and the time in which its bytes pass at this rate."""
AT_ONCE: Final = 128
"""Requests that change something."""
READS_AT_ONCE: Final = 160
"""Those that read have places of their own, so that a PUT does not wait for objects that are slow to come.
There are more than a SegmentStore takes at once, so that there is one for metadata."""
MAX_WAITING: Final = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one client."""

    deadline_s: float = DEADLINE_S
    """Of a call, retries included; more for large objects, at the slowest rate."""
    attempt_s: float = ATTEMPT_S
    hedge_share: float = SHARE
    at_once: int = AT_ONCE
    reads_at_once: int = READS_AT_ONCE
    max_waiting: int = MAX_WAITING


class _Call:
    """One call and what is known of its effect."""

    __slots__ = ("hedged", "request", "size", "timeouts", "uncertain")

    def __init__(self, request: Request, size: int = 0, hedged: bool = True) -> None:
        self.request = request
        self.size = size
        """Bytes that it moves, as far as known: decides its time and with which calls it is compared."""
        self.hedged = hedged
        """It may be sent twice, since it is known what it is compared with."""
        self.uncertain = False
        """An attempt may have had its effect, or may still have it."""
        self.timeouts: list[asyncio.Timeout] = []
        """Of the call and of the attempts under way."""

    def seconds(self, limit_s: float) -> float:
        """Of the call or of an attempt, with what its bytes take."""
        return limit_s + self.size / SLOWEST_BYTES_A_S

    def learn(self, size: int) -> None:
        """The store has said how many bytes follow."""
        more_s = (size - self.size) / SLOWEST_BYTES_A_S
        if more_s <= 0.0:
            return
        self.size = size
        for timeout in self.timeouts:
            due = timeout.when()
            if due is not None and not timeout.expired():
                timeout.reschedule(due + more_s)

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """Until then, or later by as much as is learned meanwhile. Errors: TimeoutError."""
        async with asyncio.timeout(seconds) as timeout:
            self.timeouts.append(timeout)
            try:
                yield
            finally:
                self.timeouts.remove(timeout)

    @property
    def reads(self) -> bool:
        return self.request.operation in ("get", "list")

    @property
    def kind(self) -> str:
        """Operation and order of magnitude."""
        return f"{self.request.operation} {max(self.size >> 16, 1).bit_length()}"


class S3Client:
    """May be shared by all adapters of a bucket. Errors: StoreUnavailable if a call certainly had no effect,
    OutcomeUnknown if it may have had one; a call that changes nothing raises only the former."""

    def __init__(
        self,
        transport: Transport,
        name: str,
        limits: Limits | None = None,
        dice: Callable[[], float] = random.random,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        """`name` of the bucket, for messages. `dice`: numbers in [0, 1). `on_close`: called when the last
        adapter has left."""
        self._transport = transport
        self._name = name
        self._limits = limits or Limits()
        self._dice = dice
        self._budget = RetryBudget()
        self._hedges = Hedges(self._limits.hedge_share)
        self._write_places = asyncio.Semaphore(self._limits.at_once)
        self._read_places = asyncio.Semaphore(self._limits.reads_at_once)
        self._waiting = 0
        """Calls under way, also those that wait for a place."""
        self._ended: asyncio.Future[None] | None = None
        self._on_close = on_close
        self._users = 0

    def enter(self) -> None:
        """An adapter uses this client, until it leaves."""
        self._users += 1

    async def leave(self) -> None:
        """The last one returns when the calls under way have ended."""
        self._users -= 1
        if self._users:
            return
        try:
            if self._waiting:
                self._ended = asyncio.get_running_loop().create_future()
                await self._ended
        finally:
            if self._on_close is not None:
                self._on_close()

    @property
    def name(self) -> str:
        return self._name

    async def put(self, key: str, data: bytes, expect: str | None, *, own: bool = False) -> Stored | Refused:
        """Write if the present ETag is `expect`; None = the key must not exist. `own`: the key was made for
        this put alone."""
        call = _Call(Request(self._name, "put", key), len(data))

        async def attempt() -> PutResult:
            return await self._bounded(call, self._transport.put(key, data, expect))

        return await self._call(call, attempt, judge_own_put if own else judge_put, put_outcome)

    async def get(
        self, key: str, start: int = 0, size: int | None = None, most: int | None = None
    ) -> Found | Absent | OutOfRange:
        """The bytes [start, start + size), or to the end. `most`: what is longer is not read, and
        StoreUnavailable. Without `size` the time follows from the length that the store says."""
        request = Request(self._name, "get", key)
        call = _Call(request, size or 0, hedged=size is not None or most is not None)

        def accept(length: int) -> Failed | None:
            if most is not None and length > most:
                return too_long(request, length, most)
            call.learn(length)
            return None

        return await self._read(call, lambda: self._transport.get(key, start, size, accept))

    async def size(self, key: str) -> int | Absent:
        call = _Call(Request(self._name, "get", key))
        return await self._read(call, lambda: self._transport.size(key))

    async def page(self, directory: str, after: str) -> Page:
        """At most PAGE objects below the directory whose key is > `after`, in the order of the store."""
        call = _Call(Request(self._name, "list", directory))
        return await self._read(call, lambda: self._transport.page(directory, after))

    async def level(self, directory: str) -> Page:
        """All that is directly in the directory."""
        call = _Call(Request(self._name, "list", directory))
        return await self._read(call, lambda: self._transport.level(directory))

    async def delete(self, keys: Sequence[str]) -> None:
        """Idempotent."""
        for first in range(0, len(keys), PAGE):
            try:
                await self._delete(keys[first : first + PAGE])
            except StoreUnavailable as error:
                if not first:
                    raise
                raise OutcomeUnknown(f"{error} ({first} others are deleted)") from error

    async def _delete(self, keys: Sequence[str]) -> int:
        call = _Call(Request(self._name, "delete", keys[0] if len(keys) == 1 else ""))

        async def attempt() -> int | Failed:
            return await self._bounded(call, self._transport.delete(keys))

        deleted: int = await self._call(call, attempt, judge_other, _best)
        return deleted

    async def _read(self, call: _Call, send: Callable[[], Awaitable[T | Failed]]) -> T:
        async def attempt() -> T | Failed:
            return await self._bounded(call, send())

        try:
            return await self._call(call, attempt, judge_other, _best)
        except OutcomeUnknown as error:
            raise StoreUnavailable(str(error)) from None

    async def _bounded(self, call: _Call, sent: Awaitable[T | Failed]) -> T | Failed:
        try:
            async with call.within(call.seconds(self._limits.attempt_s)):
                return await sent
        except TimeoutError:
            seconds = call.seconds(self._limits.attempt_s)
            return uncertain(call.request, f"the store did not answer within {seconds:.0f} s")

    async def _call(
        self,
        call: _Call,
        attempt: Callable[[], Awaitable[R | Failed]],
        judge: Callable[[R | Failed], Verdict],
        outcome_of: Callable[[Attempts[R | Failed], bool], R | Failed],
    ) -> R:
        if self._waiting >= self._limits.max_waiting:
            raise StoreUnavailable(
                f"{self._name} is too slow: {self._waiting} requests wait for it; try again"
            )
        self._waiting += 1
        last: list[Failed] = []
        places = self._read_places if call.reads else self._write_places
        try:
            async with call.within(call.seconds(self._limits.deadline_s)), turn(places):
                for retries in itertools.count():
                    before, call.uncertain = call.uncertain, True
                    outcome = outcome_of(await self._attempts(call, attempt, judge), before)
                    if not isinstance(outcome, Failed):
                        self._budget.earn()
                        return outcome
                    last = [outcome]
                    call.uncertain = not outcome.certain
                    await self._before_retry(outcome, retries)
        except TimeoutError:
            why = last[0].reason if last else f"{call.request} failed, since the store is too slow"
            seconds = call.seconds(self._limits.deadline_s)
            raise _error(call.uncertain, f"{why} (no response within {seconds:.0f} s)") from None
        finally:
            self._waiting -= 1
            if not self._waiting and self._ended is not None and not self._ended.done():
                self._ended.set_result(None)
        raise AssertionError("the loop above has no other end")

    async def _attempts(
        self, call: _Call, attempt: Callable[[], Awaitable[R]], judge: Callable[[R], Verdict]
    ) -> Attempts[R]:
        return (
            await self._hedges.send(call.kind, attempt, judge) if call.hedged else Attempts([await attempt()])
        )

    async def _before_retry(self, failed: Failed, retries: int) -> None:
        """Wait, or raise if there will be no other attempt."""
        if not failed.again or retries + 1 >= MAX_TRIES or not self._budget.spend():
            raise _error(not failed.certain, failed.reason)
        await asyncio.sleep(retry_wait_s(retries, self._dice))


def _error(is_uncertain: bool, reason: str) -> OutcomeUnknown | StoreUnavailable:
    return OutcomeUnknown(reason) if is_uncertain else StoreUnavailable(reason)


def _best(attempts: Attempts[T | Failed], uncertain_before: bool) -> T | Failed:
    failures = [result for result in attempts.results if isinstance(result, Failed)]
    for result in attempts.results:
        if not isinstance(result, Failed):
            return result
    certain = not uncertain_before and all(failure.certain for failure in failures)
    return Failed(failures[0].reason, certain, any(failure.again for failure in failures))
