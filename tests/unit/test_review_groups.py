"""Groups and quotas when the journal hangs, clients hang up and strangers ask for more than there is."""

import asyncio
from dataclasses import replace

import pytest

from gateway.groups.offsets import Committer
from gateway.groups.values import Leaver, Sync
from gateway.quotas.meter import MAX_THROTTLE_MS, RateMeter
from ledger.groups import Group
from ledger.requests import Done, StoreGroup
from tests.support.groups import RULES, Played
from tests.unit.test_group_offsets import DAY_MS, RETENTION_MS, TOPICS, Host, hosted
from tests.unit.test_group_offsets import host as host
from tests.unit.test_groups_room import rooms, turns, virtually

PATIENCE_S = 60.0


@virtually
async def test_who_asks_while_the_journal_hangs_is_answered_in_time() -> None:
    async with rooms() as one:
        member = await one.stable()
        one.store.going.clear()
        leaving = asyncio.create_task(one.room.leave("g", [Leaver(member, None)], _soon()))
        await asyncio.wait_for(leaving, PATIENCE_S)
        assert leaving.result() == "COORDINATOR_NOT_AVAILABLE"
        # The state is still under way, and nothing new is submitted that could be waited for.
        assert await asyncio.wait_for(one.beat(member), PATIENCE_S) == "COORDINATOR_NOT_AVAILABLE"
        joined = await asyncio.wait_for(one.join(), PATIENCE_S)
        assert joined.error == "COORDINATOR_NOT_AVAILABLE"


@virtually
async def test_a_state_behind_one_that_hangs_is_not_waited_for_without_end() -> None:
    async with rooms() as one:
        member = await one.stable()
        one.store.going.clear()
        asking = asyncio.create_task(one.join(member_id=member))
        await asyncio.sleep(3)
        later = asyncio.create_task(one.room.leave("g", [Leaver(member, None)], _soon()))
        _, waiting = await asyncio.wait({asking, later}, timeout=PATIENCE_S)
        assert not waiting


@virtually
async def test_a_deletion_whose_client_hangs_up_leaves_the_group_alive() -> None:
    async with rooms() as one:
        await one.commit("g")
        one.store.going.clear()
        deleting = asyncio.create_task(one.room.delete("g", _soon()))
        await turns()
        deleting.cancel()
        await turns()
        one.store.going.set()
        await turns()
        assert one.room.check_commit("g", "", None, -1) is None
        assert (await one.join()).error == "NONE"


@virtually
async def test_nobody_is_told_to_be_fenced_by_who_is_not_yet_stored() -> None:
    async with rooms() as one:
        old = await one.join(instance_id="i")
        await one.room.sync("g", Sync(old.member_id, "i", 1, None, None, {}), _soon())
        one.store.going.clear()
        new = asyncio.create_task(one.join(instance_id="i"))
        await turns()
        fenced = one.room.check_commit("g", old.member_id, "i", 1)
        assert fenced == "FENCED_INSTANCE_ID"
        told = asyncio.create_task(one.room.denied("g", fenced, _soon()))
        await turns()
        assert not told.done()
        one.store.is_away = True
        one.store.going.set()
        assert (await new).error == await told == "COORDINATOR_NOT_AVAILABLE"
        assert one.room.check_commit("g", old.member_id, "i", 1) is None


@virtually
async def test_members_of_all_groups_together_have_a_bound() -> None:
    async with rooms(members_bytes=64 * 1024) as one:
        protocols = (("range", b"x" * 30_000),)
        members = [(await one.join(group, protocols=protocols)).member_id for group in "ab"]
        assert (await one.join("c", protocols=protocols)).error == "NONE"
        await asyncio.sleep(1)
        assert (await one.join("d")).error == "GROUP_MAX_SIZE_REACHED"
        await one.commit("simple")
        assert (await one.join("simple")).error == "GROUP_MAX_SIZE_REACHED"
        assert len(one.room._drivers) == 3
        longer = (("range", b"x" * 30_001),)
        assert (await one.join("a", members[0], protocols=longer)).error == "GROUP_MAX_SIZE_REACHED"
        assert (await one.join("a", members[0], protocols=protocols)).error == "NONE"
        await one.room.leave("b", [Leaver(members[1], None)], _soon())
        await asyncio.sleep(1)
        assert (await one.join("d")).error == "NONE"


