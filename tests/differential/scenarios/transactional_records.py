"""Records of transactions: Produce, 3-13, in both transaction versions; Fetch, 4-18, and ListOffsets, 2-11,
by isolation level; DeleteRecords."""

from collections.abc import Sequence
from typing import Any, Final

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ledger.batch.header import CONTROL_BIT, TRANSACTIONAL_BIT
from tests.differential.batches import HOUR_MS, Batch, Batches, last_offset_delta
from tests.differential.exchange import Call, Exchange, Step, TimeOf
from tests.differential.scenarios.builders import (
    EARLIEST,
    LATEST,
    fetch,
    fetch_parts,
    list_offsets,
    partition_of,
    produce_many,
)
from tests.differential.scenarios.transactions import (
    ABORTED,
    ABORTED_AND_BUMPED,
    BUMPED,
    COMMITTED,
    LOOK,
    NO_SUCH_PRODUCER,
    OPEN,
    ZOMBIE,
)
from tests.differential.steps import Create, Delete, Done, NewProducer, Send
from tests.differential.transaction_steps import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Begin,
    P,
    Q,
    X,
    Y,
    added,
    described,
    ended,
    produced,
    read,
    records,
    stable_end,
)

PRODUCE = ApiKey.PRODUCE
FETCH = ApiKey.FETCH
LIST = ApiKey.LIST_OFFSETS
V1, V2 = (3, 8, 11), (12, 13)
"""Versions of Produce of clients of transaction version 1, and of version 2."""
BEGUN: Sequence[Step] = (Create(partitions=2), Begin())
ADDED: Sequence[Step] = (*BEGUN, Done(added()))
MAX_TIMESTAMP: Final = -3


UNMARKED_LOOK = LOOK[:-1]
"""Without DescribeProducers: whether a partition has had a marker of a producer follows here from what else
is known of it, and that is wrong in a few cases."""


def _produce(
    title: str,
    batch: Batch | Batches,
    before: Sequence[Step] = ADDED,
    versions: Sequence[int] = (*V1, *V2),
    after: Sequence[Call] = LOOK,
    **fields: Any,
) -> list[Exchange]:
    return [
        Exchange(
            f"transactional produce: {title}, v{v}",
            PRODUCE,
            v,
            produced(batch, **fields).request,
            before,
            after,
        )
        for v in versions
    ]


def _parts(
    name: str,
    parts: Sequence[tuple[str, int, Batch | Batches]],
    before: Sequence[Step] = ADDED,
    versions: Sequence[int] = (8, 11, 12, 13),
    **fields: Any,
) -> list[Exchange]:
    """Several partitions in one request."""
    request = produce_many(parts, transactional_id=X, **fields)
    after = (described(), read(), read(partition=1))
    return [
        Exchange(f"transactional produce: {name}, v{v}", PRODUCE, v, request, before, after) for v in versions
    ]


def plain(sequence: int = 0, **fields: Any) -> Batch:
    """An idempotent batch of the transactional producer that is not transactional."""
    return Batch(**{"producer": P, "epoch": 0, "sequence": sequence, **fields})


def control(**fields: Any) -> Batch:
    return Batch(
        **{"producer": P, "epoch": 0, "sequence": 0, "flags": CONTROL_BIT | TRANSACTIONAL_BIT, **fields}
    )


