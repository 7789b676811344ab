"""A shard as this gateway has it: a replica, and the owner of its present or last epoch here."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.completion import Completion
from gateway.coordination.commit_delay import CommitDelay
from gateway.coordination.journal import OwnershipLost, PrunedMeanwhile
from gateway.coordination.ledger import Subscriber
from gateway.coordination.owner import Owner
from gateway.coordination.replica import Replica
from gateway.coordination.time_hold import TimeHold
from gateway.host import RandomBytes, random_bytes
from ledger.cluster.requests import Description
from ledger.errors import OutcomeUnknown, StoreLocked, StoreUnavailable
from ledger.ports import Journal
from ledger.records import LEVEL_WITH_PLACED
from ledger.registry import REGISTRY
from ledger.requests import LedgerResult, Request
from ledger.state import LedgerState
from ledger.topics.requests import AddPartitions, CreateTopic


class Shard:
    """Implements `Ledger`."""

    def __init__(  # noqa: PLR0913 - what an owner is made of
        self,
        journal: Journal,
        state: LedgerState,
        clock: Callable[[], int],
        commit_delay: CommitDelay | None = None,
        elapsed: Callable[[], int] | None = None,
        random: RandomBytes = random_bytes,
        described: Description | None = None,
    ) -> None:
        """Without `commit_delay` an entry is filled as soon as a request waits. `Replica` describes `clock`
        and `elapsed`. Nonces are from `random`. `described`: this gateway, for those that it replaces."""
        self.journal = journal
        self.replica = Replica(journal.shard, state, clock, elapsed)
        self._commit_delay = commit_delay or CommitDelay(0.0)
        self._random = random
        self._described = described
        self.owner = Owner(journal, self.replica, self._commit_delay, random)
        self.taking_over = asyncio.Lock()
        self.time_hold: TimeHold | None = None
        """None: entry time is never in doubt."""
        self.growth_refusal = ""
        """Why nothing that makes the ledger grow is accepted, while the space left is kept for deletions."""
        self.topic_refusal = ""
        """Why there are no new topics and partitions, before that."""

    async def start(
        self, gateway: int, cluster_id: str, deadline: float, feature_level: int = 0, *, yields: bool = False
    ) -> None:
        """Begin an epoch and serve. StoreUnavailable if that cannot be made durable by the deadline.
        `feature_level`: see `BecomeOwner`. An owner that is at work appends meanwhile: its entries are
        applied as they come, and the next number is tried. PrunedMeanwhile if some of them need not have
        counted: nothing may be built on this shard then. With `yields` StoreLocked instead, if an entry of
        another owner has come since the state."""
        first = self.state.applied
        while True:
            try:
                await self.owner.begin(gateway, cluster_id, deadline, feature_level, self._described)
                break
            except (StoreUnavailable, OutcomeUnknown):
                lost = self.owner.broken
                if not isinstance(lost, OwnershipLost) or asyncio.get_running_loop().time() >= deadline:
                    raise
            await self.owner.close()
            if yields:
                raise StoreLocked("a gateway has begun to write this ledger meanwhile: run the command again")
            if not lost.certain:
                await self._check_not_pruned(first)
            await self._follow_owner(deadline)
            self.owner = Owner(self.journal, self.replica, self._commit_delay, self._random)
        if self.state.applied > first + 1:
            await self._check_not_pruned(first)

    async def _follow_owner(self, deadline: float) -> None:
        """Up to the journal's end. One by one, as the quickest reads are what wins the race for the next
        number."""
        loop = asyncio.get_running_loop()
        while (entry := await self.journal.get(self.state.applied)) is not None:
            if loop.time() >= deadline:
                raise StoreUnavailable(
                    "another gateway writes the journal faster than this one reads it: stop that one, or "
                    "start this one closer to the metadata store"
                )
            await self.replica.apply(entry)

    async def _check_not_pruned(self, first: int) -> None:
        """What was read from this entry on counts."""
        if await self.journal.start() > first:
            raise PrunedMeanwhile(f"the journal was pruned past entry {first} while it was read")

    async def begin_again(self, gateway: int, deadline: float, claim: Callable[[], Awaitable[None]]) -> None:
        """Begin another epoch after one was lost, on a replica that has caught up, and serve once the data is
        claimed for it. Raises as `start` and `claim`; StoreUnavailable also while the epoch has not ended, or
        if it ended by a bug, after which nothing may be built on the state. May be called again then."""
        self.check_lost()
        owner = Owner(self.journal, self.replica, self._commit_delay, self._random)
        try:
            await owner.begin(gateway, "", deadline, described=self._described)
            await claim()
        except BaseException:
            await owner.close()
            raise
        before, self.owner = self.owner, owner
        await before.close()

    def check_lost(self) -> None:
        """StoreUnavailable unless the present epoch was lost to another gateway."""
        if not isinstance(self.owner.broken, OwnershipLost):
            raise StoreUnavailable(self.why_not or "this gateway owns the shard already")

    async def close(self) -> None:
        """Stop. What still waits has failed for certain, unless it is in the entry in flight; what comes
        later fails at once."""
        await self.owner.close()
        self._commit_delay.close()

    @property
    def state(self) -> LedgerState:
        return self.replica.state

    @property
    def why_not(self) -> str:
        return self.owner.why_not

    @property
    def is_exclusive(self) -> bool:
        return self.journal.exclusive

    @property
    def broken(self) -> Exception | None:
        """Why nothing more is accepted, once ownership is lost."""
        return self.owner.broken

    @property
    def lost(self) -> asyncio.Event:
        """Set when the present epoch has ended."""
        return self.owner.lost

    @property
    def is_time_held(self) -> bool:
        """Whether entry time is in doubt."""
        return self.doubted_ms() > 0

    def doubted_ms(self) -> int:
        """By how much anything may be younger than entry times and clock say: what deletes by age waits so
        much longer. To be read after the clock."""
        return self.time_hold.doubted_ms() if self.time_hold is not None else 0

    def takes(self, batches: int, size: int) -> bool:
        return self.state.feature_level >= LEVEL_WITH_PLACED and self.journal.takes(batches, size)

    def now_ms(self) -> int:
        return self.replica.now_ms()

    def submit(self, request: Request) -> asyncio.Future[LedgerResult]:
        completed: asyncio.Future[LedgerResult] = asyncio.get_running_loop().create_future()
        self.submit_for(completed, request)
        return completed

    def submit_for(self, completion: Completion[LedgerResult], request: Request) -> None:
        refusal = self._refusal(request) if self.growth_refusal or self.topic_refusal else ""
        if refusal and not self.why_not:
            completion.set_exception(StoreUnavailable(refusal))
        else:
            self.owner.submit_for(completion, request)

    def _refusal(self, request: Request) -> str:
        if self.growth_refusal and type(request) in REGISTRY.growing:
            return self.growth_refusal
        return self.topic_refusal if isinstance(request, (CreateTopic, AddPartitions)) else ""

    async def ask(self, request: Request, deadline: float) -> LedgerResult:
        async with asyncio.timeout_at(deadline):
            return await self.submit(request)

    async def barrier(self, deadline: float) -> None:
        await self.replica.barrier(await self.owner.prove(deadline), deadline)

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        return self.replica.subscribe(callback)
