"""The clocks of a gateway: its own, that of its store, and what an operator has said of the time."""

from dataclasses import dataclass

from gateway.coordination.clock import SteadyClock
from gateway.coordination.store_clock import StoreClock


@dataclass(frozen=True, slots=True)
class Clocks:
    steady: SteadyClock
    store: StoreClock
    confirmed_ms: int
    """By an operator."""

    def right_until_ms(self) -> int:
        """Entry times up to this are confirmed by something else than the gateway's clock."""
        return max(self.store.right_until_ms, self.confirmed_ms)
