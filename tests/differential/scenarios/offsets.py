"""ListOffsets, 1-11: the special timestamps, by time, and what is not found."""

from typing import Any

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ledger.batch.header import Codec
from ledger.batch.records import Record
from tests.differential.batches import HOUR_MS, Batch, i32
from tests.differential.exchange import Appended, Body, Cut, Exchange, Step, TimeOf
from tests.differential.scenarios.builders import EARLIEST, LATEST, list_offsets
from tests.differential.steps import Create, Delete, Send

KEY = ApiKey.LIST_OFFSETS
VERSIONS = (1, 4, 6, 8, 11)
MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -3, -4, -5, -6
# Offsets 0 to 8, at 0, 1000, 2000; 10000, 11000; 20000 to 23000 ms.
FILLED: list[Step] = [
    Create(),
    Send(
        (
            Batch(3, step_ms=1000),
            Batch(2, step_ms=1000, later_ms=10_000),
            Batch(4, step_ms=1000, later_ms=20_000),
        )
    ),
]
TIMELESS: list[Step] = [Create(), Send((Batch(2, timestamp_ms=-1, step_ms=0),) * 2)]
STAMPED: list[Step] = [
    Create(configs={"message.timestamp.type": "LogAppendTime"}),
    Send((Batch(3), Batch(2))),
]
BACKWARDS: list[Step] = [
    Create(),
    Send(
        (
            Batch(2, later_ms=50_000),
            Batch(records=[Record(0, 9000, b"a", b"b"), Record(1, 3000, b"c", b"d"), Record(2, 9000)]),
            Batch(2, later_ms=9000),
        )
    ),
]
ZIPPED: list[Step] = [
    Create(),
    Send(tuple(Batch(3, step_ms=1000, later_ms=i * 10_000, codec=codec) for i, codec in enumerate(Codec))),
]


def _at(
    name: str, timestamp: Any, version: int = 7, before: list[Step] | None = None, **fields: Any
) -> Exchange:
    steps = FILLED if before is None else before
    return Exchange(
        f"list offsets: {name}, v{version}", KEY, version, list_offsets(timestamp, **fields), steps
    )


def _later(later_ms: int) -> Any:
    return TimeOf(later_ms - HOUR_MS)


def _twice() -> ListOffsetsRequest:
    parts = [ListOffsetsPartition(0, -1, LATEST), ListOffsetsPartition(0, -1, EARLIEST)]
    return ListOffsetsRequest(-1, 0, [ListOffsetsTopic("{t}", parts)], 10_000)


def _several() -> ListOffsetsRequest:
    parts = [
        ListOffsetsPartition(0, -1, LATEST),
        ListOffsetsPartition(1, -1, EARLIEST),
        ListOffsetsPartition(5, -1, LATEST),
    ]
    return ListOffsetsRequest(
        -1, 0, [ListOffsetsTopic("{t}", parts), ListOffsetsTopic("{no}", parts[:1])], 10_000
    )


