"""The internal listener of a gateway process: its socket, over kills, restarts and a second gateway."""

import stat
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pipeline.links import UnixLink
from pipeline.peer import PeerClient
from tests.support.gateway import Gateway, GatewayFactory, GatewayNotReady
from tests.support.raw import Outcome, raw_connection, request

INTERNAL = (95, 97, 98, 100, 20001, 20005)


def socket_of(gateway: Gateway) -> Path:
    return gateway.data_dir / "internal.sock"


def works(client: PeerClient) -> None:
    with client:
        assert client.describe(max_topics=1).cluster_id


def not_ready(gateway: Gateway) -> GatewayNotReady:
    with pytest.raises(GatewayNotReady) as refused:
        gateway.start()
    return refused.value


def sentence(error: GatewayNotReady) -> str:
    """What the gateway says at its end: one line."""
    said = [line for line in error.log.splitlines() if line.startswith("dragoman: ")]
    assert len(said) == 1, error.log
    return said[0]


def test_jobs_alone_read_the_ledger_over_the_socket_of_the_data_directory(gateway: Gateway) -> None:
    assert stat.S_IMODE(socket_of(gateway).stat().st_mode) == 0o600
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 0})
    for value in ("a", "b", "c"):
        producer.produce("t", value)
    assert producer.flush(10.0) == 0
    with PeerClient(UnixLink(socket_of(gateway)), 10.0) as client:
        shard = client.describe(max_topics=10)
        (topic,) = shard.topics
        found = client.find_batches(topic.topic_id, 0, 0)
        listed = client.list_offsets(topic.topic_id, [0], -1)
        files = client.describe_files([run.object_key for run in found.runs])
        page = client.journal(0)
    assert shard.data_url == f"file:{gateway.data_dir}"
    assert (topic.name, found.high_watermark, listed[0].offset) == ("t", 3, 3)
    assert found.runs[0].base == 0 and found.runs[-1].last == 2
    assert all(file.is_known and file.has_live_batches for file in files)
    assert (page.durable_end, len(page.entries)) == (shard.applied, shard.applied)
    for key in INTERNAL:
        with raw_connection(gateway.host, gateway.port) as connection:
            connection.send(request(key, 0, bytes(40), flexible=True))
            assert connection.read_frame() is Outcome.CLOSED
    gateway.terminate()
    assert not socket_of(gateway).exists()


def test_a_socket_that_a_killed_gateway_left_is_replaced(gateway: Gateway) -> None:
    gateway.kill9()
    assert socket_of(gateway).is_socket()
    gateway.start()
    works(PeerClient(UnixLink(socket_of(gateway)), 10.0))


def test_two_gateways_do_not_share_a_socket(gateway_factory: GatewayFactory, tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = gateway_factory(["--set", f"internal.socket={path}"])
    first.start()
    second = gateway_factory(["--set", f"internal.socket={path}"])
    refused = not_ready(second)
    assert refused.exit_code == 5
    assert f"{path}: another gateway listens there; choose another with internal.socket" in sentence(refused)
    works(PeerClient(UnixLink(path), 10.0))
    assert not socket_of(first).exists()
    first.terminate()
    second.start()
    works(PeerClient(UnixLink(path), 10.0))


def test_a_data_directory_with_a_very_long_path_has_a_socket(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 100) / "e"
    deep.mkdir(parents=True)
    gateway = gateway_factory(data_dir=deep)
    gateway.start()
    assert len(str(socket_of(gateway))) > 107
    works(PeerClient(UnixLink(socket_of(gateway)), 10.0))


def test_a_file_in_the_place_of_the_socket_is_refused_where_it_was_chosen(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("precious")
    refused = not_ready(gateway_factory(["--set", f"internal.socket={tmp_path / 'file'}"]))
    assert refused.exit_code == 2
    assert "a file that is no socket; remove it, or set internal.socket" in sentence(refused)
    gateway = gateway_factory()
    gateway.data_dir.mkdir(parents=True)
    socket_of(gateway).write_text("precious")
    gateway.start()
    assert socket_of(gateway).read_text() == "precious"
    assert '"internal.no_socket"' in gateway.log_path.read_text()


def test_a_gateway_ends_at_once_while_a_job_follows_the_journal(gateway: Gateway) -> None:
    with PeerClient(UnixLink(socket_of(gateway)), 60.0) as client:
        end = client.journal(0).durable_end
        pages = []

        def follow() -> None:
            pages.append(client.journal(end, max_wait_ms=60_000))

        following = threading.Thread(target=follow)
        following.start()
        time.sleep(0.3)
        began = time.monotonic()
        assert gateway.terminate() == 0
        assert time.monotonic() - began < 10.0
        following.join(10.0)
    assert [page.entries for page in pages] == [[]]
