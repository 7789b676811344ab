"""The shard as the internal APIs need it: requests and reads with deadlines, waits for the next entry."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from gateway.coordination.shard import Shard
from gateway.housekeeping.inline_moves import InlineMover
from gateway.housekeeping.pins import PinExpiry
from gateway.housekeeping.requested_snapshots import RequestedSnapshots
from gateway.requests.context import RequestContext
from ledger.errors import ErrorName, OutcomeUnknown, StoreError, StoreUnavailable
from ledger.inline.plan import readable_end
from ledger.partitions.state import PartitionLog
from ledger.requests import LedgerResult, Refused, Request
from ledger.types import TopicId

READS_AT_ONCE: Final = 4
"""Reads of the journal, which may have a megabyte each."""
LONGEST_WAIT_S: Final = 24 * 3600.0
NO_ANSWER: Final = Refused(ErrorName.REQUEST_TIMED_OUT, "the journal did not answer in time")


class ShardAccess:
    """One shard, as jobs see it."""

    def __init__(
        self,
        shard: Shard,
        data_url: str,
        pins: PinExpiry,
        mover: InlineMover | None = None,
        snapshots: RequestedSnapshots | None = None,
    ) -> None:
        """`data_url`: of the segment store, for jobs. `pins` and `mover` are parts of the owner's scope.
        `mover` moves batches out of journal entries, which no job can read."""
        self._mover = mover
        self.snapshots = snapshots
        self.shard = shard
        self.data_url = data_url
        self.pins = pins
        self.refusal_of: Callable[[str, str], str] = lambda listener, principal: ""
        """Why a principal may not use a listener; empty if it may."""
        self.reads = asyncio.Semaphore(READS_AT_ONCE)
        self._next: asyncio.Task[None] | None = None
        """Ends with the next entry. One for all that wait, since the replica keeps each of its waits until
        then."""
        self._is_closed = False

    async def submit(self, request: Request, deadline: float) -> LedgerResult:
        """The result; REQUEST_TIMED_OUT if the outcome is unknown, COORDINATOR_NOT_AVAILABLE if the request
        has failed for certain and may be sent again."""
        try:
            return await self.shard.ask(request, deadline)
        except (OutcomeUnknown, TimeoutError):
            return NO_ANSWER
        except StoreUnavailable as error:
            return Refused(ErrorName.COORDINATOR_NOT_AVAILABLE, str(error))

    async def prepare(self, deadline: float) -> Refused | None:
        """Before a job begins: what is inside of journal entries is moved, but for what is missing. Returns
        the error if that fails."""
        if self._mover is None:
            return None
        try:
            async with asyncio.timeout_at(deadline):
                await self._mover.move_for_job()
        except TimeoutError:
            return NO_ANSWER
        except StoreError as error:
            return Refused(ErrorName.COORDINATOR_NOT_AVAILABLE, str(error))
        return None

    async def ensure_prepared(self, deadline: float) -> Refused | None:
        """The same unless it was done in this epoch. A job goes on with the pin that it has got in another
        one, and what was missing then is not known any more."""
        return None if self._mover is None or self._mover.has_looked else await self.prepare(deadline)

    def readable_end(self, log: PartitionLog) -> int:
        """Where a partition ends for jobs: where the first run begins that is to be moved out of an entry."""
        passed = self._mover.passed(log.number) if self._mover is not None else 0
        return readable_end(self.shard.state, log, passed)

    async def confirm(self, deadline: float) -> Refused | None:
        """Linearizable read, before a negative answer. Returns the error if that fails."""
        try:
            await self.shard.barrier(deadline)
        except (OutcomeUnknown, TimeoutError):
            return NO_ANSWER
        except StoreError as error:
            return Refused(ErrorName.KAFKA_STORAGE_ERROR, str(error))
        return None

    def partition(self, topic_id: bytes, index: int) -> PartitionLog | Refused:
        """A partition, as it is known here and now."""
        topic = self.shard.state.topics.by_id.get(TopicId(topic_id))
        if topic is None:
            return Refused(ErrorName.UNKNOWN_TOPIC_ID)
        if not 0 <= index < len(topic.partitions):
            return Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.partitions[index]

    def check_shard(self, number: int) -> Refused | None:
        here = self.shard.journal.shard
        if number == here:
            return None
        return Refused(ErrorName.INVALID_REQUEST, f"there is no shard {number}, only {here}")

    async def wait_for_entry(self, number: int, deadline: float) -> None:
        """Return once this entry is applied, at the deadline (loop time), or when the gateway ends."""
        loop = asyncio.get_running_loop()
        while self.shard.state.applied <= number and not self._is_closed and loop.time() < deadline:
            if self._next is None or self._next.done():
                self._next = loop.create_task(self._wait_for_next(), name="next entry")
            await asyncio.wait((self._next,), timeout=deadline - loop.time())

    async def _wait_for_next(self) -> None:
        replica = self.shard.replica
        with suppress(TimeoutError):
            deadline = asyncio.get_running_loop().time() + LONGEST_WAIT_S
            await replica.barrier(replica.state.applied + 1, deadline)

    def close(self) -> None:
        """End all waits, and those to come at once."""
        self._is_closed = True
        if self._next is not None:
            self._next.cancel()


async def within(context: RequestContext, timeout_ms: int, work: Awaitable[LedgerResult]) -> LedgerResult:
    """The result of a read from a store, or `Refused`."""
    try:
        async with asyncio.timeout_at(context.deadline(timeout_ms)):
            return await work
    except TimeoutError:
        return NO_ANSWER
    except StoreError as error:
        return Refused(ErrorName.KAFKA_STORAGE_ERROR, str(error))
