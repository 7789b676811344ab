"""Transactions for operators: DescribeTransactions, 0, ListTransactions, 0-2, DescribeProducers, 0,
WriteTxnMarkers, 1-2.

Not compared: the partitions of a deleted topic, which Kafka still lists as part of an open transaction; and
markers of another coordinator epoch than 0, which Kafka writes as they are and fences by. Here there is one
coordinator, and its epoch is always 0.
"""

from collections.abc import Sequence
from typing import Any

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.list_transactions import ListTransactionsRequest
from gateway.wire.messages.generated.write_txn_markers import WriteTxnMarkersRequest
from tests.differential.batches import Batch, i32
from tests.differential.exchange import Appended, Body, Call, Cut, Exchange, Step
from tests.differential.scenarios.transactional_records import INTERLEAVED, SEVERAL, UNMARKED_LOOK
from tests.differential.scenarios.transactions import (
    ABORTED_AND_BUMPED,
    BUMPED,
    COMMITTED,
    EMPTY,
    LOOK,
    NO_SUCH_PRODUCER,
    OFFSETS_OPEN,
    OPEN,
    TWO_TOPICS,
)
from tests.differential.steps import Create, Delete, Done, NewProducer, Send
from tests.differential.transaction_steps import (
    Begin,
    P,
    Q,
    X,
    Y,
    added,
    described,
    ended,
    marked,
    marker,
    offsets_added,
    produced,
    producers_of,
    read,
    records,
    stable_end,
)

DESCRIBE = ApiKey.DESCRIBE_TRANSACTIONS
LIST = ApiKey.LIST_TRANSACTIONS
PRODUCERS = ApiKey.DESCRIBE_PRODUCERS
MARK = ApiKey.WRITE_TXN_MARKERS
LIST_VERSIONS = range(3)
STATES: dict[str, Sequence[Step]] = {
    "empty": EMPTY,
    "open": OPEN,
    "open in two topics": TWO_TOPICS,
    "open with offsets": OFFSETS_OPEN,
    "committed": COMMITTED,
    "committed and bumped": BUMPED,
    "aborted and bumped": ABORTED_AND_BUMPED,
    "begun again": (*BUMPED, Done(added(epoch=1))),
}


def _describe(name: str, *names: str, before: Sequence[Step] = OPEN) -> Exchange:
    call = described(*names)
    return Exchange(f"describe transactions: {name}", DESCRIBE, 0, call.request, before)


_DESCRIBE = [
    *(_describe(state, before=before) for state, before in STATES.items()),
    _describe("an unknown id", "{unknown}"),
    _describe("an empty id", ""),
    _describe("several", X, "{unknown}", "", Y, before=[*OPEN, Begin("q", Y)]),
    _describe("one twice", X, X),
    Exchange("describe transactions: none", DESCRIBE, 0, type(described().request)([])),
    Exchange("describe transactions: an empty body", DESCRIBE, 0, Body(b"")),
    Exchange("describe transactions: cut", DESCRIBE, 0, Cut(described().request, 1)),
    Exchange(
        "describe transactions: bytes after the message",
        DESCRIBE,
        0,
        Appended(described().request, b"x"),
        OPEN,
    ),
]

MIXED: Sequence[Step] = (*OPEN, Begin("q", Y), Begin("r", "{z}"))
"""x is open, y and z are empty."""


PATTERNS = (
    "{x}", "{x}.*", ".*-x$", ".*-[xy]", "(?i).*-X", "no-such.*", "", "[", "(", "*", "{x", "\\Q{x}\\E",
    ".*-x|.*-y", ".*\\-y", "^.*-y", "(?:.*)-(x)", "[[:alpha:]]\\d+-\\d+-x", "(?P<a>d).*\\d-x", "(?<a>d).*-x",
    "(?=d).*", "(d).*\\1", "d\\d++.*-x", "(?>d).*", "\\Ad.*\\z", "d.*-x\\Z", "\\pL.*-x", "[d&&[a-z]].*-x",
    "d.{3,9}+-x", "d.{1,}-x", "d.{2000}", "(?x)d .* -x",
)  # fmt: skip
"""Of RE2, whole ids."""


def _list(
    name: str, before: Sequence[Step] = MIXED, versions: Sequence[int] = LIST_VERSIONS, **fields: Any
) -> list[Exchange]:
    request = ListTransactionsRequest(**fields)
    return [Exchange(f"list transactions: {name}, v{v}", LIST, v, request, before) for v in versions]


_LIST = [
    *_list("all"),
    *_list("open ones", state_filters=["Ongoing"]),
    *_list("empty ones", state_filters=["Empty"], versions=(0, 2)),
    *_list("two states", state_filters=["Empty", "Ongoing"], versions=(0, 2)),
    *_list("committed ones", COMMITTED, (0, 2), state_filters=["CompleteCommit"]),
    *_list("aborted ones", ABORTED_AND_BUMPED, (2,), state_filters=["CompleteAbort"]),
    *(
        exchange
        for state in ("PrepareCommit", "PrepareAbort", "Dead", "PrepareEpochFence", "ongoing", "ONGOING", "")
        for exchange in _list(f"state {state!r}", versions=(0, 2), state_filters=[state])
    ),
    *_list("unknown states", versions=(0, 2), state_filters=["Wrong", "Ongoing", "Other"]),
    *_list("unknown states alone", versions=(0, 2), state_filters=["Wrong", "Wrong"]),
    *_list("by producer", producer_id_filters=[P]),
    *_list("by two producers", producer_id_filters=[P, Q], versions=(0, 2)),
    *_list("by an unknown producer", producer_id_filters=[NO_SUCH_PRODUCER], versions=(0, 2)),
    *_list("by producer -1", producer_id_filters=[-1], versions=(2,)),
    *_list("by producer and state", producer_id_filters=[P], state_filters=["Empty"], versions=(0, 2)),
    *_list("open for an hour", duration_filter=3_600_000, versions=(1, 2)),
    *_list("open for 0 ms", duration_filter=0, versions=(1, 2)),
    *_list("open for -5 ms", duration_filter=-5, versions=(1, 2)),
    *(
        exchange
        for pattern in PATTERNS
        for exchange in _list(f"pattern {pattern!r}", versions=(2,), transactional_id_pattern=pattern)
    ),
    *_list(
        "a pattern and a state", versions=(2,), transactional_id_pattern=".*-[xy]", state_filters=["Empty"]
    ),
    Exchange("list transactions: an empty body", LIST, 0, Body(b"")),
    Exchange("list transactions: cut", LIST, 2, Cut(ListTransactionsRequest(), 1)),
    Exchange(
        "list transactions: bytes after the message", LIST, 1, Appended(ListTransactionsRequest(), b"x"), OPEN
    ),
]  # fmt: skip

