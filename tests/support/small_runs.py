"""Topics with many small runs, as merge jobs find them."""

import time
from typing import Final

from gateway.addresses import Address
from gateway.cli.client import Client
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.records import Record, build_batch
from tests.support.gateway import Gateway
from tests.support.topics import create_topics

OLD_ENOUGH_S: Final = 11.0
"""Younger runs are left alone."""


def produce_runs(gateway: Gateway, topic: str, runs: int) -> None:
    """Each request is a flush of its own."""
    create_topics(gateway.bootstrap, {topic: 1})
    batch = bytes(build_batch([Record(0, 0, b"k", b"v", ())], base_timestamp=int(time.time() * 1000)))
    with Client(Address(gateway.host, gateway.port), timeout=20.0) as client:
        for _ in range(runs):
            data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])
            response = client.ask(ApiKey.PRODUCE, 8, ProduceRequest(None, -1, 5000, [data]))
            assert response.responses[0].partition_responses[0].error_code == 0
