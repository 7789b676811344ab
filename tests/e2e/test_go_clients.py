"""Go clients, beyond the table: admin calls, and the API versions that sarama speaks by default."""

import pytest

from tests.e2e.client_go import GoAdminClient
from tests.e2e.conftest import ClientsByName
from tests.e2e.sample_records import expected, odd_records
from tests.support.client import Codec, Earliest


@pytest.mark.parametrize("name", ["sarama", "franz-go"])
def test_go_admin_clients_work(client_named: ClientsByName, topic: str, name: str) -> None:
    client = client_named(name)
    assert isinstance(client, GoAdminClient)
    assert client.administer(topic) == {
        "create": "",
        "create again": "TOPIC_ALREADY_EXISTS",
        "create with a bad config": "INVALID_CONFIG",
        "create without partitions": "INVALID_PARTITIONS",
        "retention as created": "86400000 DYNAMIC_TOPIC_CONFIG",
        "cleanup as created": "delete DEFAULT_CONFIG",
        "set": "",
        "flush when set": "7 DYNAMIC_TOPIC_CONFIG",
        "cleanup when appended": "delete,compact DYNAMIC_TOPIC_CONFIG",
        "retention when set": "86400000 DYNAMIC_TOPIC_CONFIG",
        "set badly": "INVALID_CONFIG",
        "replace": "",
        "flush when replaced": "8 DYNAMIC_TOPIC_CONFIG",
        "retention when replaced": "604800000 DEFAULT_CONFIG",
        "describe what is missing": "UNKNOWN_TOPIC_OR_PARTITION",
        "grow": "",
        "shrink": "INVALID_PARTITIONS",
        "grow what is missing": "UNKNOWN_TOPIC_OR_PARTITION",
        "produce": "5",
        "delete records": "",
        "start offset": "2",
        "delete beyond the end": "OFFSET_OUT_OF_RANGE",
        "delete all records": "",
        "start offset at the end": "5",
        "delete topic": "",
        "delete again": "UNKNOWN_TOPIC_OR_PARTITION",
    }


def test_sarama_in_its_default_versions_reads_what_it_wrote(
    client_named: ClientsByName, topic: str, codec: Codec
) -> None:
    client = client_named("sarama-2.1")
    client.create_topic(topic, 1)
    offsets = client.produce(topic, odd_records(), codec, idempotent=True)
    assert client.consume(topic, [0], Earliest(), len(offsets)) == expected(odd_records(), offsets)
