"""Checks of an offline ledger against its stores, for `dragoman doctor`.

Findings are sentences, each with a remedy; notes name what was checked, or facts that are no fault. Nothing
is changed.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gateway.coordination.claim import check_claim
from gateway.coordination.journal import stored_entries
from gateway.coordination.mark import verify_mark
from gateway.coordination.recovery import Recovered, own_snapshots, recover
from gateway.offline.backup import all_objects
from ledger.auditing.objects import object_uses
from ledger.batch.header import BatchError, verify_crc, walk
from ledger.errors import StoreDamaged, StoreTooNew
from ledger.formats import local_log, segment, settled, wal
from ledger.formats.snapshot import decode_snapshot
from ledger.image import all_rows, restore
from ledger.journal import apply_entry, decode_entry
from ledger.keys import is_adopted, is_inline, is_log, is_of_job, is_segment, is_settled
from ledger.partitions.markers import is_marker, marker_bytes
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.ports import Blobs, ImageStore, Journal, SegmentStore
from ledger.rows import digest
from ledger.settled.state import SettledLedgers
from ledger.state import LedgerState
from ledger.transactions.state import Transactions
from ledger.types import Buffer, Position, StoredObject

SHOWN = 3
ADOPTED_AT_ONCE = 200
BEGIN_BYTES = 8
"""Of every object: enough for its version."""


@dataclass(slots=True)
class Diagnosis:
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def check_journal(journal: Journal, blobs: Blobs, diagnosis: Diagnosis) -> Recovered | None:
    """The state of the journal without the image; None if it cannot be read."""
    try:
        recovered = await read_journal(journal, blobs)
    except (StoreDamaged, StoreTooNew) as error:
        diagnosis.findings.append(f"journal: {error}")
        return None
    diagnosis.notes.append(f"journal: {read_in_words(recovered)}")
    try:
        await check_claim(journal, blobs)
        await verify_mark(journal, blobs, recovered.state)
    except (StoreDamaged, StoreTooNew) as error:
        diagnosis.findings.append(f"journal: {error}")
    return recovered


def note_transactions(state: LedgerState, diagnosis: Diagnosis) -> None:
    """Those that are open. No finding: the next gateway goes on with them, and aborts what takes too long."""
    known = state.part(Transactions).by_id.values()
    begun = [(each.started_ms, each.transactional_id) for each in known if each.is_open]
    if begun:
        started_ms, oldest = min(begun)
        diagnosis.notes.append(
            f"transactions: {_counted(len(begun), 'is', 'are')} open, the oldest ({oldest}) since "
            f"{datetime.fromtimestamp(started_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}; while a gateway runs, "
            "`dragoman transactions list --state Ongoing` shows them"
        )


async def read_journal(journal: Journal, blobs: Blobs) -> Recovered:
    """The state without the image. StoreDamaged, StoreTooNew if an entry that is stored cannot be read."""
    recovered = await recover(journal, None, blobs)
    # A start reads no entry that a snapshot or the image has, but an archive and a backup do.
    async for stored in stored_entries(journal):
        decode_entry(stored.data, stored.where)
    return recovered


def read_in_words(recovered: Recovered) -> str:
    """What of the journal was read."""
    return (
        f"{_counted(recovered.state.applied, 'entry is', 'entries are')} readable, begun from "
        f"{_begun(recovered)}"
    )


def _begun(recovered: Recovered) -> str:
    return "its first entry" if recovered.source == "journal" else recovered.source


async def check_image(journal: Journal, image: ImageStore, blobs: Blobs, diagnosis: Diagnosis) -> None:
    """Compare the image's digest with that of the journal, read up to the image's last entry."""
    try:
        loaded = await image.load()
        if loaded is None:
            diagnosis.notes.append("image: there is none; the next start reads the journal instead")
            return
        claimed = restore(loaded[0])
        state = await _state_at(journal, blobs, claimed.applied)
    except (StoreDamaged, StoreTooNew) as error:
        diagnosis.findings.append(f"image: {error}; delete {image.location}, the journal has all of it")
        return
    if state is None:
        diagnosis.notes.append(f"image: at entry {claimed.applied}, which the journal alone cannot rebuild")
    elif digest(all_rows(state)) != digest(all_rows(claimed)):
        diagnosis.findings.append(
            f"image: at entry {claimed.applied} it says something else than the journal; stop the gateway "
            f"and delete {image.location}"
        )
    else:
        diagnosis.notes.append(f"image: at entry {claimed.applied}, the same as the journal")


async def _state_at(journal: Journal, blobs: Blobs, applied: int) -> LedgerState | None:
    """The state after `applied` entries, or None where that much cannot be read any more."""
    keys = await own_snapshots(journal, blobs, applied)
    if keys:
        state = restore(decode_snapshot(await blobs.get(keys[-1]), keys[-1]).rows)
    elif await journal.start() == 0:
        state = LedgerState()
    else:
        return None
    async for stored in stored_entries(journal, state.applied):
        if state.applied == applied or stored.number != state.applied:
            break
        apply_entry(state, decode_entry(stored.data, stored.where))
    return state if state.applied == applied else None


async def state_now(journal: Journal, blobs: Blobs, state: LedgerState) -> LedgerState:
    """A gateway on far stores is not locked out: the state with what it has written meanwhile."""
    if journal.exclusive or await journal.get(state.applied) is None:
        return state
    return (await recover(journal, None, blobs)).state


async def check_objects(
    state: LedgerState,
    segments: SegmentStore,
    diagnosis: Diagnosis,
    now: Callable[[], Awaitable[LedgerState]] | None = None,
) -> None:
    """Every object with readable runs must be stored, with as many bytes as those need. `now`: the state as
    it is later, where a gateway may go on, and delete what that does not need any more."""
    stored = {found.locator: found async for found in all_objects(segments)}
    needed, ledgers = _needed(state), _settled(state)
    stored.update(await _unlisted_there(needed, segments))
    short, short_ledgers = _short(needed, stored), _short_ledgers(ledgers, stored)
    if (short or short_ledgers) and now is not None:
        later = await now()
        needed, ledgers = _needed(later), _settled(later)
        short = _short({locator: needed[locator] for locator in short if locator in needed}, stored)
        short_ledgers = [locator for locator in short_ledgers if locator in ledgers]
    _report_objects(list(short.values()), len(needed), diagnosis)
    _report_settled(short_ledgers, len(ledgers), diagnosis)
    _note_orphans(state, stored.values(), diagnosis)


def _needed(state: LedgerState) -> dict[str, int]:
    """How many bytes of which object readable runs need."""
    uses = object_uses(state).items()
    return {state.objects.locator(number): use.end for number, use in uses if use.readable}


def _short(needed: Mapping[str, int], stored: Mapping[str, StoredObject]) -> dict[str, str]:
    """By locator, what is not stored of what is needed."""
    short: dict[str, str] = {}
    for locator, size in needed.items():
        found = stored.get(locator)
        if found is None or (not found.size and is_of_job(locator)):
            short[locator] = f"{locator} is missing"
        elif found.size < size:
            short[locator] = f"{locator} has {found.size} of {size} bytes"
    return short


def _report_objects(short: Sequence[str], needed: int, diagnosis: Diagnosis) -> None:
    if short:
        diagnosis.findings.append(
            f"objects: {len(short)} that the ledger names cannot be read whole ({_some(short)}); put them "
            "back from a copy of the data; until then reading them ends with KAFKA_STORAGE_ERROR"
        )
    else:
        diagnosis.notes.append(f"objects: {needed} that the ledger names, none missing or short")


def _note_orphans(state: LedgerState, stored: Iterable[StoredObject], diagnosis: Diagnosis) -> None:
    orphans = [found for found in stored if found.locator not in state.objects.by_locator]
    kept = sorted(found.locator for found in orphans if state.objects.keeps(found.created_ms))
    if kept:
        diagnosis.notes.append(
            f"kept objects: {len(kept)} from after the backup that this ledger was restored from, which may "
            f"hold acknowledged records and are never deleted: {', '.join(kept)}"
        )
    if len(orphans) > len(kept):
        diagnosis.notes.append(f"orphans: {len(orphans) - len(kept)}; a gateway deletes them after the grace")


def _settled(state: LedgerState) -> dict[str, int]:
    """The settled ledgers, and how many bytes each has."""
    ledgers = state.part(SettledLedgers).values()
    return {state.objects.locator(known.object_number): known.log_bytes for known in ledgers}


def _short_ledgers(ledgers: Mapping[str, int], stored: Mapping[str, StoredObject]) -> list[str]:
    return [name for name, size in ledgers.items() if name not in stored or stored[name].size != size]


def _report_settled(short: Sequence[str], ledgers: int, diagnosis: Diagnosis) -> None:
    """No record is lost with one: they say where the records are."""
    if short:
        diagnosis.findings.append(
            f"settled ledgers: {len(short)} that the journal names are missing or short ({_some(short)}); no "
            "record is lost; write new ones with `dragoman compact ledger`"
        )
    elif ledgers:
        diagnosis.notes.append(f"settled ledgers: {ledgers}, none missing or short")


async def _unlisted_there(needed: Mapping[str, int], segments: SegmentStore) -> dict[str, StoredObject]:
    """The adopted segments, and the batches inside of entries, whose last needed byte can be read: they are
    in no list."""
    unlisted = [
        Position(locator, size - 1, 1)
        for locator, size in needed.items()
        if is_adopted(locator) or is_inline(locator)
    ]
    there: dict[str, StoredObject] = {}
    for first in range(0, len(unlisted), ADOPTED_AT_ONCE):
        some = unlisted[first : first + ADOPTED_AT_ONCE]
        for position, data in zip(some, await segments.read(some), strict=True):
            if data is not None:
                there[position.locator] = StoredObject(position.locator, 0, needed[position.locator])
    return there


async def check_no_gateway_writes(journal: Journal, state: LedgerState, diagnosis: Diagnosis) -> None:
    """A gateway on far stores is not locked out."""
    if await journal.get(state.applied) is not None:
        diagnosis.notes.append(
            f"journal: a gateway has written meanwhile; this is what the ledger held after entry "
            f"{state.applied - 1}, without what was deleted since"
        )


def readable_runs(log: PartitionLog) -> Iterator[Run]:
    """Runs with records that a fetch can still reach."""
    if not log.deleted:
        yield from (run for run in log.runs() if run.last >= log.log_start)


async def check_versions(segments: SegmentStore, diagnosis: Diagnosis) -> None:
    """Objects begin with a frame, and segments with a header, of a version that this build reads."""
    odd: list[str] = []
    async for found in all_objects(segments):
        if found.size < BEGIN_BYTES:
            continue
        (head,) = await segments.read([Position(found.locator, 0, BEGIN_BYTES)])
        if head is None:
            continue  # a gateway has deleted it since it was listed; what is needed was checked by then
        how = _odd_beginning(found.locator, head)
        if how:
            odd.append(f"{found.locator} begins with {how}")
    if odd:
        diagnosis.findings.append(
            f"formats: {_counted(len(odd), 'object is', 'objects are')} of no version that this build reads "
            f"({_some(odd)}); run the version of Dragoman that wrote them"
        )


def _odd_beginning(locator: str, head: Buffer) -> str:
    """Why this build does not read an object; empty if it does."""
    what, newest, version = "frame", wal.VERSION, wal.version_of(head)
    if is_segment(locator):
        what, newest, version = "segment", segment.VERSION, segment.version_of(head)
    elif is_settled(locator):
        what, newest, version = "settled ledger", settled.VERSION, settled.version_of(head)
    elif is_log(locator):
        what, newest, version = "log file", local_log.VERSION, local_log.version_of(head)
    if version is None:
        return f"no {what}"
    return f"a {what} of version {version}" if version > newest else ""


async def check_batches(
    state: LedgerState, segments: SegmentStore, diagnosis: Diagnosis, whole: bool
) -> None:
    """CRC-32C and record counts of the batches in a sample of each partition's runs, or in all of them."""
    wrong: list[str] = []
    batches = 0
    for topic in state.topics.by_id.values():
        for log in topic.partitions:
            runs = list(readable_runs(log))
            for run in runs if whole else [*runs[:1], *runs[1:][-1:]]:
                data = await _read(state, segments, run)
                if data is None:
                    continue  # reported by check_objects
                reason, count = _wrong_with(run, data)
                batches += count
                if reason:
                    wrong.append(f"{topic.name}-{log.index} offsets {run.base} to {run.last}: {reason}")
    if wrong:
        diagnosis.findings.append(
            f"batches: {_counted(len(wrong), 'run does', 'runs do')} not read back as written "
            f"({_some(wrong)}); check the disk and put the objects back from a copy of the data"
        )
    else:
        how = "every run" if whole else "the first and last run of each partition; --all looks at every one"
        diagnosis.notes.append(
            f"batches: {_counted(batches, 'batch matches its', 'batches match their')} CRC ({how})"
        )


