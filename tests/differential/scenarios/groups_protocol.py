"""JoinGroup, 0-9, SyncGroup, 0-5, Heartbeat, 0-4, and LeaveGroup, 0-5: what members send and get."""

from collections.abc import Sequence
from typing import Any

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.heartbeat import HeartbeatRequest
from gateway.wire.messages.generated.join_group import JoinGroupRequest
from gateway.wire.messages.generated.leave_group import LeaveGroupRequest, MemberIdentity
from gateway.wire.messages.generated.sync_group import SyncGroupRequest
from tests.differential.batches import i16, i32
from tests.differential.conversation import JOINED
from tests.differential.exchange import Appended, Body, Call, Cut, Exchange, MemberOf, Step
from tests.differential.group_steps import AskForId, Join, Waiting, join, sync
from tests.differential.scenarios.groups_admin import described
from tests.differential.steps import Done

JOIN = ApiKey.JOIN_GROUP
SYNC = ApiKey.SYNC_GROUP
BEAT = ApiKey.HEARTBEAT
LEAVE = ApiKey.LEAVE_GROUP
M, N, NEW = MemberOf("m"), MemberOf("n"), MemberOf(JOINED)
ONE: Sequence[Step] = (Join(),)
PAIR: Sequence[Step] = (Join(("m", "n")),)
STATIC: Sequence[Step] = (Join(instances={"m": "i"}),)
HALFWAY: Sequence[Step] = (Join(synced=False),)
HALFWAY_PAIR: Sequence[Step] = (Join(("m", "n"), synced=False),)
REBALANCING: Sequence[Step] = (Join(), Waiting(Call(JOIN, 3, join())))
BOUNCED: Sequence[Step] = (*STATIC, Done(Call(JOIN, 5, join(instance="i"))))
"""The static member `i` has joined again under another id."""
TWO_WAYS = (("range", b"r"), ("roundrobin", b"rr"))


def _join(
    name: str,
    request: JoinGroupRequest,
    before: Sequence[Step] = (),
    versions: Sequence[int] = (0, 3, 4, 5, 9),
    after: Sequence[Call] = (described(),),
) -> list[Exchange]:
    return [Exchange(f"join group: {name}, v{v}", JOIN, v, request, before, after) for v in versions]


def _refused_anew(name: str, request: JoinGroupRequest, versions: Sequence[int]) -> list[Exchange]:
    """By a group that is not there. Kafka keeps an empty one of that name until it looks for such."""
    return _join(name, request, (), versions, ())


