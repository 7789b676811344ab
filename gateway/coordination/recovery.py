"""Recovery: the durable state from the image, else a snapshot, else nothing, plus the journal entries after
it."""

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

import structlog

from gateway.coordination.blob_keys import applied_of, is_snapshot_key
from gateway.coordination.journal import PrunedMeanwhile, consecutive_entries
from ledger.errors import NotFound, StoreDamaged, StoreError, StoreTooNew, StoreUnavailable
from ledger.formats.snapshot import (
    SNAPSHOT_HEAD_BYTES,
    Snapshot,
    decode_snapshot,
    snapshot_nonce,
    snapshot_prefix,
)
from ledger.image import cluster_id_of, everything, restore
from ledger.journal import NONCE_BYTES, Entry, apply_entry, decode_entry, nonce_of
from ledger.keys import created_ms
from ledger.partitions.state import OffsetsTaken
from ledger.ports import Blobs, ImageStore, Journal, StoredEntry
from ledger.state import LedgerState

log = structlog.get_logger(__name__)

KEPT_SNAPSHOTS = 2
MAX_BEGINNINGS = 10
"""How often the state is read from the start, while another gateway prunes what is being read."""
IMAGE = "image"


class Recovered:
    """The state up to the journal's end, and the nonce of its last entry."""

    def __init__(self, state: LedgerState, nonce: bytes, source: str) -> None:
        self.state = state
        self.nonce = nonce
        self.source = source
        self.journal_bytes = 0


class DoesNotFit(StoreDamaged):
    """A journal entry cannot be applied to the state from an image or a snapshot. `taken`: (topic, partition,
    first and last offset) where it gives offsets that another run has."""

    def __init__(self, message: str, taken: tuple[str, int, int, int] | None = None) -> None:
        super().__init__(message)
        self.taken = taken


async def recover(journal: Journal, image: ImageStore | None, blobs: Blobs | None) -> Recovered:
    """Read everything durable. StoreDamaged names the entry that cannot be read: none is skipped. If another
    gateway prunes meanwhile, this begins again with what is newest then; StoreUnavailable if that happens
    MAX_BEGINNINGS times."""
    for _ in range(MAX_BEGINNINGS):
        start = await journal.start()
        try:
            return await _recover_from(journal, image, blobs, start)
        except PrunedMeanwhile as error:
            reason = str(error)
        except (StoreDamaged, StoreTooNew) as error:
            # What was missing or did not fit may have been pruned: only what contradicts a start that stays
            # where it was is damage.
            if journal.exclusive or await journal.start() <= start:
                raise
            reason = str(error)
        log.info("shard.recovery_begins_again", shard=journal.shard, start=start, reason=reason)
    raise StoreUnavailable(
        f"the journal of shard {journal.shard} was pruned {MAX_BEGINNINGS} times while it was read, faster "
        "than this gateway reads it: start this gateway again"
    )


async def _recover_from(
    journal: Journal, image: ImageStore | None, blobs: Blobs | None, start: int
) -> Recovered:
    # A damaged key may sort before all others.
    await journal.read(0, 1)
    loaded = await _load_image(image)
    recovered = await _follow_first_that_fits(journal, loaded, blobs, start)
    await _check_image_ahead(journal, loaded, recovered.state, start)
    if blobs is not None:
        await _check_snapshots(journal, blobs, recovered.state, start)
    if recovered.source != IMAGE and image is not None:
        await image.clear()
        recovered.state.dirty = everything(recovered.state)
    log.info("shard.recovered", shard=journal.shard, source=recovered.source, entries=recovered.state.applied)
    return recovered


@dataclass(slots=True)
class _Loaded:
    """The state in the image, or why there is none. `applied` and `cluster_id` are those of the image: the
    journal is applied to `state` later."""

    state: LedgerState | None = None
    nonce: bytes = b""
    applied: int = 0
    cluster_id: str = ""
    too_new: StoreTooNew | None = None


