"""Over a ledger of a feature level without transactions a client that wants one fails at once, with an error
that names them."""

import asyncio
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer

from ledger.records import LEVEL_WITH_TRANSACTIONS
from tests.e2e.client_go import built
from tests.support.client_java import java_command, why_no_java_client
from tests.support.gateway import Gateway, running_gateway
from tests.support.go_tools import why_no_go

LONGEST_S: Final = 2.0
MAX_LOOKUPS: Final = 5
CLIENT_TIMEOUT_S: Final = 60.0
JAVA_CALLS: Final = ("init", "fence")
ID: Final = "tx-1"

Said = tuple[float, str]
"""How long a call took in seconds, and its error's name and text."""


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway of its own, whose lookups of coordinators are counted."""
    older = f"ledger.feature_level={LEVEL_WITH_TRANSACTIONS - 1}"
    with running_gateway(tmp_path, ["--set", older]) as gateway:
        yield gateway


def lookups(gateway: Gateway) -> int:
    with urllib.request.urlopen(f"http://{gateway.admin.address}/metrics", timeout=5) as page:
        lines = page.read().decode().splitlines()
    counts = [line for line in lines if line.startswith("dragoman_requests_total{")]
    return sum(int(float(line.split()[-1])) for line in counts if 'api="FIND_COORDINATOR"' in line)


def check(gateway: Gateway, client: Callable[[str], Said]) -> None:
    took_s, error = client(gateway.bootstrap)
    assert "transactional" in error.replace("_", " ").lower(), error
    assert took_s < LONGEST_S, (took_s, error)
    assert 1 <= lookups(gateway) <= MAX_LOOKUPS
    log = gateway.log_path.read_text()
    assert log.count("transactions.refused") == 1 and ID in log


def confluent(bootstrap: str) -> Said:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": ID})
    begun = time.monotonic()
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(CLIENT_TIMEOUT_S)
    assert not raised.value.args[0].retriable()
    return time.monotonic() - begun, str(raised.value)


def kafka_python(bootstrap: str) -> Said:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=ID)
    begun = time.monotonic()
    try:
        with pytest.raises(Exception) as raised:
            producer.init_transactions()
        return time.monotonic() - begun, repr(raised.value)
    finally:
        producer.close(timeout=1)


def aiokafka(bootstrap: str) -> Said:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=ID)
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT_S):
                await producer.start()
        finally:
            await producer.stop()

    begun = time.monotonic()
    with pytest.raises(Exception) as raised:
        asyncio.run(start())
    return time.monotonic() - begun, repr(raised.value)


@pytest.mark.serial
@pytest.mark.parametrize("client", [confluent, kafka_python, aiokafka], ids=lambda client: client.__name__)
def test_a_python_client_is_refused_for_good(refusing: Gateway, client: Callable[[str], Said]) -> None:
    check(refusing, client)


@pytest.mark.serial
@pytest.mark.parametrize("call", JAVA_CALLS)
def test_a_java_client_is_refused_for_good(refusing: Gateway, tmp_path: Path, call: str) -> None:
    reason = why_no_java_client()
    if reason is not None:
        pytest.skip(reason)

    def java(bootstrap: str) -> Said:
        command = [*java_command("java", tmp_path, "TransactionCalls"), bootstrap, call, ID]
        took_ms, name, text = output(command).split("\t")
        return int(took_ms) / 1000, f"{name}: {text}"

    check(refusing, java)


@pytest.mark.serial
def test_franz_go_is_refused_for_good(refusing: Gateway) -> None:
    reason = why_no_go()
    if reason is not None:
        pytest.skip(reason)

    def franz(bootstrap: str) -> Said:
        took_ms, _, text = output([str(built()), "transact", bootstrap, ID, "t"]).partition("\t")
        return int(took_ms) / 1000, text

    check(refusing, franz)


def output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()
