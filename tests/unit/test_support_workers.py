"""Which tests run in one worker of pytest-xdist, and the ports that each worker gives away."""

import socket

import pytest

from tests.support.ports import free_ports, with_port
from tests.support.workers import group_of


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/unit/test_a.py::test_b[x]", "tests/unit/test_a.py"),
        ("tests/unit/test_a.py::test_b[java]", "tests/unit/test_a.py"),
        ("tests/differential/test_a.py::test_b", "differential"),
        ("tests/differential/scenarios/test_c.py::test_d", "differential"),
        ("tests/e2e/test_a.py::test_b", "tests/e2e/test_a.py"),
        ("tests/e2e/test_kafka_tools.py::test_b", "tests/e2e/test_kafka_tools"),
        ("tests/e2e/test_kafka_tools_groups.py::test_b", "tests/e2e/test_kafka_tools"),
        ("tests/e2e/test_a.py::test_b[java]", "e2e-java"),
        ("tests/e2e/test_a.py::test_b[java-3.9-NONE]", "e2e-java-3.9"),
        ("tests/e2e/test_c.py::test_d[cleanly-kafka-go]", "e2e-kafka-go"),
        ("tests/e2e/test_c.py::test_d[kafka-python-gzip]", "e2e-kafka-python"),
    ],
)
def test_tests_that_share_a_server_or_a_client_are_one_group(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group


def test_each_worker_has_ports_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = set()
    for worker in ("", "gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        found = free_ports(1_000)
        assert max(found) - min(found) < 1_500
        ports.update(found)
    assert len(ports) == 3_000
    assert max(ports) < 32_768


def test_a_port_in_use_is_not_given_out() -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        for _ in range(2):
            assert port not in free_ports(1_000)


def test_only_an_address_that_leaves_its_port_open_gets_one() -> None:
    assert with_port("PLAINTEXT://127.0.0.1:9092") == "PLAINTEXT://127.0.0.1:9092"
    assert with_port("PLAINTEXT://[::1]:0") == "PLAINTEXT://[::1]:0"
    scheme, _, port = with_port("SSL://127.0.0.1:0").rpartition(":")
    assert scheme == "SSL://127.0.0.1" and int(port) > 0
