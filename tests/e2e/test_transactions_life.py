"""Transactions over the end of a gateway, over stores elsewhere, and in a ledger of an older version."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from ledger.records import LEVEL_WITH_TRANSACTIONS
from tests.e2e.client_confluent import ConfluentClient
from tests.e2e.sample_records import small_records
from tests.e2e.transactional_confluent import PARTITIONS, TIMEOUT_S, producer, read, write
from tests.support.client import Codec
from tests.support.far_stores import FarPlace, far_gateway
from tests.support.gateway import running_gateway

TOPIC = "lived"


def test_an_open_transaction_goes_on_over_kill_9(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway:
        ConfluentClient(gateway.bootstrap).create_topic(TOPIC, PARTITIONS)
        writing = producer(gateway.bootstrap, "a")
        writing.begin_transaction()
        write(writing, TOPIC, [b"a0", b"a1"])
        gateway.kill9()
        gateway.restart()
        assert read(gateway.bootstrap, TOPIC, "read_committed") == []
        write(writing, TOPIC, [b"a2"])
        writing.commit_transaction(TIMEOUT_S)
        assert read(gateway.bootstrap, TOPIC, "read_committed") == [b"a0", b"a1", b"a2"]


@pytest.mark.parametrize("far", ["bucket"], indirect=True)
def test_an_empty_machine_knows_what_is_open(far: FarPlace, tmp_path: Path) -> None:
    with far_gateway(far, tmp_path / "first") as gateway:
        ConfluentClient(gateway.bootstrap).create_topic(TOPIC, PARTITIONS)
        writing = producer(gateway.bootstrap, "a")
        for values, is_commit in (([b"a0", b"a1"], True), ([b"b0"], False)):
            writing.begin_transaction()
            write(writing, TOPIC, values)
            (writing.commit_transaction if is_commit else writing.abort_transaction)(TIMEOUT_S)
        writing.begin_transaction()
        write(writing, TOPIC, [b"open"])
        gateway.kill9()
    with far_gateway(far, tmp_path / "second") as gateway:
        assert read(gateway.bootstrap, TOPIC, "read_committed") == [b"a0", b"a1"]
        second = producer(gateway.bootstrap, "a")
        second.begin_transaction()
        write(second, TOPIC, [b"c0"])
        second.commit_transaction(TIMEOUT_S)
        assert read(gateway.bootstrap, TOPIC, "read_committed") == [b"a0", b"a1", b"c0"]


def test_a_ledger_of_an_older_level_has_transactions_once_that_is_raised(tmp_path: Path) -> None:
    with running_gateway(
        tmp_path, ["--set", f"ledger.feature_level={LEVEL_WITH_TRANSACTIONS - 1}"]
    ) as gateway:
        client = ConfluentClient(gateway.bootstrap)
        client.create_topic(TOPIC, PARTITIONS)
        records = small_records(10, PARTITIONS)
        client.produce(TOPIC, records, Codec.NONE, idempotent=True)
        with pytest.raises(KafkaException):
            producer(gateway.bootstrap, "a")
        gateway.stop()
        gateway.options = ["--set", f"ledger.feature_level={LEVEL_WITH_TRANSACTIONS}"]
        gateway.start()
        writing = producer(gateway.bootstrap, "a")
        writing.begin_transaction()
        write(writing, TOPIC, [b"a0"])
        gateway.stop()
        # The level stays, whatever the setting says from now on.
        gateway.options = []
        gateway.start()
        writing.commit_transaction(TIMEOUT_S)
        before = [record.value for record in records]
        assert read(gateway.bootstrap, TOPIC, "read_committed") == sorted([*filter(None, before), b"a0"])
