"""Segments that stay in the buckets that topics were adopted from: only ever read."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from adapters.segments.blob_ranges import BlobRanges
from ledger.errors import StoreError, StoreUnavailable
from ledger.keys import adopted_place
from ledger.ports import Blobs
from ledger.types import Buffer, Position

log = structlog.get_logger(__name__)

QUIET_S: Final = 60.0
AGAIN_S: Final = 2.0
"""How long a place that has failed is not asked again."""


class AdoptedSegments:
    """Reads segments by locators that name their bucket. One client for each bucket, opened at the first
    read. Nothing here can write or delete."""

    def __init__(
        self,
        open_place: Callable[[str], Blobs],
        failing: dict[str, str] | None = None,
        *,
        is_lenient: bool = False,
    ) -> None:
        """`open_place`: the blobs of a URL; it may block. `failing` gets the buckets that are out of reach,
        each with the reason. `is_lenient`: what such a bucket holds is as if it were missing, so that
        only those offsets cannot be read."""
        self._failing = failing if failing is not None else {}
        self._open_place = open_place
        self._is_lenient = is_lenient
        self._places: dict[str, tuple[Blobs, BlobRanges]] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        """Of each place that was read, so that it is opened once."""
        self._failed_s: dict[str, float] = {}
        self._logged_s: dict[str, float] = {}

    async def read(self, positions: Sequence[Position]) -> list[Buffer | None]:
        """The bytes of each position; None where they are not there. StoreUnavailable, unless it is
        lenient."""
        by_place: dict[str, list[int]] = {}
        for i, position in enumerate(positions):
            by_place.setdefault(adopted_place(position.locator)[0], []).append(i)
        found: list[Buffer | None] = [None] * len(positions)
        # A place that hangs does not hold up the others.
        parts = [
            self._read_of(place, [positions[i] for i in of_place]) for place, of_place in by_place.items()
        ]
        for of_place, data in zip(by_place.values(), await asyncio.gather(*parts), strict=True):
            for i, each in zip(of_place, data, strict=True):
                found[i] = each
        return found

    async def close(self) -> None:
        for blobs, ranges in self._places.values():
            await ranges.close()
            await blobs.close()
        self._places = {}

    async def _read_of(self, place: str, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        if self._is_lenient and time.monotonic() - self._failed_s.get(place, -AGAIN_S) < AGAIN_S:
            return [None] * len(positions)
        keyed = [Position(adopted_place(each.locator)[1], each.start, each.size) for each in positions]
        try:
            found = await (await self._ranges(place)).read(keyed)
        except (StoreError, ValueError) as error:
            if not self._is_lenient:
                raise StoreUnavailable(f"segments that were adopted from {place}: {error}") from error
            self._note(place, str(error))
            return [None] * len(positions)
        self._failing.pop(place, None)
        return found

    async def _ranges(self, place: str) -> BlobRanges:
        if place not in self._places:
            async with self._opening.setdefault(place, asyncio.Lock()):
                if place not in self._places:
                    blobs = await asyncio.to_thread(self._open_place, place)
                    self._places[place] = blobs, BlobRanges(blobs, lambda _: True)
        return self._places[place][1]

    def _note(self, place: str, reason: str) -> None:
        now_s = time.monotonic()
        self._failed_s[place], self._failing[place] = now_s, reason
        if now_s - self._logged_s.get(place, -QUIET_S) >= QUIET_S:
            self._logged_s[place] = now_s
            log.error("adopted.place_failing", place=place, error=reason)
