"""OffsetCommit, 2-10, OffsetFetch, 1-10, and OffsetDelete: offsets of simple and of living groups."""

from collections.abc import Sequence
from typing import Any

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.offset_commit import OffsetCommitRequest
from gateway.wire.messages.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from gateway.wire.messages.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.differential.batches import i16, i32
from tests.differential.exchange import Appended, Body, Call, Cut, Exchange, IdOf, MemberOf, Step
from tests.differential.group_steps import Commit, Forgotten, Join, Waiting, commit, join
from tests.differential.steps import Create, Delete, Done

COMMIT = ApiKey.OFFSET_COMMIT
FETCH = ApiKey.OFFSET_FETCH
DELETE = ApiKey.OFFSET_DELETE
COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
TWO = Create(partitions=2)
ALIVE = (TWO, Join())
BOUNCED = (TWO, Join(instances={"m": "i"}), Done(Call(ApiKey.JOIN_GROUP, 5, join(member="", instance="i"))))
"""The static member `i` has joined again under another id."""
HALFWAY = (TWO, Join(synced=False))
REBALANCING = (TWO, Join(), Waiting(Call(ApiKey.JOIN_GROUP, 3, join())))

Asked = Sequence[tuple[str, Sequence[int]]]


def fetch(
    topics: Asked | None = (("t", (0, 1)),), *, group: str = "{g}", stable: bool = False, **fields: Any
) -> OffsetFetchRequest:
    """One group's offsets, in the fields of every version."""
    return OffsetFetchRequest(
        group, _topics(topics), [fetch_of(group, topics, **fields)], require_stable=stable
    )


def _topics(topics: Asked | None) -> list[OffsetFetchRequestTopic] | None:
    if topics is None:
        return None
    return [OffsetFetchRequestTopic("{" + alias + "}", list(parts)) for alias, parts in topics]


def fetch_of(group: str, topics: Asked | None, **fields: Any) -> OffsetFetchRequestGroup:
    if topics is None:
        return OffsetFetchRequestGroup(group, topics=None, **fields)
    requested = []
    for alias, parts in topics:
        id_of: Any = IdOf(alias)
        requested.append(OffsetFetchRequestTopics("{" + alias + "}", id_of, list(parts)))
    return OffsetFetchRequestGroup(group, topics=requested, **fields)


def fetched(group: str = "{g}") -> Call:
    return Call(FETCH, 9, fetch(group=group))


def _commit(
    name: str,
    request: OffsetCommitRequest,
    before: Sequence[Step] = (TWO,),
    versions: Sequence[int] = (2, 7, 8, 9, 10),
) -> list[Exchange]:
    return [
        Exchange(f"offset commit: {name}, v{v}", COMMIT, v, request, before, [fetched()]) for v in versions
    ]


