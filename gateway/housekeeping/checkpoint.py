"""Image and snapshots of one shard's state, and the pruning of its journal after a snapshot.

In this order, so that the process may die at any step: image, snapshot in the blobs, archive in the blobs,
`start` raised, entries deleted. A restart begins from the newest of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

import structlog

from gateway.coordination.blob_keys import applied_of, new_snapshot_key
from gateway.coordination.recovery import own_snapshots
from gateway.coordination.shard import Shard
from gateway.coordination.store_quota import StoreQuota
from gateway.host import RandomBytes, Seconds, precise_s, random_bytes
from gateway.housekeeping.pruning import Pruner
from gateway.housekeeping.snapshot_rule import SnapshotRule as SnapshotRule
from ledger.cut import StateCut
from ledger.errors import StoreError
from ledger.formats.snapshot import Snapshot, SnapshotWriter, is_in_pieces, snapshot_parts
from ledger.image import drop_dirty, restore
from ledger.ports import Blobs, ImageStore, Journal

log = structlog.get_logger(__name__)

ENCODE_S = 0.002
PAUSE_S = 0.004
"""Rows are made for ENCODE_S at a time, with pauses of PAUSE_S for other tasks."""
LAST_IMAGE_S = 30.0


class StateNotWhole(Exception):
    """The state is not that of any entry."""


class _Encoded(NamedTuple):
    """A snapshot in the parts of its blob."""

    applied: int
    parts: list[bytes]


class Checkpointer:
    """Copies the state into the image and snapshots, and prunes the journal."""

    def __init__(  # noqa: PLR0913 - its stores, clocks and random values
        self,
        shard: Shard,
        image: ImageStore | None,
        blobs: Blobs,
        rule: SnapshotRule,
        clock: Callable[[], int],
        random: RandomBytes = random_bytes,
        precise: Seconds = precise_s,
        quota: StoreQuota | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """The random parts of keys are from `random`. `precise` says when to let other tasks run. `quota`: of
        the store that has the journal. `prepare` is awaited before a snapshot that is due: it moves batches
        out of entries, which a restore from the snapshot alone would not find."""
        self._replica = shard.replica
        self._journal: Journal = shard.journal
        self._image = image
        self._blobs = blobs
        self._rule = rule
        rule.read_back = rule.read_back or shard.journal.read_back
        self._quota = quota
        if quota is not None:
            rule.quota = quota.for_snapshots
        self._clock = clock
        self._random = random
        self._precise_s = precise
        self._prepare = prepare
        self._pruner = Pruner(shard.journal, blobs, clock, random, self._first_needed)
        self._imaged = -1
        self._imaged_state = shard.replica.state
        """The state whose rows are in the image. The replica may have gone on with another one."""
        self._is_empty = False
        """The image was damaged, and cleared: the next one is written whole."""
        self._must_clear = False
        """The image was damaged, and could not be cleared: a whole one over it would leave rows of what is
        gone."""
        self.snapshot_bytes = 0
        """The size of the newest snapshot."""
        self._writing = asyncio.Lock()
        self._snapshotting = asyncio.Lock()

    @property
    def imaged(self) -> int | None:
        """Entries in the image; None before this process has written it."""
        return self._imaged if self._imaged >= 0 else None

    @property
    def snapshotted(self) -> int:
        """Entries in the newest snapshot."""
        return self._rule.last_applied

    async def start(self) -> None:
        """Find the newest snapshot."""
        keys = await own_snapshots(self._journal, self._blobs, self._replica.state.applied)
        self.snapshot_bytes = sum(info.size for info in await self._blobs.list(keys[-1])) if keys else 0
        self._rule.found(applied_of(keys[-1]) if keys else 0, self.snapshot_bytes)

    async def write_image(self) -> None:
        """Bring the image up to the last applied entry. A failure is logged: the journal has it all."""
        # In the order in which rows are taken, or else the image would go back to an older entry.
        async with self._writing:
            await self._write_image()

    async def write_last_image(self) -> None:
        """The same at the end of the process, which must not wait for a disk that hangs."""
        try:
            async with asyncio.timeout(LAST_IMAGE_S):
                await self.write_image()
        except TimeoutError:
            log.warning("image.not_written", error=f"the disk did not take it within {LAST_IMAGE_S:g} s")

    async def _write_image(self) -> None:
        state = self._replica.state
        if self._image is None:
            await self._in_slices(drop_dirty(state))
            return
        if self._imaged_state is not state:
            self._imaged, self._must_clear = -1, True
        if state.applied == self._imaged:
            return
        if not state.is_whole:
            log.error("image.state_not_whole", entries=state.applied)
            return
        if self._must_clear and not await self._clear(self._image):
            return
        cut, nonce = await self._begin_cut(whole=self._is_empty)
        if self._replica.state is not state:
            # Meanwhile the replica has gone on with another one: the next image is of that.
            cut.give_up()
            return
        try:
            await self._in_slices(cut.rest())
            await self._image.write(cut.rows(), nonce)
            self._imaged, self._is_empty, self._imaged_state = cut.applied, False, state
        except StoreError as error:
            await self._give_up(cut)
            log.warning("image.not_written", path=self._image.location, error=str(error))
        except BaseException:
            # Cancelled: the thread may still write them or fail to, and twice does no harm.
            cut.give_up()
            raise

    async def _begin_cut(self, *, whole: bool) -> tuple[StateCut, bytes]:
        """A cut of the last entry, of which partitions are left to be copied, and its nonce."""
        async with self._replica.applying:
            self._check_whole()
            cut, nonce = StateCut(self._replica.state, whole=whole), self._replica.last_nonce
            try:
                await self._in_slices(cut.begin(), pause_s=0.0)
            except BaseException:
                cut.give_up()
                raise
            return cut, nonce

    async def snapshot_if_due(self, *, is_wanted: bool = False) -> None:
        """`is_wanted`: also if the newest one is only not of the last entry, or is not what the journal is
        pruned to."""
        now, applied = asyncio.get_running_loop().time(), self._replica.state.applied
        if is_wanted:
            is_wanted = applied > self.snapshotted or await self._journal.start() < self.snapshotted
        if is_wanted or self._rule.is_due(applied, self._replica.journal_bytes, now):
            async with self._snapshotting:
                await self._snapshot_and_prune()
        elif self._quota is not None:
            await self._quota.reclaim_if_short()

    async def snapshot_now(self) -> str:
        """The key of a snapshot of the last entry, or of a later one: of the newest if it is that already.
        The journal is pruned as after any other."""
        async with self._snapshotting:
            keys = await own_snapshots(self._journal, self._blobs, self._replica.state.applied)
            if keys and applied_of(keys[-1]) == self._replica.state.applied:
                return keys[-1]
            return await self._snapshot_and_prune()

    async def _snapshot_and_prune(self) -> str:
        if self._prepare is not None:
            await self._prepare()
        key = await self.snapshot()
        await self.prune()
        if self._quota is not None:
            await self._quota.reclaim()
        return key

    async def snapshot(self) -> str:
        """Put the state into the blobs. Returns the key. StateNotWhole once an entry was applied by half."""
        self._check_whole()
        began = asyncio.get_running_loop().time()
        journal_bytes = self._replica.journal_bytes
        encoded = await self._encoded()
        # Never before a restore that is in it: a restart recognises by this which snapshots it replaced.
        now_ms = max(self._clock(), self._replica.state.entry_time_ms)
        key = new_snapshot_key(self._journal.shard, encoded.applied, now_ms, self._random)
        await self._blobs.put(key, encoded.parts)
        self.snapshot_bytes = sum(map(len, encoded.parts))
        ended = asyncio.get_running_loop().time()
        self._rule.taken(encoded.applied, journal_bytes, self.snapshot_bytes, began, ended)
        log.info("snapshot.written", key=key, size=self.snapshot_bytes, entries=encoded.applied)
        return key

    async def _encoded(self) -> _Encoded:
        """The state as of one entry: from the image, so that the event loop has less to do."""
        applied = self._replica.state.applied
        await self.write_image()
        if self._image is None or self._imaged < applied:
            return await self._encoded_now()
        try:
            rows, nonce = await self._image.rows()
            # Verified, since the disk may have damaged them, and the journal is pruned after a snapshot.
            state = await asyncio.to_thread(restore, rows)
        except StoreError as error:
            log.error("image.damaged", path=self._image.location, error=str(error))
            await self._rebuild_image(self._image)
            return await self._encoded_now()
        # Not `_imaged`: the next image may have been written since the rows were read.
        applied = state.applied
        del state
        return _Encoded(applied, await asyncio.to_thread(snapshot_parts, Snapshot(applied, nonce, rows)))

    async def _encoded_now(self) -> _Encoded:
        # A state has one cut at a time.
        async with self._writing:
            cut, nonce = await self._begin_cut(whole=True)
            try:
                if is_in_pieces(cut.feature_level):
                    return await self._in_pieces(cut, SnapshotWriter(cut.applied, nonce))
                await self._in_slices(cut.rest())
                snapshot = Snapshot(cut.applied, nonce, cut.rows())
                return _Encoded(cut.applied, await asyncio.to_thread(snapshot_parts, snapshot))
            except BaseException:
                cut.give_up()
                raise

    async def _in_pieces(self, cut: StateCut, writer: SnapshotWriter) -> _Encoded:
        """What is made of the rows is compressed by and by, so that they are never all in memory."""
        began = self._precise_s()
        for _ in cut.rest():
            if self._precise_s() - began >= ENCODE_S:
                writer.add(cut.take())
                await (asyncio.to_thread(writer.compress) if writer.is_full else asyncio.sleep(PAUSE_S))
                began = self._precise_s()
        writer.add(cut.take())
        await asyncio.to_thread(writer.compress)
        return _Encoded(cut.applied, await asyncio.to_thread(writer.parts))

    async def _rebuild_image(self, image: ImageStore) -> None:
        async with self._writing:
            self._imaged, self._must_clear = -1, True
            await self._clear(image)

    async def _clear(self, image: ImageStore) -> bool:
        """Whether the image is empty now."""
        try:
            await image.clear()
        except StoreError as error:
            log.warning("image.not_cleared", path=image.location, error=str(error))
            return False
        self._must_clear, self._is_empty = False, True
        return True

    def _check_whole(self) -> None:
        state = self._replica.state
        if not state.is_whole:
            raise StateNotWhole(f"entry {state.applied} was applied by half: no snapshot is made of that")

    async def prune(self) -> None:
        """Archive and delete the entries before the older of the snapshots that are kept."""
        await self._pruner.prune(self._replica.state.applied)

    def _first_needed(self, start: int) -> int | None:
        return self._replica.state.objects.first_inline_entry(start)

    async def _in_slices(self, steps: Iterator[None], pause_s: float = PAUSE_S) -> None:
        """Thousands of partitions take longer than clients should wait."""
        began = self._precise_s()
        for _ in steps:
            if self._precise_s() - began >= ENCODE_S:
                await asyncio.sleep(pause_s)
                began = self._precise_s()

    async def _give_up(self, cut: StateCut) -> None:
        steps = cut.giving_up()
        try:
            await self._in_slices(steps)
        finally:
            # To the end, also when cancelled.
            for _ in steps:
                pass
