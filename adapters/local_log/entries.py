"""The entries of a local log over its files: read by number, in order, and pruned. Plain blocking calls, from
several threads."""

from collections.abc import Iterator, Sequence
from typing import Final

from adapters.local_log.parts import LogPartFile
from adapters.local_log.pruning import Numbers
from ledger.errors import StoreDamaged
from ledger.formats.local_log import Torn
from ledger.formats.local_log_chain import NO_END
from ledger.formats.local_log_pruned import Pruned
from ledger.journal import REMEDY
from ledger.ports import EntryPage, StoredEntry
from ledger.read_back import PAGE_BYTES, PAGE_ENTRIES

SCAN_STEP: Final = 4_096
"""So many frames are looked for at a time."""


class LogEntries:
    """What a reader sees. The thread that writes replaces `parts`, `pruned` and `deleted`, and never changes
    them."""

    def __init__(self) -> None:
        self.parts: Sequence[LogPartFile] = ()
        """Files with entries that are not pruned, oldest first; the last one may be growing."""
        self.pruned = Pruned()
        self.deleted = Numbers()
        self.end: int | None = 0
        """One past the last entry; None if another process writes it."""

    def holds(self, locator: str) -> bool:
        """Whether the file has entries that are not pruned."""
        return any(part.locator == locator for part in self.parts)

    def get(self, number: int) -> bytes | None:
        """OSError, StoreDamaged."""
        page = self.read(number, 1)
        found = page.entries[0] if page.entries else None
        return found.data if found is not None and found.number == number else None

    def read(self, first: int, max_bytes: int) -> EntryPage:
        """As `Journal.read`. OSError, StoreDamaged."""
        first = max(first, 0)
        entries: list[StoredEntry] = []
        size = 0
        more = False
        max_bytes = min(max_bytes, PAGE_BYTES)
        for stored in self._from(first, max_bytes):
            if entries and (size >= max_bytes or len(entries) >= PAGE_ENTRIES):
                more = True
                break
            entries.append(stored)
            size += len(stored.data)
        return EntryPage(first, entries, _gap(entries, first), more, pruned=False)

    def _from(self, first: int, max_bytes: int) -> Iterator[StoredEntry]:
        pruned = self.pruned
        for number, data in sorted(pruned.kept.items()):
            if number >= first:
                yield StoredEntry(number, data, f"entry {number} of the pruned log")
        first = max(first, pruned.settled)
        for part in self.parts:
            if part.end > first:
                yield from self._of_part(part, first, max_bytes)

    def _of_part(self, part: LogPartFile, first: int, max_bytes: int) -> Iterator[StoredEntry]:
        deleted = self.deleted
        number = deleted.next_missing(max(first, part.first))
        while True:
            # What this process writes is found already; looked for, it would be found twice.
            self._scan(part, min(number + SCAN_STEP, NO_END if self.end is None else self.end))
            end = min(part.known_end, part.end, NO_END if self.end is None else self.end)
            if number >= end:
                return
            until = min(deleted.next_present(number, end), number + SCAN_STEP)
            found = part.entries(number, until, max_bytes)
            if not found:
                return
            for at, data in found:
                yield StoredEntry(at, data, f"entry {at} in {part.locator}")
            number = deleted.next_missing(found[-1][0] + 1)

    def _scan(self, part: LogPartFile, until: int) -> None:
        """Find its entries. StoreDamaged where one is missing that is not pruned."""
        start = self.pruned.start
        try:
            torn = part.scan(until)
        except FileNotFoundError:
            if part.end <= start:
                return
            raise StoreDamaged(f"log file {part.locator} is gone; {REMEDY}") from None
        is_newest = part is self.parts[-1]
        if torn is not None and not is_newest and part.known_end >= start:
            raise StoreDamaged(
                f"log file {part.locator} ends at {torn.position}, and entries {part.known_end} to "
                f"{part.end - 1} are missing ({torn.reason}); {REMEDY}"
            )
        if torn is not None and torn.is_damage:
            raise _damaged(part, torn)
        if part.known_end == part.end and part.end > start and part.next_seal not in (None, part.seal):
            raise StoreDamaged(
                f"the log file after {part.locator} does not go on after its entry {part.end - 1}; {REMEDY}"
            )


def _damaged(part: LogPartFile, torn: Torn) -> StoreDamaged:
    return StoreDamaged(f"log file {part.locator} is damaged at {torn.position}: {torn.reason}; {REMEDY}")


def _gap(entries: Sequence[StoredEntry], first: int) -> int | None:
    if not entries or entries[-1].number == first + len(entries) - 1:
        return None
    return next(number for number, stored in enumerate(entries, first) if stored.number != number)