MEMBER = MemberOf()
_COMMIT = [
    *_commit("of a simple group", commit(("t", 0, 5), ("t", 1, 7)), versions=COMMIT_VERSIONS),
    *_commit("with metadata and epoch", commit(("t", 0, 5), metadata="a note ☕", epoch=0)),
    *_commit("with a later epoch", commit(("t", 0, 5), epoch=7), versions=(6, 10)),
    *_commit("again, lower", commit(("t", 0, 3)), [TWO, Commit((("t", 0, 5), ("t", 1, 9)))], (2, 10)),
    *_commit("null metadata", commit(("t", 0, 5), metadata=None), versions=(2, 10)),
    *_commit("metadata of 4096", commit(("t", 0, 5), metadata="x" * 4096), versions=(9,)),
    *_commit(
        "oversized metadata", commit(("t", 0, 5), ("t", 1, 5), metadata="x" * 4097), versions=(2, 8, 10)
    ),
    *_commit("4096 two-byte characters", commit(("t", 0, 5), metadata="é" * 4096), versions=(9,)),
    *_commit("2049 characters of two units", commit(("t", 0, 5), metadata="😀" * 2049), versions=(9,)),
    *_commit("offset 0", commit(("t", 0, 0)), versions=(8,)),
    *_commit("offset -1", commit(("t", 0, -1)), versions=(2, 9)),
    *_commit("offset -5", commit(("t", 0, -5)), versions=(9,)),
    *_commit("the last offset", commit(("t", 0, 2**63 - 1)), versions=(9,)),
    *_commit("epoch -9", commit(("t", 0, 1), epoch=-9), versions=(9,)),
    *_commit("for an unknown topic", commit(("no", 0, 5))),
    *_commit("for known and unknown topics", commit(("no", 0, 5), ("t", 1, 6)), versions=(2, 9, 10)),
    *_commit("for unknown partitions", commit(("t", 0, 5), ("t", 2, 5), ("t", -1, 5)), versions=(2, 9, 10)),
    *_commit("for unknown partitions alone", commit(("t", 2, 5)), versions=(8,)),
    *_commit("for a deleted topic", commit(("t", 0, 5)), [TWO, Delete()], (8, 10)),
    *_commit("for no topic", commit(), versions=(2, 10)),
    *_commit("one partition twice", commit(("t", 0, 5), ("t", 0, 6)), versions=(2, 9)),
    *_commit("to an empty group id", commit(("t", 0, 5), group="{e}"[:0]), versions=(2, 9)),
    *_commit("kept for an hour", commit(("t", 0, 5), retention_ms=3_600_000), versions=(2, 3, 4)),
    *_commit("a generation, no such group", commit(("t", 0, 5), generation=5)),
    *_commit("generation 0, no such group", commit(("t", 0, 5), generation=0), versions=(2, 9)),
    *_commit("a member, no such group", commit(("t", 0, 5), member="ghost", generation=1)),
    *_commit(
        "a member without generation, no such group", commit(("t", 0, 5), member="ghost"), versions=(2, 9)
    ),
    *_commit("an instance, no such group", commit(("t", 0, 5), instance="i"), versions=(7, 9)),
    *_commit(
        "a generation, no such group, an unknown topic", commit(("no", 0, 5), generation=5), versions=(2, 9)
    ),
    *_commit("a generation, a simple group", commit(("t", 0, 6), generation=1), [TWO, Commit()]),
    *_commit("generation 0, a simple group", commit(("t", 0, 6), generation=0), [TWO, Commit()], (2, 9)),
    *_commit("a member, a simple group", commit(("t", 0, 6), generation=1, member="ghost"), [TWO, Commit()]),
    *_commit("of a member", commit(("t", 0, 5), generation=1, member=MEMBER), ALIVE, COMMIT_VERSIONS),
    *_commit(
        "of a member, an unknown topic", commit(("no", 0, 5), generation=1, member=MEMBER), ALIVE, (9, 10)
    ),
    *_commit("a stale generation", commit(("t", 0, 5), generation=0, member=MEMBER), ALIVE),
    *_commit("a generation to come", commit(("t", 0, 5), generation=2, member=MEMBER), ALIVE, (2, 9)),
    *_commit("generation -1 of a member", commit(("t", 0, 5), member=MEMBER), ALIVE, (2, 9)),
    *_commit("an unknown member", commit(("t", 0, 5), generation=1, member="ghost"), ALIVE),
    *_commit("no member of a living group", commit(("t", 0, 5), generation=1), ALIVE, (2, 9)),
    *_commit("simple, to a living group", commit(("t", 0, 5)), ALIVE),
    *_commit(
        "stale, an unknown topic too",
        commit(("no", 0, 5), ("t", 0, 5), generation=0, member=MEMBER),
        ALIVE,
        (2, 9),
    ),
    *_commit(
        "stale and oversized",
        commit(("t", 0, 5), generation=0, member=MEMBER, metadata="x" * 5000),
        ALIVE,
        (9,),
    ),
    *_commit(
        "of a static member",
        commit(("t", 0, 5), generation=1, member=MEMBER, instance="i"),
        [TWO, Join(instances={"m": "i"})],
        (7, 10),
    ),
    *_commit(
        "of a static member without its instance",
        commit(("t", 0, 5), generation=1, member=MEMBER),
        [TWO, Join(instances={"m": "i"})],
        (7,),
    ),
    *_commit(
        "an unknown instance",
        commit(("t", 0, 5), generation=1, member=MEMBER, instance="other"),
        [TWO, Join(instances={"m": "i"})],
        (7, 9),
    ),
    *_commit(
        "a fenced instance",
        commit(("t", 0, 5), generation=1, member=MEMBER, instance="i"),
        BOUNCED,
        (7, 9, 10),
    ),
    *_commit("before the assignment", commit(("t", 0, 5), generation=1, member=MEMBER), HALFWAY, (2, 9)),
    *_commit("stale, before the assignment", commit(("t", 0, 5), generation=0, member=MEMBER), HALFWAY, (9,)),
    *_commit("simple, before the assignment", commit(("t", 0, 5)), HALFWAY, (9,)),
    *_commit("while others join", commit(("t", 0, 5), generation=1, member=MEMBER), REBALANCING, (2, 9)),
    *_commit("simple, while others join", commit(("t", 0, 5)), REBALANCING, (9,)),
    Exchange("offset commit: an empty body", COMMIT, 2, Body(b"")),
    Exchange("offset commit: cut", COMMIT, 9, Cut(commit(("t", 0, 5)), 3), [TWO]),
    Exchange(
        "offset commit: more topics than bytes",
        COMMIT,
        2,
        Body(i16(1) + b"g" + i32(-1) + i16(0) + b"\xff" * 8 + i32(99_999)),
    ),
    Exchange(
        "offset commit: a null group id", COMMIT, 2, Body(i16(-1) + i32(-1) + i16(0) + b"\xff" * 8 + i32(0))
    ),
    Exchange(
        "offset commit: bytes after the message",
        COMMIT,
        9,
        Appended(commit(("t", 0, 5)), b"xyz"),
        [TWO],
        [fetched()],
    ),
]


