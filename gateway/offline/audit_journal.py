"""The journal of an offline ledger, compared with its image, its snapshots and its owners, for `dragoman
audit`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from gateway.coordination.blob_keys import applied_of
from gateway.coordination.claim import check_claim
from gateway.coordination.journal import PrunedMeanwhile, consecutive_entries
from gateway.coordination.mark import verify_mark
from gateway.coordination.recovery import DoesNotFit, Recovered, apply_stored, own_snapshots
from gateway.offline.doctor import read_journal
from ledger.auditing.damages import RESTORE_METADATA, Damage, DamageKind, Report
from ledger.auditing.differences import differences, state_digest
from ledger.errors import NotFound, StoreDamaged
from ledger.formats.snapshot import decode_snapshot
from ledger.image import restore
from ledger.ports import Blobs, ImageStore, Journal
from ledger.state import LedgerState

ATTEMPTS: Final = 3
"""How often copies are compared, while a gateway prunes the entries that are read for that."""
NEWEST_COPY: Final = "start gateways with the newest copy of the metadata store alone"
DELETE_IMAGE: Final = "stop the gateway and delete the image: the journal has all of it"
DELETE_SNAPSHOT: Final = (
    "keep a copy of it, make a new one with `dragoman ledger backup`, and move the damaged one away"
)


async def audit_journal(journal: Journal, blobs: Blobs, report: Report) -> Recovered | None:
    """The state of the journal without the image; None if it cannot be read. StoreTooNew if this build cannot
    read it."""
    try:
        recovered = await read_journal(journal, blobs)
    except StoreDamaged as error:
        report(unreadable(error))
        return None
    try:
        await check_claim(journal, blobs)
        await verify_mark(journal, blobs, recovered.state)
    except StoreDamaged as error:
        report(Damage(DamageKind.STALE_OWNER, str(error), NEWEST_COPY))
    return recovered


def unreadable(error: StoreDamaged) -> Damage:
    """Of a journal that cannot be read or applied."""
    taken = error.taken if isinstance(error, DoesNotFit) else None
    if taken is None:
        return Damage(DamageKind.JOURNAL, str(error), RESTORE_METADATA)
    return Damage(DamageKind.OVERLAP, str(error), RESTORE_METADATA, *taken)


@dataclass(frozen=True, slots=True)
class _Copy:
    """The image or a snapshot, as of an entry."""

    kind: DamageKind
    name: str
    applied: int
    digest: bytes
    load: Callable[[], Awaitable[LedgerState]]
    remedy: str


class Copies:
    """The image and the snapshots of a journal, which must say what its entries say."""

    def __init__(self, journal: Journal, blobs: Blobs, image: ImageStore | None, report: Report) -> None:
        self._journal = journal
        self._blobs = blobs
        self._image = image
        self._report = report
        self.notes: list[str] = []

    async def audit(self, applied: int) -> None:
        """Replay the journal from the oldest snapshot on, or from its first entry, up to `applied` entries;
        compare at each copy."""
        for attempt in range(ATTEMPTS):
            try:
                return await self._audit(applied)
            except PrunedMeanwhile:
                if attempt == ATTEMPTS - 1:
                    raise

    async def _audit(self, applied: int) -> None:
        self.notes = []
        keys = await own_snapshots(self._journal, self._blobs, applied)
        begun = await self._begin(keys)
        copies = [copy for key in keys if (copy := await self._snapshot(key)) is not None]
        image = await self._image_copy(applied)
        if image is not None:
            copies.append(image)
        if begun is None:
            self.notes.append("snapshots: none, and the journal alone cannot rebuild its state")
            return
        state, source = begun
        comparable = [copy for copy in copies if copy.applied >= state.applied and copy.name != source]
        for copy in copies:
            if copy not in comparable:
                self.notes.append(f"{copy.name}: no older copy is left to compare it with")
        await self._replay(state, applied, comparable)

    async def _begin(self, keys: list[str]) -> tuple[LedgerState, str] | None:
        """A state to replay from, and the name of the snapshot that has it; empty for the first entry."""
        start = await self._journal.start()
        if start == 0:
            return LedgerState(), ""
        for key in keys:
            if applied_of(key) < start:
                continue
            try:
                return await self._restored(key), _name_of(key)
            except (StoreDamaged, NotFound):
                continue  # reported where it is compared
        return None

    async def _restored(self, key: str) -> LedgerState:
        return restore(decode_snapshot(await self._blobs.get(key), key).rows)

    async def _snapshot(self, key: str) -> _Copy | None:
        try:
            digest = state_digest(await self._restored(key))
        except NotFound:
            return None  # a gateway has pruned it meanwhile
        except StoreDamaged as error:
            self._report(Damage(DamageKind.SNAPSHOT, str(error), DELETE_SNAPSHOT))
            return None

        async def load() -> LedgerState:
            return await self._restored(key)

        return _Copy(DamageKind.SNAPSHOT, _name_of(key), applied_of(key), digest, load, DELETE_SNAPSHOT)

    async def _image_copy(self, applied: int) -> _Copy | None:
        image = self._image
        if image is None:
            return None

        async def load() -> LedgerState:
            rows, _ = await image.rows()
            return restore(rows)

        try:
            if await image.load() is None:
                self.notes.append("image: there is none; the next start reads the journal instead")
                return None
            claimed = await load()
        except StoreDamaged as error:
            self._report(Damage(DamageKind.IMAGE, str(error), DELETE_IMAGE))
            return None
        if claimed.applied > applied:
            what = f"it has {claimed.applied} entries, and the journal ends after {applied}"
            self._report(Damage(DamageKind.STALE_OWNER, f"{image.location}: {what}", NEWEST_COPY))
            return None
        digest = state_digest(claimed)
        return _Copy(DamageKind.IMAGE, f"image {image.location}", claimed.applied, digest, load, DELETE_IMAGE)

    async def _replay(self, state: LedgerState, applied: int, copies: list[_Copy]) -> None:
        waiting = sorted(copies, key=_entries_of, reverse=True)
        await self._compare(state, waiting)
        async for stored in consecutive_entries(self._journal, state.applied):
            if state.applied == applied:
                break
            epoch = state.epoch
            try:
                entry = apply_stored(state, stored, "an older copy")
            except StoreDamaged as error:
                self._report(unreadable(error))
                return
            if entry.epoch < epoch:
                what = (
                    f"journal entry {stored.number} is of epoch {entry.epoch}, but epoch {epoch} had begun "
                    "before it: its owner had been replaced"
                )
                self._report(Damage(DamageKind.STALE_OWNER, what, RESTORE_METADATA))
            await self._compare(state, waiting)

    async def _compare(self, state: LedgerState, waiting: list[_Copy]) -> None:
        """Take the copies of this entry off the list, of which the last is next."""
        while waiting and waiting[-1].applied <= state.applied:
            copy = waiting.pop()
            if copy.digest == state_digest(state):
                self.notes.append(f"{copy.name}: after {copy.applied} entries the same as the journal")
                continue
            odd = differences(state, await copy.load())
            what = f"{copy.name}: after {copy.applied} entries it differs from the journal in {odd}"
            self._report(Damage(copy.kind, what, copy.remedy))


def _name_of(key: str) -> str:
    return f"snapshot {key}"


def _entries_of(copy: _Copy) -> int:
    return copy.applied
