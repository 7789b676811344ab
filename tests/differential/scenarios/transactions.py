"""The coordinator of transactions: FindCoordinator of type 1, InitProducerId, 0-5, of a transactional id,
AddPartitionsToTxn, 0-5, AddOffsetsToTxn, 0-4, EndTxn, 0-5."""

from collections.abc import Sequence
from typing import Any, Final

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.find_coordinator import FindCoordinatorRequest
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from tests.differential.batches import i16, i32, i64
from tests.differential.exchange import Appended, Body, Call, Cut, Exchange, Step
from tests.differential.group_steps import Join
from tests.differential.steps import Create, Delete, Done
from tests.differential.transaction_steps import (
    END_V1,
    END_V2,
    PRODUCE_V1,
    READ_UNCOMMITTED,
    Begin,
    P,
    Q,
    X,
    Y,
    add,
    add_all,
    add_offsets,
    added,
    adding,
    described,
    end,
    ended,
    group_offsets,
    init,
    marked,
    marker,
    offsets_added,
    offsets_committed,
    produced,
    producers_of,
    read,
    records,
    stable_end,
)

FIND = ApiKey.FIND_COORDINATOR
INIT = ApiKey.INIT_PRODUCER_ID
ADD = ApiKey.ADD_PARTITIONS_TO_TXN
OFFSETS = ApiKey.ADD_OFFSETS_TO_TXN
END = ApiKey.END_TXN
TRANSACTION: Final = 1
INIT_VERSIONS, ADD_VERSIONS, OFFSETS_VERSIONS, END_VERSIONS = range(6), range(4), range(5), range(6)
INIT_VERSIONS_WITH_EPOCH = range(3, 6)
BATCHED_VERSIONS = (4, 5)
MAX_TIMEOUT_MS: Final = 900_000
NO_SUCH_PRODUCER: Final = 987_654_321
EXHAUSTED: Final = 32_766

EMPTY: Sequence[Step] = (Begin(),)
OPEN: Sequence[Step] = (Create(), Begin(), Done(added()), Done(produced(records(0, 3))))
"""Three records of a transaction that is open."""
COMMITTED: Sequence[Step] = (*OPEN, Done(ended(version=END_V1)))
"""By a client of version 1: the epoch is still 0."""
ABORTED: Sequence[Step] = (*OPEN, Done(ended(False, version=END_V1)))
BUMPED: Sequence[Step] = (*OPEN, Done(ended()))
"""By a client of version 2: the epoch is 1."""
ABORTED_AND_BUMPED: Sequence[Step] = (*OPEN, Done(ended(False)))
BEGUN_TWICE: Sequence[Step] = (Begin(), Begin())
"""The epoch is 1; a zombie has 0."""
ZOMBIE: Sequence[Step] = (Create(), Begin(), Begin(), Done(added(epoch=1)))
"""The new producer has begun a transaction."""
OFFSETS_OPEN: Sequence[Step] = (
    Create(partitions=2),
    Begin(),
    Done(offsets_added()),
    Done(offsets_committed(("t", 0, 5))),
)
LOOK = (described(), read(), read(isolation=READ_UNCOMMITTED), stable_end(), producers_of())
"""Everything that can be seen of a transaction in partition 0."""


