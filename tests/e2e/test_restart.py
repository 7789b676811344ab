"""A restart in between, clean or by SIGKILL, changes nothing that was acked."""

from collections.abc import Callable

import pytest

from tests.e2e.client import ClientUnderTest, Codec, Earliest, FromOffset
from tests.e2e.conftest import Endpoint
from tests.e2e.sample_records import expected, small_records

PARTITIONS = 2


def cleanly(endpoint: Endpoint) -> None:
    endpoint.restart()


def by_kill_9(endpoint: Endpoint) -> None:
    endpoint.kill9()
    endpoint.restart()


@pytest.mark.parametrize("restart", [cleanly, by_kill_9])
def test_records_and_offsets_go_on_over_a_restart(
    client: ClientUnderTest,
    readers: list[ClientUnderTest],
    endpoint: Endpoint,
    topic: str,
    restart: Callable[[Endpoint], None],
) -> None:
    records = small_records(400, PARTITIONS)
    before, after = records[:200], records[200:]
    client.create_topic(topic, PARTITIONS)
    offsets = client.produce(topic, before, Codec.SNAPPY, client.can_be_idempotent)
    restart(endpoint)
    assert client.partition_count(topic) == PARTITIONS
    assert client.consume(topic, [1], FromOffset(50), 50) == expected(before[101::2], range(50, 100))
    offsets += client.produce(topic, after, Codec.SNAPPY, client.can_be_idempotent)
    assert offsets == [number // PARTITIONS for number in range(len(records))]
    for reader in readers:
        for partition in range(PARTITIONS):
            received = reader.consume(topic, [partition], Earliest(), 200)
            assert received == expected(records[partition::PARTITIONS], range(200))
