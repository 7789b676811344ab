"""Whether far objects are better read whole or in ranges: what fetches wanted of those read lately. Pure.

An object has batches of many partitions. One that many fetches want is read whole, once for all of them; of
one of which a single consumer wants a hundredth, that is a hundred times what it needs. Which of the two it
will be is not known when the first fetch wants it, so the last objects are taken for an example.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from ledger.types import Position

REQUEST_BYTES: Final = 4 * 1024 * 1024
"""A request to a bucket takes as long as so many bytes more of the same object: 50 ms at 80 MB/s."""
GAIN_FRACTION: Final = 2
"""Of an object, what ranges must save at least: the whole object serves later fetches too."""
SMOOTHING: Final = 8
"""Objects after which an example has lost most of its weight."""
MAX_GAP_BYTES: Final = 128 * 1024
"""Ranges that are closer are read by one request (`adapters/segments/blob_ranges.py`)."""


class _Wanted:
    """Of one object."""

    __slots__ = ("requests", "size", "wanted_bytes")

    def __init__(self, size: int) -> None:
        self.size = size
        self.requests = 0
        """That ranges would have taken."""
        self.wanted_bytes = 0


class Sharing:
    """Of one cache. Until objects have passed through it, all are read whole."""

    def __init__(self, cache_bytes: int) -> None:
        self._max_bytes = cache_bytes
        """Of the objects that are watched: those of earlier fetches would not be in the cache any more."""
        self._watched: OrderedDict[str, _Wanted] = OrderedDict()
        """By name, the first wanted first."""
        self._watched_bytes = 0
        self._requests = self._share = 0.0
        """Of an object: requests, and the share of its bytes that fetches wanted."""
        self._has_example = False

    def want(self, name: str, size: int, ranges: Sequence[Position]) -> bool:
        """A fetch wants these ranges of an object, which are not in the cache by themselves. Whether they are
        better read without the rest."""
        wanted = self._watched.get(name)
        if wanted is None:
            wanted = self._watched[name] = _Wanted(size)
            self._watched_bytes += size
            while self._watched_bytes > self._max_bytes:
                self._learn(self._watched.popitem(last=False)[1])
        wanted.requests += _requests(ranges)
        wanted.wanted_bytes += sum([position.size for position in ranges])
        return self._is_cheaper(size, wanted.requests, wanted.wanted_bytes)

    def is_wasted_ahead(self, size: int) -> bool:
        """Whether an object of this size is better not read before a fetch wants some of it."""
        return self._is_cheaper(size, 1, 0)

    def _is_cheaper(self, size: int, requests: int, wanted_bytes: int) -> bool:
        """Ranges, if this object becomes like the last ones, and it is at least so far."""
        if not self._has_example:
            return False
        requests_cost = (max(requests, self._requests) - 1) * REQUEST_BYTES
        read = max(wanted_bytes, self._share * size)
        return requests_cost + read + size / GAIN_FRACTION < size

    def _learn(self, wanted: _Wanted) -> None:
        self._watched_bytes -= wanted.size
        share = min(wanted.wanted_bytes / wanted.size, 1.0)
        weight = 1 / SMOOTHING if self._has_example else 1.0
        self._requests += weight * (wanted.requests - self._requests)
        self._share += weight * (share - self._share)
        self._has_example = True


def _requests(ranges: Sequence[Position]) -> int:
    """That reading only these takes."""
    count, end = 0, -MAX_GAP_BYTES - 1
    for start, size in sorted([(position.start, position.size) for position in ranges]):
        count += start - end > MAX_GAP_BYTES
        end = max(end, start + size)
    return count
