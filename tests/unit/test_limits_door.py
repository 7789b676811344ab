"""The bounds on connections, with numbers for time."""

import pytest

from gateway.security.door import LONGEST_WAIT_S, Admitted, Door, Rules, TurnedAway, network_of

GENEROUS = Rules(connections=1000, address_connections=1000, rate=1000, address_rate=1000)
HERE, THERE = "192.0.2.1", "192.0.2.2"


def rules(**changed: int) -> Rules:
    known = {name: getattr(GENEROUS, name) for name in Rules.__slots__}
    return Rules(**{**known, **changed})


def admitted(door: Door, host: str, now: float = 0.0) -> Admitted:
    verdict = door.knock(host, now)
    assert isinstance(verdict, Admitted)
    return verdict


def test_more_connections_than_allowed_are_turned_away_until_one_leaves() -> None:
    door = Door(rules(connections=2))
    first = admitted(door, HERE)
    admitted(door, THERE)
    assert door.knock("192.0.2.3", 0.0) == TurnedAway("too_many_connections")
    door.leave(first.address)
    admitted(door, "192.0.2.3")


def test_one_address_cannot_take_all_places() -> None:
    door = Door(rules(address_connections=2))
    first, _ = admitted(door, HERE), admitted(door, HERE)
    assert door.knock(HERE, 0.0) == TurnedAway("too_many_from_address")
    admitted(door, THERE)
    door.leave(first.address)
    admitted(door, HERE)


def test_a_burst_comes_at_once_and_the_rest_one_after_the_other() -> None:
    door = Door(rules(address_rate=10))
    waits = [admitted(door, HERE).wait_s for _ in range(15)]
    assert waits[:10] == [0.0] * 10
    assert waits[10:] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_one_address_that_comes_too_fast_delays_no_other() -> None:
    door = Door(rules(address_rate=1))
    for _ in range(5):
        door.knock(HERE, 0.0)
    assert admitted(door, THERE).wait_s == 0.0


def test_who_comes_far_too_fast_is_turned_away_and_holds_no_place() -> None:
    door = Door(rules(address_rate=1))
    verdicts = [door.knock(HERE, 0.0) for _ in range(50)]
    let_in = sum(isinstance(verdict, Admitted) for verdict in verdicts)
    assert let_in == door.connections == 1 + LONGEST_WAIT_S
    assert verdicts[-1] == TurnedAway("too_fast_from_address")


def test_after_a_pause_a_burst_may_come_again() -> None:
    door = Door(rules(address_rate=10))
    for _ in range(15):
        admitted(door, HERE)
    assert [admitted(door, HERE, now=10.0).wait_s for _ in range(10)] == [0.0] * 10


def test_all_addresses_together_wait_in_the_queue_of_the_socket() -> None:
    door = Door(rules(rate=10))
    for number in range(20):
        assert (door.wait_s(0.0) > 0) == (number > 10)
        door.knock(f"192.0.2.{number}", 0.0)
    assert door.wait_s(0.0) == pytest.approx(1.0)
    assert door.wait_s(1.0) == pytest.approx(0.0)


def test_who_has_an_ipv6_network_has_one_address() -> None:
    door = Door(rules(address_connections=2))
    admitted(door, "2001:db8::1")
    admitted(door, "2001:db8::2:3:4")
    assert isinstance(door.knock("2001:db8::ffff", 0.0), TurnedAway)
    admitted(door, "2001:db8:0:1::1")


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
    door = Door(GENEROUS)
    guests = [admitted(door, f"192.0.2.{number}") for number in range(100)]
    door.forget_absent(60.0)
    assert door.known_addresses == 100
    for guest in guests:
        door.leave(guest.address)
    door.forget_absent(60.0)
    assert door.known_addresses == 0
