"""The group coordinator over a shard in memory, on a clock of its own: durability, bounds, shutdown."""

import asyncio
import functools
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.metadata.memory import MemoryMetadata
from gateway.groups.classic.group import ClassicGroup
from gateway.groups.coordinator import GroupCoordinator
from gateway.groups.messages import Join, JoinResult, LeavingMember, Sync
from gateway.groups.subscriptions import subscribed_topics
from gateway.settings import Groups, Limits, Settings
from ledger.errors import StoreUnavailable
from ledger.groups.requests import CommitOffsets
from ledger.groups.state import OffsetRow
from ledger.ports import PutOutcome
from ledger.topics.requests import CreateTopic
from ledger.types import TopicId
from tests.support.groups import DELAY_MS, SESSION_MS, join_of
from tests.support.shards import open_shard
from tests.support.virtual_time import run_virtually

DELAY_S, SESSION_S = DELAY_MS / 1000, SESSION_MS / 1000
TURNS = 100
PATIENCE_S = 60.0
GIVEN_S = 5.0
"""How long the journal may take for a request."""


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a clock that only moves when all tasks wait."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        run_virtually(lambda: test(*arguments, **named))

    return run


class SlowMetadata(MemoryMetadata):
    """Puts wait while it is held, and fail while it is away."""

    is_away = False

    def __init__(self, exclusive: bool) -> None:
        super().__init__(exclusive=exclusive)
        self.going = asyncio.Event()
        self.going.set()
        self.gets = 0

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        await self.going.wait()
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().put(key, value, expect)

    async def get(self, key: str) -> Any:
        self.gets += 1
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().get(key)


