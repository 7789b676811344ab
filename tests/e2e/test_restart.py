"""A restart in between, clean or by SIGKILL, changes nothing that was acked."""

from collections.abc import Callable

import pytest

from tests.e2e.conftest import Endpoint
from tests.e2e.sample_records import small_records
from tests.e2e.writing import write
from tests.support.client import Ability, ClientUnderTest, Codec, Earliest, FromOffset
from tests.support.workers import CLIENT_NAMES

PARTITIONS = 2
CLEANLY_IN_EVERY_RUN = ("confluent", "java")
"""What every client goes through in every run is the restart after a kill, which asks more of it."""


def cleanly(endpoint: Endpoint) -> None:
    endpoint.restart()


def by_kill_9(endpoint: Endpoint) -> None:
    endpoint.kill9()
    endpoint.restart()


@pytest.mark.parametrize(
    ("client", "restart"),
    [
        *(pytest.param(name, by_kill_9, id=f"{name}-by_kill_9") for name in CLIENT_NAMES),
        *(
            pytest.param(
                name,
                cleanly,
                id=f"{name}-cleanly",
                marks=[] if name in CLEANLY_IN_EVERY_RUN else [pytest.mark.full],
            )
            for name in CLIENT_NAMES
        ),
    ],
    indirect=["client"],
)
def test_records_and_offsets_continue_over_a_restart(
    client: ClientUnderTest,
    creator: ClientUnderTest,
    stand_in: ClientUnderTest,
    readers: list[ClientUnderTest],
    endpoint: Endpoint,
    topic: str,
    restart: Callable[[Endpoint], None],
) -> None:
    records = small_records(400, PARTITIONS)
    before, after = records[:200], records[200:]
    creator.create_topic(topic, PARTITIONS)
    written = write(client, stand_in, topic, before, Codec.SNAPPY, client.can_be_idempotent)
    restart(endpoint)
    assert client.partition_count(topic) == PARTITIONS
    reader = stand_in if Ability.CONSUME in client.cannot else client
    assert reader.consume(topic, [1], FromOffset(50), 50) == written[101::2]
    written += write(client, stand_in, topic, after, Codec.SNAPPY, client.can_be_idempotent)
    assert [one.offset for one in written] == [number // PARTITIONS for number in range(len(records))]
    for reader in readers:
        for partition in range(PARTITIONS):
            assert reader.consume(topic, [partition], Earliest(), 200) == written[partition::PARTITIONS]
