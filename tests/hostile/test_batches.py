"""Batches that are much work to open, or whose timestamps lie."""

import gzip
import struct
import time
from typing import Any, Final

import pytest

from gateway.settings import Settings
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ledger.batch.header import MAX_TIMESTAMP_AT, seal
from ledger.batch.records import Record, build_batch
from tests.hostile.arena import Arena, Bounds
from tests.hostile.conftest import OpenArena
from tests.hostile.speaking import ask, connect, exchange, produce
from tests.support.messages import message, read

TINY_RECORD: Final = b"\x0c\x00\x00\x00\x00\x01\x00"
HEAD_BYTES: Final = 61
GZIP: Final = 1
WAITS_S: Final = 0.5


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def create_with(arena: Arena, name: str, partitions: int = 1, **configs: str) -> str:
    made = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    body = CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], made)], 30_000)
    (topic,) = ask(arena, ApiKey.CREATE_TOPICS, 5, body).topics
    assert topic.error_code == 0, topic
    return name


def packed(records: int, base_ms: int, max_ms: int) -> bytes:
    """A gzip batch of `records` records, each of seven bytes."""
    return packed_batch(TINY_RECORD * records, records, base_ms, max_ms)


def packed_headers(headers: int, base_ms: int, max_ms: int) -> bytes:
    """A gzip batch of one record, with so many headers of two bytes."""
    body = b"\0\0\0\x01\0" + varint(headers) + b"\0\x01" * headers
    return packed_batch(varint(len(body)) + body, 1, base_ms, max_ms)


def varint(value: int) -> bytes:
    left, encoded = value << 1, bytearray()
    while left >= 0x80:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*encoded, left])


def packed_batch(content: bytes, records: int, base_ms: int, max_ms: int) -> bytes:
    body = gzip.compress(content, 6)
    batch = bytearray(build_batch([Record(0, 0, None, b"x", ())]))[:HEAD_BYTES]
    struct.pack_into(">i", batch, 8, HEAD_BYTES - 12 + len(body))
    struct.pack_into(">hiqq", batch, 21, GZIP, records - 1, base_ms, max_ms)
    struct.pack_into(">i", batch, 57, records)
    batch += body
    seal(batch)
    return bytes(batch)


def time_of(run: Any) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def produced(arena: Arena, topic: str, batch: bytes) -> Any:
    (response,) = exchange(arena, produce(topic, 0, batch))
    assert isinstance(response, bytes)
    return read(ApiKey.PRODUCE, 7, response).responses[0].partition_responses[0]


@pytest.mark.parametrize("records", [400_000, pytest.param(9_000_000, marks=pytest.mark.full)])
def test_batches_that_are_opened_before_they_are_stored(arena: Arena, records: int) -> None:
    heavy = create_with(arena, "heavy", 8, cleanup_policy="compact")
    other = create_with(arena, "other", 1, cleanup_policy="compact")
    now = now_ms()
    batch = packed(records, now, now)
    honest = build_batch([Record(0, 0, b"k", b"v", ())], base_timestamp=now)
    waits: list[float] = []

    def run() -> None:
        senders = [connect(arena) for _ in range(8)]
        for i, sender in enumerate(senders):
            sender.send(produce(heavy, i, batch))
        time.sleep(0.3)
        for sender in senders:
            sender.sock.close()
        waits.append(time_of(lambda: produced(arena, other, honest)))

    # A batch that is opened is in memory once: limits.decompressed_bytes says how large it may be.
    unpacked = min(records * len(TINY_RECORD), Settings().limits.decompressed_bytes)
    bounds = Bounds(memory_bytes=(64 << 20) + unpacked)
    arena.withstands(f"eight batches of {records:,} records, senders gone", run, bounds)
    wait_of_other("another's Produce", arena, waits)


@pytest.mark.parametrize("records", [300_000, pytest.param(9_000_000, marks=pytest.mark.full)])
def test_batches_that_lookups_by_time_open(arena: Arena, records: int) -> None:
    lied, other = create_with(arena, "lied"), create_with(arena, "looked-up")
    now = now_ms()
    assert produced(arena, lied, packed(records, 0, now)).error_code == 0
    assert (
        produced(arena, other, build_batch([Record(0, 0, b"k", b"v", ())], base_timestamp=now)).error_code
        == 0
    )
    waits: list[float] = []

    def run() -> None:
        searching = [connect(arena) for _ in range(8)]
        for searcher in searching:
            searcher.send(message(ApiKey.LIST_OFFSETS, 7, at_time(lied, now - 10)))
        time.sleep(0.1)
        waits.append(time_of(lambda: ask(arena, ApiKey.LIST_OFFSETS, 7, at_time(other, now - 10))))
        for searcher in searching:
            searcher.sock.close()

    arena.withstands(f"eight lookups by time in a batch of {records:,}", run)
    wait_of_other("another's ListOffsets", arena, waits)