_PRODUCE = [
    *_produce("the first batch", records(0, 3), versions=range(3, 14)),
    *_produce("the next batch", records(3, 2), OPEN),
    *_produce("a repeat", records(0, 3), OPEN),
    *_produce("a gap", records(5), OPEN),
    *_produce("a first sequence of 4", records(4), versions=(8, 11, 12, 13)),
    *_produce(
        "a first sequence of 4 after another transaction",
        records(4, epoch=1),
        [*BUMPED, Done(added(epoch=1))],
        (8, 12, 13),
    ),
    *_produce("to a partition that was not added", records(), BEGUN),
    *_produce(
        "to a partition that was not added, of an open transaction",
        records(),
        [*ADDED, Done(produced(records()))],
        (8, 11, 12),
        partition=1,
    ),
    *_produce("of a stale epoch", records(), ZOMBIE),
    *_produce("of an epoch that it does not have yet", records(epoch=3), versions=(8, 11, 12, 13)),
    *_produce("of another producer id", records(producer=NO_SUCH_PRODUCER), versions=(8, 11, 12, 13)),
    *_produce("of another id's producer", records(producer=Q), [*ADDED, Begin("q", Y)], (8, 12)),
    *_produce("of an unknown id", records(), versions=(8, 11, 12, 13), name="{unknown}"),
    *_produce("of an empty id", records(), versions=(8, 12), name=""),
    *_produce("without an id", records(), versions=(3, 8, 11, 12, 13), name=None),
    *_produce("without a producer", Batch(flags=TRANSACTIONAL_BIT), versions=(8, 11, 12, 13)),
    *_produce("not transactional, while a transaction is open", plain(3), OPEN, (3, 8, 11, 12, 13)),
    *_produce(
        "not transactional, with no id, while a transaction is open", plain(3), OPEN, (8, 12, 13), name=None
    ),
    *_produce(
        "not transactional, in a transaction without records",
        plain(),
        versions=(8, 12, 13),
        after=UNMARKED_LOOK,
    ),
    *_produce("not transactional, before any transaction", plain(), BEGUN, (8, 12, 13), after=UNMARKED_LOOK),
    *_produce("not transactional, after a commit", plain(3), COMMITTED, (8, 12)),
    *_produce("not transactional, without a producer, with an id", Batch(), versions=(8, 12, 13)),
    *_produce("a control batch", control(), versions=(3, 8, 11, 12, 13)),
    *_produce("a control batch that is not transactional", control(flags=CONTROL_BIT), versions=(8, 12)),
    *_produce("a control batch of an open transaction", control(sequence=3), OPEN, (8, 13)),
    *_produce(
        "a batch that lies about its records",
        Batch(2, producer=P, epoch=0, sequence=0, flags=TRANSACTIONAL_BIT, patches=[last_offset_delta(7)]),
        versions=(8, 12),
    ),
    *_produce("an unknown topic", records(), versions=(8, 12, 13), topic="no"),
    *_produce("an unknown partition", records(), versions=(8, 12, 13), partition=7),
    *_produce("after a commit, not added again", records(3), COMMITTED),
    *_produce("after an abort, not added again", records(3), ABORTED, (8, 11, 12)),
    *_produce("of the epoch before the commit", records(3), BUMPED),
    *_produce("of the epoch before the commit, a repeat", records(0, 3), BUMPED, (8, 12)),
    *_produce("of the epoch after the commit", records(epoch=1), BUMPED, (8, 11, 12, 13)),
    *_produce(
        "of the epoch after the commit, added", records(epoch=1), [*BUMPED, Done(added(epoch=1))], (8, 12)
    ),
    *_produce("of the epoch after an abort", records(epoch=1), ABORTED_AND_BUMPED, (12, 13)),
    *_produce("after the next producer began", records(3), [*OPEN, Begin("q")]),
    *_produce("two batches", Batches([records(0, 2), records(2, 2)]), versions=(8, 12)),
    *_produce(
        "of a producer of no transaction",
        Batch(producer=Q, epoch=0, sequence=0),
        [*OPEN, NewProducer("q")],
        (8, 12),
        name=None,
    ),
    *_produce(
        "transactional, of a producer of no transaction",
        records(producer=Q),
        [*ADDED, NewProducer("q")],
        (8, 12),
    ),
    *_parts("one partition added, one not", [("t", 0, records()), ("t", 1, records())]),
    *_parts(
        "two partitions",
        [("t", 0, records()), ("t", 1, records())],
        [*BEGUN, Done(added(places=(("t", (0, 1)),)))],
    ),
    *_parts("a transactional and a plain batch", [("t", 0, records()), ("t", 1, Batch())]),
    *_parts(
        "batches of two producers",
        [("t", 0, records()), ("t", 1, records(producer=Q))],
        [*ADDED, Begin("q", Y)],
        (8, 12),
    ),
    *_parts("an unknown topic and an added partition", [("no", 0, records()), ("t", 0, records())]),
    *_parts("acks 1", [("t", 0, records())], versions=(8, 12), acks=1),
    *_parts("acks 0", [("t", 0, records())], versions=(8, 12), acks=0),
]


