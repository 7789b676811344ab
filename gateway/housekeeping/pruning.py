"""Pruning of one shard's journal: archive, raise `start`, delete, in this order.

Several gateways may do it at once, since one that was deposed may not know it yet: `start` never goes back,
and what another has pruned meanwhile is left to it.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from gateway.coordination.archives import pieces, put_archive
from gateway.coordination.blob_keys import applied_of
from gateway.coordination.journal import PrunedMeanwhile, stored_entries
from gateway.coordination.recovery import KEPT_SNAPSHOTS, own_snapshots
from gateway.host import RandomBytes, random_bytes
from ledger.cluster.records import OwnerChanged
from ledger.journal import decode_entry
from ledger.ports import Blobs, Journal, StoredEntry

log = structlog.get_logger(__name__)

DELETE_ENTRIES = 500


class Pruner:
    def __init__(
        self,
        journal: Journal,
        blobs: Blobs,
        clock: Callable[[], int],
        random: RandomBytes = random_bytes,
        first_needed: Callable[[int], int | None] = lambda start: None,
    ) -> None:
        """The random parts of keys are from `random`. `first_needed`: the lowest entry from this one on that
        has live batches inside, by what is durable: it stays, and all after it."""
        self._journal = journal
        self._blobs = blobs
        self._clock = clock
        self._random = random
        self._first_needed = first_needed

    async def prune(self, applied: int) -> None:
        """Archive and delete the entries before the older of the snapshots that are kept, among those of the
        first `applied` entries."""
        keys = await own_snapshots(self._journal, self._blobs, applied)
        if len(keys) < KEPT_SNAPSHOTS:
            return
        start = await self._journal.start()
        target = applied_of(keys[-KEPT_SNAPSHOTS])
        # Whatever is decided meanwhile, no entry that is there by now gets batches inside.
        first_needed = self._first_needed(start)
        if first_needed is not None:
            target = min(target, first_needed)
        if target > start:
            try:
                kept = await self._archive(start, target)
            except PrunedMeanwhile as error:
                log.warning("journal.pruned_by_another_gateway", shard=self._journal.shard, error=str(error))
                return
            await self._journal.raise_start(target)
            await self._delete_entries(start, target, kept)
            log.info("journal.pruned", shard=self._journal.shard, start=target)
        await self._blobs.delete(keys[:-KEPT_SNAPSHOTS])

    async def _archive(self, first: int, end: int) -> set[int]:
        """Entries [first, end) into the blobs. Returns those that must stay: the first of every epoch."""
        kept: set[int] = set()
        async for piece in pieces(self._journal, first, end):
            # In a thread: to decode megabytes takes as long as to apply them.
            kept.update(await asyncio.to_thread(_beginnings, piece))
            await put_archive(self._blobs, self._journal.shard, piece, self._clock(), self._random)
        return kept

    async def _delete_entries(self, first: int, end: int, kept: set[int]) -> None:
        numbers = await self._left_below(first)
        numbers += [number for number in range(first, end) if number not in kept]
        for at in range(0, len(numbers), DELETE_ENTRIES):
            await self._journal.delete(numbers[at : at + DELETE_ENTRIES])

    async def _left_below(self, end: int) -> list[int]:
        """Entries that an earlier pruning left: they are archived already."""
        left: list[int] = []
        async for stored in stored_entries(self._journal):
            if stored.number >= end:
                break
            if not _begins_epoch(stored):
                left.append(stored.number)
        return left


def _beginnings(piece: Sequence[StoredEntry]) -> set[int]:
    return {stored.number for stored in piece if _begins_epoch(stored)}


def _begins_epoch(stored: StoredEntry) -> bool:
    records = decode_entry(stored.data, stored.where).records
    return any(isinstance(record, OwnerChanged) for record in records)
