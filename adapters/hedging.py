"""A second attempt at a request that takes longer than almost all recent ones took.

The tail of a remote store is long: one PUT of a hundred takes ten times as long as the others. A request that
is still unanswered well after the recent 98th percentile is sent once more, and the first answer counts. A
token bucket bounds the additional requests, so that a store which has become slow as a whole is not asked
twice as much.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

T = TypeVar("T")

SHARE: Final = 0.03
"""Of all requests, those that may be sent twice."""
MAX_TOKENS: Final = 10.0
SAMPLES: Final = 512
MIN_SAMPLES: Final = 50
"""Below this many samples a percentile says nothing."""
PERCENTILE: Final = 0.98
LATE_FACTOR: Final = 1.2
"""Of the percentile. Where nearly all requests take equally long, half of them would be late by a hair, and
use up the tokens that the slow ones need."""
RENEWED_AFTER: Final = 32
"""Samples after which the percentile is computed again."""


class Verdict(Enum):
    """What the result of one attempt means while the other one is under way."""

    FINAL = "the other attempt would add nothing"
    WAIT_BRIEFLY = "the other attempt may say more, but not at any price: wait for it as long again"
    WAIT = "only the other attempt can help"


@dataclass(frozen=True, slots=True)
class Attempts(Generic[T]):
    """What one request, sent once or twice, came to."""

    results: Sequence[T]
    """In the order in which they came; never empty."""
    unanswered: int = 0
    """Attempts that were given up: they may still have their effect."""


class RecentDurations:
    """The 98th percentile of how long requests of one kind took lately."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self._fresh = 0
        self.percentile_s: float | None = None
        """None while there are too few samples."""

    def add(self, took_s: float) -> None:
        self._samples.append(took_s)
        self._fresh += 1
        if len(self._samples) < MIN_SAMPLES:
            return
        if self.percentile_s is None or self._fresh >= RENEWED_AFTER:
            self._fresh = 0
            self.percentile_s = sorted(self._samples)[int(len(self._samples) * PERCENTILE)]


class Hedges:
    """Sends the requests of one store, some of them twice."""

    def __init__(self, share: float = SHARE) -> None:
        """`share`: of all requests, how many may be sent twice; 0 for none."""
        self._share = share
        self._tokens = 0.0
        self._recent: dict[str, RecentDurations] = {}
        self.sent = 0
        """Second attempts so far."""

    async def send(
        self, kind: str, attempt: Callable[[], Awaitable[T]], judge: Callable[[T], Verdict]
    ) -> Attempts[T]:
        """`kind`: requests that take about as long as each other. An error of an attempt is an error of the
        request, so what a caller can expect comes as a result. Attempts that are given up are cancelled."""
        self._tokens = min(self._tokens + self._share, MAX_TOKENS)
        recent = self._recent.setdefault(kind, RecentDurations())
        loop = asyncio.get_running_loop()
        begun = loop.time()
        late_s = None if recent.percentile_s is None else recent.percentile_s * LATE_FACTOR
        if not self._share:
            late_s = None
        attempts = Attempts([await attempt()]) if late_s is None else await self._race(attempt, judge, late_s)
        recent.add(loop.time() - begun)
        return attempts

    async def _race(
        self, attempt: Callable[[], Awaitable[T]], judge: Callable[[T], Verdict], late_s: float
    ) -> Attempts[T]:
        begun = [asyncio.ensure_future(attempt())]
        try:
            done, _ = await asyncio.wait(begun, timeout=late_s)
            if not done and self._spend():
                begun.append(asyncio.ensure_future(attempt()))
            return await _results(begun, judge, late_s)
        finally:
            for one in begun:
                one.cancel()
            await asyncio.gather(*begun, return_exceptions=True)

    def _spend(self) -> bool:
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        self.sent += 1
        return True


async def _results(
    begun: Sequence[asyncio.Future[T]], judge: Callable[[T], Verdict], late_s: float
) -> Attempts[T]:
    pending = set(begun)
    results: list[T] = []
    timeout: float | None = None
    while pending:
        done, pending = await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        results += [one.result() for one in begun if one in done]
        verdicts = {judge(result) for result in results}
        if Verdict.FINAL in verdicts or not done:
            break
        timeout = late_s if Verdict.WAIT_BRIEFLY in verdicts else None
    return Attempts(results, len(pending))
