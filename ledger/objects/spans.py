"""Objects by when they were created, in spans of time.

So what a rise of the orphan floor passes is found without a look at each of them.
"""

from array import array
from typing import Final

SPAN_MS: Final = 10_000


class CreationTimes:
    """When the objects above the floor were created."""

    def __init__(self) -> None:
        self._spans: dict[int, array[int]] = {}

    def add(self, created_ms: int) -> None:
        times = self._spans.get(created_ms // SPAN_MS)
        if times is None:
            self._spans[created_ms // SPAN_MS] = array("q", (created_ms,))
        elif times[-1] != created_ms:
            times.append(created_ms)

    def any_within(self, from_ms: int, to_ms: int) -> bool:
        """Whether one of them is `from_ms` or later, and before `to_ms`."""
        for span, times in self._spans.items():
            first_ms, next_ms = span * SPAN_MS, (span + 1) * SPAN_MS
            if from_ms <= first_ms and next_ms <= to_ms:
                return True
            if first_ms < to_ms and from_ms < next_ms and any(from_ms <= at < to_ms for at in times):
                return True
        return False

    def drop_below(self, floor_ms: int) -> None:
        """Forget spans of which all is older."""
        for span in [span for span in self._spans if (span + 1) * SPAN_MS <= floor_ms]:
            del self._spans[span]


class CreatedNumbers:
    """Numbers of objects."""

    def __init__(self) -> None:
        self._spans: dict[int, dict[int, int]] = {}
        """By span, the creation times by number. None is empty."""

    def add(self, number: int, created_ms: int) -> None:
        """Also of one that is here already."""
        found = self._spans.get(created_ms // SPAN_MS)
        if found is None:
            self._spans[created_ms // SPAN_MS] = {number: created_ms}
        else:
            found[number] = created_ms

    def discard(self, number: int, created_ms: int) -> None:
        found = self._spans.get(created_ms // SPAN_MS)
        if found is not None and found.pop(number, None) is not None and not found:
            del self._spans[created_ms // SPAN_MS]

    def take_below(self, floor_ms: int) -> list[int]:
        """Those that were created before this are not here any more."""
        below: list[int] = []
        for span in [span for span in self._spans if span * SPAN_MS < floor_ms]:
            found = self._spans.pop(span)
            below += [number for number, created_ms in found.items() if created_ms < floor_ms]
            left = {number: created_ms for number, created_ms in found.items() if created_ms >= floor_ms}
            if left:
                self._spans[span] = left
        return below
