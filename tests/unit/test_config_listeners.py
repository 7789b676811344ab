"""Which addresses are understood, and which are refused."""

import pytest

from gateway.addresses import Address, parse_address, parse_bindings
from gateway.settings import ConfigError


def test_a_listener_is_advertised_where_it_listens_by_default() -> None:
    (binding,) = parse_bindings(["PLAINTEXT://127.0.0.1:9092"], [])
    assert binding.bind == binding.advertised == Address("127.0.0.1", 9092)


def test_each_listener_has_its_own_advertised_address() -> None:
    first, second = parse_bindings(
        ["PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://127.0.0.1:0"], ["kafka.example:443", "127.0.0.1:0"]
    )
    assert (first.advertised, second.advertised) == (Address("kafka.example", 443), Address("127.0.0.1", 0))


@pytest.mark.parametrize("listen", ["PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://:9092", "PLAINTEXT://[::]:9092"])
def test_every_address_needs_an_advertised_one(listen: str) -> None:
    with pytest.raises(ConfigError, match="--advertise"):
        parse_bindings([listen], [])


def test_one_advertised_address_for_two_listeners_is_refused() -> None:
    with pytest.raises(ConfigError, match="1 addresses for 2 listeners"):
        parse_bindings(["PLAINTEXT://a:1", "PLAINTEXT://b:2"], ["a:1"])


@pytest.mark.parametrize("listen", ["SASL_SSL://127.0.0.1:1", "127.0.0.1:9092", "PLAINTEXT://127.0.0.1", ""])
def test_a_listener_that_is_not_understood_is_refused(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"listeners\.listen"):
        parse_bindings([listen], [])


@pytest.mark.parametrize("text", ["host", "host:", "host:x", "host:65536", "a:b:1", "::1:9092", "host:-1"])
def test_an_address_needs_host_and_port(text: str) -> None:
    with pytest.raises(ConfigError, match="expected HOST:PORT"):
        parse_address(text, "admin.listen")


def test_an_ipv6_address_is_written_in_brackets() -> None:
    assert parse_address("[::1]:9092", "x") == Address("::1", 9092)
    assert str(Address("::1", 9092)) == "[::1]:9092"