async def _read(state: LedgerState, segments: SegmentStore, run: Run) -> memoryview | None:
    if is_marker(run):
        return memoryview(marker_bytes(run))
    (data,) = await segments.read([Position(state.objects.locator(run.object_number), run.start, run.size)])
    return None if data is None else memoryview(data)


def _wrong_with(run: Run, data: memoryview) -> tuple[str, int]:
    """(what is wrong, or an empty text; batches read)."""
    count = records = 0
    next_offset = run.base
    try:
        for batch in walk(data):
            count += 1
            records += batch.last_offset_delta + 1
            if not verify_crc(data[batch.position : batch.position + batch.size_bytes]):
                return f"the batch at byte {run.start + batch.position} does not match its CRC", count
            if not run.dense and batch.base_offset < next_offset:
                return f"the offsets of the batch at byte {run.start + batch.position} do not ascend", count
            next_offset = batch.base_offset + batch.last_offset_delta + 1
    except BatchError as error:
        return error.reason, count
    if run.dense and records != run.last - run.base + 1:
        return f"{_counted(records, 'record is', 'records are')} there", count
    if not run.dense and next_offset != run.last + 1:
        return f"it ends at offset {next_offset - 1}", count
    return "", count


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _some(things: Sequence[str]) -> str:
    more = f", and {len(things) - SHOWN} more" if len(things) > SHOWN else ""
    return "; ".join(things[:SHOWN]) + more
