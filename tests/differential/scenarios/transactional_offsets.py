"""Offsets of groups in transactions: TxnOffsetCommit, 0-5, and what OffsetFetch, OffsetCommit, OffsetDelete
and DeleteGroups say while some are pending.
"""

from collections.abc import Sequence
from typing import Any

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.delete_groups import DeleteGroupsRequest
from gateway.wire.messages.generated.describe_groups import DescribeGroupsRequest
from gateway.wire.messages.generated.leave_group import LeaveGroupRequest, MemberIdentity
from tests.differential.batches import i16, i64
from tests.differential.exchange import Appended, Body, Call, Cut, Exchange, MemberOf, Step
from tests.differential.group_steps import Commit, Join, Waiting, commit, join
from tests.differential.scenarios.groups_offsets import delete, fetch
from tests.differential.scenarios.transactions import NO_SUCH_PRODUCER, OFFSETS_OPEN
from tests.differential.steps import Create, Delete, Done
from tests.differential.transaction_steps import (
    END_V1,
    Begin,
    P,
    Q,
    Y,
    commit_offsets,
    described,
    ended,
    group_offsets,
    offsets_added,
    offsets_committed,
)

COMMIT = ApiKey.TXN_OFFSET_COMMIT
FETCH = ApiKey.OFFSET_FETCH
TWO = Create(partitions=2)
MEMBER = MemberOf()
BEGUN: Sequence[Step] = (TWO, Begin())
ADDED: Sequence[Step] = (*BEGUN, Done(offsets_added()))
ALIVE: Sequence[Step] = (TWO, Join(), Begin(), Done(offsets_added()))
STATIC: Sequence[Step] = (TWO, Join(instances={"m": "i"}), Begin(), Done(offsets_added()))
HALFWAY: Sequence[Step] = (TWO, Join(synced=False), Begin(), Done(offsets_added()))
REBALANCING: Sequence[Step] = (
    TWO,
    Join(),
    Waiting(Call(ApiKey.JOIN_GROUP, 3, join())),
    Begin(),
    Done(offsets_added()),
)
ONE = ("t", 0, 5)
STABLE, UNSTABLE = group_offsets(), group_offsets(stable=False)
FIRST_VERSION_WITH_MEMBERS = 3


def _commit(
    name: str,
    request: Any,
    before: Sequence[Step] = ADDED,
    versions: Sequence[int] = (0, 2, 3, 4, 5),
    after: Sequence[Call] = (STABLE, UNSTABLE),
) -> list[Exchange]:
    return [Exchange(f"txn offset commit: {name}, v{v}", COMMIT, v, request, before, after) for v in versions]


def _ended(commit: bool, v: int) -> Call:
    return ended(commit, version=END_V1 if v < 5 else 5)


