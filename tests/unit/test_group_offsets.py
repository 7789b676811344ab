"""Committed offsets of groups over a shard in memory: which commits are taken, bounds, expiry."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import pytest
import pytest_asyncio

from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.shard import Shard
from gateway.groups.coordinator import GroupCoordinator
from gateway.groups.messages import LeavingMember, Sync
from gateway.groups.offset_expiry import OffsetExpiry
from gateway.groups.offset_manager import MAX_COMMIT_BYTES, Committer, OffsetManager
from gateway.settings import Groups, Limits, Settings
from ledger.errors import ErrorName, StoreUnavailable
from ledger.groups.requests import MAX_OFFSETS, StoreGroup
from ledger.groups.state import Group, OffsetRow
from ledger.ports import PutOutcome, Versioned
from ledger.requests import Done
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.types import TopicId
from tests.support.completions import Calls
from tests.support.groups import join_of
from tests.support.shards import open_shard

WAIT_S = 60.0
"""For what comes at once, on a busy machine too."""
BEGUN_MS = 1_700_000_000_000
DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
PARTITIONS = 3_000
TOPICS = {name: TopicId(name.encode() * 16) for name in "tu"}


class FragileMetadata(MemoryMetadata):
    """Fails while it is away; waits while it hangs."""

    def __init__(self) -> None:
        super().__init__(exclusive=False)
        self.is_away = False
        self.is_unreadable = False
        self.going = asyncio.Event()
        self.going.set()

    async def get(self, key: str) -> Versioned | None:
        if self.is_unreadable:
            raise StoreUnavailable("unreadable")
        return await super().get(key)

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        await self.going.wait()
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().put(key, value, expect)


@dataclass
class Host:
    """The services of groups over one shard, and a wall clock."""

    store: FragileMetadata
    shard: Shard
    groups: GroupCoordinator
    offsets: OffsetManager
    expiry: OffsetExpiry
    now_ms: list[int]

    def row(self, offset: int, partition: int = 0, topic: str = "t", **fields: int | str) -> OffsetRow:
        return OffsetRow(TOPICS[topic], partition, offset, **fields)  # type: ignore[arg-type]

    async def commit(self, *rows: OffsetRow, committer: Committer | None = None) -> list[ErrorName]:
        return await self.offsets.commit(committer or Committer("g"), rows, soon())

    def held(self, group_id: str = "g") -> dict[tuple[str, int], int]:
        names = {topic_id: name for name, topic_id in TOPICS.items()}
        return {
            (names[topic_id], partition): committed.offset
            for (topic_id, partition), committed in self.offsets.of(group_id).items()
        }

    async def member(self, topics: bytes = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff") -> str:
        """Id of the only member of a stable group `g`, in generation 1, which subscribes to topic t."""
        request = replace(join_of(), protocols=(("range", topics),), needs_member_id=False)
        joined = await self.groups.join("g", request, soon())
        assert joined.error == "NONE"
        synced = Sync(joined.member_id, None, joined.generation, None, None, {joined.member_id: b"all"})
        await self.groups.sync("g", synced, soon())
        return joined.member_id

    async def leave(self, member_id: str) -> None:
        assert await self.groups.leave("g", [LeavingMember(member_id, None)], soon()) == ["NONE"]

    async def pass_time(self, ms: int) -> None:
        """And write an entry with the new time, as the housekeeping of a gateway does."""
        self.now_ms[0] += ms
        await self.commit(self.row(0, topic="u"), committer=Committer("ticking"))


def soon(seconds: float = WAIT_S) -> float:
    return asyncio.get_running_loop().time() + seconds


async def run_ready_tasks() -> None:
    """Run all tasks that need not wait for time."""
    for _ in range(100):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait; the test fails if the condition never becomes true."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - a test may look from outside only
            await asyncio.sleep(0.001)


@asynccontextmanager
async def hosted(max_groups: int, **limits: int) -> AsyncIterator[Host]:
    now_ms = [BEGUN_MS]
    settings = Settings(
        groups=Groups(group_initial_rebalance_delay_ms=0, offset_metadata_max_bytes=8),
        limits=Limits(groups=max_groups, **limits),
    )
    store = FragileMetadata()
    shard = await open_shard(store, None, None, 1, lambda: now_ms[0])
    for name, topic_id in TOPICS.items():
        await shard.ask(CreateTopic(name, topic_id, PARTITIONS, {}), soon())
    groups = GroupCoordinator(shard, settings)
    await groups.begin_epoch()
    offsets = OffsetManager(shard, groups, settings)
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
            assert await host.commit(row, committer=Committer(f"{number}" * 30_000)) == ["NONE"]
        assert await host.commit(row, committer=Committer("l" * 1_025)) == ["GROUP_MAX_SIZE_REACHED"]
        assert await host.commit(row, committer=Committer("l" * 1_024)) == ["NONE"]
        # A group that exists continues.
        assert await host.commit(row, committer=Committer("0" * 30_000)) == ["NONE"]


async def test_a_simple_group_begins_with_its_first_commit(host: Host) -> None:
    assert await host.commit(host.row(5), host.row(7, 1, "u")) == ["NONE", "NONE"]
    assert host.held() == {("t", 0): 5, ("u", 1): 7}
    assert await host.commit(host.row(3)) == ["NONE"]
    assert host.held()["t", 0] == 3


async def test_each_row_is_checked_by_itself(host: Host) -> None:
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
    ("committer", "error"),
    [
        (Committer("g", generation=1), "GROUP_ID_NOT_FOUND"),
        (Committer("g", "ghost", None, 0), "GROUP_ID_NOT_FOUND"),
        (Committer("g", "ghost"), "NONE"),
    ],
)
async def test_only_a_member_of_a_group_has_a_generation(
    host: Host, committer: Committer, error: str
) -> None:
    assert await host.commit(host.row(5), committer=committer) == [error]


async def test_a_group_with_members_takes_commits_of_members_only(host: Host) -> None:
    member = await host.member()
    assert await host.commit(host.row(1)) == ["UNKNOWN_MEMBER_ID"]
    assert await host.commit(host.row(1), committer=Committer("g", "ghost", None, 1)) == ["UNKNOWN_MEMBER_ID"]
    assert await host.commit(host.row(1), committer=Committer("g", member, None, 0)) == ["ILLEGAL_GENERATION"]
    assert host.held() == {}
    assert await host.commit(host.row(1), committer=Committer("g", member, None, 1)) == ["NONE"]
    await host.leave(member)
    assert await host.commit(host.row(2)) == ["NONE"]
    assert host.held() == {("t", 0): 2}


async def test_a_large_commit_is_divided_into_journal_entries(host: Host) -> None:
    count = MAX_OFFSETS + 500
    assert await host.commit(*[host.row(i, i) for i in range(count)]) == ["NONE"] * count
    assert len(host.held()) == count
    applied = host.shard.state.applied
    rows = [host.row(i + 1, i, metadata="12345678") for i in range(MAX_COMMIT_BYTES // 50)]
    assert set(await host.commit(*rows)) == {"NONE"}
    assert host.held()["t", len(rows) - 1] == len(rows)
    assert host.shard.state.applied > applied


async def test_a_commit_that_failed_and_one_of_unknown_outcome_have_different_errors(host: Host) -> None:
    host.store.is_away = True
    assert await host.commit(host.row(5)) == ["NOT_COORDINATOR"]
    host.store.is_away = False
    host.store.going.clear()
    committing = host.offsets.commit(Committer("g"), [host.row(6)], soon(0.05))
    assert await committing == ["COORDINATOR_NOT_AVAILABLE"]
    host.store.going.set()
    assert await host.commit(host.row(7)) == ["NONE"]
    assert host.held() == {("t", 0): 7}


async def test_commits_of_one_loop_iteration_complete_in_order_and_the_last_one_counts(host: Host) -> None:
    results: list[tuple[int, list[ErrorName]]] = []

    def start(number: int) -> None:
        host.offsets.start(Committer("g"), [host.row(number)], soon(), Calls(partial(on_committed, number)))

    def on_committed(number: int, errors: list[ErrorName]) -> None:
        results.append((number, errors))
        if number < 6:
            # A caller may commit again in the same iteration of the event loop.
            start(number + 10)

    for number in (5, 4, 6):
        start(number)
    await until(lambda: len(results) == 5)
    assert results == [(number, ["NONE"]) for number in (5, 4, 6, 15, 14)]
    assert host.held() == {("t", 0): 14}


async def test_a_commit_completes_only_when_it_is_durable(host: Host) -> None:
    results: list[list[ErrorName]] = []
    host.store.going.clear()
    host.offsets.start(Committer("g"), [host.row(5)], soon(), Calls(results.append))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not results and not host.held()
    host.store.going.set()
    await until(lambda: results == [["NONE"]])
    assert host.held() == {("t", 0): 5}


async def test_commits_that_are_done_before_they_are_decided_are_dropped(host: Host) -> None:
    results: list[list[ErrorName]] = []
    host.store.going.clear()
    first = asyncio.create_task(host.commit(host.row(1)))
    await asyncio.sleep(0.01)
    rows = [host.row(2, partition) for partition in range(MAX_OFFSETS + 1)]
    cancelled = [
        host.offsets.start(Committer("g"), some, soon(), Calls(results.append)) for some in (rows[:1], rows)
    ]
    for some in (rows[:1], rows):
        host.offsets.start(Committer("g"), some, soon(0.05), Calls(results.append))
    for commit in cancelled:
        commit.cancel()
    await until(lambda: len(results) == 2)
    assert results == [["COORDINATOR_NOT_AVAILABLE"] * 1, ["COORDINATOR_NOT_AVAILABLE"] * len(rows)]
    host.store.going.set()
    assert await first == ["NONE"]
    assert await host.commit(host.row(3, 1)) == ["NONE"]
    assert host.held() == {("t", 0): 1, ("t", 1): 3} and len(results) == 2


async def test_a_refusal_that_is_cancelled_at_once_is_not_confirmed(
    host: Host, recwarn: pytest.WarningsRecorder
) -> None:
    results: list[list[ErrorName]] = []
    host.offsets.start(Committer("g", generation=1), [host.row(1)], soon(), Calls(results.append)).cancel()
    await asyncio.sleep(0.01)
    gc.collect()
    assert not results and not recwarn.list


async def test_a_refusal_that_cannot_be_confirmed_in_time_becomes_a_retriable_error(host: Host) -> None:
    host.store.going.clear()
    joining = asyncio.create_task(host.member())
    await asyncio.sleep(0.01)
    # What the group has decided is not durable, and its coordinator waits no longer.
    host.groups.close()
    results: list[list[ErrorName]] = []
    host.offsets.start(Committer("g", "ghost", None, 1), [host.row(1)], soon(0.05), Calls(results.append))
    await until(lambda: results == [["COORDINATOR_NOT_AVAILABLE"]])
    host.store.going.set()
    await asyncio.sleep(0.01)
    assert len(results) == 1
    with pytest.raises(AssertionError):
        await joining


async def test_a_completion_that_fails_does_not_fail_others_of_the_same_entry(host: Host) -> None:
    def fail(errors: list[ErrorName]) -> None:
        raise RuntimeError("the connection fails")

    host.offsets.start(Committer("g"), [host.row(1)], soon(), Calls(fail))
    assert await host.commit(host.row(2, 1)) == ["NONE"]
    assert host.held() == {("t", 0): 1, ("t", 1): 2}
    await host.shard.close()
    host.offsets.start(Committer("g"), [host.row(3)], soon(), Calls(fail))
    assert await host.commit(host.row(4)) == ["NOT_COORDINATOR"]


async def test_a_client_that_is_refused_again_and_again_does_not_hold_the_loop() -> None:
    async with hosted(10_000) as host:
        iterations: list[int] = []
        iteration = 0

        def on_committed(errors: list[ErrorName]) -> None:
            assert errors == ["INVALID_GROUP_ID"]
            iterations.append(iteration)
            if len(iterations) < 50:
                start()

        def start() -> None:
            host.offsets.start(Committer("g" * 40_000), [host.row(1)], soon(), Calls(on_committed))

        start()
        while iteration < 1_000:
            iteration += 1
            await asyncio.sleep(0)
        assert len(set(iterations)) == 50


async def test_groups_that_only_commit_have_a_bound(host: Host) -> None:
    for name in ("a", "b", "c"):
        assert await host.commit(host.row(5), committer=Committer(name)) == ["NONE"]
    assert await host.commit(host.row(5), committer=Committer("d")) == ["GROUP_MAX_SIZE_REACHED"]
    assert await host.commit(host.row(6), committer=Committer("a")) == ["NONE"]


async def test_offsets_are_removed_but_not_those_of_topics_that_members_read(host: Host) -> None:
    assert await host.offsets.remove("g", [], soon()) == "GROUP_ID_NOT_FOUND"
    member = await host.member()
    await host.commit(host.row(5), host.row(6, 0, "u"), committer=Committer("g", member, None, 1))
    keys = [("t", (TOPICS["t"], 0)), ("u", (TOPICS["u"], 0)), ("u", (TOPICS["u"], 1))]
    assert await host.offsets.remove("g", keys, soon()) == ["GROUP_SUBSCRIBED_TO_TOPIC", "NONE", "NONE"]
    assert host.held() == {("t", 0): 5}
    await host.leave(member)
    assert await host.offsets.remove("g", keys, soon()) == ["NONE"] * 3
    assert host.held() == {}


async def test_an_offset_expires_the_retention_time_after_its_commit(host: Host) -> None:
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
    assert host.groups.listing("g") is None


async def test_a_commit_with_a_retention_time_is_kept_for_that_time(host: Host) -> None:
    await host.commit(host.row(5, expire_ms=BEGUN_MS + 1000), host.row(6, 1, expire_ms=BEGUN_MS + 9 * DAY_MS))
    await host.pass_time(999)
    assert await host.expiry.apply() == 0
    await host.pass_time(1)
    assert await host.expiry.apply() == 1
    await host.pass_time(8 * DAY_MS)
    assert await host.expiry.apply() == 0
    assert host.held() == {("t", 1): 6}


async def test_no_offset_of_a_topic_that_members_subscribe_to_expires(host: Host) -> None:
    member = await host.member()
    await host.commit(host.row(5), host.row(6, 0, "u"), committer=Committer("g", member, None, 1))
    await host.pass_time(RETENTION_MS)
    assert await host.expiry.apply() == 1
    assert host.held() == {("t", 0): 5}


async def test_no_offset_of_a_group_expires_whose_subscriptions_cannot_be_read(host: Host) -> None:
    member = await host.member(topics=b"no subscription")
    await host.commit(host.row(5), committer=Committer("g", member, None, 1))
    await host.pass_time(2 * RETENTION_MS)
    assert await host.expiry.apply() == 0


async def test_offsets_of_a_group_that_becomes_empty_expire_the_retention_time_after_that(host: Host) -> None:
    member = await host.member()
    await host.commit(host.row(5), committer=Committer("g", member, None, 1))
    await host.pass_time(2 * RETENTION_MS)
    await host.leave(member)
    await host.pass_time(RETENTION_MS - 1)
    assert await host.expiry.apply() == 0
    await host.pass_time(1)
    assert await host.expiry.apply() == 1
    # A group without offsets and members is removed.
    assert host.groups.listing("g") is None
    assert not host.shard.state.groups.has("g")


async def test_a_group_without_members_and_offsets_is_removed_and_one_with_members_stays(host: Host) -> None:
    member = await host.member()
    await host.expiry.apply()
    assert host.groups.listing("g") is not None
    await host.leave(member)
    await host.expiry.apply()
    assert not host.shard.state.groups.has("g")


async def test_an_offset_that_is_committed_while_it_expires_stays(host: Host) -> None:
    await host.commit(host.row(5), host.row(6, 1))
    await host.pass_time(RETENTION_MS)
    host.store.going.clear()
    expiring = asyncio.create_task(host.expiry.apply())
    committing = asyncio.create_task(host.commit(host.row(50)))
    # Submitted before the expiry checks, and decided in the same entry.
    host.store.going.set()
    await asyncio.gather(expiring, committing)
    assert host.held()["t", 0] == 50


async def test_a_commit_prevails_over_an_expiry_that_was_decided_before_it(host: Host) -> None:
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


async def test_a_group_with_members_that_another_gateway_stored_is_never_removed(host: Host) -> None:
    member = await host.member()
    stored = host.shard.state.groups.by_id["g"]
    await host.shard.ask(StoreGroup(stored), soon())
    await host.pass_time(3 * RETENTION_MS)
    await host.expiry.apply()
    assert [one.member_id for one in host.shard.state.groups.by_id["g"].members] == [member]


async def test_no_offset_expires_of_a_group_that_has_just_become_empty(host: Host) -> None:
    """The journal still says that it has members, and when it got them."""
    member = await host.member()
    await host.commit(host.row(5), committer=Committer("g", member, None, 1))
    await host.pass_time(RETENTION_MS + DAY_MS)
    host.store.going.clear()
    leaving = asyncio.create_task(host.leave(member))
    await run_ready_tasks()
    expiring = asyncio.create_task(host.expiry.apply())
    await run_ready_tasks()
    host.store.going.set()
    await leaving
    await expiring
    assert host.held() == {("t", 0): 5}


async def test_many_groups_expire_in_few_journal_entries() -> None:
    """Other housekeeping waits meanwhile, and a journal entry takes time in a remote store."""
    groups = 100
    async with hosted(groups + 1) as host:
        for number in range(groups):
            await host.commit(host.row(5), committer=Committer(f"g{number}"))
        for number in range(groups):
            assert await host.shard.ask(
                StoreGroup(Group(f"g{number}", "consumer", 1, None, None, (), synced=False)), soon()
            ) == Done(1)
        await host.pass_time(RETENTION_MS)
        before = host.shard.state.applied
        assert await host.expiry.apply() == groups
        assert host.shard.state.applied - before <= groups // 10
        assert not host.shard.state.groups.by_id


async def test_committed_offsets_have_a_bound_and_offsets_within_it_can_be_committed_again() -> None:
    async with hosted(1000, offset_bytes=64 * 1024) as host:
        taken = 0
        while await host.commit(host.row(5, taken, metadata="text")) == ["NONE"]:
            taken += 1
        assert 200 < taken < 256
        full = ["GROUP_MAX_SIZE_REACHED"]
        assert await host.commit(host.row(5, taken)) == full
        assert await host.commit(host.row(5), committer=Committer("other")) == full
        assert await host.commit(host.row(6, 0, metadata="none")) == ["NONE"]
        assert await host.commit(host.row(6, 0, metadata="longer")) == full
        mixed = [host.row(7, taken), host.row(7, 0, metadata="none")]
        assert await host.commit(*mixed) == [*full, "NONE"]
        host.store.is_unreadable = True
        assert await host.commit(host.row(5, taken)) == ["COORDINATOR_NOT_AVAILABLE"]
        host.store.is_unreadable = False
        keys = [("t", (TOPICS["t"], partition)) for partition in range(taken)]
        await host.offsets.remove("g", keys, soon())
        assert host.shard.state.groups.offset_bytes == 0
        assert await host.commit(host.row(5), committer=Committer("other")) == ["NONE"]
