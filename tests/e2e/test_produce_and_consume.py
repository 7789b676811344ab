"""What one client writes, every client reads: the same bytes, offsets, timestamps and headers."""

import pytest

from tests.e2e.batches_on_the_wire import fetch_batch_headers
from tests.e2e.conftest import Endpoint
from tests.e2e.sample_records import compressible_records, large_records, odd_records, small_records
from tests.e2e.writing import as_delivered, write
from tests.support.client import Ability, ClientUnderTest, Codec, Earliest, TopicExists

PARTITIONS = 32
IDEMPOTENT_IN_EVERY_RUN = (Codec.NONE, Codec.ZSTD)
CODECS = pytest.mark.parametrize(
    ("codec", "idempotent"),
    [
        *(pytest.param(codec, False, id=f"{codec}-plain") for codec in Codec),
        *(
            pytest.param(
                codec,
                True,
                id=f"{codec}-idempotent",
                marks=[] if codec in IDEMPOTENT_IN_EVERY_RUN else [pytest.mark.full],
            )
            for codec in Codec
        ),
    ],
    indirect=True,
)
"""Producer id and sequence are in the header, which no codec touches."""


def test_a_topic_is_created_once(client: ClientUnderTest, topic: str) -> None:
    if Ability.CREATE_TOPICS in client.cannot:
        pytest.skip(client.cannot[Ability.CREATE_TOPICS])
    client.create_topic(topic, 5)
    assert client.partition_count(topic) == 5
    with pytest.raises(TopicExists):
        client.create_topic(topic, 5)


@CODECS
def test_odd_records_reach_every_client_byte_for_byte(
    client: ClientUnderTest,
    creator: ClientUnderTest,
    stand_in: ClientUnderTest,
    readers: list[ClientUnderTest],
    topic: str,
    codec: Codec,
    idempotent: bool,
) -> None:
    records = [record for record in odd_records() if client.can_send(record)]
    creator.create_topic(topic, 1)
    written = write(client, stand_in, topic, records, codec, idempotent)
    assert [one.offset for one in written] == list(range(len(records)))
    for reader in readers:
        assert reader.consume(topic, [0], Earliest(), len(records)) == as_delivered(reader, written)
        assert reader.end_offset(topic, 0) == len(records)


@CODECS
def test_batches_are_kept_as_they_were_compressed_and_numbered(
    client: ClientUnderTest,
    creator: ClientUnderTest,
    endpoint: Endpoint,
    topic: str,
    codec: Codec,
    idempotent: bool,
) -> None:
    records = compressible_records(200)
    creator.create_topic(topic, 1)
    client.produce(topic, records, codec, idempotent)
    batches = fetch_batch_headers(endpoint.host, endpoint.port, topic)
    assert sum(batch.record_count for batch in batches) == len(records)
    assert {batch.codec for batch in batches} == {codec.number}
    assert {batch.producer_id >= 0 for batch in batches} == {idempotent}


def test_records_of_900_kb_reach_every_client(
    client: ClientUnderTest,
    creator: ClientUnderTest,
    stand_in: ClientUnderTest,
    readers: list[ClientUnderTest],
    topic: str,
) -> None:
    records = large_records(4)
    creator.create_topic(topic, 1)
    written = write(client, stand_in, topic, records, Codec.NONE, client.can_be_idempotent)
    for reader in readers:
        assert reader.consume(topic, [0], Earliest(), len(records)) == written


def test_thousands_of_small_records_keep_their_order(
    client: ClientUnderTest,
    creator: ClientUnderTest,
    stand_in: ClientUnderTest,
    readers: list[ClientUnderTest],
    topic: str,
    idempotent: bool,
) -> None:
    records = small_records(5000)
    creator.create_topic(topic, 1)
    written = write(client, stand_in, topic, records, Codec.LZ4, idempotent)
    offsets = [one.offset for one in written]
    assert sorted(offsets) == list(range(len(records)))
    # Without idempotence a library may send several requests at once, and the later may be faster.
    if idempotent:
        assert offsets == sorted(offsets)
    in_offset_order = sorted(written, key=lambda received: received.offset)
    for reader in readers:
        assert reader.consume(topic, [0], Earliest(), len(records)) == in_offset_order


def test_each_of_32_partitions_counts_from_zero(
    client: ClientUnderTest,
    creator: ClientUnderTest,
    stand_in: ClientUnderTest,
    readers: list[ClientUnderTest],
    topic: str,
) -> None:
    records = small_records(PARTITIONS * 20, PARTITIONS)
    creator.create_topic(topic, PARTITIONS)
    written = write(client, stand_in, topic, records, Codec.ZSTD, client.can_be_idempotent)
    assert [one.offset for one in written] == [number // PARTITIONS for number in range(len(records))]
    for reader in readers:
        received = reader.consume(topic, range(PARTITIONS), Earliest(), len(records))
        for partition in range(PARTITIONS):
            of_partition = [one for one in received if one.record.partition == partition]
            assert of_partition == written[partition::PARTITIONS], (
                f"partition {partition} as {reader.name} reads it"
            )
