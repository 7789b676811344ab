"""What groups do by themselves when time goes by: the same scenes at Apache Kafka and at the gateway.

A scene notes the response, which must be the same, and how long it took, which must be nearly so.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from gateway.addresses import Address
from gateway.cli.client import ClientError
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.find_coordinator import FindCoordinatorRequest
from gateway.wire.messages.generated.leave_group import LeaveGroupRequest, MemberIdentity
from tests.differential.conversation import Endpoint
from tests.differential.steps import wait_until
from tests.support.gateway import Gateway
from tests.support.group_member import WAIT_S, Member, name_of
from tests.support.kafka import running_kafka, why_missing

pytestmark = pytest.mark.serial

CONFIGS: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "1000",
    "group.min.session.timeout.ms": "500",
    "group.max.size": "3",
}
NEARLY_S: Final = 0.9
STEP_S: Final = 0.1
SCENES_AT_ONCE: Final = 4


@dataclass(slots=True)
class Scene:
    """One group at one endpoint, and what was seen there."""

    address: Address
    group: str
    pool: ThreadPoolExecutor
    seen: list[str] = field(default_factory=list)
    took_s: dict[str, float] = field(default_factory=dict)

    def member(self, **fields: Any) -> Member:
        return Member(self.address, self.group, **{"session_ms": 6000, "rebalance_ms": 2000, **fields})

    def begin(self, doing: Callable[[], Any]) -> Future[Any]:
        """A request that waits for others; they are under way when this returns."""
        begun = self.pool.submit(doing)
        time.sleep(STEP_S)
        return begun

    def note(self, what: str) -> None:
        self.seen.append(what)

    def end(self, name: str, begun: Future[Any]) -> Any:
        """Note what came of it; how long that took is not noted."""
        response = begun.result(WAIT_S)
        self.note(f"{name}: {shown(response)}")
        return response

    def timed(self, name: str, begun: Future[Any]) -> Any:
        since = time.monotonic()
        response = self.end(name, begun)
        self.took_s[name] = time.monotonic() - since
        return response

    def timed_until(self, name: str, holds: Callable[[], bool]) -> None:
        since = time.monotonic()
        wait_until(holds)
        self.took_s[name] = time.monotonic() - since

    def joined(self, *members: Member) -> list[Member]:
        """All in one generation that is not assigned, the leader first."""
        joins = [self.begin(member.join) for member in members]
        responses = [one.result(WAIT_S) for one in joins]
        return sorted(members, key=lambda member: member.member_id != responses[0].leader)

    def stable(self, *members: Member) -> list[Member]:
        """All in one generation, the leader first."""
        ordered = self.joined(*members)
        syncs = [self.begin(member.sync) for member in ordered]
        assert {name_of(one.result(WAIT_S)) for one in syncs} == {"NONE"}
        return ordered

    def beats(self, name: str, member: Member) -> None:
        self.note(f"{name} beats: {member.beat()}")


def shown(response: Any) -> str:
    error = name_of(response)
    if error != "NONE" or not hasattr(response, "generation_id"):
        return error
    return (
        f"generation {response.generation_id} of {len(response.members)} members, "
        f"skips {response.skip_assignment}"
    )


def a_slow_member(scene: Scene) -> None:
    leader, slow = scene.stable(scene.member(), scene.member())
    joining = scene.begin(leader.join)
    scene.beats("slow", slow)
    scene.timed("leader", joining)
    scene.beats("slow", slow)


def a_leader_that_never_syncs(scene: Scene) -> None:
    leader, follower = scene.joined(scene.member(), scene.member())
    scene.timed("follower", scene.begin(follower.sync))
    scene.beats("leader", leader)
    scene.end("follower again", scene.begin(follower.join))


def a_follower_that_never_syncs(scene: Scene) -> None:
    leader, follower = scene.joined(scene.member(), scene.member())
    scene.end("leader", scene.begin(leader.sync))
    scene.beats("follower", follower)
    scene.timed_until("until the follower goes", lambda: leader.beat() == "REBALANCE_IN_PROGRESS")
    scene.beats("follower", follower)


def a_silent_member(scene: Scene) -> None:
    leader, silent = scene.stable(scene.member(session_ms=1000), scene.member(session_ms=1000))
    scene.timed_until("until it goes", lambda: leader.beat() == "REBALANCE_IN_PROGRESS")
    scene.beats("silent", silent)


def a_member_that_waits_need_not_beat(scene: Scene) -> None:
    leader, other = scene.stable(scene.member(session_ms=700), scene.member())
    joining = scene.begin(leader.join)
    time.sleep(1.5)
    scene.end("other", scene.begin(other.join))
    scene.end("leader", joining)


def an_id_that_is_never_used(scene: Scene) -> None:
    (leader,) = scene.stable(scene.member(rebalance_ms=8000))
    scene.member(session_ms=1500).ask_for_id()
    scene.timed("leader", scene.begin(leader.join))


def the_initial_delay(scene: Scene) -> None:
    scene.timed("alone", scene.begin(scene.member(rebalance_ms=10_000).join))


def the_initial_delay_grows(scene: Scene) -> None:
    first = scene.begin(scene.member(rebalance_ms=10_000).join)
    time.sleep(0.5)
    second = scene.begin(scene.member(rebalance_ms=10_000).join)
    scene.timed("both", first)
    second.result(WAIT_S)


def the_initial_delay_ends_with_the_rebalance_timeout(scene: Scene) -> None:
    first = scene.begin(scene.member(rebalance_ms=1500).join)
    time.sleep(0.5)
    second = scene.begin(scene.member(rebalance_ms=1500).join)
    scene.timed("both", first)
    second.result(WAIT_S)


def the_initial_delay_of_a_group_that_was(scene: Scene) -> None:
    (member,) = scene.stable(scene.member())
    member.leave()
    first = scene.begin(scene.member(rebalance_ms=10_000).join)
    time.sleep(0.5)
    second = scene.begin(scene.member(rebalance_ms=10_000).join)
    scene.timed("both", first)
    second.result(WAIT_S)


def a_static_member_that_misses_a_rebalance(scene: Scene) -> None:
    members = [scene.member(), scene.member(instance_id="i", session_ms=20_000)]
    scene.stable(*members)
    scene.timed("other", scene.begin(members[0].join))
    scene.beats("static", members[1])


def who_is_removed_while_it_waits(scene: Scene) -> None:
    leader, _ = scene.stable(scene.member(), scene.member())
    joining = scene.begin(leader.join)
    scene.note(f"leave: {leader.leave()}")
    scene.end("leader", joining)


def a_change_while_others_wait_for_their_assignment(scene: Scene) -> None:
    leader, follower = scene.joined(scene.member(), scene.member())
    waiting = scene.begin(follower.sync)
    leader.metadata = b"\0\0\0\0\0\1\0\1x\xff\xff\xff\xff"
    joining = scene.begin(leader.join)
    scene.end("follower", waiting)
    scene.end("follower again", scene.begin(follower.join))
    scene.end("leader", joining)


def an_instance_that_waits_is_fenced(scene: Scene) -> None:
    first = scene.begin(scene.member(instance_id="i").join)
    again = scene.member(instance_id="i")
    second = scene.begin(again.join)
    scene.end("first", first)
    scene.end("second", second)
    scene.end("second's assignment", scene.begin(again.sync))
    scene.end("third", scene.begin(scene.member(instance_id="i").join))


def an_instance_that_returns_while_it_waits_need_not_beat(scene: Scene) -> None:
    slow = scene.member(rebalance_ms=15_000)
    scene.stable(slow)
    first = scene.begin(scene.member(instance_id="i", session_ms=1000).join)
    again = scene.member(instance_id="i", session_ms=1000)
    second = scene.begin(again.join)
    scene.end("first", first)
    time.sleep(2.5)
    scene.beats("slow", slow)
    joining = scene.begin(slow.join)
    scene.end("second", second)
    scene.end("slow", joining)


def a_full_group(scene: Scene) -> None:
    members = scene.stable(scene.member(), scene.member(), scene.member())
    fourth = scene.member()
    scene.end("fourth", scene.begin(fourth.join))
    scene.note(f"fourth has an id: {bool(fourth.member_id)}")
    scene.end("a member", scene.begin(members[1].join))


def a_group_that_fills_while_it_rebalances(scene: Scene) -> None:
    joins = [scene.begin(scene.member().join) for _ in range(3)]
    scene.end("fourth", scene.begin(scene.member().join))
    scene.note(str(sorted({one.result(WAIT_S).generation_id for one in joins})))


def several_leave_at_once(scene: Scene) -> None:
    a, b, _ = scene.stable(scene.member(), scene.member(), scene.member())
    leavers = [MemberIdentity(a.member_id), MemberIdentity("nobody"), MemberIdentity(b.member_id)]
    response = a.ask(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(scene.group, members=leavers))
    scene.note(str([member.error_code for member in response.members]))
    scene.beats("one of them", a)


SCENES: Final = (
    a_slow_member,
    a_leader_that_never_syncs,
    a_follower_that_never_syncs,
    a_silent_member,
    a_member_that_waits_need_not_beat,
    an_id_that_is_never_used,
    the_initial_delay,
    the_initial_delay_grows,
    the_initial_delay_ends_with_the_rebalance_timeout,
    the_initial_delay_of_a_group_that_was,
    a_static_member_that_misses_a_rebalance,
    who_is_removed_while_it_waits,
    a_change_while_others_wait_for_their_assignment,
    an_instance_that_waits_is_fenced,
    an_instance_that_returns_while_it_waits_need_not_beat,
    a_full_group,
    a_group_that_fills_while_it_rebalances,
    several_leave_at_once,
)


@dataclass(frozen=True, slots=True)
class Both:
    kafka: Endpoint
    gateway: Endpoint


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    reason = why_missing()
    if reason is not None:
        pytest.skip(reason)
    options = [part for name, value in CONFIGS.items() for part in ("--set", f"groups.{name}={value}")]
    gateway = Gateway(tmp_path_factory.mktemp("groups"), options)
    with running_kafka(CONFIGS) as kafka:
        gateway.start()
        try:
            for endpoint in (kafka, gateway):
                wait_until(lambda endpoint=endpoint: _coordinates(endpoint))  # type: ignore[misc]
            yield Both(kafka, gateway)
        finally:
            gateway.stop()


def _coordinates(endpoint: Endpoint) -> bool:
    """Kafka creates its topic of offsets at the first request that needs it, and loads it a little later."""
    member = Member(Address(endpoint.host, endpoint.port), "warm")
    try:
        found = member.ask(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest("warm"))
        return name_of(found) == "NONE" and member.beat() == "UNKNOWN_MEMBER_ID"
    except ClientError:
        return False


Play = Callable[[Scene], None]


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, both: Both) -> Iterator[Mapping[Play, Future[Sequence[Scene]]]]:
    """The selected scenes. A few are played at a time: each has a group of its own, and mostly waits."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    chosen = {item.callspec.params["scene"] for item in items if item.module is request.module}
    with ThreadPoolExecutor(SCENES_AT_ONCE) as pool:
        yield {scene: pool.submit(play, scene, both) for scene in SCENES if scene in chosen}


def play(scene: Play, both: Both) -> Sequence[Scene]:
    """The same scene at Kafka and at the gateway, at the same time."""
    # Each member's waiting request needs a thread of its own.
    with ThreadPoolExecutor(16) as pool:
        scenes = [
            Scene(Address(endpoint.host, endpoint.port), scene.__name__, pool)
            for endpoint in (both.kafka, both.gateway)
        ]
        for playing in [pool.submit(scene, one) for one in scenes]:
            playing.result(WAIT_S)
        return scenes


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_groups_keep_kafkas_time(scene: Play, played: Mapping[Play, Future[Sequence[Scene]]]) -> None:
    kafka, gateway = played[scene].result()
    assert gateway.seen == kafka.seen
    assert gateway.seen
    assert gateway.took_s.keys() == kafka.took_s.keys()
    for name, took_s in kafka.took_s.items():
        assert abs(gateway.took_s[name] - took_s) < NEARLY_S, (name, gateway.took_s, kafka.took_s)