def _fetch(
    name: str,
    request: OffsetFetchRequest,
    before: Sequence[Step] = (TWO, Commit((("t", 0, 5),))),
    versions: Sequence[int] = (1, 2, 7, 8, 9, 10),
) -> list[Exchange]:
    return [Exchange(f"offset fetch: {name}, v{v}", FETCH, v, request, before) for v in versions]


def _several(*groups: OffsetFetchRequestGroup) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=list(groups))


T0 = (("t", (0,)),)
FORGOTTEN = (TWO, Commit(), Delete(), Forgotten())
OTHERS = (TWO, Create("u"), Commit((("t", 0, 5),)), Commit((("t", 0, 7), ("u", 0, 8)), "{h}"))
_FETCH = [
    *_fetch("known and unknown", fetch(), versions=FETCH_VERSIONS),
    *_fetch("all", fetch(None), versions=range(2, 11)),
    *_fetch("all of an unknown group", fetch(None, group="{nobody}"), versions=(2, 7, 8, 10)),
    *_fetch("an unknown group", fetch(group="{nobody}")),
    *_fetch("an unknown topic", fetch((("no", (0, 1)),))),
    *_fetch("known and unknown topics", fetch((("no", (0,)), ("t", (1, 0)))), versions=(1, 8, 10)),
    *_fetch("unknown partitions", fetch((("t", (0, 2, -1)),)), versions=(1, 7, 10)),
    *_fetch("one partition twice", fetch((("t", (0, 0)),)), versions=(1, 8)),
    *_fetch("one topic twice", fetch((("t", (0,)), ("t", (1,)))), versions=(1, 8)),
    *_fetch("no topic", fetch(()), versions=(1, 2, 8, 10)),
    *_fetch("a topic without partitions", fetch((("t", ()),)), versions=(1, 8)),
    *_fetch("an empty group id", fetch(group=""), versions=(1, 9)),
    *_fetch("stable only", fetch(stable=True), versions=(7, 8, 10)),
    *_fetch("after the topic's deletion", fetch(), FORGOTTEN, (1, 8, 10)),
    *_fetch("all after the topic's deletion", fetch(None), FORGOTTEN, (8, 10)),
    *_fetch("of a living group", fetch(), ALIVE, (1, 8, 10)),
    *_fetch("all of a living group", fetch(None), ALIVE, (2, 8)),
    *_fetch(
        "all, of two topics",
        fetch(None),
        [TWO, Create("u"), Commit((("t", 0, 5), ("t", 1, 6), ("u", 0, 7)))],
        (2, 8, 10),
    ),
    *_fetch("as a member", fetch(member_id=MEMBER, member_epoch=1), ALIVE, (9, 10)),
    *_fetch("as an unknown member", fetch(member_id="ghost", member_epoch=1), ALIVE, (9,)),
    *_fetch("of a stale generation", fetch(member_id=MEMBER, member_epoch=0), ALIVE, (9,)),
    *_fetch(
        "as a member of an unknown group", fetch(group="{nobody}", member_id="x", member_epoch=3), ALIVE, (9,)
    ),
    *_fetch(
        "after several commits",
        fetch(),
        [TWO, Commit(), Commit((("t", 0, 4), ("t", 1, 2)), metadata=None)],
        (8,),
    ),
    *_fetch(
        "several groups",
        _several(fetch_of("{g}", T0), fetch_of("{h}", None), fetch_of("{nobody}", T0)),
        OTHERS,
        (8, 9, 10),
    ),
    *_fetch(
        "several groups, the empty one too", _several(fetch_of("", T0), fetch_of("{g}", T0)), OTHERS, (8, 10)
    ),
    *_fetch("one group twice", _several(fetch_of("{g}", T0), fetch_of("{g}", None)), OTHERS, (8,)),
    *_fetch("no group", _several(), versions=(8, 10)),
    Exchange("offset fetch: an empty body", FETCH, 1, Body(b"")),
    Exchange("offset fetch: cut", FETCH, 8, Cut(fetch(), 3), [TWO]),
    Exchange("offset fetch: a null group id", FETCH, 1, Body(i16(-1) + i32(0))),
    Exchange("offset fetch: null topics in v1", FETCH, 1, Body(i16(1) + b"g" + i32(-1))),
    Exchange("offset fetch: bytes after the message", FETCH, 9, Appended(fetch(), b"xyz"), [TWO, Commit()]),
]


