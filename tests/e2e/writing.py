"""What one client writes, and what every client must then read."""

import time
from collections.abc import Sequence
from dataclasses import replace

from tests.e2e.sample_records import expected
from tests.support.client import Ability, ClientUnderTest, Codec, FromOffset, Received, Record


def write(
    client: ClientUnderTest,
    stand_in: ClientUnderTest,
    topic: str,
    records: Sequence[Record],
    codec: Codec,
    idempotent: bool,
) -> list[Received]:
    """Produce all; what must come out, in the order of `records`, with the offsets that were acked.

    A client that cannot choose timestamps stamps records when it sends them. Which time that was is then
    read by `stand_in`, and checked to lie within the call.
    """
    begun_ms = now_ms()
    offsets = client.produce(topic, records, codec, idempotent)
    if Ability.SET_TIMESTAMPS not in client.cannot:
        return expected(records, offsets)
    ended_ms = now_ms()
    stamps = {
        (one.record.partition, one.offset): one.record.timestamp_ms
        for one in read_again(stand_in, topic, records, offsets)
    }
    assert all(begun_ms <= stamp <= ended_ms for stamp in stamps.values())
    stamped = [
        replace(record, timestamp_ms=stamps[record.partition, offset])
        for record, offset in zip(records, offsets, strict=True)
    ]
    return expected(stamped, offsets)


def read_again(
    reader: ClientUnderTest, topic: str, records: Sequence[Record], offsets: Sequence[int]
) -> list[Received]:
    """All that was written, which must begin at the same offset in each partition."""
    firsts: dict[int, int] = {}
    for record, offset in zip(records, offsets, strict=True):
        firsts[record.partition] = min(offset, firsts.get(record.partition, offset))
    (first,) = set(firsts.values())
    return reader.consume(topic, sorted(firsts), FromOffset(first), len(records))


def as_delivered(reader: ClientUnderTest, written: Sequence[Received]) -> list[Received]:
    return [replace(one, record=reader.as_delivered(one.record)) for one in written]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