def test_thousands_whose_time_is_up_one_after_the_other_are_looked_at_together() -> None:
    group = Played()
    for _ in range(2000):
        group.wait(1)
        group.join()
    looked = 0
    while group.group.pending:
        group.now = max(group.now, group.group.wake_at)
        group.group.tick(group.now)
        looked += 1
    assert looked <= 50


@virtually
async def test_many_unknown_members_that_leave_take_one_proof() -> None:
    async with rooms() as one:
        await one.stable()
        before = one.store.gets
        left = await one.room.leave("g", [Leaver(f"m{n}", None) for n in range(100)], _soon())
        assert left == ["UNKNOWN_MEMBER_ID"] * 100
        assert one.store.gets - before <= 2


def test_ids_that_wait_to_be_used_are_bounded_in_every_state() -> None:
    group = Played(replace(RULES, max_size=2))
    group.stable("a")
    for _ in range(2):
        assert group.join().error == "MEMBER_ID_REQUIRED"
    assert group.join().error == "GROUP_MAX_SIZE_REACHED"


def test_static_members_and_old_clients_need_no_place_among_ids_that_wait() -> None:
    group = Played(replace(RULES, max_size=2))
    group.join()
    group.join()
    assert group.join(instance_id="i").error is None
    assert group.join(needs_member_id=False).error is None


async def test_no_offset_expires_of_a_group_that_becomes_empty_this_moment(host: Host) -> None:
    """The journal still says that it has members, and when it got them."""
    member = await host.member()
    await host.commit(host.row(5), who=Committer("g", member, None, 1))
    await host.pass_time(RETENTION_MS + DAY_MS)
    host.store.going.clear()
    leaving = asyncio.create_task(host.leave(member))
    await turns()
    expiring = asyncio.create_task(host.expiry.apply())
    await turns()
    host.store.going.set()
    await leaving
    await expiring
    assert host.held() == {("t", 0): 5}


async def test_many_groups_expire_in_few_journal_entries() -> None:
    """Other housekeeping waits meanwhile, and an entry takes a store in the cloud a while."""
    groups = 100
    async with hosted(groups + 1) as host:
        for number in range(groups):
            await host.commit(host.row(5), who=Committer(f"g{number}"))
        for number in range(groups):
            assert await host.shard.ask(StoreGroup(_empty(f"g{number}")), _soon()) == Done(1)
        await host.pass_time(RETENTION_MS)
        before = host.shard.state.applied
        assert await host.expiry.apply() == groups
        assert host.shard.state.applied - before <= groups // 10
        assert not host.shard.state.groups.by_id


async def test_committed_offsets_have_a_bound_that_those_who_commit_again_do_not_feel() -> None:
    async with hosted(1000, offset_bytes=64 * 1024) as host:
        taken = 0
        while await host.commit(host.row(5, taken, metadata="text")) == ["NONE"]:
            taken += 1
        assert 200 < taken < 256
        full = ["GROUP_MAX_SIZE_REACHED"]
        assert await host.commit(host.row(5, taken)) == full
        assert await host.commit(host.row(5), who=Committer("other")) == full
        assert await host.commit(host.row(6, 0, metadata="none")) == ["NONE"]
        assert await host.commit(host.row(6, 0, metadata="longer")) == full
        keys = [("t", (TOPICS["t"], partition)) for partition in range(taken)]
        await host.offsets.remove("g", keys, _soon())
        assert host.shard.state.groups.offset_bytes == 0
        assert await host.commit(host.row(5), who=Committer("other")) == ["NONE"]


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1e-6])
def test_the_smallest_quota_throttles_for_the_longest_time(limit: float) -> None:
    meter = RateMeter(11, 1000)
    meter.record(1e6, 0)
    assert meter.throttle_ms(limit, 1) == MAX_THROTTLE_MS


def _empty(group_id: str) -> Group:
    return Group(group_id, "consumer", 1, None, None, (), synced=False)


def _soon() -> float:
    return asyncio.get_running_loop().time() + 5.0