def _fetch(
    name: str,
    before: Sequence[Step],
    offset: int = 0,
    versions: Sequence[int] = (4, 11, 13, 18),
    levels: Sequence[int] = (READ_UNCOMMITTED, READ_COMMITTED),
    **fields: Any,
) -> list[Exchange]:
    return [
        Exchange(
            f"transactional fetch: {name}, level {level}, v{v}",
            FETCH,
            v,
            fetch(offset, isolation_level=level, **{"max_wait_ms": 0, "min_bytes": 0, **fields}),
            before,
        )
        for v in versions
        for level in levels
    ]


def _sent(sequence: int, producer: Any, name: str) -> Done:
    return Done(produced(records(sequence, 2, producer=producer), name=name))


INTERLEAVED: Sequence[Step] = (
    Create(),
    Begin(),
    Begin("q", Y),
    _sent(0, P, X),
    _sent(0, Q, Y),
    Send((Batch(),)),
    _sent(2, P, X),
    _sent(2, Q, Y),
)
"""Records of p at 0, 1, 5, 6, of q at 2, 3, 7, 8, and one of neither at 4."""
P_ABORTED: Sequence[Step] = (*INTERLEAVED, Done(ended(False)))
"""Its marker is at 9."""
BOTH_ENDED: Sequence[Step] = (*P_ABORTED, Done(ended(name=Y, producer=Q)))
"""The marker of q is at 10."""
SEVERAL: Sequence[Step] = (
    Create(),
    Begin(),
    *(
        Done(call)
        for epoch in range(4)
        for call in (produced(records(epoch=epoch)), ended(epoch % 2 == 1, epoch=epoch))
    ),
)
"""Four transactions, at 0, 2, 4 and 6, of which the first and the third are aborted."""
_ABORTED_LISTS = [
    exchange
    for offset in range(12)
    for exchange in _fetch(f"both ended, from {offset}", BOTH_ENDED, offset, (11,), (READ_COMMITTED,))
]
_FETCH = [
    *_fetch("open", OPEN),
    *_fetch("committed", BUMPED),
    *_fetch("aborted", ABORTED_AND_BUMPED),
    *_fetch("a partition without records, aborted", [*ADDED, Done(ended(False))], versions=(4, 18)),
    *_fetch("at the last stable offset", OPEN, 0, (11, 18)),
    *_fetch("beyond the last stable offset", OPEN, 2, (4, 11, 18)),
    *_fetch("at the high watermark", OPEN, 3, (11, 18)),
    *_fetch("beyond the high watermark", OPEN, 4, (4, 11, 18)),
    *_fetch("the marker alone", ABORTED_AND_BUMPED, 3, (4, 11, 18)),
    *_fetch("after the marker", ABORTED_AND_BUMPED, 4, (11,)),
    *_fetch("interleaved, both open", INTERLEAVED, versions=(4, 18)),
    *_fetch("interleaved, one aborted", P_ABORTED),
    *_fetch("interleaved, both ended", BOTH_ENDED),
    *_ABORTED_LISTS,
    *_fetch("four transactions", SEVERAL, versions=(4, 11, 18)),
    *_fetch("four transactions, from the second", SEVERAL, 2, (11,)),
    *_fetch("four transactions, from the third", SEVERAL, 4, (11,)),
    *_fetch("cut, four transactions, the first batch", SEVERAL, 0, (11, 18), part_partition_max_bytes=1),
    *_fetch("cut, four transactions, the second batch", SEVERAL, 2, (11,), part_partition_max_bytes=1),
    *_fetch("cut, four transactions, few bytes", SEVERAL, 0, (11,), part_partition_max_bytes=300),
    *_fetch("cut, both ended, few bytes", BOTH_ENDED, 2, (11,), part_partition_max_bytes=200),
    *_fetch("over a whole session", SEVERAL, versions=(11,), session_epoch=0),
    *(
        Exchange(
            f"transactional fetch: two partitions of which one is open, v{v}",
            FETCH,
            v,
            fetch_parts(
                [("t", [partition_of(0), partition_of(1)])], isolation_level=READ_COMMITTED, max_wait_ms=0
            ),
            [*ADDED, Done(produced(records())), Send((Batch(),), partition=1)],
        )
        for v in (11, 18)
    ),
    Exchange(
        "transactional fetch: waits at the last stable offset",
        FETCH,
        11,
        fetch(0, isolation_level=READ_COMMITTED, max_wait_ms=1200, min_bytes=1),
        OPEN,
        is_timed=True,
    ),
    Exchange(
        "transactional fetch: does not wait for what is committed",
        FETCH,
        11,
        fetch(0, isolation_level=READ_COMMITTED, max_wait_ms=1200, min_bytes=1),
        BUMPED,
        is_timed=True,
    ),
    *(
        Exchange(
            f"transactional fetch: level {level}",
            FETCH,
            11,
            fetch(0, isolation_level=level, max_wait_ms=0),
            OPEN,
        )
        for level in (2, -1, 127)
    ),
]


