"""The bounds on connections, sans-I/O (Kafka: ConnectionQuotas): how many there may be, in all and from one
address, and how fast new ones may come.

Connections beyond the number are rejected. Those that come too fast wait, as in Kafka (KIP-612): those of all
addresses together in the listening socket's queue, those of one address already accepted but not yet served,
so that a client that connects in a loop delays itself alone. The rates are kept by virtual scheduling
(ITU-T I.371): one number says when the next connection would be due, and a second's worth may come at once.
"""

from dataclasses import dataclass
from typing import Final

from gateway.scheduling.client_network import network_of

LONGEST_WAIT_S: Final = 10.0
BURST_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Rules:
    """Rates are connections a second."""

    connections: int
    address_connections: int
    rate: int
    address_rate: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """Serve the connection after `wait_s`; `address` is for `ConnectionLimiter.release`."""

    address: str
    wait_s: float


@dataclass(frozen=True, slots=True)
class Rejected:
    reason: str


@dataclass(slots=True)
class _Address:
    connections: int = 0
    due_at: float = 0.0


class ConnectionLimiter:
    """Counts connections from their acceptance to their end. `now` is loop time, in seconds."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._due_at = 0.0
        self._addresses: dict[str, _Address] = {}
        self.connections = 0

    def wait_s(self, now: float) -> float:
        """How long no connection may be accepted, since too many came lately."""
        return max(0.0, self._due_at - now - BURST_S)

    def admit(self, host: str, now: float) -> Admitted | Rejected:
        """A connection was accepted. `host` is an IP address."""
        rules = self._rules
        self._due_at = max(self._due_at, now) + 1 / rules.rate
        if self.connections >= rules.connections:
            return Rejected("too_many_connections")
        address = network_of(host)
        known = self._addresses.get(address)
        if known is None:
            known = self._addresses[address] = _Address()
        if known.connections >= rules.address_connections:
            return Rejected("too_many_from_address")
        due_at = max(known.due_at, now) + 1 / rules.address_rate
        wait_s = due_at - now - BURST_S
        if wait_s > LONGEST_WAIT_S:
            return Rejected("too_fast_from_address")
        known.due_at = due_at
        known.connections += 1
        self.connections += 1
        return Admitted(address, max(0.0, wait_s))

    def release(self, address: str) -> None:
        """An admitted connection has ended."""
        self._addresses[address].connections -= 1
        self.connections -= 1

    def forget_idle(self, now: float) -> None:
        """Drop addresses that have no connection and are not held to their rate any more."""
        idle = [
            key for key, known in self._addresses.items() if not known.connections and known.due_at <= now
        ]
        for address in idle:
            del self._addresses[address]

    @property
    def known_addresses(self) -> int:
        return len(self._addresses)