@pytest.mark.parametrize("headers", [2_000_000, pytest.param(30_000_000, marks=pytest.mark.full)])
def test_a_record_of_very_many_headers(arena: Arena, headers: int) -> None:
    """Some hundred bytes that would be gigabytes of objects."""
    heavy = create_with(arena, "headers", 8, cleanup_policy="compact")
    other, lied = create_with(arena, "few", 1, cleanup_policy="compact"), create_with(arena, "lies")
    now = now_ms()
    batch = packed_headers(headers, 0, now)
    assert produced(arena, lied, batch).error_code == 0
    honest = build_batch([Record(0, 0, b"k", b"v", ())], base_timestamp=now)
    waits: list[float] = []

    def run() -> None:
        senders = [connect(arena) for _ in range(8)]
        for i, sender in enumerate(senders):
            sender.send(produce(heavy, i, batch))
            sender.send(message(ApiKey.LIST_OFFSETS, 7, at_time(lied, now - 10)))
        waits.append(time_of(lambda: produced(arena, other, honest)))
        for sender in senders:
            sender.sock.close()

    bounds = Bounds(memory_bytes=(64 << 20) + min(2 * headers, Settings().limits.decompressed_bytes))
    arena.withstands(f"eight records of {headers:,} headers", run, bounds)
    wait_of_other("another's Produce", arena, waits)
    assert produced(arena, heavy, batch).error_code == ErrorCode.INVALID_RECORD


def wait_of_other(what: str, arena: Arena, waits: list[float]) -> None:
    allowed = WAITS_S * (1 if arena.rounds > 1 else 5)
    longest = sorted(waits)[len(waits) // 2]
    assert longest < allowed, f"{what} waited {longest:.2f} s, allowed {allowed:.2f}"


def at_time(topic: str, *timestamps: int) -> ListOffsetsRequest:
    parts = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in timestamps]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(topic, parts)])


def test_a_lying_timestamp_breaks_no_lookup(arena: Arena) -> None:
    lying, honest = create_with(arena, "lying"), create_with(arena, "telling")
    now = now_ms()
    batch = bytearray(build_batch([Record(0, 2**62, None, b"x", ())], base_timestamp=2**62 + 5 - 2**62))
    # Base 2^62 + 5 and a delta of 2^62: together more than an int64 holds.
    struct.pack_into(">qq", batch, 27, 2**62 + 5, now)
    seal(batch)
    stored = produced(arena, lying, bytes(batch)).error_code == 0
    assert (
        produced(arena, honest, build_batch([Record(0, 0, None, b"x", ())], base_timestamp=now)).error_code
        == 0
    )

    def run() -> None:
        for timestamp in (now - 10, -3):
            body = at_time(lying, timestamp)
            body.topics += at_time(honest, timestamp).topics
            response = ask(arena, ApiKey.LIST_OFFSETS, 7, body)
            lied, returned = (topic.partitions[0] for topic in response.topics)
            assert (returned.error_code, returned.offset, returned.timestamp) == (0, 0, now)
            assert not stored or lied.error_code or lied.timestamp <= now

    arena.withstands("lookups over a timestamp beyond 64 bits", run)


def test_a_lying_timestamp_pins_no_records(open_arena: OpenArena) -> None:
    arena = open_arena(**{"broker__log.retention.check.interval.ms": 500})
    starts: dict[str, int] = {}

    def run() -> None:
        now = now_ms()
        for name, header_ms in (("timely", now), ("pinned", 2**60)):
            create_with(arena, name, 1, retention_ms="1000")
            for i in range(4):
                batch = bytearray(build_batch([Record(0, 0, None, b"x", ())], base_timestamp=now))
                if i == 0:
                    struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, header_ms)
                    seal(batch)
                produced(arena, name, bytes(batch))
        time.sleep(2.5)
        for name in ("timely", "pinned"):
            # -2: the log start; -1: its end.
            ends = [
                ask(arena, ApiKey.LIST_OFFSETS, 7, at_time(name, at)).topics[0].partitions[0].offset
                for at in (-2, -1)
            ]
            starts[name] = ends[1] - ends[0]

    arena.withstands("retention under a header of the year 36 million", run)
    assert starts == {"timely": 0, "pinned": 0}, "records left"