_JOIN = [
    *_join("the first", join(), versions=range(10)),
    *_join(
        "the first, and again with its id",
        join(),
        after=[Call(JOIN, 9, join(member=NEW)), described()],
        versions=(4, 9),
    ),
    *_join("with the id that was given", join(member=M), [AskForId()], range(10)),
    *_join("with an id that no member has", join(member="ghost"), versions=(0, 4, 9)),
    *_join("with an id that no member has, a living group", join(member="ghost"), ONE, (0, 9)),
    *_join("an empty group id", join(""), versions=(0, 5, 9)),
    *_join("an empty group id and a member", join("", "ghost"), versions=(0, 9)),
    *_refused_anew("no protocols", join(protocols=()), (0, 5)),
    *_join("no protocols, with an id", join(member=M, protocols=()), [AskForId()], (5, 9)),
    *_refused_anew("an empty protocol type", join(kind=""), (0, 5)),
    *_join("an empty protocol type, with an id", join(member=M, kind=""), [AskForId()], (9,)),
    *_join("an unknown protocol type", join(kind="share-price"), versions=(0,)),
    *_join("an empty protocol name", join(protocols=(("", b"x"),)), versions=(0,)),
    *_join("another protocol type than the group's", join(kind="connect"), ONE, (0, 4, 9)),
    *_join("another protocol than the group's", join(protocols=(("sticky", b""),)), ONE, (0, 4, 9)),
    *_join("no protocols, a living group", join(protocols=()), ONE, (0, 4)),
    *_join("another protocol type, by its member", join(member=M, kind="connect"), ONE, (0, 9)),
    *_join("another protocol, by its member", join(member=M, protocols=(("sticky", b""),)), ONE, (0, 9)),
    *_join("no protocols, by its member", join(member=M, protocols=()), ONE, (0, 9)),
    *_join("another protocol, by one of two", join(member=N, protocols=(("sticky", b""),)), PAIR, (0, 9)),
    *(
        exchange
        for session_ms in (-1, 0, 5999, 1_800_001, 2**31 - 1)
        for exchange in _join(f"a session of {session_ms} ms", join(session_ms=session_ms), versions=(0, 5))
    ),
    *_join("the shortest session", join(session_ms=6000), versions=(0,)),
    *_join("the longest session", join(session_ms=1_800_000), versions=(0,)),
    *_join("a negative rebalance timeout", join(rebalance_ms=-1), versions=(1, 3), after=()),
    *_join("a rebalance timeout of 0", join(rebalance_ms=0), versions=(1,), after=()),
    *_join("several protocols", join(protocols=TWO_WAYS), versions=(0, 3)),
    *_join("the only member again", join(member=M), ONE, (0, 5, 9)),
    *_join(
        "the only member with other metadata", join(member=M, protocols=(("range", b"other"),)), ONE, (0, 9)
    ),
    *_join("a member that does not lead, unchanged", join(member=N), PAIR, (0, 4, 9)),
    *_join("the only member before it synced", join(member=M), HALFWAY, (0, 9)),
    *_join(
        "the only member before it synced, changed",
        join(member=M, protocols=(("range", b"o"),)),
        HALFWAY,
        (0, 9),
    ),
    *_join("one of two before the sync", join(member=N), HALFWAY_PAIR, (0, 9)),
    *_join("a static member", join(instance="i"), versions=(5, 7, 9)),
    *_join("a static member again, without its id", join(instance="i"), STATIC, (5, 8, 9)),
    *_join("a static member again, with its id", join(member=M, instance="i"), STATIC, (5, 9)),
    *_join(
        "a static member again, changed", join(instance="i", protocols=(("range", b"o"),)), STATIC, (5, 9)
    ),
    *_join(
        "a static member again, with other protocols", join(instance="i", protocols=TWO_WAYS), STATIC, (5, 9)
    ),
    *_join(
        "a static member again, none of the group's protocols",
        join(instance="i", protocols=(("x", b""),)),
        STATIC,
        (5,),
    ),
    *_join(
        "a static member again before the sync",
        join(instance="i"),
        [Join(instances={"m": "i"}, synced=False)],
        (5, 9),
    ),
    *_join("a static member with a wrong id", join(member="ghost", instance="i"), STATIC, (5, 9)),
    *_join("a static member that was fenced", join(member=M, instance="i"), BOUNCED, (5, 9)),
    *_join("an unknown instance with a member's id", join(member=M, instance="j"), STATIC, (5, 9)),
    *_join("an unknown instance with an unknown id", join(member="ghost", instance="j"), STATIC, (5,)),
    *_join("a static member without its instance", join(member=M), STATIC, (5, 9)),
    *_join(
        "a member with an instance of another",
        join(member=N, instance="i"),
        [Join(("m", "n"), instances={"m": "i"})],
        (5,),
    ),
    *_join(
        "a static member that follows",
        join(instance="j"),
        [Join(("m", "n"), instances={"m": "i", "n": "j"})],
        (5, 9),
    ),
    *_join(
        "a static member that leads",
        join(instance="i"),
        [Join(("m", "n"), instances={"m": "i", "n": "j"})],
        (5, 8, 9),
    ),
    *_join("a new one that must get its id first, a living group", join(), ONE, (4, 9)),
    Exchange("join group: an empty instance id", JOIN, 5, join(instance="")),
    Exchange("join group: an empty body", JOIN, 0, Body(b"")),
    Exchange("join group: cut", JOIN, 9, Cut(join(), 3)),
    Exchange(
        "join group: more protocols than bytes",
        JOIN,
        0,
        Body(i16(1) + b"g" + i32(10_000) + i16(0) + i16(8) + b"consumer" + i32(99_999)),
    ),
    Exchange(
        "join group: a null group id", JOIN, 0, Body(i16(-1) + i32(10_000) + i16(0) + i16(1) + b"c" + i32(0))
    ),
    Exchange("join group: bytes after the message", JOIN, 4, Appended(join(), b"x")),
]