_COMMIT = [
    *_commit(
        "pending", commit_offsets(ONE, ("t", 1, 7)), versions=range(6), after=(STABLE, UNSTABLE, described())
    ),
    *(
        exchange
        for v in range(6)
        for outcome in (True, False)
        for exchange in _commit(
            f"then {'commit' if outcome else 'abort'}",
            commit_offsets(ONE),
            ADDED,
            (v,),
            (_ended(outcome, v), STABLE, UNSTABLE, described()),
        )
    ),
    *_commit("of a group that was not added", commit_offsets(ONE), BEGUN, range(6), (STABLE, described())),
    *_commit(
        "of another group than was added",
        commit_offsets(ONE, group="{h}"),
        versions=(5,),
        after=(group_offsets("{h}"), described()),
    ),
    *_commit(
        "of a stale epoch",
        commit_offsets(ONE),
        [TWO, Begin(), Begin(), Done(offsets_added(epoch=1))],
        range(6),
    ),
    *_commit("of a stale epoch, not added", commit_offsets(ONE), [TWO, Begin(), Begin()], (0, 4, 5)),
    *_commit("of an epoch that it does not have yet", commit_offsets(ONE, epoch=5), versions=(0, 4, 5)),
    *_commit("of another producer id", commit_offsets(ONE, producer=NO_SUCH_PRODUCER), versions=(0, 3, 4, 5)),
    *_commit("of another id's producer", commit_offsets(ONE, producer=Q), [*ADDED, Begin("q", Y)], (4, 5)),
    *_commit("of an unknown id", commit_offsets(ONE, name="{unknown}"), versions=(0, 4, 5)),
    *_commit("of an empty id", commit_offsets(ONE, name=""), versions=(0, 4, 5)),
    *_commit(
        "of an empty group id",
        commit_offsets(ONE, group=""),
        [*BEGUN, Done(offsets_added(group=""))],
        (0, 4, 5),
        (),
    ),
    *_commit("of an unknown topic", commit_offsets(("no", 0, 5)), versions=(0, 3, 5)),
    *_commit(
        "of known and unknown partitions",
        commit_offsets(("no", 0, 5), ("t", 0, 6), ("t", 9, 5)),
        versions=(0, 3, 5),
    ),
    *_commit("of a deleted topic", commit_offsets(ONE), [*ADDED, Delete()], (4, 5), (described(),)),
    *_commit("of no topic", commit_offsets(), versions=(0, 5)),
    *_commit(
        "with oversized metadata", commit_offsets(ONE, ("t", 1, 1), metadata="x" * 4097), versions=(0, 3, 5)
    ),
    *_commit("with the longest metadata", commit_offsets(ONE, metadata="x" * 4096), versions=(5,)),
    *_commit(
        "with null metadata",
        commit_offsets(ONE, metadata=None),
        versions=(0, 3, 5),
        after=(STABLE, _ended(True, 4), STABLE),
    ),
    *_commit(
        "of a negative offset",
        commit_offsets(("t", 0, -1)),
        versions=(0, 5),
        after=(STABLE, _ended(True, 4), STABLE),
    ),
    *_commit(
        "one partition twice",
        commit_offsets(ONE, ("t", 0, 6)),
        versions=(0, 5),
        after=(STABLE, _ended(True, 4), STABLE),
    ),
    *_commit(
        "twice",
        commit_offsets(("t", 0, 9)),
        [*ADDED, Done(offsets_committed(ONE))],
        (4, 5),
        (_ended(True, 4), STABLE),
    ),
    *_commit("of a member", commit_offsets(ONE, generation_id=1, member_id=MEMBER), ALIVE, (3, 4, 5)),
    *_commit("of no member of a living group", commit_offsets(ONE), ALIVE),
    *_commit(
        "of a stale generation", commit_offsets(ONE, generation_id=0, member_id=MEMBER), ALIVE, (3, 4, 5)
    ),
    *_commit(
        "of a generation to come", commit_offsets(ONE, generation_id=2, member_id=MEMBER), ALIVE, (3, 5)
    ),
    *_commit(
        "of an unknown member", commit_offsets(ONE, generation_id=1, member_id="ghost"), ALIVE, (3, 4, 5)
    ),
    *_commit("of a member without a generation", commit_offsets(ONE, member_id=MEMBER), ALIVE, (3, 5)),
    *_commit("of a generation without a member", commit_offsets(ONE, generation_id=1), ALIVE, (3, 5)),
    *_commit(
        "of a member, no such group",
        commit_offsets(ONE, generation_id=1, member_id="ghost"),
        ADDED,
        (3, 4, 5),
    ),
    *_commit("of a generation, no such group", commit_offsets(ONE, generation_id=1), ADDED, (3, 5)),
    *_commit("of an instance, no such group", commit_offsets(ONE, group_instance_id="i"), ADDED, (3, 5)),
    *_commit(
        "of a static member",
        commit_offsets(ONE, generation_id=1, member_id=MEMBER, group_instance_id="i"),
        STATIC,
        (3, 5),
    ),
    *_commit(
        "of an unknown instance",
        commit_offsets(ONE, generation_id=1, member_id=MEMBER, group_instance_id="j"),
        STATIC,
        (3, 5),
    ),
    *_commit(
        "of a fenced instance",
        commit_offsets(ONE, generation_id=1, member_id="ghost", group_instance_id="i"),
        STATIC,
        (3, 5),
    ),
    *_commit(
        "before the assignment", commit_offsets(ONE, generation_id=1, member_id=MEMBER), HALFWAY, (3, 5)
    ),
    *_commit(
        "while others join", commit_offsets(ONE, generation_id=1, member_id=MEMBER), REBALANCING, (3, 5)
    ),
    *_commit(
        "after the commit, not added again",
        commit_offsets(ONE),
        [*OFFSETS_OPEN, Done(ended(version=END_V1))],
        (4, 5),
    ),
    *_commit(
        "of the epoch before the commit", commit_offsets(ONE), [*OFFSETS_OPEN, Done(ended())], (0, 4, 5)
    ),
    *_commit(
        "of the epoch after the commit",
        commit_offsets(("t", 0, 6), epoch=1),
        [*OFFSETS_OPEN, Done(ended())],
        (5,),
        (STABLE, ended(epoch=1), STABLE),
    ),
    Exchange("txn offset commit: an empty body", COMMIT, 0, Body(b"")),
    Exchange("txn offset commit: cut", COMMIT, 5, Cut(commit_offsets(ONE), 3), ADDED),
    Exchange(
        "txn offset commit: more topics than bytes",
        COMMIT,
        0,
        Body(i16(1) + b"x" + i16(1) + b"g" + i64(1) + i16(0) + b"\0\1\0\0"),
    ),
    Exchange(
        "txn offset commit: bytes after the message",
        COMMIT,
        5,
        Appended(commit_offsets(ONE), b"xyz"),
        ADDED,
        [UNSTABLE],
    ),
]

