"""When a failed request to a remote store is sent again: a budget for all, and waits with full jitter."""

from collections.abc import Callable

FIRST_WAIT_S = 0.05
MAX_WAIT_S = 5.0
MAX_TRIES = 8
BUDGET = 50.0
EARNED = 0.1


class RetryBudget:
    """What a store's retries may cost. A retry costs 1 and a success earns EARNED, up to BUDGET: a store that
    fails now and then gets every retry, and one that fails always gets at most a tenth more requests."""

    def __init__(self, budget: float = BUDGET, earned: float = EARNED) -> None:
        self._most = self._left = budget
        self._earned = earned

    def earn(self) -> None:
        self._left = min(self._left + self._earned, self._most)

    def spend(self) -> bool:
        """True if one more retry may be sent."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def retry_wait_s(retries: int, random: Callable[[], float]) -> float:
    """How long to wait before retry number `retries` (from 0). `random` gives numbers in [0, 1): full jitter
    keeps clients that failed together apart."""
    return random() * min(MAX_WAIT_S, FIRST_WAIT_S * 2.0 ** min(retries, 32))