def _sync(
    name: str,
    request: SyncGroupRequest,
    before: Sequence[Step] = ONE,
    versions: Sequence[int] = (0, 3, 4, 5),
) -> list[Exchange]:
    return [Exchange(f"sync group: {name}, v{v}", SYNC, v, request, before, [described()]) for v in versions]


_SYNC = [
    *_sync("the leader's assignment", sync(1, M, {"m": b"mine"}), HALFWAY, range(6)),
    *_sync("an assignment for others too", sync(1, M, {"m": b"mine", "x": b"whose"}), HALFWAY, (0, 5)),
    *_sync("no assignment for the leader", sync(1, M), HALFWAY, (0, 5)),
    *_sync("an empty assignment", sync(1, M, {"m": b""}), HALFWAY, (0,)),
    *_sync("of two, one gets none", sync(2, M, {"m": b"all"}), HALFWAY_PAIR, (0, 5)),
    *_sync("again, when all are synced", sync(1, M, {"m": b"another"}), versions=range(6)),
    *_sync("again, by a follower", sync(2, N), PAIR, (0, 5)),
    *_sync("an unknown member", sync(1, "ghost"), versions=(0, 5)),
    *_sync("no member", sync(1, ""), versions=(0, 5)),
    *_sync("a stale generation", sync(0, M)),
    *_sync("a generation to come", sync(2, M), versions=(0, 5)),
    *_sync("generation -1", sync(-1, M), versions=(0, 5)),
    *_sync("a stale generation of an unknown member", sync(0, "ghost"), versions=(5,)),
    *_sync("an unknown group", sync(1, M, group="{no}"), versions=(0, 5)),
    *_sync("an empty group id", sync(1, M, group=""), versions=(0, 3, 5)),
    *_sync("another protocol type", sync(1, M, kind="connect"), versions=(4, 5)),
    *_sync("another protocol", sync(1, M, protocol="sticky"), versions=(4, 5)),
    *_sync("no protocol type", sync(1, M, kind=None), versions=(4, 5)),
    *_sync("no protocol", sync(1, M, protocol=None), versions=(4, 5)),
    *_sync("while others join", sync(1, M), REBALANCING, (0, 5)),
    *_sync("a static member", sync(1, M, instance="i"), STATIC, (3, 5)),
    *_sync("a fenced instance", sync(1, M, instance="i"), BOUNCED, (3, 5)),
    *_sync("an unknown instance", sync(1, M, instance="j"), STATIC, (3, 5)),
    *_sync("an unknown instance, stale", sync(0, M, instance="j"), STATIC, (3,)),
    *_sync("a member with an id to come", sync(1, M), [AskForId()], (0, 5)),
    Exchange("sync group: an empty body", SYNC, 0, Body(b"")),
    Exchange("sync group: cut", SYNC, 5, Cut(sync(1, "m"), 3)),
    Exchange(
        "sync group: more assignments than bytes",
        SYNC,
        0,
        Body(i16(1) + b"g" + i32(1) + i16(0) + i32(99_999)),
    ),
    Exchange("sync group: bytes after the message", SYNC, 3, Appended(sync(1, M), b"x"), ONE),
]