OVER: Sequence[Step] = (*OFFSETS_OPEN, Commit((("t", 0, 3), ("t", 1, 4))))
"""Offsets that were committed without a transaction while one pends."""
BEFORE: Sequence[Step] = (TWO, Commit((("t", 0, 3), ("t", 1, 4))), *OFFSETS_OPEN[1:])
LEAVE = Done(
    Call(ApiKey.LEAVE_GROUP, 3, LeaveGroupRequest("{g}", members=[MemberIdentity(MEMBER)]))  # type: ignore[arg-type]
)
PENDING_OF_A_DEAD_GROUP: Sequence[Step] = (
    *ALIVE,
    Done(offsets_committed(ONE, generation_id=1, member_id=MEMBER)),
    LEAVE,
)
_PENDING = [
    *(
        Exchange(
            f"offset fetch: {name}, {kind}{', stable' * stable}, v{v}",
            FETCH,
            v,
            fetch(topics, stable=stable),
            before,
        )
        for name, before in (
            ("pending", OFFSETS_OPEN),
            ("pending over a commit", BEFORE),
            ("pending before a commit", OVER),
        )
        for kind, topics in (("named", (("t", (0, 1)),)), ("all", None))
        for stable, versions in ((False, (1 if topics else 2, 8)), (True, (7, 8, 10)))
        for v in versions
    ),
    *(
        Exchange(
            f"txn offset commit: {name}, then {'commit' if outcome else 'abort'}",
            ApiKey.END_TXN,
            5,
            ended(outcome).request,
            before,
            (STABLE,),
        )
        for name, before in (("pending over a commit", BEFORE), ("pending before a commit", OVER))
        for outcome in (True, False)
    ),
    *(
        Exchange(
            f"offset commit: over a pending one, v{v}",
            ApiKey.OFFSET_COMMIT,
            v,
            commit(("t", 0, 8)),
            OFFSETS_OPEN,
            (STABLE, UNSTABLE, ended(), STABLE),
        )
        for v in (2, 9)
    ),
    *(
        Exchange(
            f"{title}: {name}, v{version}",
            key,
            version,
            request,
            before,
            (UNSTABLE, STABLE, ended(), STABLE),
        )
        for name, before in (
            ("pending", OFFSETS_OPEN),
            ("pending over a commit", BEFORE),
            ("pending before a commit", OVER),
        )
        for title, key, version, request in (
            ("offset delete", ApiKey.OFFSET_DELETE, 0, delete(("t", (0, 1)))),
            ("delete groups", ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(["{g}"])),
            ("describe groups", ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(["{g}"])),
        )
    ),
    Exchange(
        "delete groups: with pending offsets, its members have left",
        ApiKey.DELETE_GROUPS,
        2,
        DeleteGroupsRequest(["{g}"]),
        PENDING_OF_A_DEAD_GROUP,
        (STABLE, ended(), STABLE),
    ),
    Exchange(
        "txn offset commit: of two producers to one partition",
        COMMIT,
        5,
        commit_offsets(("t", 0, 9), producer=Q, name=Y),
        [*OFFSETS_OPEN, Begin("q", Y)],
        (STABLE, ended(name=Y, producer=Q), STABLE, UNSTABLE, ended(producer=P), STABLE),
    ),
]

EXCHANGES = [*_COMMIT, *_PENDING]
