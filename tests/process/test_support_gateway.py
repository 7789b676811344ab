"""The support for tests reads ready files and reports a gateway that did not become ready."""

import pytest

from tests.support.gateway import Gateway, GatewayFactory, GatewayNotReady, Listener, Ready, read_ready
from tests.support.raw import raw_exchange, request

API_VERSIONS = 18


def test_a_ready_file_gives_pid_listeners_and_admin() -> None:
    listener = '{"name": "A", "host": "127.0.0.1", "port": 9}'
    text = f'{{"pid": 7, "listeners": [{listener}], "admin": {{"host": "h", "port": 1}}}}'
    assert read_ready(text) == Ready(7, (Listener("A", "127.0.0.1", 9),), Listener("admin", "h", 1))


@pytest.mark.parametrize("text", ["", '{"pid": 7, "list', '{"pid": 7, "listeners": []}'])
def test_half_a_ready_file_is_not_ready(text: str) -> None:
    with pytest.raises(ValueError):
        read_ready(text)


def test_a_gateway_that_refuses_its_options_is_reported_with_its_words(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory(options=["--no-such-option"])
    with pytest.raises(GatewayNotReady) as failure:
        gateway.start()
    assert failure.value.exit_code not in (None, 0)
    assert failure.value.log
    assert not gateway.is_running()


def test_a_gateway_keeps_its_ports_over_kill_9_and_stop(gateway: Gateway) -> None:
    addresses = (gateway.bootstrap, gateway.admin.address)
    first_pid = gateway.pid
    gateway.kill9()
    assert not gateway.is_running()
    gateway.restart()
    assert gateway.pid != first_pid
    assert gateway.terminate() == 0
    gateway.restart()
    assert (gateway.bootstrap, gateway.admin.address) == addresses
    response = raw_exchange(gateway.host, gateway.port, request(API_VERSIONS, 0, correlation_id=7))
    assert isinstance(response, bytes) and response[:6] == b"\0\0\0\7" + b"\0\0"


def test_the_environment_reaches_the_gateway(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(env={"DRAGOMAN_LOG_LEVEL": "no-such-level"})
    with pytest.raises(GatewayNotReady) as failure:
        gateway.start()
    assert failure.value.exit_code == 2
