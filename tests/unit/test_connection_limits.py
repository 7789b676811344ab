"""The bounds on connections, with numbers for time."""

import pytest

from gateway.network.connection_limits import (
    LONGEST_WAIT_S,
    Admitted,
    ConnectionLimiter,
    Rejected,
    Rules,
)
from gateway.scheduling.client_network import network_of

GENEROUS = Rules(connections=1000, address_connections=1000, rate=1000, address_rate=1000)
HERE, THERE = "192.0.2.1", "192.0.2.2"


def rules(**changed: int) -> Rules:
    known = {name: getattr(GENEROUS, name) for name in Rules.__slots__}
    return Rules(**{**known, **changed})


def admitted(limiter: ConnectionLimiter, host: str, now: float = 0.0) -> Admitted:
    verdict = limiter.admit(host, now)
    assert isinstance(verdict, Admitted)
    return verdict


def test_more_connections_than_allowed_are_rejected_until_one_is_released() -> None:
    limiter = ConnectionLimiter(rules(connections=2))
    first = admitted(limiter, HERE)
    admitted(limiter, THERE)
    assert limiter.admit("192.0.2.3", 0.0) == Rejected("too_many_connections")
    limiter.release(first.address)
    admitted(limiter, "192.0.2.3")


def test_one_address_cannot_take_all_connections() -> None:
    limiter = ConnectionLimiter(rules(address_connections=2))
    first, _ = admitted(limiter, HERE), admitted(limiter, HERE)
    assert limiter.admit(HERE, 0.0) == Rejected("too_many_from_address")
    admitted(limiter, THERE)
    limiter.release(first.address)
    admitted(limiter, HERE)


def test_a_burst_comes_at_once_and_the_rest_one_after_the_other() -> None:
    limiter = ConnectionLimiter(rules(address_rate=10))
    waits = [admitted(limiter, HERE).wait_s for _ in range(15)]
    assert waits[:10] == [0.0] * 10
    assert waits[10:] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_one_address_that_comes_too_fast_delays_no_other() -> None:
    limiter = ConnectionLimiter(rules(address_rate=1))
    for _ in range(5):
        limiter.admit(HERE, 0.0)
    assert admitted(limiter, THERE).wait_s == 0.0


def test_an_address_that_connects_far_too_fast_is_rejected_and_not_counted() -> None:
    limiter = ConnectionLimiter(rules(address_rate=1))
    verdicts = [limiter.admit(HERE, 0.0) for _ in range(50)]
    let_in = sum(isinstance(verdict, Admitted) for verdict in verdicts)
    assert let_in == limiter.connections == 1 + LONGEST_WAIT_S
    assert verdicts[-1] == Rejected("too_fast_from_address")


def test_after_a_pause_a_burst_may_come_again() -> None:
    limiter = ConnectionLimiter(rules(address_rate=10))
    for _ in range(15):
        admitted(limiter, HERE)
    assert [admitted(limiter, HERE, now=10.0).wait_s for _ in range(10)] == [0.0] * 10


def test_all_addresses_together_wait_in_the_queue_of_the_socket() -> None:
    limiter = ConnectionLimiter(rules(rate=10))
    for number in range(20):
        assert (limiter.wait_s(0.0) > 0) == (number > 10)
        limiter.admit(f"192.0.2.{number}", 0.0)
    assert limiter.wait_s(0.0) == pytest.approx(1.0)
    assert limiter.wait_s(1.0) == pytest.approx(0.0)


def test_who_has_an_ipv6_network_has_one_address() -> None:
    limiter = ConnectionLimiter(rules(address_connections=2))
    admitted(limiter, "2001:db8::1")
    admitted(limiter, "2001:db8::2:3:4")
    assert isinstance(limiter.admit("2001:db8::ffff", 0.0), Rejected)
    admitted(limiter, "2001:db8:0:1::1")


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("a name", "a name"),
    ],
)
def test_an_address_is_counted_by_its_network(host: str, network: str) -> None:
    assert network_of(host) == network


def test_addresses_are_forgotten_when_nothing_holds_them_any_more() -> None:
    limiter = ConnectionLimiter(GENEROUS)
    guests = [admitted(limiter, f"192.0.2.{number}") for number in range(100)]
    limiter.forget_idle(60.0)
    assert limiter.known_addresses == 100
    for guest in guests:
        limiter.release(guest.address)
    limiter.forget_idle(60.0)
    assert limiter.known_addresses == 0