def delete(*topics: tuple[str, Sequence[int]], group: str = "{g}") -> OffsetDeleteRequest:
    requested = [
        OffsetDeleteRequestTopic("{" + alias + "}", [OffsetDeleteRequestPartition(part) for part in parts])
        for alias, parts in topics
    ]
    return OffsetDeleteRequest(group, requested)


def _delete(name: str, request: OffsetDeleteRequest, before: Sequence[Step] = ()) -> Exchange:
    return Exchange(f"offset delete: {name}", DELETE, 0, request, before or [TWO, Commit()], [fetched()])


SUBSCRIBED = (
    TWO,
    Create("u"),
    Join(),
    Done(Call(COMMIT, 9, commit(("t", 0, 5), ("u", 0, 6), generation=1, member=MEMBER))),
)
OF_ANOTHER_KIND = (
    TWO,
    Join(kind="connect"),
    Done(Call(COMMIT, 9, commit(("t", 0, 5), generation=1, member=MEMBER))),
)
_DELETE = [
    _delete("one of two", delete(("t", (0,))), [TWO, Commit((("t", 0, 5), ("t", 1, 6)))]),
    _delete("the last", delete(("t", (0,)))),
    _delete("none committed", delete(("t", (1,)))),
    _delete("an unknown topic", delete(("no", (0,)))),
    _delete("known and unknown", delete(("no", (0,)), ("t", (0, 1, 5)))),
    _delete("an unknown partition", delete(("t", (5, -1)))),
    _delete("a partition twice", delete(("t", (0, 0)))),
    _delete("no topic", delete()),
    _delete("a topic without partitions", delete(("t", ()))),
    _delete("an unknown group", delete(("t", (0,)), group="{nobody}")),
    _delete("an unknown group and topic", delete(("no", (0,)), group="{nobody}")),
    _delete("no topic of an unknown group", delete(group="{nobody}")),
    _delete("an empty group id", delete(("t", (0,)), group="")),
    _delete("a topic that a member reads", delete(("t", (0,))), SUBSCRIBED),
    _delete("a topic that no member reads", delete(("u", (0,)), ("t", (0, 9))), SUBSCRIBED),
    _delete("of a group of another kind", delete(("t", (0,))), OF_ANOTHER_KIND),
    _delete("of a deleted topic", delete(("t", (0,))), FORGOTTEN),
    _delete(
        "of a group whose members' metadata cannot be read",
        delete(("t", (0,)), ("no", (1,))),
        [TWO, Join(protocols=(("range", b"\0"),))],
    ),
    Exchange("offset delete: an empty body", DELETE, 0, Body(b"")),
    Exchange("offset delete: cut", DELETE, 0, Cut(delete(("t", (0,))), 2), [TWO]),
]

EXCHANGES = [*_COMMIT, *_FETCH, *_DELETE]
