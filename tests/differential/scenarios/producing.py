"""Produce, 3-13: what is stored as it was sent, and what is refused and how."""

from typing import Any

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.header import CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, Codec
from ledger.batch.records import Record, RecordHeader
from tests.differential.batches import (
    FIRST_RECORD_AT,
    HOUR_MS,
    Batch,
    Batches,
    Patch,
    attributes,
    crc,
    i16,
    i32,
    last_offset_delta,
    leader_epoch,
    length_field,
    magic,
    max_timestamp,
    record_count,
)
from tests.differential.exchange import Appended, Body, Cut, Exchange
from tests.differential.scenarios.builders import end_of, produce, produce_many, read_back
from tests.differential.steps import Create, Delete, Send

KEY = ApiKey.PRODUCE
VERSIONS = (3, 8, 13)
OFFSETS_TOPIC = "__consumer_offsets"
LIE = "produce: a lie inside, "


def _sent(name: str, request: Any, version: int = 9, **configs: str) -> Exchange:
    """Into a fresh topic, and read back."""
    return Exchange(
        f"produce: {name}, v{version}", KEY, version, request, [Create(configs=configs)], [read_back()]
    )


def _internal(batch: Batch, acks: int = -1, beside: ProduceRequest | None = None) -> ProduceRequest:
    data: Any = PartitionProduceData(0, batch)  # type: ignore[arg-type]
    topic = TopicProduceData(OFFSETS_TOPIC, partition_data=[data])
    return ProduceRequest(None, acks, 10_000, [topic, *(beside.topic_data if beside else ())])


_STORED = [
    *(_sent("one record", produce(Batch()), v) for v in range(3, 14)),
    *(_sent("a hundred records", produce(Batch(100)), v) for v in VERSIONS),
    *(_sent(f"{codec.name.lower()}", produce(Batch(20, codec=codec)), v) for codec in Codec for v in (7, 13)),
    *(_sent(f"acks {acks}", produce(Batch(2), acks=acks), v) for acks in (0, 1) for v in VERSIONS),
    *(_sent(f"acks {acks}", produce(Batch(), acks=acks), v) for acks in (2, -2, 32767) for v in VERSIONS),
    _sent("no time", produce(Batch(), timeout_ms=0)),
    _sent("negative time", produce(Batch(), timeout_ms=-1)),
    _sent("an empty value", produce(Batch(value=b""))),
    _sent("null key and value", produce(Batch(records=[Record()]))),
    _sent(
        "headers",
        produce(Batch(records=[Record(0, 0, b"k", b"v", (RecordHeader("", b""), RecordHeader("é", None)))])),
    ),
    _sent(
        "timestamps that go back",
        produce(Batch(records=[Record(0, 500, b"a", b"b"), Record(1, -500, b"c", b"d")])),
    ),
    _sent("a leader epoch in the batch", produce(Batch(patches=[leader_epoch(7)]))),
    _sent("900 KB", produce(Batch(value=b"x" * 900_000))),
    _sent("bytes of half a batch after it", produce(Batches([Batch(2), Batch(3, cut=9)]))),
    _sent("a few bytes after it", produce(Batches([Batch(2), b"\0\0\0"]))),
    Exchange(
        "produce: after other batches",
        KEY,
        9,
        produce(Batch(3)),
        [Create(), Send((Batch(4), Batch(2)))],
        [read_back(), end_of()],
    ),
    Exchange(
        "produce: two partitions",
        KEY,
        9,
        produce_many([("t", 1, Batch(1)), ("t", 0, Batch(2))]),
        [Create(partitions=2)],
        [read_back(), read_back(partition=1)],
    ),
    Exchange(
        "produce: two topics",
        KEY,
        13,
        produce_many([("t", 0, Batch(1)), ("u", 0, Batch(2))]),
        [Create(), Create("u")],
        [read_back(), read_back("u")],
    ),
    Exchange("produce: no topics", KEY, 9, produce_many([])),
    Exchange("produce: no topics, acks 0", KEY, 9, produce_many([], acks=0)),
]

