"""Fetch, 4-18: offsets, byte budgets, waits, epochs, and sessions (KIP-74, KIP-227, KIP-320, KIP-516)."""

from typing import Any

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.fetch import FetchRequest, ForgottenTopic, ReplicaState
from ledger.batch.header import Codec
from tests.differential.batches import Batch, i32, i64
from tests.differential.exchange import SESSION, Appended, Body, Call, Cut, Exchange, Step
from tests.differential.scenarios.builders import fetch, fetch_parts, fetch_topics, partition_of
from tests.differential.steps import Create, Delete, Done, OpenSession, Send

KEY = ApiKey.FETCH
VERSIONS = (4, 11, 12, 13, 18)
FEW = (4, 11, 18)
THREE = (Batch(3), Batch(2, b"second"), Batch(4, b"third"))
FILLED: list[Step] = [Create(), Send(THREE)]
END = 9
BIG = Batch(1, b"x" * 5000)
NO_SESSION: Any = 123_456_789


def _read(name: str, request: Any, version: int = 11, before: list[Step] | None = None) -> Exchange:
    return Exchange(f"fetch: {name}, v{version}", KEY, version, request, FILLED if before is None else before)


_READ = [
    *(_read("from the beginning", fetch(0), v) for v in range(4, 19)),
    *(_read("from the middle of a batch", fetch(4), v) for v in FEW),
    *(_read("at the end", fetch(END), v) for v in FEW),
    *(_read("one after the end", fetch(END + 1), v) for v in VERSIONS),
    *(_read("offset -1", fetch(-1), v) for v in FEW),
    _read("offset 2^63 - 1", fetch(2**63 - 1)),
    _read("offset -2^63", fetch(-(2**63))),
    *(_read("an empty partition", fetch(0), v, [Create()]) for v in FEW),
    *(_read("unknown topic", fetch(0, topic="nowhere"), v, []) for v in VERSIONS),
    *(_read("unknown partition", fetch(0, partition=3), v) for v in VERSIONS),
    _read("partition -1", fetch(0, partition=-1)),
    *(_read("a deleted topic", fetch(0), v, [*FILLED, Delete()]) for v in (4, 13)),
    *(_read("read committed", fetch(0, isolation_level=1), v) for v in FEW),
    *(_read("isolation level 7", fetch(0, isolation_level=7), v) for v in VERSIONS),
    _read("isolation level -1 of nothing", fetch_parts([], isolation_level=-1)),
    _read("isolation level 2 of an unknown topic", fetch(0, topic="nowhere", isolation_level=2), 4, []),
    *(
        _read(codec.name.lower(), fetch(0), v, [Create(), Send((Batch(5, codec=codec),))])
        for codec in (Codec.GZIP, Codec.LZ4)
        for v in (4, 13)
    ),
    *(_read("zstd", fetch(0), v, [Create(), Send((Batch(5, codec=Codec.ZSTD),))]) for v in (4, 9, 10, 11)),
    _read(
        "two partitions",
        fetch_parts([("t", [partition_of(0), partition_of(1)])]),
        11,
        [Create(partitions=2), Send(THREE), Send((BIG,), partition=1)],
    ),
    _read(
        "two topics",
        fetch_parts([("t", [partition_of(0)]), ("u", [partition_of(0)])]),
        13,
        [*FILLED, Create("u"), Send((BIG,), "u")],
    ),
    _read("known and unknown topics", fetch_parts([("t", [partition_of(0)]), ("no", [partition_of(0)])]), 11),
    _read("known and unknown ids", fetch_parts([("t", [partition_of(0)]), ("no", [partition_of(0)])]), 13),
    *(
        _read(
            "unknown partitions before unknown ids",
            fetch_parts(
                [("t", [partition_of(9), partition_of(0)]), ("no", [partition_of(0), partition_of(1)])]
            ),
            v,
        )
        for v in (11, 13, 18)
    ),
    _read("known and unknown partitions", fetch_parts([("t", [partition_of(0), partition_of(9)])]), 11),
    _read("one partition twice", fetch_parts([("t", [partition_of(0), partition_of(0, 3)])]), 11),
    _read("no topics", fetch_parts([]), 11),
    _read("no topics, v18", fetch_parts([]), 18),
    _read("an invalid topic name", fetch(0, topic="t} {u"), 4, []),
]