def _list(name: str, before: Sequence[Step], versions: Sequence[int] = (2, 5, 11)) -> list[Exchange]:
    """The latest offset by isolation level."""
    return [
        Exchange(
            f"transactional list offsets: {name}, level {level}, v{v}",
            LIST,
            v,
            list_offsets(LATEST, isolation=level),
            before,
        )
        for v in versions
        for level in (READ_UNCOMMITTED, READ_COMMITTED)
    ]


TIMES: Sequence[tuple[str, Any]] = (
    ("earliest", EARLIEST),
    ("the largest timestamp", MAX_TIMESTAMP),
    ("a timestamp in the transaction", TimeOf(-HOUR_MS + 1)),
    ("a timestamp before", TimeOf(-2 * HOUR_MS)),
    ("a timestamp after", TimeOf(HOUR_MS)),
)
_LIST = [
    *_list("open", OPEN),
    *_list("committed", BUMPED, (2, 11)),
    *_list("one of two open", P_ABORTED, (11,)),
    *(
        Exchange(
            f"transactional list offsets: {name} of {state}, level {level}",
            LIST,
            9,
            list_offsets(timestamp, isolation=level),
            before,
        )
        for name, timestamp in TIMES
        for state, before in (("an open transaction", OPEN),)
        for level in (READ_UNCOMMITTED, READ_COMMITTED)
    ),
]


def deleting(offset: int) -> DeleteRecordsRequest:
    return DeleteRecordsRequest([DeleteRecordsTopic("{t}", [DeleteRecordsPartition(0, offset)])], 10_000)


def _deleted(offset: int) -> Done:
    return Done(Call(ApiKey.DELETE_RECORDS, 2, deleting(offset)))


OPEN_IN_THREE: Sequence[Step] = (*BEGUN, *(Done(produced(records(i))) for i in range(3)))
"""Batches. A broker takes the base offset of a batch that is cut for the last stable offset, though it is
below the start of the log."""
LATER_LOOK = (read(2), read(2, isolation=READ_UNCOMMITTED), stable_end(), described())
_DELETE = [
    *(
        Exchange(
            f"delete records: of {state}, before {offset}",
            ApiKey.DELETE_RECORDS,
            2,
            deleting(offset),
            before,
            LATER_LOOK,
        )
        for state, before in (("an open transaction", OPEN_IN_THREE), ("an aborted one", ABORTED_AND_BUMPED))
        for offset in (2, 3, -1)
    ),
    Exchange(
        "delete records: of an open transaction, which is committed then",
        ApiKey.END_TXN,
        5,
        ended().request,
        [*OPEN, _deleted(3)],
        (read(3), stable_end(), described()),
    ),
    Exchange(
        "delete records: of an open transaction, which is aborted then",
        ApiKey.END_TXN,
        5,
        ended(False).request,
        [*OPEN, _deleted(2)],
        (read(2), read(3), stable_end(), described()),
    ),
    Exchange(
        "delete records: the aborted transaction and its marker",
        ApiKey.DELETE_RECORDS,
        2,
        deleting(4),
        SEVERAL,
        (read(4), read(6), stable_end()),
    ),
]
GONE: Sequence[Step] = (*OPEN, Delete())
_GONE = [
    Exchange(
        f"end: {'commit' if commit else 'abort'} when the topic is gone, v{v}",
        ApiKey.END_TXN,
        v,
        ended(commit).request,
        GONE,
        (described(),),
    )
    for commit in (True, False)
    for v in (4, 5)
]

EXCHANGES = [*_PRODUCE, *_FETCH, *_LIST, *_DELETE, *_GONE]
