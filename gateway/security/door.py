"""The bounds on connections, sans-I/O: how many there may be, in all and from one address, and how fast
new ones may come.

Too many are refused. Too fast ones wait, as in Kafka (KIP-612): those of all addresses together in the
listening socket's queue, those of one address already accepted but unserved, so that a client that
connects in a loop delays itself alone. The rates are kept by virtual scheduling (ITU-T I.371): one number
says when the next connection would be due, and a second's worth may come at once.
"""

import ipaddress
from dataclasses import dataclass
from typing import Final

LONGEST_WAIT_S: Final = 10.0
BURST_S: Final = 1.0
_NETWORK_V6: Final = 64


@dataclass(frozen=True, slots=True)
class Rules:
    """Rates are connections a second."""

    connections: int
    address_connections: int
    rate: int
    address_rate: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """Serve the connection after `wait_s`; `address` is for `Door.leave`."""

    address: str
    wait_s: float


@dataclass(frozen=True, slots=True)
class TurnedAway:
    reason: str


@dataclass(slots=True)
class _Visitors:
    connections: int = 0
    due_at: float = 0.0


class Door:
    """Counts connections from their acceptance to their end. `now` is loop time, in seconds."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._due_at = 0.0
        self._visitors: dict[str, _Visitors] = {}
        self.connections = 0

    def wait_s(self, now: float) -> float:
        """How long nobody may be accepted, since too many came lately."""
        return max(0.0, self._due_at - now - BURST_S)

    def knock(self, host: str, now: float) -> Admitted | TurnedAway:
        """A connection was accepted. `host` is an IP address."""
        rules = self._rules
        self._due_at = max(self._due_at, now) + 1 / rules.rate
        if self.connections >= rules.connections:
            return TurnedAway("too_many_connections")
        address = network_of(host)
        visitors = self._visitors.get(address)
        if visitors is None:
            visitors = self._visitors[address] = _Visitors()
        if visitors.connections >= rules.address_connections:
            return TurnedAway("too_many_from_address")
        due_at = max(visitors.due_at, now) + 1 / rules.address_rate
        wait_s = due_at - now - BURST_S
        if wait_s > LONGEST_WAIT_S:
            return TurnedAway("too_fast_from_address")
        visitors.due_at = due_at
        visitors.connections += 1
        self.connections += 1
        return Admitted(address, max(0.0, wait_s))

    def leave(self, address: str) -> None:
        """An admitted connection has ended."""
        self._visitors[address].connections -= 1
        self.connections -= 1

    def forget_absent(self, now: float) -> None:
        """Drop addresses that have no connection and are not held to their rate any more."""
        gone = [key for key, seen in self._visitors.items() if not seen.connections and seen.due_at <= now]
        for address in gone:
            del self._visitors[address]

    @property
    def known_addresses(self) -> int:
        return len(self._visitors)


def network_of(host: str) -> str:
    """An IPv4 address, or the /64 of an IPv6 one: whoever has one address of it has them all."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> _NETWORK_V6 << _NETWORK_V6, _NETWORK_V6)))
