"""What goes over all groups does so in slices: 100,000 of them, as the bound allows, hold nothing up."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from adapters.metadata.memory import MemoryMetadata
from gateway.console.tables import GroupTable
from gateway.coordination.shard import Shard
from gateway.groups.coordinator import GroupCoordinator
from gateway.groups.describe import GroupDescription, describe_simple
from gateway.groups.group_runner import GroupRunner
from gateway.groups.machine import Complete, GroupCoordinatorConfig, Store
from gateway.groups.machine_factory import restored_machine
from gateway.groups.messages import RETRIABLE, SyncResult
from gateway.groups.offset_expiry import SLICE_OFFSETS, SUBMITTED_AT_ONCE, UNITS_A_GROUP, OffsetExpiry
from gateway.groups.totals import GroupTotals
from gateway.scheduling.slices import CHECK_EVERY, Owner, Slices, SliceScheduler
from gateway.settings import Settings
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.describe_groups import DescribedGroupMember, DescribeGroupsRequest
from gateway.wire.messages.generated.list_groups import ListGroupsRequest
from ledger.errors import ErrorName
from ledger.fields import encode_text
from ledger.groups.records import MEMBERS_AT_ONCE
from ledger.groups.state import CommittedOffset, Group, Groups, Member
from ledger.requests import LedgerResult, Request
from ledger.types import TopicId
from tests.support.in_memory import in_memory_gateway
from tests.support.loop_time import longest_turn
from tests.support.shards import open_shard

MAX_HOLD_S = 0.02
WAIT_S = 5.0
NOW_MS = 1_000_000
MANY, SOME = 100_000, 3_000
COMMITTED = CommittedOffset(1, -1, "", 0)
KEY = (TopicId(b"t" * 16), 0)
MEMBER = Member("m", None, "c", "/h", 45_000, 300_000, (("range", b""),), b"")


def group(group_id: str, *members: Member) -> Group:
    return Group(group_id, "consumer", 1, "range", members[0].member_id if members else None, members, True)


def add_many(groups: Groups, count: int) -> None:
    """Every second one has offsets alone."""
    for number in range(count):
        group_id = f"console-consumer-{number * 7919 % count:06d}"
        groups.put_offset(group_id, KEY, COMMITTED)
        if number % 2:
            groups.by_id[group_id] = group(group_id)


@pytest.fixture
async def shard() -> AsyncIterator[Shard]:
    opened = await open_shard(MemoryMetadata(), None, None, 1, lambda: NOW_MS)
    yield opened
    await opened.close()


class Steps:
    """What was done since the event loop ran other tasks, and the most of it at once."""

    def __init__(self) -> None:
        self.since = self.most = self.turns = 0

    def did(self) -> None:
        self.since += 1
        self.most = max(self.most, self.since)

    def turn(self) -> None:
        self.since = 0
        self.turns += 1


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Groups that are described. Slices are as short as can be."""
    steps, described, next_slice = Steps(), describe_simple, Slices.next_slice

    def counted(group_id: str) -> GroupDescription:
        steps.did()
        return described(group_id)

    async def turned(slices: Slices) -> None:
        await next_slice(slices)
        steps.turn()

    monkeypatch.setattr("gateway.groups.coordinator.describe_simple", counted)
    monkeypatch.setattr("gateway.scheduling.slices.SLICE_SECONDS", 0.0)
    monkeypatch.setattr(Slices, "next_slice", turned)
    return steps


async def test_all_groups_are_listed_in_slices(described: Steps) -> None:
    async with in_memory_gateway() as gateway:
        add_many(gateway.running.shard.state.groups, SOME)
        listed = (await gateway.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())).groups
        assert len({one.group_id for one in listed}) == len(listed) == SOME
        assert {one.group_state for one in listed} == {"Empty"}
    assert described.turns > 5 and described.most <= CHECK_EVERY


async def test_the_table_of_all_groups_is_made_in_slices_and_by_name(described: Steps, shard: Shard) -> None:
    add_many(shard.state.groups, SOME)
    table = GroupTable(shard, GroupCoordinator(shard, Settings()))
    names = [row.name for row in await table.rows(Slices(SliceScheduler(), Owner(1, "host")))]
    assert names == sorted(names) and len(names) == SOME
    assert described.turns > 5 and described.most <= CHECK_EVERY