class Host:
    """A coordinator and the requests of its clients."""

    def __init__(self, store: SlowMetadata, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.ids = iter(range(1, 1_000_000))

    async def open(self) -> None:
        self.shard = await open_shard(self.store, None, None, 1, lambda: 1_700_000_000_000)
        self.coordinator = GroupCoordinator(self.shard, self.settings, lambda: str(next(self.ids)))
        await self.coordinator.begin_epoch()

    async def close(self) -> None:
        self.coordinator.close()
        await self.shard.close()

    async def join(self, group_id: str = "g", member_id: str = "", **fields: Any) -> JoinResult:
        request = join_of(member_id)
        named = {name: getattr(request, name) for name in Join.__slots__} | {"needs_member_id": False}
        return await self.coordinator.join(group_id, Join(**{**named, **fields}), soon())

    async def sync(self, member_id: str, generation: int, **assignments: bytes) -> Any:
        return await self.coordinator.sync(
            "g", Sync(member_id, None, generation, None, None, assignments), soon()
        )

    async def beat(self, member_id: str, generation: int = 1, group_id: str = "g") -> str:
        return await self.coordinator.heartbeat(group_id, member_id, None, generation, soon())

    async def stable(self) -> str:
        """One member in generation 1; its id."""
        joined = await self.join()
        await self.sync(joined.member_id, 1)
        return joined.member_id

    def beat_without_waiting(self, member_id: str, generation: int = 1, group_id: str = "g") -> str | None:
        return self.coordinator.try_heartbeat(group_id, member_id, None, generation)

    def session_expires_at(self, member_id: str) -> float:
        """When the session of a member of group g ends unless it sends a heartbeat, in ms."""
        group = self.coordinator._runners["g"].group
        assert isinstance(group, ClassicGroup)
        return group.roster.by_id[member_id].session_expires_at

    async def commit(self, group_id: str) -> None:
        """A simple group."""
        topic_id = TopicId(b"t" * 16)
        await self.shard.ask(CreateTopic("t", topic_id, 1, {}), soon())
        await self.shard.ask(CommitOffsets(group_id, [OffsetRow(topic_id, 0, 5)]), soon())

    def state(self, group_id: str = "g") -> str | None:
        group = self.coordinator.listing(group_id)
        return None if group is None else group.state


def soon() -> float:
    return asyncio.get_running_loop().time() + GIVEN_S


async def run_ready_tasks() -> None:
    """Run all tasks that need not wait for time."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


@asynccontextmanager
async def hosting(**groups: Any) -> AsyncIterator[Host]:
    limits = Limits(
        groups=groups.pop("max_groups", 100),
        members_bytes=groups.pop("members_bytes", Limits().members_bytes),
    )
    store = SlowMetadata(exclusive=groups.pop("exclusive", False))
    made = Host(store, Settings(limits=limits, groups=Groups(**groups)))
    await made.open()
    try:
        yield made
    finally:
        made.store.going.set()
        await made.close()


@virtually
async def test_no_join_is_completed_before_its_generation_is_durable() -> None:
    async with hosting() as host:
        joining = asyncio.create_task(host.join())
        host.store.going.clear()
        await asyncio.sleep(DELAY_S + 1)
        assert not joining.done() and host.state() == "CompletingRebalance"
        host.store.going.set()
        assert (await joining).generation == 1
        assert host.shard.state.groups.by_id["g"].generation == 1


@virtually
async def test_no_sync_is_completed_before_its_assignment_is_durable() -> None:
    async with hosting() as host:
        joined = await host.join()
        host.store.going.clear()
        syncing = asyncio.create_task(host.sync(joined.member_id, 1))
        await asyncio.sleep(1)
        assert not syncing.done()
        host.store.going.set()
        assert (await syncing).error == "NONE"


@virtually
async def test_requests_wait_while_a_state_is_being_stored() -> None:
    async with hosting() as host:
        member = await host.stable()
        host.store.going.clear()
        leaving = asyncio.create_task(host.coordinator.leave("g", [LeavingMember(member, None)], soon()))
        await run_ready_tasks()
        beating = asyncio.create_task(host.beat(member))
        await run_ready_tasks()
        assert not leaving.done() and not beating.done()
        host.store.going.set()
        assert await leaving == ["NONE"]
        assert await beating == "UNKNOWN_MEMBER_ID"


@virtually
async def test_a_request_that_waits_too_long_for_the_journal_fails_retriably() -> None:
    async with hosting() as host:
        joining = asyncio.create_task(host.join())
        host.store.going.clear()
        late = await joining
        assert late.error == "COORDINATOR_NOT_AVAILABLE"
        host.store.going.set()
        await run_ready_tasks()
        again = await host.join(member_id=late.member_id)
        assert (again.error, again.generation) == ("NONE", 1)


@virtually
async def test_no_session_ends_while_the_journal_hangs() -> None:
    async with hosting() as host:
        member = await host.stable()
        joining = asyncio.create_task(host.join())
        await run_ready_tasks()
        host.store.going.clear()
        again = asyncio.create_task(host.join(member_id=member))
        await asyncio.sleep(5 * SESSION_S)
        host.store.going.set()
        assert (await joining).error == (await again).error == "COORDINATOR_NOT_AVAILABLE"
        await asyncio.sleep(SESSION_S - 1)
        assert await host.beat(member, 2) == "NONE"
        await asyncio.sleep(1.1)
        assert await host.beat(member, 2) == "REBALANCE_IN_PROGRESS"


@virtually
async def test_a_generation_that_cannot_be_stored_is_not_returned() -> None:
    async with hosting() as host:
        member = await host.stable()
        host.store.is_away = True
        refused = await host.join(member_id=member)
        assert (refused.error, refused.generation) == ("COORDINATOR_NOT_AVAILABLE", -1)
        host.store.is_away = False
        assert await host.beat(member) == "REBALANCE_IN_PROGRESS"
        assert (await host.join(member_id=member)).generation == 2


@virtually
async def test_a_group_that_is_too_large_to_be_stored_is_refused() -> None:
    async with hosting() as host:
        noise = random.Random(6).randbytes(700_000)
        refused = await host.join(protocols=(("range", noise),))
        assert refused.error == "UNKNOWN_SERVER_ERROR"
        assert (await host.join()).generation == 1


@virtually
async def test_the_member_of_a_client_that_hangs_up_stays() -> None:
    async with hosting() as host:
        first = asyncio.create_task(host.join(new_member_id=""))
        await run_ready_tasks()
        first.cancel()
        second = await host.join()
        assert len(second.members) in (0, 2)
        assert len(host.shard.state.groups.by_id["g"].members) == 2


@virtually
async def test_requests_that_wait_are_completed_at_shutdown() -> None:
    async with hosting() as host:
        joining = asyncio.create_task(host.join())
        await run_ready_tasks()
        host.coordinator.close()
        assert (await joining).error == "COORDINATOR_NOT_AVAILABLE"
        assert (await host.join()).error == "COORDINATOR_NOT_AVAILABLE"


@virtually
async def test_members_are_loaded_after_a_restart() -> None:
    async with hosting() as host:
        member = await host.stable()
        await host.close()
        await host.open()
        await asyncio.sleep(SESSION_S - 1)
        assert await host.beat(member) == "NONE"
        assert host.coordinator.check_commit("g", member, None, 1) is None
        await asyncio.sleep(SESSION_S + 0.1)
        assert host.state() == "Empty"


@virtually
async def test_a_gateway_that_has_lost_its_shard_coordinates_no_groups() -> None:
    async with hosting() as host:
        member = await host.stable()
        host.shard.owner._break(RuntimeError("lost"))
        assert await host.beat(member) == "COORDINATOR_NOT_AVAILABLE"
        assert (await host.join()).error == "COORDINATOR_NOT_AVAILABLE"


@virtually
async def test_a_heartbeat_needs_no_task_unless_it_waits_for_the_journal() -> None:
    async with hosting(exclusive=True) as host:
        member = await host.stable()
        until = host.session_expires_at(member)
        await asyncio.sleep(1.0)
        assert host.beat_without_waiting(member) == "NONE"
        assert host.session_expires_at(member) == until + 1000
        assert host.beat_without_waiting("x") is None
        assert host.beat_without_waiting(member, generation=2) is None
        assert host.beat_without_waiting(member, group_id="unknown") is None
        host.store.going.clear()
        joined = asyncio.create_task(host.join())
        await asyncio.sleep(DELAY_S)
        assert host.beat_without_waiting(member) == "REBALANCE_IN_PROGRESS"
        again = asyncio.create_task(host.join(member_id=member))
        await run_ready_tasks()
        until = host.session_expires_at(member)
        await asyncio.sleep(0.5)
        assert host.beat_without_waiting(member, generation=2) is None
        assert host.session_expires_at(member) == until
        host.store.going.set()
        assert (await joined).generation == (await again).generation == 2


@virtually
async def test_a_join_that_waited_for_other_members_longer_than_the_journal_is_given_succeeds() -> None:
    async with hosting() as host:
        first = await host.stable()
        joining = asyncio.create_task(host.join())
        await asyncio.sleep(GIVEN_S + 2.0)
        joined = await host.join(member_id=first)
        assert (joined.error, joined.generation) == ("NONE", 2)
        assert ((await joining).error, (await joining).generation) == ("NONE", 2)


@virtually
async def test_where_others_may_write_the_journal_a_heartbeat_waits_for_a_linearizable_read() -> None:
    async with hosting() as host:
        member = await host.stable()
        until = host.session_expires_at(member)
        await asyncio.sleep(1.0)
        assert host.beat_without_waiting(member) is None
        assert host.session_expires_at(member) == until
        before = host.store.gets
        assert await host.beat(member) == "NONE"
        assert host.session_expires_at(member) == until + 1000 and host.store.gets > before
        host.store.is_away = True
        assert await host.beat(member) == "COORDINATOR_NOT_AVAILABLE"
        assert host.session_expires_at(member) == until + 1000


@virtually
async def test_a_member_is_unknown_only_after_a_linearizable_read() -> None:
    async with hosting() as host:
        member = await host.stable()
        host.store.is_away = True
        assert await host.beat("x") == "COORDINATOR_NOT_AVAILABLE"
        assert await host.beat("x", group_id="unknown") == "COORDINATOR_NOT_AVAILABLE"
        assert await host.beat(member) == "COORDINATOR_NOT_AVAILABLE"
        host.store.is_away = False
        assert await host.beat(member) == "NONE"
        assert await host.beat("x") == await host.beat("x", group_id="unknown") == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 30 * 60 * 1000 + 1])
def test_session_timeouts_have_bounds(session_ms: int) -> None:
    async def main() -> None:
        async with hosting() as host:
            refused = await host.join(session_timeout_ms=session_ms)
            assert refused.error == "INVALID_SESSION_TIMEOUT"
            assert list(host.coordinator.ids()) == []

    run_virtually(main)


@virtually
async def test_a_group_needs_a_name() -> None:
    async with hosting() as host:
        assert (await host.join("")).error == "INVALID_GROUP_ID"
        assert await host.beat("m", group_id="") == "INVALID_GROUP_ID"
        assert await host.coordinator.leave("", [], soon()) == "INVALID_GROUP_ID"


@virtually
async def test_ids_of_groups_are_bounded_together() -> None:
    async with hosting(max_groups=64) as host:
        for number in range(2):
            joined = await host.join(f"{number}" * 30_000, needs_member_id=True)
            assert joined.error == "MEMBER_ID_REQUIRED"
        assert (await host.join("l" * 1_025, needs_member_id=True)).error == "GROUP_MAX_SIZE_REACHED"
        assert (await host.join("l" * 1_024, needs_member_id=True)).error == "MEMBER_ID_REQUIRED"


@virtually
async def test_groups_are_bounded_and_those_without_a_generation_are_evicted() -> None:
    async with hosting(max_groups=2) as host:
        for name in ("a", "b"):
            assert (await host.join(name, needs_member_id=True)).error == "MEMBER_ID_REQUIRED"
        assert (await host.join("c", needs_member_id=True)).error == "GROUP_MAX_SIZE_REACHED"
        assert len(list(host.coordinator.ids())) == 2
        await asyncio.sleep(SESSION_S + 0.1)
        assert list(host.coordinator.ids()) == []
        assert (await host.join("c", needs_member_id=True)).error == "MEMBER_ID_REQUIRED"


@virtually
async def test_only_empty_groups_are_deleted() -> None:
    async with hosting() as host:
        member = await host.stable()
        refused = await host.coordinator.delete("g", soon())
        assert refused is not None and refused.error == "NON_EMPTY_GROUP"
        await host.coordinator.leave("g", [LeavingMember(member, None)], soon())
        assert await host.coordinator.delete("g", soon()) is None
        assert list(host.coordinator.ids()) == [] and not host.shard.state.groups.by_id
        refused = await host.coordinator.delete("g", soon())
        assert refused is not None and refused.error == "GROUP_ID_NOT_FOUND"
        assert (await host.join()).generation == 1


@virtually
async def test_a_deletion_removes_the_offsets() -> None:
    async with hosting() as host:
        await host.commit("g")
        assert host.state() == "Empty"
        assert await host.coordinator.delete("g", soon()) is None
        assert not host.shard.state.groups.offsets and host.state() is None


@virtually
async def test_no_member_joins_a_group_that_is_being_deleted() -> None:
    async with hosting() as host:
        await host.commit("g")
        host.store.going.clear()
        deleting = asyncio.create_task(host.coordinator.delete("g", soon()))
        await run_ready_tasks()
        assert (await host.join()).error == "COORDINATOR_NOT_AVAILABLE"
        assert host.coordinator.check_commit("g", "", None, -1) == "COORDINATOR_NOT_AVAILABLE"
        host.store.going.set()
        assert await deleting is None


@virtually
async def test_a_group_whose_deletion_fails_is_revived() -> None:
    async with hosting() as host:
        await host.commit("g")
        host.store.is_away = True
        refused = await host.coordinator.delete("g", soon())
        assert refused is not None and refused.error == "COORDINATOR_NOT_AVAILABLE"
        host.store.is_away = False
        assert host.state() == "Empty"
        assert (await host.join()).generation == 1


@virtually
async def test_a_simple_commit_is_allowed_in_empty_and_unknown_groups_only() -> None:
    async with hosting() as host:
        check = host.coordinator.check_commit
        assert check("g", "", None, -1) is None
        assert check("g", "m", None, 3) == "ILLEGAL_GENERATION"
        await host.commit("g")
        assert check("g", "", None, -1) is None
        assert check("g", "m", None, 3) == "UNKNOWN_MEMBER_ID"
        member = await host.stable()
        assert check("g", "", None, -1) == "UNKNOWN_MEMBER_ID"
        assert check("g", member, None, 1) is None


@virtually
async def test_subscribed_topics_are_those_of_all_members_if_they_can_be_read() -> None:
    async with hosting() as host:
        both = b"\0\1\0\0\0\2\0\1a\0\2bc\xff\xff\xff\xff"
        joins = [
            asyncio.create_task(host.join(protocols=(("range", metadata),)))
            for metadata in (both, b"\0\0\0\0\0\1\0\1d\0\0\0\0")
        ]
        await asyncio.gather(*joins)
        assert host.coordinator.subscribed_topics("g") == frozenset({"a", "bc", "d"})
        assert host.coordinator.subscribed_topics("unknown") is None


UNREADABLE = {
    "empty": b"",
    "cut": b"\0",
    "negative version": b"\xff\xff\0\0\0\0",
    "more than there can be": b"\0\0\x7f\xff\xff\xff\0\1a",
    "one missing": b"\0\0\0\0\0\2\0\1a",
    "too long": b"\0\0\0\0\0\1\0\x09a",
    "negative length": b"\0\0\0\0\0\1\xff\xffa",
    "not text": b"\0\0\0\0\0\1\0\1\xff",
}


@pytest.mark.parametrize("metadata", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_subscription_that_cannot_be_read_gives_no_topics(metadata: bytes) -> None:
    async def main() -> None:
        async with hosting() as host:
            await host.join(protocols=(("range", metadata),))
            assert host.coordinator.subscribed_topics("g") is None

    run_virtually(main)


@virtually
async def test_a_request_is_completed_in_time_while_the_journal_hangs() -> None:
    async with hosting() as host:
        member = await host.stable()
        host.store.going.clear()
        leaving = asyncio.create_task(host.coordinator.leave("g", [LeavingMember(member, None)], soon()))
        await asyncio.wait_for(leaving, PATIENCE_S)
        assert leaving.result() == "COORDINATOR_NOT_AVAILABLE"
        # The state is still in flight, and nothing new is submitted to wait for.
        assert await asyncio.wait_for(host.beat(member), PATIENCE_S) == "COORDINATOR_NOT_AVAILABLE"
        joined = await asyncio.wait_for(host.join(), PATIENCE_S)
        assert joined.error == "COORDINATOR_NOT_AVAILABLE"


@virtually
async def test_the_wait_for_a_state_after_one_that_hangs_has_an_end() -> None:
    async with hosting() as host:
        member = await host.stable()
        host.store.going.clear()
        asking = asyncio.create_task(host.join(member_id=member))
        await asyncio.sleep(3)
        later = asyncio.create_task(host.coordinator.leave("g", [LeavingMember(member, None)], soon()))
        _, waiting = await asyncio.wait({asking, later}, timeout=PATIENCE_S)
        assert not waiting


@virtually
async def test_a_deletion_whose_client_hangs_up_leaves_the_group_alive() -> None:
    async with hosting() as host:
        await host.commit("g")
        host.store.going.clear()
        deleting = asyncio.create_task(host.coordinator.delete("g", soon()))
        await run_ready_tasks()
        deleting.cancel()
        await run_ready_tasks()
        host.store.going.set()
        await run_ready_tasks()
        assert host.coordinator.check_commit("g", "", None, -1) is None
        assert (await host.join()).error == "NONE"


@virtually
async def test_a_member_is_not_fenced_by_a_replacement_that_is_not_durable() -> None:
    async with hosting() as host:
        old = await host.join(instance_id="i")
        await host.coordinator.sync("g", Sync(old.member_id, "i", 1, None, None, {}), soon())
        host.store.going.clear()
        new = asyncio.create_task(host.join(instance_id="i"))
        await run_ready_tasks()
        fenced = host.coordinator.check_commit("g", old.member_id, "i", 1)
        assert fenced == "FENCED_INSTANCE_ID"
        refusal = asyncio.create_task(host.coordinator.confirm_refusal("g", fenced, soon()))
        await run_ready_tasks()
        assert not refusal.done()
        host.store.is_away = True
        host.store.going.set()
        assert (await new).error == await refusal == "COORDINATOR_NOT_AVAILABLE"
        assert host.coordinator.check_commit("g", old.member_id, "i", 1) is None


@virtually
async def test_members_of_all_groups_together_have_a_bound() -> None:
    async with hosting(members_bytes=64 * 1024) as host:
        protocols = (("range", b"x" * 30_000),)
        members = [(await host.join(group, protocols=protocols)).member_id for group in "ab"]
        assert (await host.join("c", protocols=protocols)).error == "NONE"
        await asyncio.sleep(1)
        assert (await host.join("d")).error == "GROUP_MAX_SIZE_REACHED"
        await host.commit("simple")
        assert (await host.join("simple")).error == "GROUP_MAX_SIZE_REACHED"
        assert len(host.coordinator._runners) == 3
        longer = (("range", b"x" * 30_001),)
        assert (await host.join("a", members[0], protocols=longer)).error == "GROUP_MAX_SIZE_REACHED"
        assert (await host.join("a", members[0], protocols=protocols)).error == "NONE"
        await host.coordinator.leave("b", [LeavingMember(members[1], None)], soon())
        await asyncio.sleep(1)
        assert (await host.join("d")).error == "NONE"


@virtually
async def test_assignments_of_all_groups_together_have_a_bound() -> None:
    """They are durable: without one, each start would need the memory again."""
    async with hosting(members_bytes=64 * 1024) as host:
        members = {group: (await host.join(group)).member_id for group in "abc"}

        async def assign(group: str, size: int) -> str:
            assignments = {members[group]: bytes(size)}
            sync = Sync(members[group], None, 1, None, None, assignments)
            return (await host.coordinator.sync(group, sync, soon())).error

        assert await assign("a", 60_000) == "NONE"
        assert await assign("b", 60_000) == "COORDINATOR_NOT_AVAILABLE"
        assert await assign("b", 10_000) == "NONE"
        assert (await host.join("d")).error == "GROUP_MAX_SIZE_REACHED"
        await host.coordinator.leave("a", [LeavingMember(members["a"], None)], soon())
        assert await assign("c", 50_000) == "NONE"
        assert host.coordinator._weight == sum(
            each.group.weight for each in host.coordinator._runners.values()
        )
    assert host.coordinator._weight == 0


@virtually
async def test_the_topics_of_a_group_are_read_once_a_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hosting() as host:
        member = await host.stable()
        reads = []

        def noted(metadata: list[bytes]) -> frozenset[str] | None:
            reads.append(metadata)
            return subscribed_topics(metadata)

        monkeypatch.setattr("gateway.groups.classic.group.subscribed_topics", noted)
        first = [host.coordinator.subscribed_topics("g") for _ in range(3)]
        assert len(reads) == 1 and len(set(first)) == 1
        await host.join("g", member)
        host.coordinator.subscribed_topics("g")
        assert len(reads) == 2


@virtually
async def test_many_unknown_members_that_leave_need_one_linearizable_read() -> None:
    async with hosting() as host:
        await host.stable()
        before = host.store.gets
        left = await host.coordinator.leave("g", [LeavingMember(f"m{n}", None) for n in range(100)], soon())
        assert left == ["UNKNOWN_MEMBER_ID"] * 100
        assert host.store.gets - before <= 2
