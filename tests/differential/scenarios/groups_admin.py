"""FindCoordinator, 0-6, ListGroups, 0-5, DescribeGroups, 0-6, and DeleteGroups, 0-2.

Not compared: the coordinator of a transaction. Kafka returns a broker, the gateway that there is none yet.
"""

from collections.abc import Sequence

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.delete_groups import DeleteGroupsRequest
from gateway.wire.messages.generated.describe_groups import DescribeGroupsRequest
from gateway.wire.messages.generated.find_coordinator import FindCoordinatorRequest
from gateway.wire.messages.generated.leave_group import LeaveGroupRequest, MemberIdentity
from gateway.wire.messages.generated.list_groups import ListGroupsRequest
from tests.differential.batches import i16, i32
from tests.differential.exchange import Appended, Body, Call, Cut, Exchange, MemberOf, Step
from tests.differential.group_steps import AskForId, Commit, Join, Waiting, join
from tests.differential.scenarios.groups_offsets import fetched
from tests.differential.steps import Create, Done

FIND = ApiKey.FIND_COORDINATOR
LIST = ApiKey.LIST_GROUPS
DESCRIBE = ApiKey.DESCRIBE_GROUPS
DELETE = ApiKey.DELETE_GROUPS
GROUP, SHARE = 0, 2
TOPIC = Create(partitions=2)

LEAVE = Done(
    Call(ApiKey.LEAVE_GROUP, 3, LeaveGroupRequest("{g}", members=[MemberIdentity(MemberOf())]))  # type: ignore[arg-type]
)
SIMPLE: Sequence[Step] = (TOPIC, Commit())
STABLE: Sequence[Step] = (TOPIC, Join())
STATIC: Sequence[Step] = (TOPIC, Join(instances={"m": "i"}))
PAIR: Sequence[Step] = (TOPIC, Join(("m", "n")))
EMPTY: Sequence[Step] = (TOPIC, Join(), LEAVE)
WITH_OFFSETS: Sequence[Step] = (TOPIC, Commit(), Join(), LEAVE)
PREPARING: Sequence[Step] = (TOPIC, Join(), Waiting(Call(ApiKey.JOIN_GROUP, 3, join())))
COMPLETING: Sequence[Step] = (TOPIC, Join(synced=False))
CONNECT: Sequence[Step] = (Join(kind="connect", protocols=(("sessioned", b"\1\2"),)),)
PENDING: Sequence[Step] = (AskForId(),)
STATES = {
    "simple": SIMPLE,
    "stable": STABLE,
    "of static members": STATIC,
    "of two": PAIR,
    "empty": EMPTY,
    "preparing a rebalance": PREPARING,
    "completing a rebalance": COMPLETING,
    "of another protocol type": CONNECT,
    "of none but a member to come": PENDING,
}


def find(*keys: str, kind: int = GROUP) -> FindCoordinatorRequest:
    """One key in the field of old versions, all of them in that of new ones."""
    return FindCoordinatorRequest(keys[0] if keys else "", kind, list(keys))


