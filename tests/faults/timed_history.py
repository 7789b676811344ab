"""A history of transactions of which it is known what had happened at any moment: what power cuts need."""

import time
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from tests.support.transactional_history import Attempt, Outcome, Place, TransactionalHistory

Step = Callable[[TransactionalHistory, Mapping[str, Attempt]], object]
"""Once more, with the attempts by their names."""


class TimedHistory(TransactionalHistory):
    """Notes each step with its time (time.monotonic_ns)."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[tuple[int, Step]] = []

    def _note(self, step: Step) -> None:
        self._steps.append((time.monotonic_ns(), step))

    def begin(
        self, transactional_id: str, begun_s: float, ends_s: float, consumed: tuple[int, int] = (0, 0)
    ) -> Attempt:
        attempt = super().begin(transactional_id, begun_s, ends_s, consumed)
        self._note(lambda history, _: history.resume(attempt))
        return attempt

    def send(self, attempt: Attempt, place: Place, values: Sequence[bytes]) -> None:
        super().send(attempt, place, values)
        self._note(lambda history, known: history.send(known[attempt.name], place, values))

    def acknowledge_value(self, place: Place, offset: int, value: bytes) -> None:
        super().acknowledge_value(place, offset, value)
        self._note(lambda history, _: history.acknowledge_value(place, offset, value))

    def conclude(self, attempt: Attempt, outcome: Outcome) -> None:
        super().conclude(attempt, outcome)
        self._note(lambda history, known: history.conclude(known[attempt.name], outcome))

    def before(self, ns: int) -> TransactionalHistory:
        """What its producers had done and heard before this moment."""
        history = TransactionalHistory()
        known: dict[str, Attempt] = {}
        for at_ns, step in sorted(self._steps, key=itemgetter(0)):
            if at_ns >= ns:
                break
            step(history, known)
            known.update((attempt.name, attempt) for attempt in history.attempts[len(known) :])
        return history
