"""Stored batches in memory: those produced or read lately; the least recently used is evicted first. Pure."""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from typing import Final

from ledger.types import Buffer

ENTRY_OVERHEAD_BYTES: Final = 512
"""About what the bookkeeping of one entry takes: counted, so that the bound holds for small batches too."""
MAX_WASTE: Final = 2
"""An entry may keep this multiple of its own size in memory."""


class RunCache:
    """Byte ranges of objects, at most about `max_bytes` of them.

    Every entry is one or more whole batches, so a range is served as the entries it consists of and
    nothing is ever joined. Objects are immutable and keys are never reused: nothing becomes stale.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[tuple[str, int], memoryview] = OrderedDict()
        # Starts of entries with several batches: a reader may begin in the middle of one.
        self._range_starts: dict[str, list[int]] = {}
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, locator: str, start: int, data: Buffer) -> None:
        """Cache one stored batch."""
        self._put(locator, start, data)

    def put_range(self, locator: str, start: int, data: Buffer) -> None:
        """Cache adjacent batches that were read together."""
        if self._put(locator, start, data):
            insort(self._range_starts.setdefault(locator, []), start)

    def get(self, locator: str, start: int, size: int) -> tuple[list[memoryview], int]:
        """Views from `start` on without a gap, and the bytes that they cover: 0 if nothing is cached
        there; more than `size` if the last entry reaches further."""
        views: list[memoryview] = []
        covered = 0
        while covered < size:
            view = self._at(locator, start + covered)
            if view is None:
                break
            views.append(view)
            covered += len(view)
        return views, covered

    def _put(self, locator: str, start: int, data: Buffer) -> bool:
        cost = len(data) + ENTRY_OVERHEAD_BYTES
        key = (locator, start)
        if not len(data) or cost > self._max_bytes or key in self._entries:
            return False
        self._entries[key] = _kept(data)
        self.held_bytes += cost
        while self.held_bytes > self._max_bytes:
            self._evict()
        return True

    def _at(self, locator: str, position: int) -> memoryview | None:
        key = (locator, position)
        view = self._entries.get(key)
        if view is not None:
            self._entries.move_to_end(key)
            return view
        starts = self._range_starts.get(locator)
        at = bisect_right(starts, position) - 1 if starts else -1
        if not starts or at < 0:
            return None
        key = (locator, starts[at])
        view = self._entries[key]
        self._entries.move_to_end(key)
        inside = position - starts[at]
        return view[inside:] if inside < len(view) else None

    def _evict(self) -> None:
        (locator, start), view = self._entries.popitem(last=False)
        self.held_bytes -= len(view) + ENTRY_OVERHEAD_BYTES
        starts = self._range_starts.get(locator)
        if starts:
            at = bisect_left(starts, start)
            if at < len(starts) and starts[at] == start:
                del starts[at]
                if not starts:
                    del self._range_starts[locator]


def _kept(data: Buffer) -> memoryview:
    """What an entry holds. A view keeps all in memory that it was cut from, so a small batch of a large frame
    is copied."""
    view = memoryview(data)
    whole = len(view.obj) if isinstance(view.obj, bytes | bytearray) else len(view)
    return view if whole <= MAX_WASTE * len(view) else memoryview(bytes(view))