async def _load_image(image: ImageStore | None) -> _Loaded:
    try:
        loaded = await image.load() if image is not None else None
        if loaded is None:
            return _Loaded()
        rows, nonce = loaded
        state = restore(rows)
        return _Loaded(state, nonce, state.applied, state.cluster_id)
    except StoreDamaged as error:
        log.warning("image.damaged", error=str(error))
        return _Loaded()
    except StoreTooNew as error:
        log.warning("image.too_new", error=str(error))
        return _Loaded(too_new=error)


async def _follow_first_that_fits(
    journal: Journal, loaded: _Loaded, blobs: Blobs | None, start: int
) -> Recovered:
    failure: StoreError | None = loaded.too_new
    async for recovered in _beginnings(journal, loaded, blobs, start):
        try:
            await _follow(journal, recovered)
        except DoesNotFit as error:
            log.warning("shard.beginning_does_not_fit", source=recovered.source, error=str(error))
            failure = error
        else:
            return recovered
    raise failure or StoreDamaged(
        f"the journal of shard {journal.shard} begins at entry {start}, and neither an image nor a "
        "readable snapshot reaches it: put back the image file or the snapshot blobs"
    )


async def _beginnings(
    journal: Journal, loaded: _Loaded, blobs: Blobs | None, start: int
) -> AsyncIterator[Recovered]:
    """States that this journal continues, the newest first."""
    if loaded.state is not None:
        if loaded.applied >= start and await continues(journal, loaded.applied, loaded.nonce, start):
            yield Recovered(loaded.state, loaded.nonce, IMAGE)
        else:
            # As after a restore: no action is needed. What contradicts a journal is damage, see below.
            log.info("image.of_another_journal", applied=loaded.applied, start=start)
    if blobs is not None:
        for key in reversed(await snapshot_keys(blobs, journal.shard)):
            recovered = await _from_snapshot(journal, blobs, key, start)
            if recovered is not None:
                yield recovered
    if start == 0:
        yield Recovered(LedgerState(), bytes(NONCE_BYTES), "journal")


async def _from_snapshot(journal: Journal, blobs: Blobs, key: str, start: int) -> Recovered | None:
    snapshot = await _read_snapshot(blobs, key) if applied_of(key) >= start else None
    if snapshot is None:
        return None
    if not await continues(journal, snapshot.applied, snapshot.nonce, start):
        log.info("snapshot.of_another_journal", key=key)
        return None
    try:
        # In a thread, as a gateway that takes its shard over again goes on serving fetches.
        return Recovered(await asyncio.to_thread(restore, snapshot.rows), snapshot.nonce, key)
    except StoreDamaged as error:
        log.warning("snapshot.unreadable", key=key, error=str(error))
        return None


async def _check_image_ahead(journal: Journal, loaded: _Loaded, state: LedgerState, start: int) -> None:
    """StoreDamaged if the image has entries of this journal that are missing at its end: their offsets would
    be assigned again. A restore removes the image, so it is never that of a replaced journal."""
    if loaded.state is None or loaded.applied <= start or loaded.cluster_id != state.cluster_id:
        return
    if await journal.get(loaded.applied - 1) is None:
        raise StoreDamaged(_older_copy(journal, state, "image", loaded.applied))


async def _check_snapshots(journal: Journal, blobs: Blobs, state: LedgerState, start: int) -> None:
    """The same for the snapshots, which show it even where the image is as old as the journal. Snapshots from
    before the last restore may be those of the journal that it replaced."""
    restored_ms = max((record.kept_to_ms for record in state.restores), default=0)
    for key in reversed(await snapshot_keys(blobs, journal.shard)):
        if created_ms(key) < restored_ms:
            continue
        applied = applied_of(key)
        # Also one ahead of the state: another gateway may have gone on since.
        if await continues(journal, applied, await _nonce_in(blobs, key), start):
            continue
        if await _cluster_of(blobs, key) != state.cluster_id:
            continue
        if applied > state.applied:
            raise StoreDamaged(_older_copy(journal, state, "snapshot", applied))
        raise StoreDamaged(
            f"entry {applied - 1} of the journal of shard {journal.shard} is not the one that the snapshot "
            f"{key} ends with: a gateway has gone on with an older copy of the metadata store. Put back the "
            "right one, or move it away and run `dragoman ledger restore`; to go on with this one all the "
            "same, move that snapshot away"
        )


