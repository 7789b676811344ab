"""The groups room over a shard in memory, on a clock of its own: durability, bounds, and the end."""

import asyncio
import functools
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.metadata.memory import MemoryMetadata
from gateway.config import Groups, Limits, Settings
from gateway.coordination.opening import open_shard
from gateway.groups.room import GroupsRoom
from gateway.groups.values import Join, JoinAnswer, Leaver, Sync
from ledger.errors import StoreUnavailable
from ledger.groups import OffsetRow
from ledger.ports import PutOutcome
from ledger.requests import CommitOffsets, CreateTopic
from ledger.types import TopicId
from tests.support.groups import DELAY_MS, SESSION_MS, join_of
from tests.support.virtual_time import run_virtually

DELAY_S, SESSION_S = DELAY_MS / 1000, SESSION_MS / 1000
TURNS = 100


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a clock that only moves when all waits."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        run_virtually(lambda: test(*arguments, **named))

    return run


class SlowMetadata(MemoryMetadata):
    """Puts wait while it is held; or fail while it is away."""

    is_away = False

    def __init__(self) -> None:
        super().__init__(exclusive=False)
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


class Rooms:
    """The room and what a client would say to it."""

    def __init__(self, store: SlowMetadata, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.ids = iter(range(1, 1_000_000))

    async def open(self) -> None:
        self.shard = await open_shard(self.store, None, None, 1, lambda: 1_700_000_000_000)
        self.room = GroupsRoom(self.shard, self.settings, lambda: str(next(self.ids)))
        self.room.start()

    async def close(self) -> None:
        self.room.close()
        await self.shard.close()

    async def join(self, group_id: str = "g", member_id: str = "", **fields: Any) -> JoinAnswer:
        asked = join_of(member_id)
        named = {name: getattr(asked, name) for name in Join.__slots__} | {"needs_member_id": False}
        return await self.room.join(group_id, Join(**{**named, **fields}), soon())

    async def sync(self, member_id: str, generation: int, **assignments: bytes) -> Any:
        return await self.room.sync("g", Sync(member_id, None, generation, None, None, assignments), soon())

    async def beat(self, member_id: str, generation: int = 1, group_id: str = "g") -> str:
        return await self.room.heartbeat(group_id, member_id, None, generation, soon())

    async def stable(self) -> str:
        """One member in generation 1; its id."""
        joined = await self.join()
        await self.sync(joined.member_id, 1)
        return joined.member_id

    def beat_at_once(self, member_id: str, generation: int = 1, group_id: str = "g") -> str | None:
        return self.room.heartbeat_at_once(group_id, member_id, None, generation)

    def silent_until(self, member_id: str) -> float:
        """Until when nothing need be heard from a member of group g, in ms."""
        return self.room._drivers["g"].group.roster.by_id[member_id].silent_until

    async def commit(self, group_id: str) -> None:
        """A simple group."""
        topic_id = TopicId(b"t" * 16)
        await self.shard.ask(CreateTopic("t", topic_id, 1, {}), soon())
        await self.shard.ask(CommitOffsets(group_id, [OffsetRow(topic_id, 0, 5)]), soon())

    def state(self, group_id: str = "g") -> str | None:
        view = self.room.view(group_id)
        return None if view is None else view.state


def soon() -> float:
    return asyncio.get_running_loop().time() + 5.0


async def turns() -> None:
    """Let all go on that need not wait for time."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


@asynccontextmanager
async def rooms(**groups: Any) -> AsyncIterator[Rooms]:
    limits = Limits(
        groups=groups.pop("most", 100), members_bytes=groups.pop("members_bytes", Limits().members_bytes)
    )
    made = Rooms(SlowMetadata(), Settings(limits=limits, groups=Groups(**groups)))
    await made.open()
    try:
        yield made
    finally:
        made.store.going.set()
        await made.close()


@virtually
async def test_no_join_is_answered_before_its_generation_is_durable() -> None:
    async with rooms() as one:
        joining = asyncio.create_task(one.join())
        one.store.going.clear()
        await asyncio.sleep(DELAY_S + 1)
        assert not joining.done() and one.state() == "CompletingRebalance"
        one.store.going.set()
        assert (await joining).generation == 1
        assert one.shard.state.groups.by_id["g"].generation == 1


@virtually
async def test_no_sync_is_answered_before_its_assignment_is_durable() -> None:
    async with rooms() as one:
        joined = await one.join()
        one.store.going.clear()
        syncing = asyncio.create_task(one.sync(joined.member_id, 1))
        await asyncio.sleep(1)
        assert not syncing.done()
        one.store.going.set()
        assert (await syncing).error == "NONE"


@virtually
async def test_what_is_asked_while_a_state_is_being_stored_waits_for_it() -> None:
    async with rooms() as one:
        member = await one.stable()
        one.store.going.clear()
        leaving = asyncio.create_task(one.room.leave("g", [Leaver(member, None)], soon()))
        await turns()
        beating = asyncio.create_task(one.beat(member))
        await turns()
        assert not leaving.done() and not beating.done()
        one.store.going.set()
        assert await leaving == ["NONE"]
        assert await beating == "UNKNOWN_MEMBER_ID"


@virtually
async def test_who_waits_too_long_for_the_journal_may_ask_again() -> None:
    async with rooms() as one:
        joining = asyncio.create_task(one.join())
        one.store.going.clear()
        late = await joining
        assert late.error == "COORDINATOR_NOT_AVAILABLE"
        one.store.going.set()
        await turns()
        again = await one.join(member_id=late.member_id)
        assert (again.error, again.generation) == ("NONE", 1)


@virtually
async def test_nobody_is_missed_while_the_journal_stands_still() -> None:
    async with rooms() as one:
        member = await one.stable()
        joining = asyncio.create_task(one.join())
        await turns()
        one.store.going.clear()
        again = asyncio.create_task(one.join(member_id=member))
        await asyncio.sleep(5 * SESSION_S)
        one.store.going.set()
        assert (await joining).error == (await again).error == "COORDINATOR_NOT_AVAILABLE"
        await asyncio.sleep(SESSION_S - 1)
        assert await one.beat(member, 2) == "NONE"
        await asyncio.sleep(1.1)
        assert await one.beat(member, 2) == "REBALANCE_IN_PROGRESS"


@virtually
async def test_a_generation_that_cannot_be_stored_is_told_to_nobody() -> None:
    async with rooms() as one:
        member = await one.stable()
        one.store.is_away = True
        refused = await one.join(member_id=member)
        assert (refused.error, refused.generation) == ("COORDINATOR_NOT_AVAILABLE", -1)
        one.store.is_away = False
        assert await one.beat(member) == "REBALANCE_IN_PROGRESS"
        assert (await one.join(member_id=member)).generation == 2


@virtually
async def test_a_group_that_is_too_large_to_be_stored_is_refused() -> None:
    async with rooms() as one:
        noise = random.Random(6).randbytes(700_000)
        refused = await one.join(protocols=(("range", noise),))
        assert refused.error == "UNKNOWN_SERVER_ERROR"
        assert (await one.join()).generation == 1


@virtually
async def test_a_client_that_hangs_up_does_not_take_its_member_along() -> None:
    async with rooms() as one:
        first = asyncio.create_task(one.join(new_member_id=""))
        await turns()
        first.cancel()
        second = await one.join()
        assert len(second.members) in (0, 2)
        assert len(one.shard.state.groups.by_id["g"].members) == 2


@virtually
async def test_whoever_waits_at_the_end_is_answered() -> None:
    async with rooms() as one:
        joining = asyncio.create_task(one.join())
        await turns()
        one.room.close()
        assert (await joining).error == "COORDINATOR_NOT_AVAILABLE"
        assert (await one.join()).error == "COORDINATOR_NOT_AVAILABLE"


@virtually
async def test_members_are_taken_up_again_after_a_restart() -> None:
    async with rooms() as one:
        member = await one.stable()
        await one.close()
        await one.open()
        await asyncio.sleep(SESSION_S - 1)
        assert await one.beat(member) == "NONE"
        assert one.room.check_commit("g", member, None, 1) is None
        await asyncio.sleep(SESSION_S + 0.1)
        assert one.state() == "Empty"


@virtually
async def test_a_gateway_that_has_lost_its_shard_does_not_speak_for_groups() -> None:
    async with rooms() as one:
        member = await one.stable()
        one.shard._break(RuntimeError("lost"))
        assert await one.beat(member) == "COORDINATOR_NOT_AVAILABLE"
        assert (await one.join()).error == "COORDINATOR_NOT_AVAILABLE"


@virtually
async def test_a_member_is_answered_at_once_unless_something_must_be_durable_or_proved() -> None:
    async with rooms() as one:
        member = await one.stable()
        until = one.silent_until(member)
        await asyncio.sleep(1.0)
        assert one.beat_at_once(member) == "NONE"
        assert one.silent_until(member) == until + 1000
        assert one.beat_at_once("x") is None
        assert one.beat_at_once(member, generation=2) is None
        assert one.beat_at_once(member, group_id="unknown") is None
        one.store.going.clear()
        joined = asyncio.create_task(one.join())
        await asyncio.sleep(DELAY_S)
        assert one.beat_at_once(member) == "REBALANCE_IN_PROGRESS"
        again = asyncio.create_task(one.join(member_id=member))
        await turns()
        until = one.silent_until(member)
        await asyncio.sleep(0.5)
        assert one.beat_at_once(member, generation=2) is None
        assert one.silent_until(member) == until
        one.store.going.set()
        assert (await joined).generation == (await again).generation == 2


@virtually
async def test_nobody_is_called_unknown_unless_the_journal_was_asked() -> None:
    async with rooms() as one:
        member = await one.stable()
        one.store.is_away = True
        assert await one.beat("x") == "COORDINATOR_NOT_AVAILABLE"
        assert await one.beat("x", group_id="unknown") == "COORDINATOR_NOT_AVAILABLE"
        assert await one.beat(member) == "NONE"
        one.store.is_away = False
        assert await one.beat("x") == await one.beat("x", group_id="unknown") == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 30 * 60 * 1000 + 1])
def test_session_timeouts_have_bounds(session_ms: int) -> None:
    async def main() -> None:
        async with rooms() as one:
            refused = await one.join(session_timeout_ms=session_ms)
            assert refused.error == "INVALID_SESSION_TIMEOUT"
            assert one.room.views() == []

    run_virtually(main)


@virtually
async def test_a_group_needs_a_name() -> None:
    async with rooms() as one:
        assert (await one.join("")).error == "INVALID_GROUP_ID"
        assert await one.beat("m", group_id="") == "INVALID_GROUP_ID"
        assert await one.room.leave("", [], soon()) == "INVALID_GROUP_ID"


@virtually
async def test_ids_of_groups_are_bounded_together() -> None:
    async with rooms(most=64) as one:
        for number in range(2):
            asked = await one.join(f"{number}" * 30_000, needs_member_id=True)
            assert asked.error == "MEMBER_ID_REQUIRED"
        assert (await one.join("l" * 1_025, needs_member_id=True)).error == "GROUP_MAX_SIZE_REACHED"
        assert (await one.join("l" * 1_024, needs_member_id=True)).error == "MEMBER_ID_REQUIRED"


@virtually
async def test_groups_are_bounded_and_those_that_never_were_are_forgotten() -> None:
    async with rooms(most=2) as one:
        for name in ("a", "b"):
            assert (await one.join(name, needs_member_id=True)).error == "MEMBER_ID_REQUIRED"
        assert (await one.join("c", needs_member_id=True)).error == "GROUP_MAX_SIZE_REACHED"
        assert len(one.room.views()) == 2
        await asyncio.sleep(SESSION_S + 0.1)
        assert one.room.views() == []
        assert (await one.join("c", needs_member_id=True)).error == "MEMBER_ID_REQUIRED"


@virtually
async def test_only_empty_groups_are_deleted() -> None:
    async with rooms() as one:
        member = await one.stable()
        refused = await one.room.delete("g", soon())
        assert refused is not None and refused.error == "NON_EMPTY_GROUP"
        await one.room.leave("g", [Leaver(member, None)], soon())
        assert await one.room.delete("g", soon()) is None
        assert one.room.views() == [] and not one.shard.state.groups.by_id
        refused = await one.room.delete("g", soon())
        assert refused is not None and refused.error == "GROUP_ID_NOT_FOUND"
        assert (await one.join()).generation == 1


@virtually
async def test_a_deletion_takes_the_offsets_along() -> None:
    async with rooms() as one:
        await one.commit("g")
        assert one.state() == "Empty"
        assert await one.room.delete("g", soon()) is None
        assert not one.shard.state.groups.offsets and one.state() is None


@virtually
async def test_nobody_joins_a_group_that_is_being_deleted() -> None:
    async with rooms() as one:
        await one.commit("g")
        one.store.going.clear()
        deleting = asyncio.create_task(one.room.delete("g", soon()))
        await turns()
        assert (await one.join()).error == "COORDINATOR_NOT_AVAILABLE"
        assert one.room.check_commit("g", "", None, -1) == "COORDINATOR_NOT_AVAILABLE"
        one.store.going.set()
        assert await deleting is None


@virtually
async def test_a_group_whose_deletion_fails_lives_on() -> None:
    async with rooms() as one:
        await one.commit("g")
        one.store.is_away = True
        refused = await one.room.delete("g", soon())
        assert refused is not None and refused.error == "COORDINATOR_NOT_AVAILABLE"
        one.store.is_away = False
        assert one.state() == "Empty"
        assert (await one.join()).generation == 1


@virtually
async def test_a_simple_commit_is_taken_from_empty_and_unknown_groups_alone() -> None:
    async with rooms() as one:
        check = one.room.check_commit
        assert check("g", "", None, -1) is None
        assert check("g", "m", None, 3) == "ILLEGAL_GENERATION"
        await one.commit("g")
        assert check("g", "", None, -1) is None
        assert check("g", "m", None, 3) == "UNKNOWN_MEMBER_ID"
        member = await one.stable()
        assert check("g", "", None, -1) == "UNKNOWN_MEMBER_ID"
        assert check("g", member, None, 1) is None


@virtually
async def test_subscribed_topics_are_those_of_all_members_if_they_can_be_read() -> None:
    async with rooms() as one:
        both = b"\0\1\0\0\0\2\0\1a\0\2bc\xff\xff\xff\xff"
        joins = [
            asyncio.create_task(one.join(protocols=(("range", metadata),)))
            for metadata in (both, b"\0\0\0\0\0\1\0\1d\0\0\0\0")
        ]
        await asyncio.gather(*joins)
        assert one.room.subscribed_topics("g") == {"a", "bc", "d"}
        assert one.room.subscribed_topics("unknown") is None


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
def test_a_subscription_that_cannot_be_read_tells_no_topics(metadata: bytes) -> None:
    async def main() -> None:
        async with rooms() as one:
            await one.join(protocols=(("range", metadata),))
            assert one.room.subscribed_topics("g") is None

    run_virtually(main)
