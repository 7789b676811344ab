"""Consumers begin where they choose: an offset, a time, the beginning, the end."""

import pytest

from tests.e2e.batches_on_the_wire import fetch_batch_headers
from tests.e2e.conftest import Endpoint
from tests.e2e.sample_records import BASE_MS, STEP_MS, expected, small_records
from tests.e2e.writing import write
from tests.support.client import Ability, ClientUnderTest, Codec, Earliest, FromOffset, FromTimestamp, Latest

COUNT = 300


@pytest.fixture
def consumer(client: ClientUnderTest) -> ClientUnderTest:
    if Ability.CONSUME in client.cannot:
        pytest.skip(client.cannot[Ability.CONSUME])
    return client


@pytest.fixture
def writer(client: ClientUnderTest, stand_in: ClientUnderTest) -> ClientUnderTest:
    """Writes with times of its choice: the client under test, if it can."""
    return stand_in if Ability.SET_TIMESTAMPS in client.cannot else client


@pytest.fixture(params=[Codec.NONE, Codec.GZIP], ids=str)
def filled(
    consumer: ClientUnderTest,
    creator: ClientUnderTest,
    writer: ClientUnderTest,
    endpoint: Endpoint,
    topic: str,
    request: pytest.FixtureRequest,
) -> str:
    """A topic with COUNT records STEP_MS apart, in few batches, so that most starts lie inside one."""
    creator.create_topic(topic, 1)
    offsets = writer.produce(topic, small_records(COUNT), request.param, writer.can_be_idempotent)
    assert offsets == list(range(COUNT))
    assert len(fetch_batch_headers(endpoint.host, endpoint.port, topic)) < COUNT / 10
    return topic


@pytest.mark.parametrize("offset", [0, 1, 150, COUNT - 1])
def test_a_consumer_begins_at_an_offset(consumer: ClientUnderTest, filled: str, offset: int) -> None:
    received = consumer.consume(filled, [0], FromOffset(offset), COUNT - offset)
    assert received == expected(small_records(COUNT)[offset:], range(offset, COUNT))


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"),
    [
        (0, 0),
        (BASE_MS, 0),
        (BASE_MS + 1, 1),
        (BASE_MS + STEP_MS * 150, 150),
        (BASE_MS + STEP_MS * 150 + 1, 151),
        (BASE_MS + STEP_MS * (COUNT - 1), COUNT - 1),
    ],
    ids=["before all", "the first", "just after the first", "exact", "in between", "the last"],
)
def test_a_consumer_begins_at_a_time(
    consumer: ClientUnderTest, filled: str, timestamp_ms: int, offset: int
) -> None:
    received = consumer.consume(filled, [0], FromTimestamp(timestamp_ms), COUNT - offset)
    assert received == expected(small_records(COUNT)[offset:], range(offset, COUNT))


@pytest.mark.parametrize(
    "start", [Latest(), FromTimestamp(BASE_MS + STEP_MS * COUNT)], ids=["latest", "a time after all"]
)
def test_a_consumer_at_the_end_gets_what_comes_next(
    consumer: ClientUnderTest, writer: ClientUnderTest, filled: str, start: Latest | FromTimestamp
) -> None:
    more = small_records(COUNT + 3)[COUNT:]
    received = consumer.consume(
        filled,
        [0],
        start,
        len(more),
        on_positioned=lambda: writer.produce(filled, more, Codec.NONE, idempotent=False),
    )
    assert received == expected(more, range(COUNT, COUNT + 3))


def test_the_end_of_an_empty_partition_is_its_beginning(
    client: ClientUnderTest, creator: ClientUnderTest, stand_in: ClientUnderTest, topic: str
) -> None:
    creator.create_topic(topic, 2)
    assert client.end_offset(topic, 1) == 0
    written = write(client, stand_in, topic, small_records(1), Codec.NONE, idempotent=False)
    reader = stand_in if Ability.CONSUME in client.cannot else client
    assert reader.consume(topic, [0], Earliest(), 1) == written
    assert [client.end_offset(topic, partition) for partition in (0, 1)] == [1, 0]