_BUDGETS = [
    *(_read("max bytes 0", fetch(0, max_bytes=0), v) for v in FEW),
    *(_read("max bytes 1", fetch(0, max_bytes=1), v) for v in FEW),
    *(_read("partition max bytes 0", fetch(0, part_partition_max_bytes=0), v) for v in FEW),
    *(_read("partition max bytes 1", fetch(0, part_partition_max_bytes=1), v) for v in FEW),
    _read("max bytes of one batch and a bit", fetch(0, max_bytes=200)),
    _read("partition max bytes of one batch and a bit", fetch(0, part_partition_max_bytes=200)),
    _read("negative max bytes", fetch(0, max_bytes=-1)),
    _read("negative partition max bytes", fetch(0, part_partition_max_bytes=-1)),
    _read("negative partition max bytes, v18", fetch(0, part_partition_max_bytes=-1), 18),
    _read("negative partition max bytes at the end", fetch(END, part_partition_max_bytes=-1)),
    _read("negative partition max bytes out of range", fetch(99, part_partition_max_bytes=-1)),
    _read("negative max bytes at the end", fetch(END, max_bytes=-1)),
    _read(
        "negative max bytes of two partitions",
        fetch_parts([("t", [partition_of(0), partition_of(1)])], max_bytes=-7),
        11,
        [Create(partitions=2), Send((BIG,)), Send((BIG,), partition=1)],
    ),
    _read(
        "negative max bytes, the first partition empty",
        fetch_parts([("t", [partition_of(0), partition_of(1)])], max_bytes=-7),
        11,
        [Create(partitions=2), Send((BIG,), partition=1)],
    ),
    _read(
        "negative max bytes, the first partition unknown",
        fetch_parts([("t", [partition_of(9), partition_of(1)])], max_bytes=-7),
        11,
        [Create(partitions=2), Send((BIG,), partition=1)],
    ),
    _read(
        "one of two with negative max bytes",
        fetch_parts([("t", [partition_of(0, partition_max_bytes=-1), partition_of(1)])]),
        11,
        [Create(partitions=2), Send((BIG,)), Send((BIG,), partition=1)],
    ),
    _read(
        "a batch larger than its partition's budget",
        fetch(0, part_partition_max_bytes=100),
        11,
        [Create(), Send((BIG, BIG))],
    ),
    _read("a batch larger than the budget", fetch(0, max_bytes=100), 18, [Create(), Send((BIG, BIG))]),
    _read(
        "two partitions and a budget for one",
        fetch_parts([("t", [partition_of(0), partition_of(1)])], max_bytes=5200),
        11,
        [Create(partitions=2), Send((BIG, BIG)), Send((BIG, BIG), partition=1)],
    ),
    _read(
        "two partitions and no budget",
        fetch_parts([("t", [partition_of(0), partition_of(1)])], max_bytes=1),
        11,
        [Create(partitions=2), Send((BIG,)), Send((BIG,), partition=1)],
    ),
    _read(
        "an empty partition before a full one, no budget",
        fetch_parts([("t", [partition_of(0), partition_of(1)])], max_bytes=1),
        11,
        [Create(partitions=2), Send((BIG,), partition=1)],
    ),
]


def _timed(name: str, request: Any, before: list[Step] | None = None) -> Exchange:
    return Exchange(f"fetch: {name}", KEY, 11, request, FILLED if before is None else before, is_timed=True)


_WAITS = [
    _timed("waits for a byte that does not come", fetch(END, min_bytes=1, max_wait_ms=1100)),
    _timed("waits for more bytes than there are", fetch(0, min_bytes=100_000, max_wait_ms=1100)),
    _timed("does not wait for no bytes", fetch(END, min_bytes=0, max_wait_ms=1100)),
    _timed("does not wait when there is enough", fetch(0, min_bytes=1, max_wait_ms=5000)),
    _timed("does not wait when it may not", fetch(END, min_bytes=1, max_wait_ms=0)),
    _timed("does not wait for a negative time", fetch(END, min_bytes=1, max_wait_ms=-5)),
    _timed("does not wait out of range", fetch(100, min_bytes=1, max_wait_ms=5000)),
    _timed("does not wait for nothing", fetch_parts([], min_bytes=1, max_wait_ms=5000)),
    _timed(
        "waits for no more than its greatest size",
        fetch(0, min_bytes=100_000, max_bytes=50, max_wait_ms=5000),
    ),
    _timed("does not wait for an unknown partition", fetch(0, partition=8, min_bytes=1, max_wait_ms=5000)),
    _timed(
        "waits although another partition is unknown",
        fetch_parts([("t", [partition_of(0, END), partition_of(9)])], min_bytes=1, max_wait_ms=1100),
    ),
    _timed(
        "does not wait if one of two is out of range",
        fetch_parts([("t", [partition_of(0), partition_of(1, 99)])], min_bytes=1, max_wait_ms=5000),
        [Create(partitions=2)],
    ),
    _timed(
        "does not wait for an epoch that is none",
        fetch(END, min_bytes=1, max_wait_ms=5000, part_current_leader_epoch=9),
    ),
]