SHARE_KEYS = (
    "g:AAAAAAAAAAAAAAAAAAAAAQ:0",
    "g",
    "g:x:y",
    "g:AAAAAAAAAAAAAAAAAAAAAQ:-1",
    ":AAAAAAAAAAAAAAAAAAAAAQ:0",
)
_FIND = [
    *(Exchange(f"find coordinator: of a group, v{v}", FIND, v, find("{g}")) for v in range(7)),
    *(Exchange(f"find coordinator: of an empty group id, v{v}", FIND, v, find("")) for v in (0, 3, 4, 6)),
    *(
        Exchange(f"find coordinator: of several, v{v}", FIND, v, find("{g}", "{h}", "", "{i}"))
        for v in (4, 5, 6)
    ),
    *(Exchange(f"find coordinator: of one twice, v{v}", FIND, v, find("{g}", "{g}")) for v in (4, 6)),
    *(Exchange(f"find coordinator: of none, v{v}", FIND, v, find()) for v in (4, 6)),
    *(
        Exchange(f"find coordinator: type {kind}, v{v}", FIND, v, find("{g}", "{h}", kind=kind))
        for kind in (3, 77, -1)
        for v in (1, 3, 4, 6)
    ),
    *(Exchange(f"find coordinator: type 3 of none, v{v}", FIND, v, find(kind=3)) for v in (4,)),
    *(
        Exchange(f"find coordinator: of a share, v{v}", FIND, v, find(SHARE_KEYS[0], kind=SHARE))
        for v in (1, 4, 5)
    ),
    *(
        Exchange(f"find coordinator: of the share {key}", FIND, 6, find(key, kind=SHARE))
        for key in SHARE_KEYS[1:]
    ),
    Exchange("find coordinator: a long group id", FIND, 4, find("x" * 30_000)),
    Exchange("find coordinator: an empty body", FIND, 0, Body(b"")),
    Exchange("find coordinator: cut", FIND, 4, Cut(find("{g}"), 2)),
    Exchange("find coordinator: more keys than bytes", FIND, 4, Body(b"\0\xff\xff\xff\x07")),
    Exchange("find coordinator: a null key", FIND, 0, Body(i16(-1))),
    Exchange("find coordinator: bytes after the message", FIND, 2, Appended(find("{g}"), b"x")),
]


def _list(
    name: str,
    before: Sequence[Step],
    states: Sequence[str] = (),
    types: Sequence[str] = (),
    versions: Sequence[int] = (0, 3, 4, 5),
) -> list[Exchange]:
    request = ListGroupsRequest(list(states), list(types))
    return [Exchange(f"list groups: {name}, v{v}", LIST, v, request, before) for v in versions]


TWO_GROUPS = (TOPIC, Commit(), Join(group="{h}"))
_LIST = [
    *_list("none", ()),
    *_list("two", TWO_GROUPS, versions=range(6)),
    *(exchange for name, before in STATES.items() for exchange in _list(name, before, versions=(1, 5))),
    *(
        exchange
        for states in (
            ["Empty"],
            ["Stable"],
            ["empty"],
            ["STABLE"],
            [" Empty "],
            ["Dead"],
            ["NoSuchState"],
            [""],
            ["Empty", "Stable"],
            ["Stable", "NoSuchState"],
            ["Assigning"],
        )
        for exchange in _list(f"in states {states}", TWO_GROUPS, states, versions=(4, 5))
    ),
    *(
        exchange
        for types in (
            ["classic"],
            ["Classic"],
            ["consumer"],
            ["share"],
            ["streams"],
            ["unknown"],
            [""],
            ["nonsense"],
            ["classic", "consumer"],
            ["classic", "nonsense"],
            [" classic "],
        )
        for exchange in _list(f"of types {types}", TWO_GROUPS, (), types, versions=(5,))
    ),
    *_list("in a state and of a type", TWO_GROUPS, ["Stable"], ["classic"], (5,)),
    *_list("in a state and of another type", TWO_GROUPS, ["Stable"], ["consumer"], (5,)),
    *_list("preparing, by state", PREPARING, ["PreparingRebalance"], versions=(4,)),
    *_list("completing, by state", COMPLETING, ["completingrebalance"], versions=(4,)),
    Exchange("list groups: cut", LIST, 5, Cut(ListGroupsRequest(["Empty"], ["classic"]), 3)),
    Exchange("list groups: more states than bytes", LIST, 4, Body(b"\xff\xff\xff\x07")),
    Exchange("list groups: bytes after the message", LIST, 4, Appended(ListGroupsRequest(), b"x"), SIMPLE),
]


def describe(*groups: str, operations: bool = False) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(list(groups), operations)


def described() -> Call:
    return Call(DESCRIBE, 5, describe("{g}"))