def _find(*keys: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(keys[0] if keys else "", TRANSACTION, list(keys))


_FIND = [
    *(Exchange(f"find coordinator: of a transactional id, v{v}", FIND, v, _find(X)) for v in range(1, 7)),
    *(
        Exchange(f"find coordinator: of several transactional ids, v{v}", FIND, v, _find(X, Y))
        for v in (4, 6)
    ),
    *(
        Exchange(f"find coordinator: of an empty transactional id, v{v}", FIND, v, _find(""))
        for v in (1, 3, 4)
    ),
    Exchange("find coordinator: of no transactional id", FIND, 4, _find()),
]


def _init(
    name: str,
    request: InitProducerIdRequest,
    before: Sequence[Step] = (),
    versions: Sequence[int] = (0, 3, 4, 5),
    after: Sequence[Call] = (described(),),
) -> list[Exchange]:
    return [Exchange(f"init producer id: {name}, v{v}", INIT, v, request, before, after) for v in versions]


_SECOND = Call(INIT, 5, init())
_INIT = [
    *_init("a new transactional id", init(), versions=INIT_VERSIONS),
    *_init("the second time", init(), EMPTY, INIT_VERSIONS),
    *_init("another transactional id", init(name=Y), EMPTY, (0, 5), (described(X, Y),)),
    *_init("another timeout", init(timeout_ms=1234), EMPTY, (0, 5)),
    *_init("after a commit", init(), COMMITTED),
    *_init("after an abort", init(), ABORTED),
    *_init("after a commit that bumped", init(), BUMPED),
    *_init("over an open transaction", init(), OPEN, INIT_VERSIONS, LOOK),
    *_init("over an open transaction, then again", init(), OPEN, (0, 5), (_SECOND, *LOOK)),
    *_init("over pending offsets", init(), OFFSETS_OPEN, (0, 5), (described(), group_offsets())),
    *_init("over a partition without records", init(), [Create(), Begin(), Done(added())], (5,), LOOK),
    *(
        exchange
        for timeout_ms in (0, -1, -(2**31), MAX_TIMEOUT_MS + 1, 2**31 - 1)
        for exchange in _init(f"a timeout of {timeout_ms}", init(timeout_ms=timeout_ms), (), (0, 5))
    ),
    *_init("the shortest timeout", init(timeout_ms=1), (), (5,)),
    *_init("the longest timeout", init(timeout_ms=MAX_TIMEOUT_MS), (), (0, 5)),
    *_init("a timeout of 0, of a known id", init(timeout_ms=0), EMPTY, (5,)),
    *_init("an empty id with a timeout of 0", init(name="", timeout_ms=0), (), (0, 5), ()),
    *_init("its own id and epoch", init(producer=P, epoch=0), EMPTY, INIT_VERSIONS_WITH_EPOCH),
    *_init(
        "its own id and epoch, then again",
        init(producer=P, epoch=0),
        EMPTY,
        (5,),
        (Call(INIT, 5, init(producer=P, epoch=0)), described()),
    ),
    *_init("the epoch before", init(producer=P, epoch=0), BEGUN_TWICE, INIT_VERSIONS_WITH_EPOCH),
    *_init("an epoch that it does not have yet", init(producer=P, epoch=5), EMPTY, INIT_VERSIONS_WITH_EPOCH),
    *_init("another producer id", init(producer=NO_SUCH_PRODUCER, epoch=0), EMPTY, INIT_VERSIONS_WITH_EPOCH),
    *_init(
        "another producer id of the greatest epoch",
        init(producer=NO_SUCH_PRODUCER, epoch=EXHAUSTED),
        EMPTY,
        (4,),
    ),
    *_init(
        "a producer id of an unknown id",
        init(producer=NO_SUCH_PRODUCER, epoch=3),
        (),
        INIT_VERSIONS_WITH_EPOCH,
    ),
    *_init("the greatest epoch of an unknown id", init(producer=NO_SUCH_PRODUCER, epoch=32767), (), (5,)),
    *_init("a producer id without an epoch", init(producer=P), EMPTY, (3, 5)),
    *_init("an epoch without a producer id", init(epoch=0), EMPTY, (3, 5)),
    *_init(
        "its own epoch over an open transaction",
        init(producer=P, epoch=0),
        OPEN,
        INIT_VERSIONS_WITH_EPOCH,
        LOOK,
    ),
    *_init(
        "a stale epoch over an open transaction", init(producer=P, epoch=0), ZOMBIE, INIT_VERSIONS_WITH_EPOCH
    ),
    *(
        # Its successor learns of it only when it commits.
        Exchange(
            f"init producer id: a stale epoch, then the end of its successor's transaction, v{v}",
            *(INIT, 5, init(producer=P, epoch=0), ZOMBIE, (Call(END, v, end(epoch=1)), *LOOK)),
        )
        for v in (END_V1, END_V2)
    ),
    *_init(
        "another producer id over an open transaction",
        init(producer=NO_SUCH_PRODUCER, epoch=0),
        OPEN,
        INIT_VERSIONS_WITH_EPOCH,
        LOOK,
    ),
    *_init("its own epoch after a commit", init(producer=P, epoch=0), COMMITTED, (3, 5)),
    *_init("the epoch before a commit that bumped", init(producer=P, epoch=0), BUMPED, (3, 4, 5)),
    *_init("its own epoch after a commit that bumped", init(producer=P, epoch=1), BUMPED, (3, 5)),
    *_init("a long id", init(name="{x}" + "y" * 1000), (), (0, 5)),
    *_init("an id that is not ASCII", init(name="{x}-ü☕"), (), (0, 5), (described("{x}-ü☕"),)),
    Exchange("init producer id: a transactional id, cut", INIT, 4, Cut(init(), 3)),
    Exchange(
        "init producer id: a transactional id, bytes after the message", INIT, 5, Appended(init(), b"xyz")
    ),
]


def _add(
    name: str,
    request: Any,
    before: Sequence[Step] = (Create(partitions=2), Begin()),
    versions: Sequence[int] = (0, 1, 2, 3),
    after: Sequence[Call] = (described(),),
) -> list[Exchange]:
    return [Exchange(f"add partitions: {name}, v{v}", ADD, v, request, before, after) for v in versions]


BOTH = (("t", (0, 1)),)
_ADD = [
    *_add("one", add(), after=(described(), producers_of())),
    *_add("two", add(BOTH)),
    *_add("two topics", add((("t", (0,)), ("u", (0,)))), [Create(), Create("u"), Begin()]),
    *_add("one that was added", add(), [Create(), Begin(), Done(added())], (0, 3)),
    *_add("one more", add((("t", (1,)),)), [Create(partitions=2), Begin(), Done(added())], (0, 3)),
    *_add("one partition twice", add((("t", (0, 0)),)), versions=(0, 3)),
    *_add("one topic twice", add((("t", (0,)), ("t", (1,)))), versions=(0, 3)),
    *_add("an unknown topic", add((("no", (0,)),))),
    *_add("an unknown partition", add((("t", (7,)),))),
    *_add("a negative partition", add((("t", (-1,)),)), versions=(0, 3)),
    *_add("known and unknown", add((("no", (0,)), ("t", (0, 1, 7))))),
    *_add(
        "known and unknown, of a stale epoch", add((("no", (0,)), ("t", (0,))), epoch=0), ZOMBIE, (0, 2, 3)
    ),
    *_add("a deleted topic", add(), [Create(), Begin(), Delete()], (3,)),
    *_add("no partitions", add((("t", ()),)), versions=(0, 3)),
    *_add("no topics", add(()), versions=(0, 3)),
    *_add("a topic name that is not allowed", add((("..", (0,)),)), versions=(3,)),
    *_add("of a stale epoch", add(epoch=0), ZOMBIE),
    *_add("of an epoch that it does not have yet", add(epoch=1)),
    *_add("of a negative epoch", add(epoch=-1), versions=(3,)),
    *_add("of another producer id", add(producer=NO_SUCH_PRODUCER)),
    *_add("of producer id -1", add(producer=-1), versions=(3,)),
    *_add("of another id's producer", add(producer=Q), [Create(), Begin(), Begin("q", Y)], (0, 3)),
    *_add(
        "of an unknown id", add(name="{unknown}", producer=NO_SUCH_PRODUCER), after=(described("{unknown}"),)
    ),
    *_add("of an empty id", add(name="", producer=NO_SUCH_PRODUCER), versions=(0, 3), after=()),
    *_add("after a commit", add(), COMMITTED, (0, 3)),
    *_add("after an abort", add(), ABORTED, (0, 3)),
    *_add("of the epoch before the commit", add(), BUMPED, (0, 2, 3)),
    *_add("of the epoch after the commit", add(epoch=1), BUMPED, (0, 3)),
    *_add("batched, one transaction", add_all(adding()), versions=BATCHED_VERSIONS),
    *_add(
        "batched, several transactions",
        add_all(adding(), adding(BOTH, name=Y, producer=Q), adding(name="{unknown}", producer=5)),
        [Create(partitions=2), Begin(), Begin("q", Y)],
        BATCHED_VERSIONS,
        (described(X, Y),),
    ),
    *_add(
        "batched, unknown partitions",
        add_all(adding((("t", (0, 9)), ("no", (0,))))),
        versions=BATCHED_VERSIONS,
    ),
    *_add("batched, a stale epoch", add_all(adding()), ZOMBIE, BATCHED_VERSIONS),
    *_add("batched, another producer id", add_all(adding(producer=5)), versions=BATCHED_VERSIONS),
    *_add("batched, an empty id", add_all(adding(name="", producer=5)), versions=(4,), after=()),
    *_add("verified, not added", add_all(adding(verify=True)), versions=BATCHED_VERSIONS),
    *_add("verified, added", add_all(adding(verify=True)), OPEN, BATCHED_VERSIONS),
    *_add(
        "verified, one of two added",
        add_all(adding(BOTH, verify=True)),
        [Create(partitions=2), Begin(), Done(added())],
        BATCHED_VERSIONS,
    ),
    *_add("verified, of a stale epoch", add_all(adding(verify=True)), ZOMBIE, BATCHED_VERSIONS),
    *_add(
        "verified, of another producer id", add_all(adding(producer=5, verify=True)), OPEN, BATCHED_VERSIONS
    ),
    *_add(
        "verified, of an unknown id", add_all(adding(name="{u}", producer=5, verify=True)), versions=(4, 5)
    ),
    *_add("verified, after the commit", add_all(adding(verify=True)), COMMITTED, (4,)),
    *_add(
        "one verified, one added",
        add_all(adding(verify=True), adding(name=Y, producer=Q)),
        [*OPEN, Begin("q", Y)],
        BATCHED_VERSIONS,
        (described(X, Y),),
    ),
    Exchange("add partitions: an empty body", ADD, 0, Body(b"")),
    Exchange("add partitions: cut", ADD, 3, Cut(add(), 3), [Create(), Begin()], [described()]),
    Exchange(
        "add partitions: more topics than bytes", ADD, 0, Body(i16(1) + b"x" + i64(1) + i16(0) + i32(99_999))
    ),
    Exchange("add partitions: a null id", ADD, 0, Body(i16(-1) + i64(1) + i16(0) + i32(0))),
    Exchange(
        "add partitions: bytes after the message",
        ADD,
        3,
        Appended(add(), b"xyz"),
        [Create(), Begin()],
        [described()],
    ),
]


def _offsets(
    name: str,
    request: Any,
    before: Sequence[Step] = EMPTY,
    versions: Sequence[int] = (0, 2, 3, 4),
    after: Sequence[Call] = (described(),),
) -> list[Exchange]:
    return [Exchange(f"add offsets: {name}, v{v}", OFFSETS, v, request, before, after) for v in versions]


_OFFSETS = [
    *_offsets("of a new group", add_offsets(), versions=OFFSETS_VERSIONS),
    *_offsets("twice", add_offsets(), [Begin(), Done(offsets_added())], (0, 4)),
    *_offsets("of a second group", add_offsets("{h}"), [Begin(), Done(offsets_added())], (0, 4)),
    *_offsets("of a living group", add_offsets(), [Create(), Join(), Begin()], (0, 4)),
    *_offsets("to an open transaction", add_offsets(), OPEN, (0, 4)),
    *_offsets("of an empty group id", add_offsets(""), versions=(0, 4)),
    *_offsets("of a stale epoch", add_offsets(), BEGUN_TWICE, OFFSETS_VERSIONS),
    *_offsets("of an epoch that it does not have yet", add_offsets(epoch=4)),
    *_offsets("of another producer id", add_offsets(producer=NO_SUCH_PRODUCER)),
    *_offsets("of an unknown id", add_offsets(name="{unknown}", producer=NO_SUCH_PRODUCER)),
    *_offsets("of an empty id", add_offsets(name="", producer=NO_SUCH_PRODUCER), (), (0, 4), ()),
    *_offsets("after a commit", add_offsets(), COMMITTED, (4,)),
    *_offsets("of the epoch before the commit", add_offsets(), BUMPED, (0, 2, 4)),
    *_offsets("of the epoch after the commit", add_offsets(epoch=1), BUMPED, (4,)),
    Exchange("add offsets: an empty body", OFFSETS, 0, Body(b"")),
    Exchange("add offsets: cut", OFFSETS, 4, Cut(add_offsets(), 3), EMPTY),
    Exchange("add offsets: bytes after the message", OFFSETS, 4, Appended(add_offsets(), b"xyz"), EMPTY),
]


def _end(
    name: str,
    request: Any,
    before: Sequence[Step] = OPEN,
    versions: Sequence[int] = (0, 2, 4, 5),
    after: Sequence[Call] = LOOK,
) -> list[Exchange]:
    return [Exchange(f"end: {name}, v{v}", END, v, request, before, after) for v in versions]


TWO_TOPICS: Sequence[Step] = (
    Create(partitions=2),
    Create("u"),
    Begin(),
    Done(produced(records(0, 2))),
    Done(produced(records(), partition=1)),
    Done(produced(records(), topic="u")),
)
EVERYWHERE = (described(), read(), read(partition=1), read(topic="u"), producers_of("u"))
_ALSO_AGAIN = [
    Exchange(
        f"end: {first}, then {second} after {state}, v{v}",
        END,
        v,
        end(first == "commit"),
        before,
        (Call(END, v, end(second == "commit")), *LOOK),
    )
    for state, before in (("records", OPEN), ("nothing", (Create(), Begin())))
    for first in ("commit", "abort")
    for second in ("commit", "abort")
    for v in (0, 4, 5)
]
"""The request is repeated, as a producer does that did not hear of its success, or with the other outcome."""
_END = [
    *_end("commit", end(), versions=END_VERSIONS),
    *_end("abort", end(False), versions=END_VERSIONS),
    *_end("commit in two topics", end(), TWO_TOPICS, (0, 5), EVERYWHERE),
    *_end("abort in two topics", end(False), TWO_TOPICS, (0, 5), EVERYWHERE),
    *_end("commit of a partition without records", end(), [Create(), Begin(), Done(added())], (0, 5)),
    *_end("abort of a partition without records", end(False), [Create(), Begin(), Done(added())], (0, 5)),
    *_end("commit with offsets", end(), OFFSETS_OPEN, (0, 5), (described(), group_offsets())),
    *_end("abort with offsets", end(False), OFFSETS_OPEN, (0, 5), (described(), group_offsets())),
    *_end(
        "commit of a group without offsets",
        end(),
        [Create(partitions=2), Begin(), Done(offsets_added())],
        (0, 5),
        (described(), group_offsets()),
    ),
    *_ALSO_AGAIN,
    *_end(
        "commit of a second transaction", end(epoch=1), [*BUMPED, Done(produced(records(epoch=1)))], (4, 5)
    ),
    *_end(
        "a late commit of the transaction before",
        end(),
        [*BUMPED, Done(produced(records(epoch=1)))],
        (0, 4, 5),
    ),
    *_end(
        "a late abort of the transaction before",
        end(False),
        [*BUMPED, Done(produced(records(epoch=1)))],
        (4, 5),
    ),
    *_end("commit of a stale epoch", end(), ZOMBIE, (0, 1, 2, 5), (described(),)),
    *_end("abort of a stale epoch", end(False), ZOMBIE, (0, 1, 2, 5), (described(),)),
    *_end("commit of an epoch that it does not have yet", end(epoch=1), after=(described(),)),
    *_end("commit of a negative epoch", end(epoch=-1), versions=(4, 5), after=(described(),)),
    *_end("commit of another producer id", end(producer=NO_SUCH_PRODUCER), after=(described(),)),
    *_end("commit of another id's producer", end(producer=Q), [*OPEN, Begin("q", Y)], (4, 5), (described(),)),
    *_end("commit of an unknown id", end(name="{unknown}", producer=NO_SUCH_PRODUCER), (), after=()),
    *_end("abort of an unknown id", end(False, name="{unknown}", producer=5), (), (0, 5), ()),
    *_end("commit of an empty id", end(name="", producer=NO_SUCH_PRODUCER), (), (0, 5), ()),
    *_end("commit after the next producer", end(), [*OPEN, Begin("q")], (0, 2, 5)),
    *_end(
        "commit after its topic is gone",
        end(),
        [Create("u"), *OPEN, Done(added(places=(("u", (0,)),))), Delete("u")],
        (4, 5),
        (described(), read()),
    ),
    *_end(
        "commit after a marker by hand",
        end(),
        [*OPEN, Done(marked(marker(False)))],
        (4, 5),
        (described(), read(), producers_of()),
    ),
    Exchange("end: an empty body", END, 0, Body(b"")),
    Exchange("end: cut", END, 5, Cut(end(), 3), OPEN, [described()]),
    Exchange("end: bytes after the message", END, 5, Appended(end(), b"xyz"), OPEN, [described()]),
    Exchange("end: neither commit nor abort", END, 0, Body(i16(1) + b"x" + i64(1) + i16(0) + b"\2")),
]

_ON = [
    Exchange(
        "end: a commit, and a transaction of the next epoch",
        END,
        5,
        end(),
        OPEN,
        (produced(records(epoch=1)), ended(False, epoch=1), produced(records(epoch=2)), *LOOK),
    ),
    Exchange(
        "end: a commit, and a transaction of the same epoch",
        END,
        4,
        end(),
        OPEN,
        (
            added(),
            produced(records(3), version=PRODUCE_V1),
            ended(False, version=END_V1),
            added(),
            produced(records(4), version=PRODUCE_V1),
            *LOOK,
        ),
    ),
    Exchange(
        "init producer id: two producers take turns",
        INIT,
        5,
        init(),
        OPEN,
        (
            produced(records(epoch=2)),
            produced(records(3)),
            produced(records(0, epoch=1)),
            ended(epoch=2),
            *LOOK,
        ),
    ),
]

EXCHANGES = [*_FIND, *_INIT, *_ADD, *_OFFSETS, *_END, *_ON]