_EPOCHS = [
    *(
        _read(f"current leader epoch {epoch}", fetch(0, part_current_leader_epoch=epoch), v)
        for epoch in (0, 1, 500)
        for v in (9, 13, 18)
    ),
    _read("current leader epoch -2", fetch(0, part_current_leader_epoch=-2), 11),
    *(
        _read(f"last fetched epoch {epoch}", fetch(0, part_last_fetched_epoch=epoch), 12)
        for epoch in (0, 1, -2)
    ),
    _read("last fetched epoch 0 at the end", fetch(END, part_last_fetched_epoch=0), 18),
    *(
        _read(
            "last fetched epoch 0 after the end, read committed",
            fetch(END + 5, part_last_fetched_epoch=0, isolation_level=1),
            v,
        )
        for v in (12, 18)
    ),
    _read("last fetched epoch 0 after the end", fetch(END + 5, part_last_fetched_epoch=0), 18),
    _read("a log start offset", fetch(2, part_log_start_offset=2), 5),
    _read("a rack", fetch(0, rack_id="a"), 11),
    _read("a cluster id of another cluster", fetch(0, cluster_id="someone-elses"), 12),
    _read("a replica id of the debugger", fetch(0, replica_id=-2), 11),
    *(_read(f"replica id {n}", fetch(0, replica_id=n), 4) for n in (1, 5)),
    *(
        _read("replica id 5 in its state", fetch(0, replica_state=ReplicaState(5, -1)), v)
        for v in (15, 16, 18)
    ),
    _read("replica id 5, out of range", fetch(99, replica_id=5), 11),
    _read("replica id 5, unknown partition", fetch(0, partition=9, replica_id=5), 11),
    _read("replica id 5, unknown epoch", fetch(0, replica_id=5, part_current_leader_epoch=4), 11),
    _read(
        "replica id 5, two partitions",
        fetch_parts([("t", [partition_of(0), partition_of(9)])], replica_id=5),
        11,
    ),
    _read("replica id 5 in a new session", fetch(0, replica_id=5, session_epoch=0), 11),
    _read("replica id -3", fetch(0, replica_id=-3), 11),
]


def session(
    epoch: int, request: FetchRequest | None = None, *, session_id: Any = SESSION, forget: Any = ()
) -> FetchRequest:
    """A request of a session, of nothing new unless said otherwise."""
    request = fetch_parts([]) if request is None else request
    forgotten = [
        ForgottenTopic(topic.topic, topic.topic_id, [part.partition for part in topic.partitions])
        for topic in fetch_topics(forget)
    ]
    return FetchRequest(
        session_id=session_id, session_epoch=epoch, topics=request.topics, forgotten_topics_data=forgotten
    )


OPENED: list[Step] = [Create(partitions=2), Send(THREE), OpenSession(partitions=2)]
MORE = Send((Batch(1, b"more"),), partition=1)
AFTER_TWO: list[Step] = [*OPENED, Done(Call(KEY, 11, session(1)))]
LATER = Call(KEY, 11, session(2))


def _in(
    name: str, request: Any, before: list[Step] | None = None, after: Any = (), version: int = 11
) -> Exchange:
    return Exchange(
        f"fetch sessions: {name}", KEY, version, request, OPENED if before is None else before, after
    )