_DESCRIBE = [
    *(Exchange(f"describe groups: stable, v{v}", DESCRIBE, v, describe("{g}"), STABLE) for v in range(7)),
    *(
        Exchange(f"describe groups: {name}, v{v}", DESCRIBE, v, describe("{g}"), before)
        for name, before in STATES.items()
        if name != "stable"
        for v in (0, 4, 6)
    ),
    *(Exchange(f"describe groups: unknown, v{v}", DESCRIBE, v, describe("{no}")) for v in (0, 3, 5, 6)),
    *(
        Exchange(f"describe groups: an empty group id, v{v}", DESCRIBE, v, describe("{g}x", ""))
        for v in (0, 6)
    ),
    *(
        Exchange(
            f"describe groups: operations {requested}, v{v}",
            DESCRIBE,
            v,
            describe("{g}", "{no}", operations=requested),
            STABLE,
        )
        for requested in (True, False)
        for v in (3, 6)
    ),
    *(
        Exchange(f"describe groups: several, v{v}", DESCRIBE, v, describe("{h}", "{no}", "{g}"), TWO_GROUPS)
        for v in (1, 6)
    ),
    Exchange("describe groups: one twice", DESCRIBE, 5, describe("{g}", "{g}"), STABLE),
    *(Exchange(f"describe groups: none, v{v}", DESCRIBE, v, describe()) for v in (0, 6)),
    Exchange("describe groups: an empty body", DESCRIBE, 0, Body(b"")),
    Exchange("describe groups: cut", DESCRIBE, 6, Cut(describe("{g}"), 2)),
    Exchange("describe groups: more groups than bytes", DESCRIBE, 0, Body(i32(99_999))),
    Exchange(
        "describe groups: bytes after the message", DESCRIBE, 3, Appended(describe("{g}"), b"x"), STABLE
    ),
]


def delete(*groups: str) -> DeleteGroupsRequest:
    return DeleteGroupsRequest(list(groups))


GONE = (Call(DESCRIBE, 6, describe("{g}")), fetched())
_DELETE = [
    *(
        Exchange(f"delete groups: empty, v{v}", DELETE, v, delete("{g}"), WITH_OFFSETS, GONE)
        for v in (0, 1, 2)
    ),
    *(Exchange(f"delete groups: simple, v{v}", DELETE, v, delete("{g}"), SIMPLE, GONE) for v in (0, 1, 2)),
    *(
        Exchange(f"delete groups: a living one, v{v}", DELETE, v, delete("{g}"), STABLE, GONE[:1])
        for v in (0, 1, 2)
    ),
    Exchange("delete groups: preparing a rebalance", DELETE, 2, delete("{g}"), PREPARING, GONE[:1]),
    Exchange("delete groups: completing a rebalance", DELETE, 2, delete("{g}"), COMPLETING, GONE[:1]),
    Exchange("delete groups: of another protocol type", DELETE, 2, delete("{g}"), CONNECT),
    Exchange("delete groups: of none but a member to come", DELETE, 2, delete("{g}"), PENDING),
    *(Exchange(f"delete groups: unknown, v{v}", DELETE, v, delete("{no}")) for v in (0, 2)),
    *(Exchange(f"delete groups: an empty group id, v{v}", DELETE, v, delete("")) for v in (0, 2)),
    Exchange("delete groups: several", DELETE, 2, delete("{h}", "{no}", "{g}"), TWO_GROUPS, GONE),
    Exchange("delete groups: one twice", DELETE, 2, delete("{g}", "{g}"), SIMPLE),
    Exchange(
        "delete groups: deleted already",
        DELETE,
        1,
        delete("{g}"),
        [*SIMPLE, Done(Call(DELETE, 1, delete("{g}")))],
    ),
    Exchange("delete groups: none", DELETE, 0, delete()),
    Exchange("delete groups: an empty body", DELETE, 0, Body(b"")),
    Exchange("delete groups: cut", DELETE, 2, Cut(delete("{g}"), 2)),
]

EXCHANGES = [*_FIND, *_LIST, *_DESCRIBE, *_DELETE]
