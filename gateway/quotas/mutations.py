"""The quota of controller mutations (KIP-599): partitions created and deleted a second, by a token bucket.

As Kafka's TokenBucket and ControllerMutationQuotaManager: the bucket begins full, and holds what the rate
gives in all windows together. While it is not below zero any change is accepted, however large, and may take
it far below. Then a strict quota refuses further changes; a permissive one, for clients too old to know the
error, only throttles. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import floor
from typing import Final

from gateway.quotas.meter import MAX_THROTTLE_MS
from ledger.errors import ErrorName
from ledger.requests import Refused

QUOTA_EXCEEDED: Final = Refused(
    ErrorName.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
)


class TokenBucket:
    """Times are milliseconds of a clock that does not go back."""

    __slots__ = ("_seconds", "_tokens", "_updated_ms")

    def __init__(self, seconds: float) -> None:
        """`seconds`: the time in which the rate fills it from zero."""
        self._seconds = seconds
        self._tokens: float | None = None
        self._updated_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        """Below zero, no further change is accepted until it is filled up to zero again."""
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
        """Time until it is not below zero."""
        missing = -self.tokens(rate, now_ms)
        return floor(min(1000 * missing / rate + 0.5, MAX_THROTTLE_MS)) if missing > 0 else 0


@dataclass(slots=True)
class MutationQuota:
    """The share of one request in a bucket. `bucket` is None for a client without a quota, `now_ms` a
    monotonic clock."""

    bucket: TokenBucket | None
    rate: float
    is_strict: bool
    now_ms: Callable[[], int]
    _free_at_ms: int = 0

    def take(self, partitions: int) -> Refused | None:
        """Count a change of this number of partitions, or refuse it."""
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
        """The rest of the wait that follows from the last refusal or permissive excess."""
        return max(0, self._free_at_ms - self.now_ms()) if self._free_at_ms else 0