_SESSIONS = [
    *(_in(f"none is requested, v{v}", fetch(0, session_epoch=-1), FILLED, version=v) for v in (7, 18)),
    *(_in(f"a new one, v{v}", fetch(0, session_epoch=0), FILLED, version=v) for v in (7, 11, 13, 18)),
    _in("a new one of nothing", fetch_parts([], session_epoch=0), []),
    _in("a new one of an unknown topic", fetch(0, topic="nowhere", session_epoch=0), []),
    _in("a new one of an unknown id", fetch(0, topic="nowhere", session_epoch=0), [], version=13),
    _in("a new one of an empty partition", fetch(0, session_epoch=0), [Create()]),
    _in("a new one out of range", fetch(50, session_epoch=0), FILLED),
    _in("records come again until the offset moves", session(1)),
    _in("offsets move on", session(1, fetch(END))),
    _in("offsets moved on stay", session(2), [*OPENED, Done(Call(KEY, 11, session(1, fetch(END))))]),
    _in("only what has changed", session(2), [*OPENED, Done(Call(KEY, 11, session(1, fetch(END)))), MORE]),
    _in(
        "a partition more",
        session(1, fetch(0, partition=2)),
        [Create(partitions=3), Send(THREE, partition=2), OpenSession(partitions=2)],
    ),
    _in("a partition forgotten", session(1, forget=[("t", [partition_of(0)])])),
    _in(
        "a partition forgotten stays so",
        session(2),
        [*OPENED, Done(Call(KEY, 11, session(1, forget=[("t", [partition_of(0)])])))],
    ),
    _in("all forgotten", session(1, forget=[("t", [partition_of(0), partition_of(1)])]), after=[LATER]),
    _in("forgetting what was never requested", session(1, forget=[("u", [partition_of(4)])])),
    _in(
        "forgotten by id",
        session(1, forget=[("t", [partition_of(0)])]),
        [Create(partitions=2), Send(THREE), OpenSession(partitions=2, version=13)],
        version=13,
    ),
    _in("a wrong epoch", session(5)),
    _in("epoch 1 twice", session(1), AFTER_TWO),
    _in("a wrong epoch, v18", session(5), version=18),
    _in("a wrong epoch does not end it", session(5), after=[Call(KEY, 11, session(1))]),
    *(
        _in(f"an unknown one, v{v}", session(1, session_id=NO_SESSION), FILLED, version=v)
        for v in (7, 13, 18)
    ),
    _in("an unknown one with partitions", session(1, fetch(0), session_id=NO_SESSION), FILLED),
    _in("id 0 with epoch 1", session(1, session_id=0), FILLED),
    _in("closed by epoch -1", session(-1, fetch(0)), after=[Call(KEY, 11, session(1))]),
    _in("closed by epoch -1 with nothing", session(-1), after=[Call(KEY, 11, session(1))]),
    _in("an unknown one closed", session(-1, fetch(0), session_id=NO_SESSION), FILLED),
    _in("replaced by epoch 0", session(0, fetch(0))),
    _in("the old one is gone when replaced", session(0, fetch(0)), after=[Call(KEY, 11, session(1))]),
    _in("epoch -2", session(-2)),
    _in("by name and then by id", session(1), version=13),
    _in("by id and then by name", session(1), [*FILLED, OpenSession(version=13)], version=12),
    _in("the topic is deleted", session(1), [*FILLED, OpenSession(), Delete()]),
    _in("the topic is deleted, by id", session(1), [*FILLED, OpenSession(version=13), Delete()], version=13),
    _in(
        "the topic is deleted and made again",
        session(1),
        [*FILLED, OpenSession(version=13), Delete(), Create()],
        version=13,
    ),
    _in("from v4, which has none", fetch(0, session_epoch=0), FILLED, version=4),
]

_HEAD = i32(-1) + i32(0) + i32(0) + i32(1000) + b"\0"
_MALFORMED = [
    *(Exchange(f"fetch: an empty body, v{v}", KEY, v, Body(b"")) for v in FEW),
    *(Exchange(f"fetch: cut by a byte, v{v}", KEY, v, Cut(fetch(0), 1)) for v in FEW),
    *(Exchange(f"fetch: cut in the middle, v{v}", KEY, v, Cut(fetch(0), 20)) for v in FEW),
    Exchange("fetch: bytes after the message, v4", KEY, 4, Appended(fetch(0), b"xx"), FILLED),
    Exchange("fetch: bytes after the message, v18", KEY, 18, Appended(fetch(0), b"xx"), FILLED),
    Exchange("fetch: more topics than bytes", KEY, 4, Body(_HEAD + i32(2**31 - 1))),
    Exchange("fetch: a null array of topics", KEY, 4, Body(_HEAD + i32(-1))),
    Exchange("fetch: a null topic name", KEY, 4, Body(_HEAD + i32(1) + b"\xff\xff" + i32(0))),
    Exchange("fetch: more partitions than bytes", KEY, 4, Body(_HEAD + i32(1) + b"\0\1t" + i32(2**28))),
    Exchange("fetch: half a partition", KEY, 4, Body(_HEAD + i32(1) + b"\0\1t" + i32(1) + i32(0) + i64(0))),
]

_CUT = [
    _read(
        f"a second partition of at most {limit} bytes, read committed, v{v}",
        fetch_parts(
            [("t", [partition_of(0), partition_of(1, partition_max_bytes=limit)])], isolation_level=1
        ),
        v,
        [Create(partitions=2), Send(THREE), Send(THREE, partition=1)],
    )
    for limit in (0, 1, 100, 10_000)
    for v in (4, 11, 18)
]

EXCHANGES = [*_READ, *_BUDGETS, *_CUT, *_WAITS, *_EPOCHS, *_SESSIONS, *_MALFORMED]