async def _cluster_of(blobs: Blobs, key: str) -> str:
    snapshot = await _read_snapshot(blobs, key)
    try:
        return await asyncio.to_thread(cluster_id_of, snapshot.rows) if snapshot is not None else ""
    except StoreDamaged as error:
        log.warning("snapshot.unreadable", key=key, error=str(error))
        return ""


def _older_copy(journal: Journal, state: LedgerState, source: str, applied: int) -> str:
    return (
        f"the journal of shard {journal.shard} ends after {state.applied} entries, but the {source} was made "
        f"after {applied}: the metadata store is an older copy. Put back the newest one, or move it away and "
        "run `dragoman ledger restore`"
    )


async def own_snapshots(journal: Journal, blobs: Blobs, applied: int) -> list[str]:
    """Keys of the snapshots that this journal, with `applied` entries, continues; oldest first. The blobs may
    also hold snapshots of a journal that was here before a new or restored metadata store."""
    start = await journal.start()
    own: list[str] = []
    for key in await snapshot_keys(blobs, journal.shard):
        entries = applied_of(key)
        if entries <= applied and await continues(journal, entries, await _nonce_in(blobs, key), start):
            own.append(key)
    return own


async def _nonce_in(blobs: Blobs, key: str) -> bytes:
    try:
        return snapshot_nonce(await blobs.get(key, 0, SNAPSHOT_HEAD_BYTES))
    except NotFound:
        return b""


async def snapshot_keys(blobs: Blobs, shard: int) -> list[str]:
    """Keys of all snapshots of the shard, oldest first. A blob with another name is not one."""
    keys = [info.key for info in await blobs.list(snapshot_prefix(shard))]
    return [key for key in keys if is_snapshot_key(key)]


async def _read_snapshot(blobs: Blobs, key: str) -> Snapshot | None:
    try:
        return await asyncio.to_thread(decode_snapshot, await blobs.get(key), key)
    except (StoreDamaged, NotFound) as error:
        log.warning("snapshot.unreadable", key=key, error=str(error))
        return None


async def continues(journal: Journal, applied: int, nonce: bytes, start: int) -> bool:
    """Whether the journal continues a state of `applied` entries: entry `applied - 1` has this nonce, or is
    pruned."""
    if applied == 0:
        return True
    found = await journal.get(applied - 1)
    if found is None:
        return applied - 1 < start
    return nonce_of(found) == nonce


async def _follow(journal: Journal, recovered: Recovered) -> None:
    async for stored in consecutive_entries(journal, recovered.state.applied):
        entry = apply_stored(recovered.state, stored, recovered.source)
        recovered.nonce = entry.nonce
        recovered.journal_bytes += len(stored.data) + len(stored.batches)


def apply_stored(state: LedgerState, stored: StoredEntry, source: str) -> Entry:
    """Decode and apply the next entry. DoesNotFit if the state, which is from `source`, contradicts it; other
    StoreDamaged and StoreTooNew if it cannot be read."""
    entry = decode_entry(stored.data, stored.where)
    try:
        apply_entry(state, entry)
    except (StoreDamaged, LookupError, ValueError, struct.error) as error:
        raise DoesNotFit(
            f"journal entry {stored.where} does not fit the state from {source}: {error!r}",
            _taken(state, error) if isinstance(error, OffsetsTaken) else None,
        ) from error
    return entry


def _taken(state: LedgerState, error: OffsetsTaken) -> tuple[str, int, int, int] | None:
    log = state.logs[error.number]
    topic = state.topics.by_id.get(log.topic_id)
    return (topic.name, log.index, error.base, error.last) if topic is not None else None