_PRODUCERS = [
    Exchange(f"describe producers: {name}", PRODUCERS, 0, producers_of().request, before)
    for name, before in (
        ("of an open transaction", OPEN),
        ("of a transaction without records", (Create(), Begin(), Done(added()))),
        (
            "of a transaction that begins at 1",
            (Create(), Send((Batch(),)), Begin(), Done(produced(records(0, 2)))),
        ),
        ("of a committed transaction", COMMITTED),
        ("of an aborted transaction", ABORTED_AND_BUMPED),
        ("of a partition that had no records of it", (Create(), Begin(), Done(added()), Done(ended(False)))),
        ("of two producers", INTERLEAVED),
        ("of the fifth transaction", (*SEVERAL, Done(produced(records(epoch=4))))),
        ("of a fenced producer", (*OPEN, Begin("q"))),
        (
            "of a producer of no transaction beside",
            (*OPEN, NewProducer("q"), Send((Batch(producer=Q, epoch=0, sequence=0),))),
        ),
    )
]


def _mark(
    name: str,
    request: Any,
    before: Sequence[Step] = OPEN,
    versions: Sequence[int] = (1, 2),
    after: Sequence[Call] = LOOK,
) -> list[Exchange]:
    if not isinstance(request, WriteTxnMarkersRequest):
        request = marked(request).request
    return [Exchange(f"write markers: {name}, v{v}", MARK, v, request, before, after) for v in versions]


OTHER_TOPIC = (("no", (0,)),)
_MARK = [
    *_mark("abort", marker(False)),
    *_mark("commit", marker(True)),
    *_mark("abort of a later epoch", marker(False, epoch=1)),
    *_mark(
        "abort of a later epoch, then the end", marker(False, epoch=1), versions=(1,), after=(ended(), *LOOK)
    ),
    *_mark(
        "abort of a stale epoch",
        marker(False),
        [Create(), Begin(), Begin(), Done(added(epoch=1)), Done(produced(records(epoch=1)))],
        after=UNMARKED_LOOK,
    ),
    *_mark(
        "abort, and the producer goes on", marker(False), versions=(1,), after=(produced(records(3)), *LOOK)
    ),
    *_mark("abort, and the producer ends", marker(False), versions=(1,), after=(ended(), *LOOK)),
    *_mark("abort of nothing", marker(False), [Create(), Begin()]),
    *_mark("abort of an ended transaction", marker(False), COMMITTED),
    *_mark("abort of a bumped epoch", marker(False), BUMPED, (1,)),
    *_mark("abort of an unknown producer", marker(False, producer=NO_SUCH_PRODUCER)),
    *_mark("abort of a negative epoch", marker(False, epoch=-1), versions=(1,)),
    *_mark("an unknown topic", marker(False, OTHER_TOPIC), after=(described(),)),
    *_mark("an unknown partition", marker(False, (("t", (7, -1)),)), after=(described(),)),
    *_mark("known and unknown", marker(False, (("no", (0,)), ("t", (0, 7)))), versions=(1,)),
    *_mark("a deleted topic", marker(False), [*OPEN, Delete()], (1,), ()),
    *_mark("no topic", marker(False, ()), versions=(1,), after=(described(),)),
    *_mark("no marker", marked().request, (), (1, 2), ()),
    *_mark(
        "several partitions",
        marker(False, (("t", (0, 1)), ("u", (0,)))),
        TWO_TOPICS,
        (1, 2),
        (read(), read(partition=1), read(topic="u")),
    ),
    *_mark(
        "two producers",
        marked(marker(False), marker(True, producer=Q)).request,
        INTERLEAVED,
        (1, 2),
        (read(), stable_end()),
    ),
    *_mark(
        "one producer twice", marked(marker(False), marker(True)).request, OPEN, (1,), (read(), stable_end())
    ),
    *_mark(
        "of a producer of no transaction",
        marker(False, producer=Q),
        [Create(), NewProducer("q"), Send((Batch(producer=Q, epoch=0, sequence=0),))],
        (1,),
        (read(),),
    ),
    *_mark(
        "offsets of groups", marker(True), [Create(), Begin(), Done(offsets_added())], (1,), (described(),)
    ),
    Exchange("write markers: an empty body", MARK, 1, Body(b"")),
    Exchange("write markers: cut", MARK, 1, Cut(marked(marker()).request, 3), OPEN),
    Exchange("write markers: more markers than bytes", MARK, 1, Body(i32(-1))),
    Exchange(
        "write markers: bytes after the message",
        MARK,
        1,
        Appended(marked(marker()).request, b"xyz"),
        OPEN,
        LOOK,
    ),
]

EXCHANGES = [*_DESCRIBE, *_LIST, *_PRODUCERS, *_MARK]
