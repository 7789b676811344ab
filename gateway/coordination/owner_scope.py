"""What only the owner of a shard does: begun at takeover, ended when the epoch is lost."""

import asyncio
from typing import Protocol

import structlog

from gateway.coordination.shard import Shard

log = structlog.get_logger(__name__)


class OwnerPart(Protocol):
    async def begin_epoch(self) -> None:
        """This gateway owns the shard from now on: begin with the ledger's state, as a restart would. May
        raise StoreError; `end_epoch` follows then, too."""
        ...

    async def end_epoch(self) -> None:
        """It owns the shard no longer: complete what waits, and leave nothing that runs. Idempotent."""
        ...


class OwnerScope:
    """Its parts begin in the order in which they were added, and end in reverse."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._parts: list[OwnerPart] = []
        self._watch: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()
        """Set while no part is at work."""
        self.ended.set()

    def add(self, part: OwnerPart) -> None:
        """Before the scope begins."""
        self._parts.append(part)

    async def begin(self) -> None:
        """After a takeover. Ends by itself when the epoch is lost."""
        self.ended.clear()
        for part in self._parts:
            await part.begin_epoch()
        lost = self._shard.lost
        self._watch = asyncio.create_task(self._end_when_set(lost), name="owner-scope")

    async def join(self, part: OwnerPart) -> None:
        """One more part, which begins now, unless the scope has ended."""
        if not self.ended.is_set():
            self._parts.append(part)
            await part.begin_epoch()

    async def end(self) -> None:
        """Idempotent."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        await self._end_parts()

    async def _end_when_set(self, lost: asyncio.Event) -> None:
        await lost.wait()
        log.warning("shard.owner_scope_ends", shard=self._shard.journal.shard)
        await self._end_parts()

    async def _end_parts(self) -> None:
        for part in reversed(self._parts):
            try:
                await part.end_epoch()
            except Exception:
                # The others must end nevertheless.
                log.exception("shard.part_not_ended", part=type(part).__name__)
        self.ended.set()