_SPECIAL = [
    *(_at("latest", LATEST, v) for v in VERSIONS),
    *(_at("earliest", EARLIEST, v) for v in VERSIONS),
    *(_at("latest of an empty partition", LATEST, v, [Create()]) for v in (1, 11)),
    *(_at("earliest of an empty partition", EARLIEST, v, [Create()]) for v in (1, 11)),
    *(_at("read committed latest", LATEST, v, isolation=1) for v in (2, 11)),
    *(_at("isolation level 5", LATEST, v, isolation=5) for v in (2, 4, 11)),
    _at("isolation level 5 by time", 0, 7, isolation=5),
    _at("isolation level 5 of an unknown topic", LATEST, 7, [], topic="nowhere", isolation=5),
    *(_at("max timestamp", MAX_TIMESTAMP, v) for v in (1, 6, 7, 11)),
    *(_at("max timestamp of records without", MAX_TIMESTAMP, v, TIMELESS) for v in (7, 11)),
    _at("max timestamp of an empty partition", MAX_TIMESTAMP, 7, [Create()]),
    _at("max timestamp of times that go back", MAX_TIMESTAMP, 8, BACKWARDS),
    _at("max timestamp of the broker's times", MAX_TIMESTAMP, 8, STAMPED),
    *(_at("earliest local", EARLIEST_LOCAL, v) for v in (1, 7, 8, 11)),
    *(_at("latest tiered", LATEST_TIERED, v) for v in (1, 8, 9, 11)),
    *(_at("earliest pending upload", EARLIEST_PENDING, v) for v in (1, 9, 10, 11)),
    *(_at("timestamp -7", -7, v) for v in (1, 11)),
    _at("timestamp -2^63", -(2**63), 9),
]
_BY_TIME = [
    *(_at("by the first time", _later(0), v) for v in VERSIONS),
    *(_at("by a time in a batch", _later(1000), v) for v in VERSIONS),
    *(_at("by a time between records", _later(1500), v) for v in (1, 11)),
    *(_at("by a time between batches", _later(5000), v) for v in (1, 11)),
    *(_at("by the last time", _later(23_000), v) for v in (1, 11)),
    *(_at("by a time after all", _later(23_001), v) for v in (1, 11)),
    _at("by time 0", 0),
    _at("by time 2^63 - 1", 2**63 - 1),
    _at("by time in an empty partition", 0, 7, [Create()]),
    *(
        _at(f"by time {ms} where times go back", _later(ms), 7, BACKWARDS)
        for ms in (3000, 9000, 9001, 50_000)
    ),
    *(
        _at(f"by time {ms} in compressed batches", _later(ms), 7, ZIPPED)
        for ms in (1000, 11_000, 21_500, 32_000, 41_000)
    ),
    _at("by an early time where the broker stamps", _later(0), 8, STAMPED),
]
_UNKNOWN = [
    *(_at("unknown topic", LATEST, v, [], topic="nowhere") for v in VERSIONS),
    *(_at("unknown partition", LATEST, v, partition=9) for v in (1, 11)),
    _at("partition -1", EARLIEST, 6, partition=-1),
    _at("a deleted topic", LATEST, 7, [*FILLED, Delete()]),
    *(_at(f"current leader epoch {epoch}", LATEST, v, epoch=epoch) for epoch in (0, 1, 77) for v in (4, 11)),
    _at("current leader epoch -2", LATEST, 4, epoch=-2),
    _at("by time with an unknown epoch", 0, 4, epoch=3),
    *(_at(f"replica id {n}", LATEST, 5, replica=n) for n in (-2, 1, 9)),
    *(Exchange(f"list offsets: one partition twice, v{v}", KEY, v, _twice(), FILLED) for v in (1, 11)),
    *(
        Exchange(f"list offsets: some known, some not, v{v}", KEY, v, _several(), [Create(partitions=2)])
        for v in (1, 7, 11)
    ),
    *(Exchange(f"list offsets: nothing, v{v}", KEY, v, ListOffsetsRequest(-1)) for v in (1, 11)),
    Exchange("list offsets: an empty body", KEY, 1, Body(b"")),
    Exchange("list offsets: cut", KEY, 11, Cut(list_offsets(LATEST), 1)),
    Exchange("list offsets: bytes after the message", KEY, 7, Appended(list_offsets(LATEST), b"x"), FILLED),
    Exchange("list offsets: more topics than bytes", KEY, 1, Body(i32(-1) + i32(2**29))),
    Exchange("list offsets: a null array of topics", KEY, 1, Body(i32(-1) + i32(-1))),
    Exchange("list offsets: a null topic name", KEY, 1, Body(i32(-1) + i32(1) + b"\xff\xff" + i32(0))),
]

EXCHANGES = [*_SPECIAL, *_BY_TIME, *_UNKNOWN]
