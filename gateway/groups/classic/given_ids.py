"""Member ids that were given out and not used yet (KIP-394)."""

import math
from heapq import heapify, heappop, heappush
from typing import Final

from ledger.requests import text_bytes

ID_BYTES: Final = 256
"""Of memory that an id takes, its text aside."""
FEW: Final = 64


class GivenIds:
    """The ids of one group, and until when each may be used to join. There may be very many, of which few end
    at a time: so their ends are in a heap, in which those that were used stay for a while."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._ends: list[tuple[float, str]] = []
        self.bytes = 0
        """About what they take."""

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._until

    def give(self, member_id: str, until: float) -> None:
        self.take(member_id)
        self._until[member_id] = until
        self.bytes += ID_BYTES + text_bytes(member_id)
        heappush(self._ends, (until, member_id))
        if len(self._ends) > 2 * len(self._until) + FEW:
            self._ends = [(at, each) for each, at in self._until.items()]
            heapify(self._ends)

    def take(self, member_id: str) -> bool:
        """It is used, or given back. Whether it was there."""
        if self._until.pop(member_id, None) is None:
            return False
        self.bytes -= ID_BYTES + text_bytes(member_id)
        return True

    def take_expired(self, now: float) -> bool:
        """Those that may be used no longer. Whether there were any."""
        before = len(self)
        while self.next_end <= now:
            self.take(heappop(self._ends)[1])
        return len(self) < before

    @property
    def next_end(self) -> float:
        """When the first of them ends; infinity without any."""
        ends = self._ends
        while ends and self._until.get(ends[0][1]) != ends[0][0]:
            heappop(ends)
        return ends[0][0] if ends else math.inf

    def clear(self) -> None:
        self._until.clear()
        self._ends.clear()
        self.bytes = 0
