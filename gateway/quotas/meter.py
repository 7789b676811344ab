"""A rate over a sliding window of samples, as Kafka measures it for a quota. Pure.

Amounts are added up in samples of one window each (`quota.window.size.seconds`); the newest `windows`
(`quota.window.num`) of them count. The time that they are divided by is at least all windows but the newest,
so that a client that was silent may use what it has not used, but no more than the amount of `windows - 1`
windows at once. The numbers in the tests come from Kafka's classes `Rate` and `SampledStat`.
"""

from collections import deque
from math import floor
from typing import Final

MAX_THROTTLE_MS: Final = 2**31 - 1


class RateMeter:
    """Times are whole milliseconds of a clock that does not go back."""

    __slots__ = ("_samples", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[_Sample] = deque()

    def record(self, amount: float, now_ms: int) -> None:
        """Record `amount`; a negative one takes back what was recorded."""
        samples = self._samples
        if not samples or now_ms - samples[-1].began_ms >= self._window_ms:
            samples.append(_Sample(now_ms))
            if len(samples) > self._windows + 1:
                samples.popleft()
        newest = samples[-1]
        newest.amount += amount
        newest.last_ms = now_ms

    def rate(self, now_ms: int) -> float:
        """Amount a second."""
        elapsed_ms = self.elapsed_ms(now_ms)
        return sum([sample.amount for sample in self._samples]) / (elapsed_ms / 1000)

    def elapsed_ms(self, now_ms: int) -> int:
        """The time by which the amount of all samples is divided."""
        self._forget(now_ms)
        elapsed = now_ms - self._samples[0].began_ms if self._samples else 0
        missing = self._windows - 1 - elapsed // self._window_ms
        return max(elapsed + max(missing, 0) * self._window_ms, 1)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """After how long without use the rate is down to `limit` a second; 0 if it is within it."""
        excess = self.rate(now_ms) - limit
        if not excess > 0:
            return 0
        # min() before floor(): with a tiny limit the quotient may be infinite.
        return floor(min(excess / limit * self.elapsed_ms(now_ms) + 0.5, MAX_THROTTLE_MS))

    def _forget(self, now_ms: int) -> None:
        samples = self._samples
        oldest_ms = now_ms - self._windows * self._window_ms
        while samples and samples[0].last_ms <= oldest_ms:
            samples.popleft()


class _Sample:
    __slots__ = ("amount", "began_ms", "last_ms")

    def __init__(self, now_ms: int) -> None:
        self.began_ms = self.last_ms = now_ms
        self.amount = 0.0
