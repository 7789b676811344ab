"""The quota of controller mutations (KIP-599): partitions created and deleted a second, by a token bucket.

As Kafka's TokenBucket and ControllerMutationQuotaManager: the bucket begins full, and holds what the rate
gives in all windows together; any change is accepted while it is not below zero, however large, and so may
take it far below. A strict quota refuses what comes then, a permissive one (of clients too old to know the
error) only throttles. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import floor
from typing import Final

from gateway.quotas.meter import MAX_THROTTLE_MS
from ledger.requests import Refused

QUOTA_EXCEEDED: Final = Refused("THROTTLING_QUOTA_EXCEEDED", "The throttling quota has been exceeded.")


class TokenBucket:
    """Times are milliseconds of a clock that does not go back."""

    __slots__ = ("_seconds", "_tokens", "_updated_ms")

    def __init__(self, seconds: float) -> None:
        """`seconds`: so long the rate takes to fill it from zero."""
        self._seconds = seconds
        self._tokens: float | None = None
        self._updated_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        """Below zero: nothing more until it is filled up again."""
        burst = rate * self._seconds
        if self._tokens is None:
            self._tokens = burst
        else:
            gained = rate * (now_ms - self._updated_ms) / 1000
            self._tokens = min(burst, self._tokens + gained)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, amount: float, rate: float, now_ms: int) -> None:
        self._tokens = self.tokens(rate, now_ms) - amount

    def wait_ms(self, rate: float, now_ms: int) -> int:
        """Until it is not below zero any more."""
        missing = -self.tokens(rate, now_ms)
        return floor(min(1000 * missing / rate + 0.5, MAX_THROTTLE_MS)) if missing > 0 else 0


@dataclass(slots=True)
class MutationQuota:
    """What one request takes of a bucket. `bucket` is None for a client without a quota, `now_ms` a monotonic
    clock."""

    bucket: TokenBucket | None
    rate: float
    is_strict: bool
    now_ms: Callable[[], int]
    _free_at_ms: int = 0

    def take(self, partitions: int) -> Refused | None:
        """Count a change of so many partitions, or refuse it."""
        if self.bucket is None:
            return None
        now_ms = self.now_ms()
        if self.is_strict and self.bucket.tokens(self.rate, now_ms) >= 0:
            self.bucket.take(partitions, self.rate, now_ms)
            return None
        if not self.is_strict:
            self.bucket.take(partitions, self.rate, now_ms)
        self._free_at_ms = now_ms + self.bucket.wait_ms(self.rate, now_ms)
        return QUOTA_EXCEEDED if self.is_strict else None

    def throttle_ms(self) -> int:
        """What is left of the wait that the last refusal, or permissive excess, came to."""
        return max(0, self._free_at_ms - self.now_ms()) if self._free_at_ms else 0
