"""From nothing to the durable state: image, else snapshot, else the first entry; then the journal."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from gateway.coordination.imagefile import ImageFile
from gateway.coordination.journal import Journal, StoredEntry
from ledger.errors import NotFound, StoreDamaged
from ledger.formats.snapshot import (
    SNAPSHOT_HEAD_BYTES,
    Snapshot,
    decode_snapshot,
    snapshot_nonce,
    snapshot_prefix,
)
from ledger.image import everything, restore
from ledger.journal import NONCE_BYTES, Entry, decode_entry, entry_key, nonce_of
from ledger.ports import Blobs
from ledger.state import LedgerState

log = structlog.get_logger(__name__)

KEPT_SNAPSHOTS = 2


class Recovered:
    """The state up to the journal's end, and the nonce of its last entry."""

    def __init__(self, state: LedgerState, nonce: bytes, source: str) -> None:
        self.state = state
        self.nonce = nonce
        self.source = source
        self.journal_bytes = 0


async def recover(journal: Journal, image: ImageFile | None, blobs: Blobs | None) -> Recovered:
    """Read everything durable. StoreDamaged names the entry that cannot be read; nothing is guessed."""
    start = await journal.start()
    ahead: list[_Ahead] = []
    recovered = await _from_image(journal, image, start, ahead)
    if recovered is None:
        recovered = await _from_snapshot(journal, blobs, start, ahead)
    if recovered is None:
        if start > 0:
            raise StoreDamaged(
                f"the journal of shard {journal.shard} begins at entry {start}, and neither an image nor a "
                "readable snapshot reaches it: put back the image file or the snapshot blobs"
            )
        recovered = Recovered(LedgerState(), bytes(NONCE_BYTES), "journal")
    found = recovered.source
    await _follow(journal, recovered)
    _check_newest(journal, recovered.state, ahead)
    if found != "image" and image is not None:
        await image.clear()
        recovered.state.dirty = everything(recovered.state)
    log.info("shard.recovered", shard=journal.shard, source=recovered.source, entries=recovered.state.applied)
    return recovered


@dataclass(frozen=True, slots=True)
class _Ahead:
    """An image or snapshot that knows more entries than the journal holds."""

    source: str
    applied: int
    cluster_id: str


def _check_newest(journal: Journal, state: LedgerState, ahead: Sequence[_Ahead]) -> None:
    """StoreDamaged if entries of this journal are missing at its end: their offsets would be given again.
    Snapshots may be of the journal that a restored one has replaced; an image is removed at a restore."""
    for known in ahead:
        replaced = known.source != "image" and state.restores
        if known.cluster_id == state.cluster_id and not replaced:
            raise StoreDamaged(
                f"the journal of shard {journal.shard} ends after {state.applied} entries, but the "
                f"{known.source} was made after {known.applied}: the metadata store is an older copy. Put "
                "back the newest one, or move it away and run `dragoman ledger restore`"
            )


async def _from_image(
    journal: Journal, image: ImageFile | None, start: int, ahead: list[_Ahead]
) -> Recovered | None:
    loaded = await image.load() if image is not None else None
    if loaded is None:
        return None
    rows, nonce = loaded
    try:
        state = restore(rows)
    except StoreDamaged as error:
        log.warning("image.damaged", error=str(error))
        return None
    if state.applied < start or not await continues(journal, state.applied, nonce, start):
        log.warning("image.of_another_journal", applied=state.applied, start=start)
        await _note_ahead(journal, "image", state.applied, state.cluster_id, ahead)
        return None
    return Recovered(state, nonce, "image")


async def _from_snapshot(
    journal: Journal, blobs: Blobs | None, start: int, ahead: list[_Ahead]
) -> Recovered | None:
    if blobs is None:
        return None
    for key in reversed(await snapshot_keys(blobs, journal.shard)):
        snapshot = await _read_snapshot(blobs, key)
        if snapshot is None or snapshot.applied < start:
            continue
        if await continues(journal, snapshot.applied, snapshot.nonce, start):
            return Recovered(restore(snapshot.rows), snapshot.nonce, key)
        log.warning("snapshot.of_another_journal", key=key)
        await _note_ahead(journal, "snapshot", snapshot.applied, restore(snapshot.rows).cluster_id, ahead)
    return None


async def _note_ahead(
    journal: Journal, source: str, applied: int, cluster_id: str, ahead: list[_Ahead]
) -> None:
    if await journal.is_absent(applied - 1) and applied > await journal.start():
        ahead.append(_Ahead(source, applied, cluster_id))


async def own_snapshots(journal: Journal, blobs: Blobs, applied: int) -> list[str]:
    """Keys of the snapshots that this journal, with `applied` entries, goes on from; oldest first. Beside
    them others may lie: of the journal that was here before a new or restored metadata store."""
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


def applied_of(snapshot_key: str) -> int:
    """How many entries a snapshot holds, as its key says."""
    return int(snapshot_key.rsplit("/", 1)[-1].split("-", 1)[0])


async def snapshot_keys(blobs: Blobs, shard: int) -> list[str]:
    """Keys of the snapshots that are there, oldest first."""
    return [info.key for info in await blobs.list(snapshot_prefix(shard))]


async def _read_snapshot(blobs: Blobs, key: str) -> Snapshot | None:
    try:
        return decode_snapshot(await blobs.get(key), key)
    except (StoreDamaged, NotFound) as error:
        log.warning("snapshot.unreadable", key=key, error=str(error))
        return None


async def continues(journal: Journal, applied: int, nonce: bytes, start: int) -> bool:
    """Whether the journal goes on from there: its entry `applied - 1` has this nonce, or is pruned."""
    if applied == 0:
        return True
    found = await journal.store.get(entry_key(journal.shard, applied - 1))
    if found is None:
        return applied - 1 < start
    return nonce_of(found.value) == nonce


async def _follow(journal: Journal, recovered: Recovered) -> None:
    state = recovered.state
    async for stored in journal.entries(state.applied):
        if stored.number != state.applied:
            raise StoreDamaged(
                f"journal entry {entry_key(journal.shard, state.applied)} is missing, although entry "
                f"{stored.key} is there: restore the metadata store"
            )
        entry = _decode(stored)
        state.apply_entry(entry)
        recovered.nonce = entry.nonce
        recovered.journal_bytes += len(stored.data)


def _decode(stored: StoredEntry) -> Entry:
    return decode_entry(stored.data, stored.key)
