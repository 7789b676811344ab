"""Jobs without a running gateway: one is started for the job, and only where no other can be alive."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from gateway.cli.job_gateway import reached
from gateway.config import load_settings
from gateway.datadir import DirectoryLock
from ledger.errors import StoreLocked
from pipeline.links import UnixLink, Unreachable
from pipeline.peer import PeerClient, PeerRefused, PeerUnavailable
from tests.support.far_stores import FarPlace, far_gateway
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.versions import ROOT

WAIT_S = 60.0
START_S = 60.0
HOLDING = """
import json, signal, sys, time
from gateway.cli.job_gateway import reached
from gateway.config import load_settings
# A shell has its background processes ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
with reached(load_settings(json.loads(sys.argv[1]), {}), None) as place:
    print(json.dumps(place), flush=True)
    time.sleep(600)
"""
"""A command whose job takes long."""


def produce(gateway: Gateway) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 0})
    for value in ("a", "b", "c"):
        producer.produce("orders", value)
    assert producer.flush(20.0) == 0


def topics_of(path: str) -> list[str]:
    with PeerClient(UnixLink(Path(path)), 20.0) as peer:
        assert peer.find_batches(next(peer.topics()).topic_id, 0, 0).high_watermark == 3
        return [topic.name for topic in peer.topics()]


def is_free(directory: Path) -> bool:
    try:
        DirectoryLock(directory).close()
    except StoreLocked:
        return False
    return True


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until_gone(pids: Sequence[int]) -> None:
    deadline = time.monotonic() + WAIT_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.05)


def wait_until_closed(link: UnixLink) -> None:
    deadline = time.monotonic() + WAIT_S
    with suppress(Unreachable):
        while time.monotonic() < deadline:
            link.connect(5.0).close()
            time.sleep(0.05)
        raise AssertionError("the gateway of the job goes on")


@contextmanager
def holding(settings: dict[str, object]) -> Iterator[tuple[subprocess.Popen[str], str, list[int]]]:
    """The command, the socket of its gateway, and its child processes."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, json.dumps(settings)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as command:
        try:
            assert command.stdout is not None
            line = command.stdout.readline()
            assert line, command.communicate()[1]
            yield command, json.loads(line)["path"], children_of(command.pid)
        finally:
            command.kill()


@pytest.mark.timeout(240)
def test_a_job_over_a_data_directory_has_a_gateway_of_its_own_until_it_ends(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory()
    gateway.start(START_S)
    produce(gateway)
    gateway.terminate()
    given: dict[str, object] = {"storage.data_dir": str(gateway.data_dir)}
    settings = load_settings(given, {})
    place = {"path": str(gateway.data_dir / "internal.sock")}
    with reached(settings, place) as found:
        assert found != place and topics_of(found["path"]) == ["orders"]
        with pytest.raises(StoreLocked, match="is in use by"), reached(settings, place):
            pass
    assert is_free(gateway.data_dir) and not Path(found["path"]).parent.exists()
    # However the command dies.
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        with holding(given) as (command, path, children):
            assert topics_of(path) == ["orders"] and len(children) == 1
            if number is signal.SIGINT:
                os.killpg(command.pid, number)
            else:
                command.send_signal(number)
            command.wait(WAIT_S)
            wait_until_gone(children)
        assert is_free(gateway.data_dir) and not Path(path).parent.exists()
    gateway.start(START_S)
    with reached(settings, place) as found:
        assert found == place and topics_of(found["path"]) == ["orders"]


@pytest.mark.timeout(240)
def test_a_gateway_that_jobs_cannot_reach_keeps_its_data_directory(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(["--set", "internal.socket=none"])
    gateway.start(START_S)
    settings = load_settings({"storage.data_dir": str(gateway.data_dir)}, {})
    with pytest.raises(StoreLocked) as refused, reached(settings, None):
        pass
    assert f"in use by the gateway with process id {gateway.pid}" in str(refused.value)
    assert "is reached by internal.socket or internal.listen" in str(refused.value)
    assert gateway.is_running()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("far", [pytest.param("bucket", marks=pytest.mark.full), "etcd+s3"], indirect=True)
def test_over_far_stores_a_gateway_that_lives_is_never_replaced(far: FarPlace, tmp_path: Path) -> None:
    settings = load_settings({**far.settings(), "storage.data_dir": str(tmp_path / "none")}, {})
    job = b"j" * 16
    with far_gateway(far, tmp_path / "first") as gateway:
        produce(gateway)
        with pytest.raises(StoreLocked) as refused, reached(settings, None):
            pass
        assert "owns this ledger, and nothing shows that it has ended" in str(refused.value)
        assert gateway.bootstrap in str(refused.value)
        assert gateway.is_running()
        produce(gateway)
        gateway.terminate()
        for _ in range(2):
            with reached(settings, None) as found, PeerClient(UnixLink(Path(found["path"])), 20.0) as peer:
                # What is inside of journal entries is not for jobs before they have a pin.
                peer.pin(job)
                assert peer.find_batches(next(peer.topics()).topic_id, 0, 0).high_watermark == 6
                peer.release(job)
        gateway.start()
        produce(gateway)
        gateway.kill9()
        with pytest.raises(StoreLocked, match="nothing shows that it has ended"), reached(settings, None):
            pass


@pytest.mark.timeout(240)
@pytest.mark.parametrize("far", ["etcd+s3"], indirect=True)
def test_a_job_whose_gateway_is_replaced_says_by_whom(far: FarPlace, tmp_path: Path) -> None:
    given = {**far.settings(), "storage.data_dir": str(tmp_path / "none")}
    with far_gateway(far, tmp_path / "first") as gateway:
        produce(gateway)
        gateway.terminate()
        with pytest.raises(StoreLocked) as ended, reached(load_settings(given, {}), None) as found:
            gateway.start()
            produce(gateway)
            # The next request of the job finds out, and the job fails.
            link = UnixLink(Path(found["path"]), connects_again=False)
            with PeerClient(link, 20.0) as peer, suppress(PeerUnavailable, PeerRefused):
                peer.describe()
            wait_until_closed(link)
        assert gateway.bootstrap in str(ended.value) and "has taken it over" in str(ended.value)
        assert gateway.is_running()