async def test_the_members_of_a_large_group_are_described_in_slices(
    described: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*fields: Any) -> DescribedGroupMember:
        described.did()
        return DescribedGroupMember(*fields)

    monkeypatch.setattr("gateway.handlers.describe_groups.DescribedGroupMember", made)
    members = [MEMBER._replace(member_id=f"m{number}") for number in range(SOME)]
    async with in_memory_gateway() as gateway:
        services = gateway.running.services
        gateway.running.shard.state.groups.by_id["g"] = group("g", *members)
        await services.groups.begin_epoch()
        request = DescribeGroupsRequest(["g", "g"])
        for one in (await gateway.ask(ApiKey.DESCRIBE_GROUPS, 5, request)).groups:
            assert [member.member_id for member in one.members] == [one.member_id for one in members]
    assert described.turns > 5 and described.most <= CHECK_EVERY


async def test_a_large_group_is_stored_in_steps_and_the_newest_state_prevails(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, completed = Steps(), list[int]()

    def encoded(value: str | None) -> bytes:
        steps.did()
        return encode_text(value)

    def complete(effect: Complete, error: str | None) -> None:
        assert error is None
        completed.append(effect.ticket)

    def made(*fields: Any) -> Member:
        steps.did()
        return Member(*fields)

    # What is encoded, and what is decoded again to be applied.
    monkeypatch.setattr("ledger.groups.records.encode_text", encoded)
    monkeypatch.setattr("ledger.groups.records.Member", made)
    members = [MEMBER._replace(member_id=f"m{number}") for number in range(SOME)]
    machine = partial(restored_machine, "g", GroupCoordinatorConfig())
    ignored: Any = lambda *_: None  # noqa: E731
    runner = GroupRunner("g", shard, machine, complete, ignored, ignored, ignored, WAIT_S)
    for ticket, count in enumerate([SOME, SOME - 1, SOME - 2]):
        runner.execute([Store(group("g", *members[:count])), Complete(ticket, SyncResult(ErrorName.NONE))])
    waiting = asyncio.ensure_future(runner.wait_until_durable())
    while not waiting.done():
        steps.turn()
        await asyncio.sleep(0)
    assert shard.state.groups.by_id["g"].members == tuple(members[: SOME - 2])
    assert completed == [0, 1, 2]
    # With the names of the group; only the first state and the last were stored.
    assert steps.most <= MEMBERS_AT_ONCE + 4 and steps.turns >= 4 * SOME // MEMBERS_AT_ONCE
    runner.stop()


async def test_a_large_group_that_is_still_encoded_when_its_epoch_ends_is_not_stored(shard: Shard) -> None:
    ended, before = list[str | None](), shard.state.applied
    members = [MEMBER._replace(member_id=f"m{number}") for number in range(SOME)]
    machine, ignored = partial(restored_machine, "g", GroupCoordinatorConfig()), Mock()
    runner = GroupRunner("g", shard, machine, lambda _, e: ended.append(e), ignored, ignored, ignored, WAIT_S)
    runner.execute([Store(group("g", *members)), Complete(1, SyncResult(ErrorName.NONE))])
    await asyncio.sleep(0)
    runner.stop()
    for _ in range(4 * SOME // MEMBERS_AT_ONCE):
        await asyncio.sleep(0)
    assert (shard.state.applied, shard.state.groups.by_id) == (before, {})
    assert ended and ended[0] == RETRIABLE


def test_groups_may_come_and_go_while_all_of_them_are_gone_through() -> None:
    groups = Groups()
    add_many(groups, 8)
    found, ids = list[str](), groups.ids()
    found.append(next(ids))
    moved, gone = "console-consumer-000000", "console-consumer-000002"
    assert moved not in groups.by_id
    groups.by_id[moved] = group(moved)
    groups.by_id.clear()
    groups.remove_offset(gone, KEY)
    groups.put_offset("new", KEY, COMMITTED)
    found += ids
    assert sorted(found) == [f"console-consumer-{number:06d}" for number in range(8)]


async def test_groups_are_counted_in_slices(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.groups.totals.SLICE", 10)
    groups = shard.state.groups
    add_many(groups, 100)
    groups.by_id |= {name: group(name, MEMBER) for name in ("with members", "with more")}
    coordinator = GroupCoordinator(shard, Settings())
    await coordinator.begin_epoch()
    counted = GroupTotals(coordinator)
    assert await turns_of(counted.count()) >= 10
    assert (counted.groups, counted.members, counted.by_state) == (102, 2, {"Stable": 2})
    await coordinator.end_epoch()


async def turns_of(work: Coroutine[Any, Any, None]) -> int:
    """Iterations of the event loop that it takes."""
    working, turns = asyncio.ensure_future(work), 0
    while not working.done():
        turns += 1
        await asyncio.sleep(0)
    await working
    return turns


@pytest.mark.parametrize(("groups", "offsets"), [(60, 1_000), (600, 100), (2_000, 1), (2, 5_000)])
async def test_offsets_of_all_groups_are_checked_with_one_budget_for_each_iteration(
    shard: Shard, groups: int, offsets: int
) -> None:
    steps = Steps()

    def clock() -> int:
        """Read once for the offsets of a group that are checked at once."""
        steps.did()
        return NOW_MS

    for number in range(groups):
        for partition in range(offsets):
            shard.state.groups.put_offset(f"g{number}", (KEY[0], partition), COMMITTED)
    expiry = OffsetExpiry(shard, GroupCoordinator(shard, Settings()), 2 * NOW_MS, clock, WAIT_S)
    expiring = asyncio.ensure_future(expiry.apply())
    while not expiring.done():
        steps.turn()
        await asyncio.sleep(0)
    assert await expiring == 0
    assert steps.most * offsets <= SLICE_OFFSETS or steps.most == 1
    assert steps.most <= SLICE_OFFSETS / 4
    assert steps.turns <= 2 * groups * (offsets + UNITS_A_GROUP) // SLICE_OFFSETS + 10


async def test_offsets_of_many_groups_that_expire_are_removed_by_few_entries(shard: Shard) -> None:
    add_many(shard.state.groups, 3 * SUBMITTED_AT_ONCE)
    expiry = OffsetExpiry(shard, GroupCoordinator(shard, Settings()), 1, lambda: NOW_MS, WAIT_S)
    before = shard.state.applied
    assert await expiry.apply() == 3 * SUBMITTED_AT_ONCE
    assert not shard.state.groups.offsets
    assert shard.state.applied - before <= 10


async def test_an_expiry_that_is_cancelled_leaves_no_requests(shard: Shard) -> None:
    """They would fail later, and nothing would look at that."""
    add_many(shard.state.groups, 2 * SLICE_OFFSETS)
    submitted: list[asyncio.Future[LedgerResult]] = []
    submit = shard.submit

    def noted(request: Request) -> asyncio.Future[LedgerResult]:
        submitted.append(submit(request))
        return submitted[-1]

    shard.submit = noted  # type: ignore[method-assign]
    expiry = OffsetExpiry(shard, GroupCoordinator(shard, Settings()), 1, lambda: NOW_MS, WAIT_S)
    expiring = asyncio.ensure_future(expiry.apply())
    await asyncio.sleep(0)
    expiring.cancel()
    await asyncio.gather(expiring, return_exceptions=True)
    assert submitted and all(one.done() for one in submitted)


@pytest.mark.serial
async def test_very_many_groups_do_not_hold_the_event_loop() -> None:
    async with in_memory_gateway() as gateway:
        add_many(gateway.running.shard.state.groups, MANY)
        request = ListGroupsRequest(["Stable"])
        held = [
            await longest_turn(gateway.ask(ApiKey.LIST_GROUPS, 4, request)),
            await longest_turn(gateway.ask(ApiKey.LIST_GROUPS, 4, request)),
        ]
        assert min(held) < MAX_HOLD_S
        totals = GroupTotals(gateway.running.services.groups)
        assert min([await longest_turn(totals.count()) for _ in range(3)]) < MAX_HOLD_S
        assert totals.groups == MANY
