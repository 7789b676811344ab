"""A real input: an access log of a million lines goes in with one client and out of another."""

import hashlib
from itertools import islice

import pytest

from tests.e2e.access_log import access_log_lines
from tests.e2e.conftest import ClientsByName
from tests.e2e.sample_records import BASE_MS
from tests.support.client import Codec, FromOffset, Record

LINES = 1_000_000
LINES_AT_ONCE = 100_000
SEED = 20250301


@pytest.mark.parametrize(
    ("writer", "reader"),
    [("confluent", "java"), pytest.param("java", "confluent", marks=pytest.mark.full)],
)
def test_a_million_log_lines_come_out_in_order(
    client_named: ClientsByName, topic: str, writer: str, reader: str
) -> None:
    sender, receiver = client_named(writer), client_named(reader)
    sender.create_topic(topic, 1)
    sent, received = hashlib.sha256(), hashlib.sha256()
    lines = access_log_lines(LINES, SEED)
    for first in range(0, LINES, LINES_AT_ONCE):
        records = [Record(0, BASE_MS, None, line) for line in islice(lines, LINES_AT_ONCE)]
        for record in records:
            sent.update(record.value or b"")
        offsets = sender.produce(topic, records, Codec.ZSTD, idempotent=True)
        assert offsets == list(range(first, first + LINES_AT_ONCE))
    for first in range(0, LINES, LINES_AT_ONCE):
        for one in receiver.consume(topic, [0], FromOffset(first), LINES_AT_ONCE):
            received.update(one.record.value or b"")
    assert receiver.end_offset(topic, 0) == LINES
    assert received.hexdigest() == sent.hexdigest()
