"""The owner's marks: while it writes, a blob next to the data names the newest durable entry."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from gateway.coordination.mark import Mark, encode_mark, mark_keys, new_mark_key, older_marks
from gateway.coordination.shard import Shard
from gateway.host import RandomBytes
from ledger.errors import AlreadyExists, StoreError
from ledger.ports import Blobs

log = structlog.get_logger(__name__)

EVERY_S: Final = 60.0
"""At most so much of what was acknowledged is not covered by a mark."""
WAIT_S: Final = 10.0
LAST_WAIT_S: Final = 2.0
"""At the end of the process, which must not wait for a store that hangs."""


class Marking:
    """A part of the owner scope."""

    def __init__(
        self,
        shard: Shard,
        blobs: Blobs,
        clock: Callable[[], int],
        random: RandomBytes,
        *,
        is_lasting: bool = True,
    ) -> None:
        """`clock`: unix ms. Keys are from `random`. A journal that is not kept (not `is_lasting`) is marked
        nowhere."""
        self._shard = shard
        self._blobs = blobs
        self._clock = clock
        self._random = random
        self._is_lasting = is_lasting
        self._marked = 0
        """Entries that a mark covers, or the claim of this epoch."""
        self._older: list[str] | None = None
        """Keys that the next mark makes useless; None: not known yet."""
        self._task: asyncio.Task[None] | None = None

    async def begin_epoch(self) -> None:
        self._marked, self._older = self._shard.state.applied, None
        if self._is_lasting:
            self._task = asyncio.create_task(self._run(), name="marking")

    async def end_epoch(self) -> None:
        """After an orderly end everything is covered; where other gateways can write, the last mark says that
        this one will not. An owner that was replaced leaves that to the next."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if self._shard.broken is None:
            await self._try_to_mark(LAST_WAIT_S, has_ended=not self._shard.is_exclusive)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self._try_to_mark(WAIT_S)

    async def _try_to_mark(self, wait_s: float, *, has_ended: bool = False) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self.mark(has_ended=has_ended)
        except (StoreError, TimeoutError) as error:
            log.warning("mark.not_put", error=str(error) or f"no response within {wait_s:g} s")

    async def mark(self, *, has_ended: bool = False) -> None:
        """Name the last entry that was applied, if there is a new one. An idle gateway puts nothing until it
        has ended."""
        replica = self._shard.replica
        state, nonce = replica.state, replica.last_nonce
        applied = state.applied
        if (applied == self._marked and not has_ended) or not state.is_whole:
            return
        # Only what is durable and counts is applied, so a mark is true for ever, however late it is put.
        mark = Mark(state.cluster_id, state.epoch, applied - 1, nonce, has_ended)
        # Never before a restore, by whose time the marks of the journal before are recognised.
        made_ms = max(self._clock(), state.entry_time_ms)
        key = new_mark_key(self._shard.journal.shard, mark.entry, made_ms, self._random)
        # One that is there already is this one, put by an attempt before.
        with suppress(AlreadyExists):
            await self._blobs.put(key, [encode_mark(mark)])
        self._marked = applied
        await self._delete_older(key)

    async def _delete_older(self, own: str) -> None:
        if self._older is None:
            keys = await mark_keys(self._blobs, self._shard.journal.shard)
            self._older = older_marks(keys, own, self._shard.state)
        older = self._older
        self._older = [*older, own]
        if older:
            await self._blobs.delete(older)
            self._older = [own]
