"""Objects in Blobs: new ones, and ranges of them by position."""

import asyncio
from collections.abc import Callable, Sequence

from adapters.segments.ranges import MergedRange, merge_adjacent
from adapters.turns import waited_for
from ledger.errors import AlreadyExists, NotFound, OutcomeUnknown, StoreError, StoreUnavailable
from ledger.ports import Blobs
from ledger.types import Buffer, Position

READS_AT_ONCE = 128
MAX_GAP_BYTES = 128 * 1024
"""Between two ranges of an object: to read so much more costs less than another call."""


async def put_new(blobs: Blobs, locator: str, buffers: Sequence[Buffer]) -> None:
    """Put an object under a key that is new and random. StoreUnavailable on every failure: nobody is given
    the key, so an object under it is an orphan."""
    try:
        await blobs.put(locator, buffers)
    except AlreadyExists as error:
        # An object with the same bytes is from an earlier attempt of the same put: clients of remote stores
        # retry by themselves.
        try:
            is_own = await blobs.get(locator) == b"".join(buffers)
        except NotFound:
            is_own = False
        if not is_own:
            raise StoreUnavailable(f"{error}, with other bytes; the next write takes another key") from error
    except OutcomeUnknown as error:
        raise StoreUnavailable(str(error)) from error


class BlobRanges:
    """Reads ranges of objects, several at once within a bound."""

    def __init__(self, blobs: Blobs, is_known: Callable[[str], bool]) -> None:
        """Nothing is read of a locator that is not `is_known`."""
        self._blobs = blobs
        self._is_known = is_known
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    async def read(self, positions: Sequence[Position]) -> list[Buffer | None]:
        """The bytes of each position; None where object or range is not there. StoreUnavailable."""
        found: list[Buffer | None] = [None] * len(positions)
        errors: list[StoreError] = []
        async with asyncio.TaskGroup() as tasks:
            for merged in merge_adjacent(positions, MAX_GAP_BYTES):
                tasks.create_task(self._read_merged(merged, positions, found, errors))
        if errors:
            raise errors[0]
        return found

    def forget(self, locators: Sequence[str]) -> None:
        """Nothing to do: no object is kept open."""

    async def close(self) -> None:
        """Nothing to do: the blobs are closed by their owner."""

    async def _read_merged(
        self,
        merged: MergedRange,
        positions: Sequence[Position],
        found: list[Buffer | None],
        errors: list[StoreError],
    ) -> None:
        if errors or not self._is_known(merged.locator):
            return
        try:
            data = memoryview(await self._get(merged.locator, merged.start, merged.size))
        except NotFound:
            # Some of its positions may be there nevertheless.
            if len(merged.pieces) > 1:
                for index, offset in merged.pieces:
                    alone = MergedRange(merged.locator, merged.start + offset, positions[index].size)
                    alone.pieces.append((index, 0))
                    await self._read_merged(alone, positions, found, errors)
            return
        except StoreError as error:
            errors.append(error)
            return
        for index, offset in merged.pieces:
            piece = data[offset : offset + positions[index].size]
            # A view would keep the gaps in memory.
            found[index] = bytes(piece) if merged.gap_bytes else piece

    async def _get(self, locator: str, start: int, size: int) -> bytes:
        async with waited_for(self._reads):
            return await self._blobs.get(locator, start, size)