_TIMES = [
    _sent("stamped by the broker", produce(Batch(3)), 9, **{"message.timestamp.type": "LogAppendTime"}),
    _sent(
        "stamped by the broker, gzip",
        produce(Batch(3, codec=Codec.GZIP)),
        8,
        **{"message.timestamp.type": "LogAppendTime"},
    ),
    _sent("two hours in the future", produce(Batch(later_ms=3 * HOUR_MS))),
    _sent("a year in the future", produce(Batch(3, later_ms=365 * 24 * HOUR_MS)), 3),
    _sent("half an hour in the future", produce(Batch(later_ms=HOUR_MS + HOUR_MS // 2))),
    _sent("one record of three in the future", produce(Batch(3, step_ms=2 * HOUR_MS))),
    _sent(
        "the future is allowed",
        produce(Batch(later_ms=30 * HOUR_MS)),
        9,
        **{"message.timestamp.after.max.ms": "999999999999"},
    ),
    _sent("an hour old and not allowed", produce(Batch()), 9, **{"message.timestamp.before.max.ms": "1000"}),
    _sent("no timestamp", produce(Batch(timestamp_ms=-1, step_ms=0))),
    _sent("timestamp 0", produce(Batch(timestamp_ms=0, step_ms=0))),
    _sent(
        "LogAppendTime from a client where the broker stamps",
        produce(Batch(3, flags=LOG_APPEND_TIME_BIT)),
        9,
        **{"message.timestamp.type": "LogAppendTime"},
    ),
    _sent(
        "LogAppendTime from a client, gzip", produce(Batch(3, codec=Codec.GZIP, flags=LOG_APPEND_TIME_BIT))
    ),
    _sent(
        "every second record in the future",
        produce(Batch(records=[Record(i, (i % 2) * 5 * HOUR_MS, b"k", b"v") for i in range(6)])),
    ),
    _sent(
        "some null keys in a compacted topic",
        produce(Batch(records=[Record(i, 0, b"k" if i % 3 else None, b"v") for i in range(6)])),
        9,
        **{"cleanup.policy": "compact"},
    ),
    _sent(
        "a null key and a late record in a compacted topic",
        produce(Batch(records=[Record(0, 0, None, b"v"), Record(1, 9 * HOUR_MS, b"k", b"v")])),
        9,
        **{"cleanup.policy": "compact"},
    ),
    _sent("LogAppendTime from a client", produce(Batch(flags=LOG_APPEND_TIME_BIT))),
]

_UNKNOWN = [
    *(Exchange(f"produce: unknown topic, v{v}", KEY, v, produce(Batch(), topic="nowhere")) for v in VERSIONS),
    *(
        Exchange(f"produce: unknown partition, v{v}", KEY, v, produce(Batch(), partition=5), [Create()])
        for v in VERSIONS
    ),
    Exchange("produce: partition -1", KEY, 9, produce(Batch(), partition=-1), [Create()]),
    *(
        Exchange(f"produce: deleted topic, v{v}", KEY, v, produce(Batch()), [Create(), Delete()])
        for v in (3, 13)
    ),
    Exchange("produce: an invalid topic name", KEY, 3, produce(Batch(), topic="t} {u")),
    Exchange("produce: unknown topic, acks 0", KEY, 9, produce(Batch(), topic="nowhere", acks=0)),
    Exchange("produce: unknown partition, acks 1", KEY, 7, produce(Batch(), partition=3, acks=1), [Create()]),
    Exchange(
        "produce: known and unknown partitions",
        KEY,
        9,
        produce_many([("t", 0, Batch()), ("t", 7, Batch()), ("u", 0, Batch())]),
        [Create()],
        [read_back()],
    ),
    Exchange(
        "produce: known and unknown ids",
        KEY,
        13,
        produce_many([("t", 0, Batch()), ("u", 0, Batch())]),
        [Create()],
        [read_back()],
    ),
    Exchange(
        "produce: a good and a bad partition",
        KEY,
        8,
        produce_many([("t", 0, Batch(patches=[crc(b"nope")])), ("t", 1, Batch())]),
        [Create(partitions=2)],
        [read_back(), read_back(partition=1)],
    ),
]

_REFUSED = [
    *(_sent("a wrong CRC", produce(Batch(patches=[crc(b"\0\0\0\0")])), v) for v in VERSIONS),
    _sent("a wrong CRC, acks 0", produce(Batch(patches=[crc(b"\0\0\0\0")]), acks=0)),
    _sent(
        "a bit flipped in a record",
        produce(Batch(patches=[Patch(FIRST_RECORD_AT + 3, b"\x7f", sealed=False)])),
    ),
    *(
        _sent(f"magic {n}", produce(Batch(patches=[magic(n)])), v)
        for n, v in [(0, 3), (0, 9), (1, 3), (1, 13), (3, 9), (127, 3), (255, 9)]
    ),
    *(_sent("no bytes of records", produce(b""), v) for v in VERSIONS),
    _sent("11 bytes of records", produce(b"\0" * 11)),
    _sent("30 bytes of zeros", produce(b"\0" * 30)),
    _sent("61 bytes of zeros", produce(b"\0" * 61)),
    _sent("random bytes for records", produce(bytes((i * 89 + 41) % 256 for i in range(200)))),
    *(
        _sent(
            f"a whole batch of {12 + n} bytes",
            produce(b"\0" * 8 + i32(n) + i32(0) + b"\x02" + b"\0" * (n - 5)),
        )
        for n in (14, 20, 30, 38, 39, 48)
    ),
    _sent("text for records", produce(b"GET / HTTP/1.1\r\nHost: nowhere.example\r\nAccept: */*\r\n\r\n" * 3)),
    _sent("a batch cut in its records", produce(Batch(3, cut=4))),
    _sent("a batch cut in its header", produce(Batch(3, cut=70))),
    *(
        _sent(f"a length field of {n}", produce(Batch(patches=[length_field(n)])))
        for n in (-1, 0, 13, 14, 48, 49, 2**31 - 1, -(2**31))
    ),
    _sent(
        "a length field one too small",
        produce(Batch(value=b"v" * 40, patches=[length_field(61 - 12 + 40 + 20)])),
    ),
    *(_sent("two batches", produce(Batches([Batch(2), Batch(1)])), v) for v in VERSIONS),
    _sent("three batches", produce(Batches([Batch(), Batch(), Batch()]))),
    _sent("a batch and one with a wrong CRC", produce(Batches([Batch(), Batch(patches=[crc(b"oops")])]))),
    _sent("a batch and one of magic 1", produce(Batches([Batch(), Batch(patches=[magic(1)])]))),
    _sent("a batch and one of magic 9", produce(Batches([Batch(), Batch(patches=[magic(9)])]))),
    _sent("a batch and a length of 3", produce(Batches([Batch(), Batch(patches=[length_field(3)])]))),
    *(_sent("a control batch", produce(Batch(flags=CONTROL_BIT)), v) for v in VERSIONS),
    *(_sent("base offset 5", produce(Batch(base_offset=5)), v) for v in VERSIONS),
    _sent("base offset -1", produce(Batch(base_offset=-1))),
    *(_sent("zstd before v7", produce(Batch(5, codec=Codec.ZSTD)), v) for v in (3, 6)),
    *(_sent(f"codec {n}", produce(Batch(patches=[attributes(n)]))) for n in (5, 6, 7)),
    _sent("a transactional batch without a transaction", produce(Batch(flags=TRANSACTIONAL_BIT))),
    _sent("a transactional id and a plain batch", produce_many([("t", 0, Batch())], transactional_id="tx")),
    _sent(
        "a transactional and a plain batch without a transaction",
        produce_many([("t", 0, Batch(flags=TRANSACTIONAL_BIT)), ("t", 1, Batch())]),
    ),
    _sent(
        "one topic twice",
        ProduceRequest(None, -1, 10_000, [*produce(Batch(1)).topic_data, *produce(Batch(2)).topic_data]),
    ),
    _sent("unused attribute bits", produce(Batch(patches=[attributes(0x4080)]))),
    _sent("the delete horizon bit", produce(Batch(patches=[attributes(0x40)]))),
    *(_sent("too large", produce(Batch(value=b"x" * 1_100_000)), v) for v in VERSIONS),
    _sent(
        "larger than the topic allows", produce(Batch(value=b"x" * 2000)), 9, **{"max.message.bytes": "1000"}
    ),
    _sent(
        "as large as the topic allows", produce(Batch(value=b"x" * 800)), 9, **{"max.message.bytes": "1000"}
    ),
    _sent("no record size is allowed", produce(Batch()), 9, **{"max.message.bytes": "0"}),
    _sent(
        "too large and a wrong CRC",
        produce(Batch(value=b"x" * 2000, patches=[crc(b"1234")])),
        9,
        **{"max.message.bytes": "1000"},
    ),
    _sent(
        "a second partition entry for the same partition",
        produce_many([("t", 0, Batch(1)), ("t", 0, Batch(2))]),
    ),
    *(
        _sent(f"{n} records by the header, one inside", produce(Batch(patches=[record_count(n)])))
        for n in (0, -1, 2, 2**31 - 1)
    ),
    *(
        _sent(f"last offset delta {n} for one record", produce(Batch(patches=[last_offset_delta(n)])))
        for n in (-1, 1, 100, 2**31 - 1, -(2**31))
    ),
    *(
        _sent(
            f"count and delta agree on {n} for one record",
            produce(Batch(patches=[record_count(n), last_offset_delta(n - 1)])),
            v,
        )
        for n in (100, 2**31 - 1)
        for v in (3, 9)
    ),
    _sent("count and delta agree on none", produce(Batch(patches=[record_count(0), last_offset_delta(-1)]))),
    _sent(
        "compressed: one record too many by the header",
        produce(Batch(3, codec=Codec.GZIP, patches=[record_count(4)])),
    ),
    _sent(
        "a null key in a compacted topic",
        produce(Batch(records=[Record(0, 0, None, b"v")])),
        9,
        **{"cleanup.policy": "compact"},
    ),
    _sent(
        "a null key in a compacted topic, lz4",
        produce(Batch(codec=Codec.LZ4, records=[Record(0, 0, None, b"v")])),
        3,
        **{"cleanup.policy": "compact"},
    ),
    _sent("keys in a compacted topic", produce(Batch(2)), 9, **{"cleanup.policy": "compact"}),
]


def _lie(what: str, batch: Batch) -> Exchange:
    return Exchange(LIE + what, KEY, 9, produce(batch), [Create()], [read_back()])


_LIES = [
    _lie(
        "count and delta for two records, one there", Batch(patches=[record_count(2), last_offset_delta(1)])
    ),
    _lie(
        "count and delta for one record, two there", Batch(2, patches=[record_count(1), last_offset_delta(0)])
    ),
    _lie("a record longer than the batch", Batch(patches=[Patch(FIRST_RECORD_AT, b"\x7e")])),
    _lie("a record of negative length", Batch(patches=[Patch(FIRST_RECORD_AT, b"\x01")])),
    _lie(
        "a record with offset delta 5",
        Batch(records=[Record(5, 0, b"k", b"v")], patches=[last_offset_delta(0)]),
    ),
    _lie("bytes that are not gzip", Batch(value=b"no gzip at all", patches=[attributes(Codec.GZIP)])),
    _lie("bytes that are not zstd", Batch(value=b"no zstd at all", patches=[attributes(Codec.ZSTD)])),
    _lie("timestamps below -1, which Kafka corrects in the header", Batch(timestamp_ms=-5, step_ms=0)),
    _lie("a max timestamp that no record has", Batch(2, patches=[max_timestamp(1_600_000_000_000)])),
]

_MALFORMED = [
    *(Exchange(f"produce: an empty body, v{v}", KEY, v, Body(b"")) for v in VERSIONS),
    *(Exchange(f"produce: cut by a byte, v{v}", KEY, v, Cut(produce(Batch()), 1)) for v in VERSIONS),
    *(Exchange(f"produce: cut in the records, v{v}", KEY, v, Cut(produce(Batch()), 30)) for v in VERSIONS),
    Exchange(
        "produce: bytes after the message",
        KEY,
        7,
        Appended(produce(Batch()), b"behind"),
        [Create()],
        [read_back()],
    ),
    Exchange(
        "produce: bytes after the message, v13",
        KEY,
        13,
        Appended(produce(Batch()), b"behind"),
        [Create()],
        [read_back()],
    ),
    Exchange("produce: more topics than bytes", KEY, 3, Body(i16(-1) + i16(1) + i32(1000) + i32(2**31 - 1))),
    Exchange("produce: a null array of topics", KEY, 3, Body(i16(-1) + i16(1) + i32(1000) + i32(-1))),
    Exchange(
        "produce: more partitions than bytes",
        KEY,
        3,
        Body(i16(-1) + i16(1) + i32(1000) + i32(1) + i16(1) + b"t" + i32(2**30)),
    ),
    Exchange(
        "produce: records longer than the frame",
        KEY,
        3,
        Body(i16(-1) + i16(1) + i32(1000) + i32(1) + i16(1) + b"t" + i32(1) + i32(0) + i32(2**30) + b"abc"),
    ),
    Exchange(
        "produce: records of -5 bytes are null",
        KEY,
        3,
        Body(i16(-1) + i16(1) + i32(1000) + i32(1) + i16(1) + b"t" + i32(1) + i32(0) + i32(-5)),
    ),
    Exchange(
        "produce: a null topic name", KEY, 3, Body(i16(-1) + i16(1) + i32(1000) + i32(1) + i16(-1) + i32(0))
    ),
    Exchange("produce: a transactional id of a length beyond the frame", KEY, 3, Body(i16(30_000) + i16(1))),
    Exchange(
        "produce: compact counts beyond the frame",
        KEY,
        9,
        Body(b"\0" + i16(1) + i32(1000) + b"\xff\xff\xff\xff\x0f"),
    ),
    Exchange(
        "produce: compact records beyond the frame",
        KEY,
        9,
        Body(b"\0" + i16(1) + i32(1000) + b"\x02\x02t\x02" + i32(0) + b"\xff\xff\x7fabc"),
    ),
]


_INTERNAL = [
    *(
        Exchange(f"produce: into an internal topic, acks {acks}, v{v}", KEY, v, _internal(Batch(), acks))
        for v in (3, 8, 12)
        for acks in (-1, 0, 1)
    ),
    Exchange("produce: compressed into an internal topic, v9", KEY, 9, _internal(Batch(3, codec=Codec.ZSTD))),
    _sent("into an internal topic and another", _internal(Batch(), beside=produce(Batch(2)))),
]

EXCHANGES = [*_STORED, *_TIMES, *_UNKNOWN, *_REFUSED, *_LIES, *_MALFORMED, *_INTERNAL]
