"""A backup whose objects stay for a while, whatever the ledger needs no more since."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from gateway.coordination.holds import hold_backup, hold_everything
from gateway.coordination.recovery import Recovered, recover
from gateway.offline.backup import write_backup
from ledger.errors import StoreError
from ledger.ports import Blobs, ImageStore, Journal


@dataclass(frozen=True, slots=True)
class BackupPlaces:
    """`blobs` are those next to the data, where holds are; `target` takes the backup, and `name` is what
    operators call that."""

    blobs: Blobs
    target: Blobs
    name: str


@dataclass(frozen=True, slots=True)
class HeldBackup:
    """As its snapshot describes it. `hold` is empty, and `held_until_ms` 0, if nothing is held for it."""

    key: str
    cluster_id: str
    entries: int
    last_entry_ms: int
    topics: int
    hold: str
    held_until_ms: int


async def write_held_backup(
    journal: Journal,
    image: ImageStore | None,
    places: BackupPlaces,
    hold_ms: int,
    clock: Callable[[], int],
) -> tuple[HeldBackup, Recovered]:
    """A gateway may run on the same stores, as far as they let it. Without `hold_ms` nothing is held."""
    own, everything = places.blobs, None
    if hold_ms:
        everything = await hold_everything(own, journal.shard, places.name, clock())
    try:
        recovered = await recover(journal, image, own)
        made = await write_backup(journal, recovered, places.target, clock())
        hold, until_ms = "", 0
        if everything is not None:
            until_ms = clock() + hold_ms
            state = recovered.state
            held = await hold_backup(own, journal.shard, state, places.name, until_ms, everything)
            hold = held.name
    except BaseException:
        if everything is not None:
            with suppress(StoreError):
                await own.delete([everything.key])
        raise
    held_backup = HeldBackup(
        made.key, made.cluster_id, made.entries, made.last_entry_ms, made.topics, hold, until_ms
    )
    return held_backup, recovered
