"""Committed offsets of groups over a shard in memory: who may commit, what is kept, and when it goes."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import pytest
import pytest_asyncio

from adapters.metadata.memory import MemoryMetadata
from gateway.config import Groups, Limits, Settings
from gateway.coordination.opening import open_shard
from gateway.coordination.shard import Shard
from gateway.groups.expiry import OffsetExpiry
from gateway.groups.offsets import COMMIT_BYTES, CommittedOffsets, Committer
from gateway.groups.room import GroupsRoom
from gateway.groups.values import Leaver, Sync
from ledger.errors import StoreUnavailable
from ledger.groups import OffsetRow
from ledger.ports import PutOutcome
from ledger.requests import MAX_OFFSETS, CreateTopic, DeleteTopic, StoreGroup
from ledger.types import TopicId
from tests.support.groups import join_of

BEGUN_MS = 1_700_000_000_000
DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
PARTITIONS = 3_000
TOPICS = {name: TopicId(name.encode() * 16) for name in "tu"}


class FragileMetadata(MemoryMetadata):
    """Fails while it is away, for certain; waits while it hangs."""

    def __init__(self) -> None:
        super().__init__(exclusive=False)
        self.is_away = False
        self.going = asyncio.Event()
        self.going.set()

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        await self.going.wait()
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().put(key, value, expect)


@dataclass
class Host:
    """Rooms over one shard, and the clock on the wall."""

    store: FragileMetadata
    shard: Shard
    groups: GroupsRoom
    offsets: CommittedOffsets
    expiry: OffsetExpiry
    now_ms: list[int]

    def row(self, offset: int, partition: int = 0, topic: str = "t", **fields: int | str) -> OffsetRow:
        return OffsetRow(TOPICS[topic], partition, offset, **fields)  # type: ignore[arg-type]

    async def commit(self, *rows: OffsetRow, who: Committer | None = None) -> list[str]:
        return await self.offsets.commit(who or Committer("g"), rows, soon())

    def held(self, group_id: str = "g") -> dict[tuple[str, int], int]:
        names = {topic_id: name for name, topic_id in TOPICS.items()}
        return {
            (names[topic_id], partition): committed.offset
            for (topic_id, partition), committed in self.offsets.of(group_id).items()
        }

    async def member(self, topics: bytes = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff") -> str:
        """The only one of a stable group `g`, in generation 1; it reads topic t. Its id."""
        asked = replace(join_of(), protocols=(("range", topics),), needs_member_id=False)
        joined = await self.groups.join("g", asked, soon())
        assert joined.error == "NONE"
        synced = Sync(joined.member_id, None, joined.generation, None, None, {joined.member_id: b"all"})
        await self.groups.sync("g", synced, soon())
        return joined.member_id

    async def leave(self, member_id: str) -> None:
        assert await self.groups.leave("g", [Leaver(member_id, None)], soon()) == ["NONE"]

    async def pass_time(self, ms: int) -> None:
        """And let an entry be stamped with it, as the sweeps of a gateway do."""
        self.now_ms[0] += ms
        await self.commit(self.row(0, topic="u"), who=Committer("ticking"))


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def until(condition: Callable[[], bool]) -> None:
    """What never comes true fails the test."""
    async with asyncio.timeout(5.0):
        while not condition():  # noqa: ASYNC110 - a test may look from outside only
            await asyncio.sleep(0.001)


@asynccontextmanager
async def hosted(most_groups: int, **limits: int) -> AsyncIterator[Host]:
    now_ms = [BEGUN_MS]
    settings = Settings(
        groups=Groups(group_initial_rebalance_delay_ms=0, offset_metadata_max_bytes=8),
        limits=Limits(groups=most_groups, **limits),
    )
    store = FragileMetadata()
    shard = await open_shard(store, None, None, 1, lambda: now_ms[0])
    for name, topic_id in TOPICS.items():
        await shard.ask(CreateTopic(name, topic_id, PARTITIONS, {}), soon())
    groups = GroupsRoom(shard, settings)
    groups.start()
    offsets = CommittedOffsets(shard, groups, settings)
    expiry = OffsetExpiry(shard, groups, RETENTION_MS, lambda: now_ms[0], 5.0)
    yield Host(store, shard, groups, offsets, expiry, now_ms)
    groups.close()
    await shard.close()


@pytest_asyncio.fixture
async def host() -> AsyncIterator[Host]:
    async with hosted(3) as made:
        yield made


async def test_ids_of_groups_with_offsets_are_bounded_together() -> None:
    async with hosted(64) as host:
        row = host.row(5)
        for number in range(2):
            assert await host.commit(row, who=Committer(f"{number}" * 30_000)) == ["NONE"]
        assert await host.commit(row, who=Committer("l" * 1_025)) == ["GROUP_MAX_SIZE_REACHED"]
        assert await host.commit(row, who=Committer("l" * 1_024)) == ["NONE"]
        # A group that is there goes on.
        assert await host.commit(row, who=Committer("0" * 30_000)) == ["NONE"]


async def test_a_simple_group_begins_with_its_first_commit(host: Host) -> None:
    assert await host.commit(host.row(5), host.row(7, 1, "u")) == ["NONE", "NONE"]
    assert host.held() == {("t", 0): 5, ("u", 1): 7}
    assert await host.commit(host.row(3)) == ["NONE"]
    assert host.held()["t", 0] == 3


async def test_each_row_is_judged_by_itself(host: Host) -> None:
    rows = [
        host.row(1, metadata="12345678"),
        host.row(2, 1, metadata="123456789"),
        host.row(3, 2, metadata="😀😀😀😀"),
        host.row(4, 3, metadata="😀😀😀😀!"),
        host.row(5, PARTITIONS),
    ]
    too_large = "OFFSET_METADATA_TOO_LARGE"
    errors = ["NONE", too_large, "NONE", too_large, "UNKNOWN_TOPIC_OR_PARTITION"]
    assert await host.commit(*rows) == errors
    assert host.held() == {("t", 0): 1, ("t", 2): 3}


@pytest.mark.parametrize(
    ("who", "error"),
    [
        (Committer("g", generation=1), "GROUP_ID_NOT_FOUND"),
        (Committer("g", "ghost", None, 0), "GROUP_ID_NOT_FOUND"),
        (Committer("g", "ghost"), "NONE"),
    ],
)
async def test_only_a_member_of_a_group_has_a_generation(host: Host, who: Committer, error: str) -> None:
    assert await host.commit(host.row(5), who=who) == [error]


async def test_a_living_group_takes_offsets_of_its_members_alone(host: Host) -> None:
    member = await host.member()
    assert await host.commit(host.row(1)) == ["UNKNOWN_MEMBER_ID"]
    assert await host.commit(host.row(1), who=Committer("g", "ghost", None, 1)) == ["UNKNOWN_MEMBER_ID"]
    assert await host.commit(host.row(1), who=Committer("g", member, None, 0)) == ["ILLEGAL_GENERATION"]
    assert host.held() == {}
    assert await host.commit(host.row(1), who=Committer("g", member, None, 1)) == ["NONE"]
    await host.leave(member)
    assert await host.commit(host.row(2)) == ["NONE"]
    assert host.held() == {("t", 0): 2}


async def test_a_large_commit_is_cut_into_what_entries_hold(host: Host) -> None:
    count = MAX_OFFSETS + 500
    assert await host.commit(*[host.row(i, i) for i in range(count)]) == ["NONE"] * count
    assert len(host.held()) == count
    applied = host.shard.state.applied
    rows = [host.row(i + 1, i, metadata="12345678") for i in range(COMMIT_BYTES // 50)]
    assert set(await host.commit(*rows)) == {"NONE"}
    assert host.held()["t", len(rows) - 1] == len(rows)
    assert host.shard.state.applied > applied


async def test_what_cannot_be_stored_is_refused_and_what_may_have_been_is_told_apart(host: Host) -> None:
    host.store.is_away = True
    assert await host.commit(host.row(5)) == ["NOT_COORDINATOR"]
    host.store.is_away = False
    host.store.going.clear()
    asked = host.offsets.commit(Committer("g"), [host.row(6)], soon(0.05))
    assert await asked == ["COORDINATOR_NOT_AVAILABLE"]
    host.store.going.set()
    assert await host.commit(host.row(7)) == ["NONE"]
    assert host.held() == {("t", 0): 7}


async def test_commits_of_one_turn_are_told_in_order_and_the_last_one_holds(host: Host) -> None:
    told: list[tuple[int, list[str]]] = []

    def start(number: int) -> None:
        host.offsets.start(Committer("g"), [host.row(number)], soon(), partial(tell, number))

    def tell(number: int, errors: list[str]) -> None:
        told.append((number, errors))
        if number < 6:
            # Whoever is told may go on within the same turn.
            start(number + 10)

    for number in (5, 4, 6):
        start(number)
    await until(lambda: len(told) == 5)
    assert told == [(number, ["NONE"]) for number in (5, 4, 6, 15, 14)]
    assert host.held() == {("t", 0): 14}


async def test_a_commit_is_told_only_when_it_is_durable(host: Host) -> None:
    told: list[list[str]] = []
    host.store.going.clear()
    host.offsets.start(Committer("g"), [host.row(5)], soon(), told.append)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not told and not host.held()
    host.store.going.set()
    await until(lambda: told == [["NONE"]])
    assert host.held() == {("t", 0): 5}


async def test_commits_that_are_over_before_they_are_decided_are_left(host: Host) -> None:
    told: list[list[str]] = []
    host.store.going.clear()
    first = asyncio.create_task(host.commit(host.row(1)))
    await asyncio.sleep(0.01)
    rows = [host.row(2, partition) for partition in range(MAX_OFFSETS + 1)]
    cancelled = [host.offsets.start(Committer("g"), some, soon(), told.append) for some in (rows[:1], rows)]
    for some in (rows[:1], rows):
        host.offsets.start(Committer("g"), some, soon(0.05), told.append)
    for commit in cancelled:
        commit.cancel()
    await until(lambda: len(told) == 2)
    assert told == [["COORDINATOR_NOT_AVAILABLE"] * 1, ["COORDINATOR_NOT_AVAILABLE"] * len(rows)]
    host.store.going.set()
    assert await first == ["NONE"]
    assert await host.commit(host.row(3, 1)) == ["NONE"]
    assert host.held() == {("t", 0): 1, ("t", 1): 3} and len(told) == 2


async def test_a_refusal_that_is_cancelled_in_its_turn_is_not_looked_into(
    host: Host, recwarn: pytest.WarningsRecorder
) -> None:
    told: list[list[str]] = []
    host.offsets.start(Committer("g", generation=1), [host.row(1)], soon(), told.append).cancel()
    await asyncio.sleep(0.01)
    gc.collect()
    assert not told and not recwarn.list


async def test_a_refusal_that_cannot_be_proved_in_time_is_none(host: Host) -> None:
    host.store.going.clear()
    joining = asyncio.create_task(host.member())
    await asyncio.sleep(0.01)
    # What the group has decided is not durable, and its room is patient no longer.
    host.groups.close()
    told: list[list[str]] = []
    host.offsets.start(Committer("g", "ghost", None, 1), [host.row(1)], soon(0.05), told.append)
    await until(lambda: told == [["COORDINATOR_NOT_AVAILABLE"]])
    host.store.going.set()
    await asyncio.sleep(0.01)
    assert len(told) == 1
    with pytest.raises(AssertionError):
        await joining


async def test_a_commit_that_cannot_be_told_fails_none_of_the_same_entry(host: Host) -> None:
    def fail(errors: list[str]) -> None:
        raise RuntimeError("the connection fails")

    host.offsets.start(Committer("g"), [host.row(1)], soon(), fail)
    assert await host.commit(host.row(2, 1)) == ["NONE"]
    assert host.held() == {("t", 0): 1, ("t", 1): 2}
    await host.shard.close()
    host.offsets.start(Committer("g"), [host.row(3)], soon(), fail)
    assert await host.commit(host.row(4)) == ["NOT_COORDINATOR"]


async def test_who_is_refused_again_and_again_lets_others_have_their_turn() -> None:
    async with hosted(10_000) as host:
        turns_at: list[int] = []
        turn = 0

        def tell(errors: list[str]) -> None:
            assert errors == ["INVALID_GROUP_ID"]
            turns_at.append(turn)
            if len(turns_at) < 50:
                start()

        def start() -> None:
            host.offsets.start(Committer("g" * 40_000), [host.row(1)], soon(), tell)

        start()
        while turn < 1_000:
            turn += 1
            await asyncio.sleep(0)
        assert len(set(turns_at)) == 50


async def test_groups_that_only_commit_have_a_bound(host: Host) -> None:
    for name in ("a", "b", "c"):
        assert await host.commit(host.row(5), who=Committer(name)) == ["NONE"]
    assert await host.commit(host.row(5), who=Committer("d")) == ["GROUP_MAX_SIZE_REACHED"]
    assert await host.commit(host.row(6), who=Committer("a")) == ["NONE"]


async def test_offsets_are_removed_but_not_those_of_topics_that_members_read(host: Host) -> None:
    assert await host.offsets.remove("g", [], soon()) == "GROUP_ID_NOT_FOUND"
    member = await host.member()
    await host.commit(host.row(5), host.row(6, 0, "u"), who=Committer("g", member, None, 1))
    keys = [("t", (TOPICS["t"], 0)), ("u", (TOPICS["u"], 0)), ("u", (TOPICS["u"], 1))]
    assert await host.offsets.remove("g", keys, soon()) == ["GROUP_SUBSCRIBED_TO_TOPIC", "NONE", "NONE"]
    assert host.held() == {("t", 0): 5}
    await host.leave(member)
    assert await host.offsets.remove("g", keys, soon()) == ["NONE"] * 3
    assert host.held() == {}


async def test_an_offset_expires_so_long_after_its_commit(host: Host) -> None:
    await host.commit(host.row(5))
    await host.pass_time(DAY_MS)
    await host.commit(host.row(6, 1))
    await host.pass_time(RETENTION_MS - DAY_MS - 1)
    assert await host.expiry.apply() == 0
    await host.pass_time(1)
    assert await host.expiry.apply() == 1
    assert host.held() == {("t", 1): 6}
    await host.pass_time(DAY_MS)
    await host.expiry.apply()
    assert host.groups.view("g") is None


async def test_a_commit_that_says_how_long_it_lasts_is_kept_for_as_long(host: Host) -> None:
    await host.commit(host.row(5, expire_ms=BEGUN_MS + 1000), host.row(6, 1, expire_ms=BEGUN_MS + 9 * DAY_MS))
    await host.pass_time(999)
    assert await host.expiry.apply() == 0
    await host.pass_time(1)
    assert await host.expiry.apply() == 1
    await host.pass_time(8 * DAY_MS)
    assert await host.expiry.apply() == 0
    assert host.held() == {("t", 1): 6}


async def test_no_offset_of_a_topic_that_a_living_group_reads_expires(host: Host) -> None:
    member = await host.member()
    await host.commit(host.row(5), host.row(6, 0, "u"), who=Committer("g", member, None, 1))
    await host.pass_time(RETENTION_MS)
    assert await host.expiry.apply() == 1
    assert host.held() == {("t", 0): 5}


async def test_no_offset_of_a_living_group_expires_whose_topics_cannot_be_told(host: Host) -> None:
    member = await host.member(topics=b"no subscription")
    await host.commit(host.row(5), who=Committer("g", member, None, 1))
    await host.pass_time(2 * RETENTION_MS)
    assert await host.expiry.apply() == 0


async def test_offsets_of_an_empty_group_stay_as_long_as_if_they_had_just_been_committed(host: Host) -> None:
    member = await host.member()
    await host.commit(host.row(5), who=Committer("g", member, None, 1))
    await host.pass_time(2 * RETENTION_MS)
    await host.leave(member)
    await host.pass_time(RETENTION_MS - 1)
    assert await host.expiry.apply() == 0
    await host.pass_time(1)
    assert await host.expiry.apply() == 1
    # Without offsets and members nothing of the group is left.
    assert host.groups.view("g") is None
    assert not host.shard.state.groups.has("g")


async def test_a_group_without_members_and_offsets_goes_and_one_with_members_stays(host: Host) -> None:
    member = await host.member()
    await host.expiry.apply()
    assert host.groups.view("g") is not None
    await host.leave(member)
    await host.expiry.apply()
    assert not host.shard.state.groups.has("g")


async def test_an_offset_that_is_committed_while_it_expires_stays(host: Host) -> None:
    await host.commit(host.row(5), host.row(6, 1))
    await host.pass_time(RETENTION_MS)
    host.store.going.clear()
    expiring = asyncio.create_task(host.expiry.apply())
    committing = asyncio.create_task(host.commit(host.row(50)))
    # Submitted before the expiry looks, and decided in the same entry.
    host.store.going.set()
    await asyncio.gather(expiring, committing)
    assert host.held()["t", 0] == 50


async def test_a_commit_beats_the_expiry_that_was_decided_before_it(host: Host) -> None:
    await host.commit(host.row(5))
    await host.pass_time(RETENTION_MS)
    due, before_ms = host.expiry._due("g", [(TOPICS["t"], 0)])
    assert due
    await host.commit(host.row(50))
    assert host.offsets.of("g")[TOPICS["t"], 0].committed_ms >= before_ms


async def test_offsets_of_deleted_topics_are_drained(host: Host) -> None:
    await host.commit(*[host.row(i, i) for i in range(2_500)], host.row(1, 0, "u"))
    await host.shard.ask(DeleteTopic(TOPICS["t"]), soon())
    await host.expiry.drain()
    assert host.held() == {("u", 0): 1}


async def test_a_group_stored_by_somebody_else_with_members_never_goes(host: Host) -> None:
    member = await host.member()
    stored = host.shard.state.groups.by_id["g"]
    await host.shard.ask(StoreGroup(stored), soon())
    await host.pass_time(3 * RETENTION_MS)
    await host.expiry.apply()
    assert [one.member_id for one in host.shard.state.groups.by_id["g"].members] == [member]
