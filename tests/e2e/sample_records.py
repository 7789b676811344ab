"""Records worth sending: odd ones, large ones, many small ones."""

import random
import time
from collections.abc import Sequence
from dataclasses import replace

from tests.support.client import Headers, Received, Record

# An hour ago: neither too far ahead for a broker nor old enough for retention.
BASE_MS = int(time.time()) * 1000 - 3_600_000
STEP_MS = 10
BYTES_900_KB = 900 * 1024

KEYS: Sequence[bytes | None] = (None, b"", b"k", bytes(range(256)))
VALUES: Sequence[bytes | None] = (None, b"", b"v" * 1000, bytes(reversed(range(256))))
HEADERS: Sequence[Headers] = (
    (),
    (("one", b"1"),),
    (("twice", b"first"), ("twice", b"second"), ("empty", b""), ("null", None)),
    (("", b"no name"), ("gr\u00fc\u00dfe", "\u4f60\u597d".encode()), ("binary", bytes(range(256)))),
)


def odd_records(partition: int = 0) -> list[Record]:
    """Every combination of null, empty and full keys and values with no, few and odd headers."""
    contents = [(key, value, headers) for key in KEYS for value in VALUES for headers in HEADERS]
    return [
        Record(partition, BASE_MS + STEP_MS * number, *content) for number, content in enumerate(contents)
    ]


def large_records(count: int) -> list[Record]:
    """900 KB each, which no codec makes smaller."""
    noise = random.Random(900)
    return [
        Record(0, BASE_MS + number, b"large-%d" % number, noise.randbytes(BYTES_900_KB))
        for number in range(count)
    ]


def small_records(count: int, partitions: int = 1) -> list[Record]:
    """Numbered, STEP_MS apart, spread over the partitions round-robin."""
    return [
        Record(number % partitions, BASE_MS + STEP_MS * number, b"%d" % number, b"small record %d" % number)
        for number in range(count)
    ]


def compressible_records(count: int) -> list[Record]:
    """Of one partition; any codec makes each of them shorter. librdkafka sends a batch uncompressed where its
    codec makes it longer, and under load a batch may have a single record."""
    return [replace(record, value=b"compressible " * 50) for record in small_records(count)]


def expected(records: Sequence[Record], offsets: Sequence[int]) -> list[Received]:
    """What must come out of one partition when `records` went in and were acked with `offsets`."""
    return [Received(offset, 0, record) for offset, record in zip(offsets, records, strict=True)]