def beat(
    generation: int = 1, member: Any = M, *, group: str = "{g}", instance: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(group, generation, member, instance)


def _beat(
    name: str, request: HeartbeatRequest, before: Sequence[Step] = ONE, versions: Sequence[int] = (0, 3, 4)
) -> list[Exchange]:
    return [Exchange(f"heartbeat: {name}, v{v}", BEAT, v, request, before) for v in versions]


_BEAT = [
    *_beat("of a member", beat(), versions=range(5)),
    *_beat("an unknown member", beat(member="ghost")),
    *_beat("no member", beat(member=""), versions=(0, 4)),
    *_beat("a stale generation", beat(0)),
    *_beat("a generation to come", beat(2), versions=(0, 4)),
    *_beat("generation -1", beat(-1), versions=(4,)),
    *_beat("stale, an unknown member", beat(0, "ghost"), versions=(4,)),
    *_beat("an unknown group", beat(group="{no}")),
    *_beat("an empty group id", beat(group=""), versions=(0, 4)),
    *_beat("while others join", beat(), REBALANCING),
    *_beat("stale, while others join", beat(0), REBALANCING, (0,)),
    *_beat("before the assignment", beat(), HALFWAY, (0, 4)),
    *_beat("a static member", beat(instance="i"), STATIC, (3, 4)),
    *_beat("a static member without its instance", beat(), STATIC, (3,)),
    *_beat("a fenced instance", beat(instance="i"), BOUNCED, (3, 4)),
    *_beat("an unknown instance", beat(instance="j"), STATIC, (3, 4)),
    *_beat("a member with an id to come", beat(), [AskForId()], (0, 4)),
    Exchange("heartbeat: an empty body", BEAT, 0, Body(b"")),
    Exchange("heartbeat: cut", BEAT, 4, Cut(beat(member="m"), 3)),
    Exchange("heartbeat: bytes after the message", BEAT, 3, Appended(beat(), b"x"), ONE),
]


def leave(*members: tuple[Any, str | None], group: str = "{g}") -> LeaveGroupRequest:
    """The first member in the field of old versions, all of them in that of new ones."""
    requested = [MemberIdentity(member, instance, "done") for member, instance in members]
    return LeaveGroupRequest(group, members[0][0] if members else "", requested)


def _leave(
    name: str,
    request: LeaveGroupRequest,
    before: Sequence[Step] = ONE,
    versions: Sequence[int] = (0, 2, 3, 5),
) -> list[Exchange]:
    return [
        Exchange(f"leave group: {name}, v{v}", LEAVE, v, request, before, [described()]) for v in versions
    ]


_LEAVE = [
    *_leave("the only member", leave((M, None)), versions=range(6)),
    *_leave("one of two", leave((N, None)), PAIR, (0, 5)),
    *_leave("both", leave((N, None), (M, None)), PAIR, (3, 5)),
    *_leave("one twice", leave((M, None), (M, None)), versions=(3, 5)),
    *_leave("an unknown member", leave(("ghost", None))),
    *_leave("known and unknown", leave(("ghost", None), (M, None)), versions=(3, 5)),
    *_leave("no member", leave(("", None)), versions=(0, 3, 5)),
    *_leave("none at all", leave(), versions=(0, 3, 5)),
    *_leave("an unknown group", leave((M, None), group="{no}")),
    *_leave("an unknown group, none at all", leave(group="{no}"), versions=(3,)),
    *_leave("an empty group id", leave((M, None), group=""), versions=(0, 3, 5)),
    *_leave("a static member by its instance", leave(("", "i")), STATIC, (3, 5)),
    *_leave("a static member by both", leave((M, "i")), STATIC, (3, 5)),
    *_leave("a static member by its id alone", leave((M, None)), STATIC, (0, 3, 5)),
    *_leave("an unknown instance", leave(("", "j")), STATIC, (3, 5)),
    *_leave("an unknown instance with an id", leave((M, "j")), STATIC, (3,)),
    *_leave("a fenced instance", leave((M, "i")), BOUNCED, (3, 5)),
    *_leave("while others join", leave((M, None)), REBALANCING, (0, 3)),
    *_leave("before the assignment", leave((M, None)), HALFWAY, (0, 5)),
    *_leave("one of two before the assignment", leave((N, None)), HALFWAY_PAIR, (0, 5)),
    *(
        Exchange(f"leave group: a member with an id to come, v{v}", LEAVE, v, leave((M, None)), [AskForId()])
        for v in (0, 5)
    ),
    Exchange("leave group: an empty body", LEAVE, 0, Body(b"")),
    Exchange("leave group: cut", LEAVE, 5, Cut(leave(("m", None)), 3)),
    Exchange("leave group: more members than bytes", LEAVE, 3, Body(i16(1) + b"g" + i32(99_999))),
    Exchange("leave group: bytes after the message", LEAVE, 3, Appended(leave((M, None)), b"x"), ONE),
]

EXCHANGES = [*_JOIN, *_SYNC, *_BEAT, *_LEAVE]
