"""How long it takes to read entries of a journal back, estimated from the reads that were made (sans-I/O).

A page is a round trip or two, and its entries are read side by side as far as the store does so. So a page
costs a base, which small pages show, and each of its entries and bytes a little, which full ones show.
"""

from typing import Final

PAGE_ENTRIES: Final = 1_000
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Of a full page: a journal reads no more at once."""
FULL_PAGE: Final = PAGE_ENTRIES // 4
"""From that many entries on a page shows what an entry costs."""
AT_ONCE: Final = 64
"""Until a full page was read, so many entries are taken to be read side by side."""
WEIGHT: Final = 0.25
"""Of a new measurement."""
APPLY_S_AN_ENTRY: Final = 10e-6
APPLY_S_A_BYTE: Final = 45e-9
"""To decode and apply what was read: 10^6 commits of 60 bytes take 3 s."""


class ReadBack:
    """Reads of one journal."""

    def __init__(self) -> None:
        self._base_s = 0.0
        self._entry_s: float | None = None

    def observe(self, entries: int, seconds: float) -> None:
        """A page of `entries` was read."""
        if entries < FULL_PAGE:
            # The first read of a process may have made a connection.
            rises = self._base_s and seconds > self._base_s
            self._base_s = _mean(self._base_s, seconds) if rises else seconds
            return
        entry_s = max(seconds - self._base_s, 0.0) / entries
        self._entry_s = entry_s if self._entry_s is None else _mean(self._entry_s, entry_s)

    def estimated_s(self, entries: int, size_bytes: int) -> float:
        """To read so many entries of so many bytes together, and to apply them."""
        pages = max(-(-entries // PAGE_ENTRIES), -(-size_bytes // PAGE_BYTES), 1)
        entry_s = self._entry_s if self._entry_s is not None else self._base_s / AT_ONCE
        reading = pages * self._base_s + entries * entry_s
        return reading + entries * APPLY_S_AN_ENTRY + size_bytes * APPLY_S_A_BYTE


def _mean(before: float, now: float) -> float:
    return before + WEIGHT * (now - before)
