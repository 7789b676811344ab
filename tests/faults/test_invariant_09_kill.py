"""Invariant 9: a group survives its coordinator's death without losing generation or offsets (kill -9)."""

import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.addresses import Address
from gateway.cli.client import ClientError
from tests.faults.members import RETRY_S, Worker, problems_of_group
from tests.support.gateway import Gateway
from tests.support.group_member import WAIT_S, Member, name_of
from tests.support.topics import create_topics

PARTITIONS = 12
KILLS = 8 if os.environ.get("DRAGOMAN_TEST_FULL") == "1" else 4
FULL_KILLS = 200
WORKERS = 4
OPTIONS = ["--set", "groups.group.initial.rebalance.delay.ms=200"]


@dataclass(slots=True)
class Scene:
    """A gateway and members of one group."""

    gateway: Gateway
    pool: ThreadPoolExecutor
    waiting: list[Future[Any]] = field(default_factory=list)

    def member(self, **fields: Any) -> Member:
        return Member(Address(self.gateway.host, self.gateway.port), "g", **fields)

    def begin(self, doing: Callable[[], Any]) -> Future[Any]:
        """A request that waits for others."""
        begun = self.pool.submit(doing)
        self.waiting.append(begun)
        return begun

    def kill_and_restart(self) -> None:
        """Members that wait lose their connections."""
        self.gateway.kill9()
        for one in self.waiting:
            try:
                one.result(WAIT_S)
            except ClientError:
                continue
        self.waiting.clear()
        self.gateway.start()

    def stable(self, count: int = 2, **fields: Any) -> list[Member]:
        """Members in one generation, the leader first; each has its own number as assignment."""
        members = [self.member(**fields) for _ in range(count)]
        joined = [one.result(WAIT_S) for one in [self.begin(member.join) for member in members]]
        members.sort(key=lambda member: member.member_id != joined[0].leader)
        shares = {member.member_id: bytes([i]) for i, member in enumerate(members)}
        synced = [self.begin(lambda member=member: member.sync(shares)) for member in members]  # type: ignore[misc]
        assert [one.result(WAIT_S).assignment for one in synced] == [bytes([i]) for i in range(count)]
        return members


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    gateway = Gateway(tmp_path, OPTIONS)
    gateway.start()
    create_topics(gateway.bootstrap, {"t": PARTITIONS})
    with ThreadPoolExecutor(16) as pool:
        try:
            yield Scene(gateway, pool)
        finally:
            gateway.kill9()


def test_a_stable_group_continues_in_its_generation(scene: Scene) -> None:
    members = scene.stable(3)
    assert members[1].commit(1, 41) == "NONE"
    scene.kill_and_restart()
    assert [member.beat() for member in members] == ["NONE"] * 3
    assert [member.sync().assignment for member in members] == [b"\0", b"\1", b"\2"]
    assert members[1].committed([0, 1]) == {0: -1, 1: 41}
    assert members[1].commit(1, 42) == "NONE"
    described = members[0].described()
    assert described.group_state == "Stable"
    assert {member.member_id for member in described.members} == {member.member_id for member in members}


def test_a_follower_that_joins_again_after_the_restart_causes_no_rebalance(scene: Scene) -> None:
    leader, follower = scene.stable()
    scene.kill_and_restart()
    joined = follower.join()
    assert (name_of(joined), joined.generation_id) == ("NONE", 1)
    assert leader.beat() == "NONE"


def test_a_static_member_that_is_restarted_with_the_gateway_causes_no_rebalance(scene: Scene) -> None:
    (member,) = scene.stable(1, instance_id="i")
    scene.kill_and_restart()
    again = scene.member(instance_id="i")
    joined = again.join()
    assert (joined.generation_id, joined.skip_assignment) == (1, True)
    assert again.sync().assignment == b"\0"
    scene.kill_and_restart()
    assert again.beat() == "NONE"
    assert member.beat() == "FENCED_INSTANCE_ID"


def test_a_generation_that_was_returned_is_kept_before_it_has_assignments(scene: Scene) -> None:
    members = [scene.member() for _ in range(3)]
    joined = [one.result(WAIT_S) for one in [scene.begin(member.join) for member in members]]
    leader = next(member for member in members if member.member_id == joined[0].leader)
    followers = [member for member in members if member is not leader]
    scene.begin(followers[0].sync)
    time.sleep(0.2)
    scene.kill_and_restart()
    assert leader.beat() == "NONE"
    syncing = [scene.begin(member.sync) for member in followers]
    shares = {member.member_id: member.member_id.encode() for member in members}
    assert name_of(leader.sync(shares)) == "NONE"
    assert [one.result(WAIT_S).assignment.decode() for one in syncing] == [m.member_id for m in followers]


def test_a_client_that_waited_to_join_begins_again_and_a_member_stays_one(scene: Scene) -> None:
    leader, follower = scene.stable()
    newcomer = scene.member()
    scene.begin(newcomer.join)
    until(lambda: leader.beat() == "REBALANCE_IN_PROGRESS")
    scene.begin(leader.join)
    time.sleep(0.2)
    scene.kill_and_restart()
    assert leader.beat() == follower.beat() == "NONE"
    assert follower.commit(0, 7) == "NONE"
    assert name_of(newcomer.join()) == "UNKNOWN_MEMBER_ID"
    newcomer.member_id = ""
    joining = [scene.begin(newcomer.join)]
    until(lambda: leader.beat() == "REBALANCE_IN_PROGRESS")
    joining += [scene.begin(leader.join), scene.begin(follower.join)]
    assert {one.result(WAIT_S).generation_id for one in joining} == {2}


@pytest.mark.serial
def test_members_that_do_not_come_back_are_missed_after_their_session(scene: Scene) -> None:
    leader, follower = scene.stable()
    scene.kill_and_restart()
    back_at = time.monotonic()
    until(lambda: leader.beat() == "REBALANCE_IN_PROGRESS")
    assert 8.0 < time.monotonic() - back_at < 14.0
    assert follower.beat() == "UNKNOWN_MEMBER_ID"


def test_a_group_that_all_members_left_continues_its_generations(scene: Scene) -> None:
    (member,) = scene.stable(1)
    assert member.commit(3, 5) == "NONE"
    assert member.leave() == "NONE"
    scene.kill_and_restart()
    assert member.committed([3]) == {3: 5}
    again = scene.member()
    assert again.join().generation_id == 3


def kill_under_way(scene: Scene, kills: int, seed: int) -> list[Worker]:
    """Workers join, leave and commit while the gateway is killed at any moment."""
    dice = random.Random(seed)
    workers = [Worker(scene.member(), PARTITIONS, n).start() for n in range(WORKERS)]
    try:
        for number in range(kills):
            before = sum(len(worker.acked) for worker in workers)
            until(lambda before=before: sum(len(worker.acked) for worker in workers) > before)  # type: ignore[misc]
            if number % 2:
                dice.choice(workers).leaving.set()
            time.sleep(dice.uniform(0.0, 1.2))
            scene.gateway.kill9()
            scene.gateway.start()
        acked = [len(worker.acked) for worker in workers]
        until(lambda: sum(len(worker.acked) for worker in workers) > sum(acked))
    finally:
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.stop()
    return workers


def test_commits_and_generations_never_go_back_through_kills_at_any_moment(scene: Scene) -> None:
    assert problems_of_group(kill_under_way(scene, KILLS, 9)) == []


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_commits_and_generations_never_go_back_through_hundreds_of_kills(scene: Scene) -> None:
    assert problems_of_group(kill_under_way(scene, FULL_KILLS, 90)) == []


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(RETRY_S)
