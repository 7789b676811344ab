"""Batches inside of journal entries: read by position, and those of recent entries kept in memory.

Reads of the same entry share one read of the store. What is under the key of an entry may be another entry by
now (pruned numbers are free again): the CRC in the locator says which batches are meant.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from ledger.errors import OutcomeUnknown, StoreDamaged, StoreTooNew, StoreUnavailable
from ledger.formats.inline import crc_at_end, decode_value
from ledger.keys import inline_name
from ledger.ports import MetadataStore
from ledger.types import Buffer, Position

KEPT_BYTES: Final = 16 * 1024 * 1024
"""Of recent entries: about what waits for being moved into an object, which then needs no reads."""
READS_AT_ONCE: Final = 32


class InlineRule(Protocol):
    """Which drafts travel in entries, by what an operator allows and the store can bear."""

    def takes(self, batches: int, size: int) -> bool:
        """As `Journal.takes`."""
        ...

    def appended(self, size: int) -> None:
        """So many bytes of batches are in an entry now."""
        ...


class NoInline:
    """No draft does."""

    def takes(self, batches: int, size: int) -> bool:
        return False

    def appended(self, size: int) -> None:
        """Never called."""


class InlineFrames:
    """The WAL frames inside of the entries of one shard."""

    def __init__(self, store: MetadataStore, shard: int, kept_bytes: int = KEPT_BYTES) -> None:
        self._store = store
        self._shard = shard
        self._max_bytes = kept_bytes
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._reading: dict[str, asyncio.Task[bytes | None]] = {}
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    def keep(self, locator: str, frame: bytes) -> None:
        """The newest one: as it is in its entry."""
        before = self._kept.pop(locator, b"")
        self._kept[locator] = frame
        self._kept_bytes += len(frame) - len(before)
        while self._kept_bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest)

    async def read(self, positions: Sequence[Position]) -> list[Buffer | None]:
        """The bytes of each position; None where entry or range is not there. StoreUnavailable."""
        found: list[Buffer | None] = [None] * len(positions)
        by_locator: dict[str, list[int]] = {}
        for index, position in enumerate(positions):
            by_locator.setdefault(position.locator, []).append(index)

        async def read_entry(locator: str, indexes: Sequence[int]) -> None:
            frame = await self._frame(locator)
            for index in indexes:
                # Copied: a view would keep all of the entry in memory.
                found[index] = _cut(frame, positions[index])

        reads = [read_entry(*each) for each in by_locator.items()]
        for failure in await asyncio.gather(*reads, return_exceptions=True):
            if failure is not None:
                raise failure
        return found

    async def _frame(self, locator: str) -> bytes | None:
        kept = self._kept.get(locator)
        if kept is not None:
            return kept
        name = inline_name(locator)
        if name is None or name.shard != self._shard:
            return None
        reading = self._reading.get(locator)
        if reading is None:
            reading = self._reading[locator] = asyncio.create_task(self._load(locator))
            reading.add_done_callback(partial(self._ended, locator))
        # A reader that gives up ends no read that others wait for.
        return await asyncio.shield(reading)

    def _ended(self, locator: str, reading: asyncio.Task[bytes | None]) -> None:
        self._reading.pop(locator, None)
        # Its readers may all have given up; an error without a reader would be logged with all of its stack.
        if not reading.cancelled():
            reading.exception()

    async def _load(self, locator: str) -> bytes | None:
        key = locator.rpartition("-")[0]
        async with self._reads:
            try:
                found = await self._store.get(key)
            except OutcomeUnknown as error:
                raise StoreUnavailable(str(error)) from error
        frame = b"" if found is None else _frame_of(found.value, key)
        name = inline_name(locator)
        if not frame or name is None or crc_at_end(frame) != name.crc:
            return None
        self.keep(locator, frame)
        return frame

    async def close(self) -> None:
        """The store stays open."""
        for reading in self._reading.values():
            reading.cancel()
        await asyncio.gather(*self._reading.values(), return_exceptions=True)


def _frame_of(value: bytes, key: str) -> bytes:
    try:
        return decode_value(value, key).batches
    except (StoreDamaged, StoreTooNew):
        return b""


def _cut(frame: bytes | None, position: Position) -> bytes | None:
    end = position.start + position.size
    if frame is None or not 0 <= position.start <= end <= len(frame):
        return None
    return frame[position.start : end]
