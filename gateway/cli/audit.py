"""`dragoman audit`: reads every batch of a ledger, accounts for every object, and names each damage."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Final

from gateway.cli.audit_engine import JobEngine
from gateway.cli.exits import Exit
from gateway.cli.job_process import LOCAL, EngineOptions
from gateway.cli.offline_state import offline_ledger, run, warn_of_writer
from gateway.cli.output import UsageError, counted, escaped, print_json, print_text, size_text, talk
from gateway.host import precise_s
from gateway.offline.audit import AuditEngine, AuditProgress, AuditTotals, Findings, StoreAudit, delete_stray
from gateway.offline.audit_journal import Copies, audit_journal, unreadable
from gateway.offline.doctor import read_in_words, read_journal
from gateway.offline.ledger_objects import LedgerObjects
from gateway.settings import Settings
from gateway.store_assembly import Stores
from ledger.auditing.damages import Damage, DamageKind
from ledger.auditing.recheck import is_there_still
from ledger.errors import StoreDamaged
from ledger.ports import ImageStore, Journal
from ledger.state import LedgerState

ELSEWHERE_S: Final = 15.0
"""How often progress is printed where stderr is no terminal."""
UNTRUSTED: Final = frozenset(
    {
        DamageKind.JOURNAL,
        DamageKind.STALE_OWNER,
        DamageKind.IMAGE,
        DamageKind.SNAPSHOT,
        DamageKind.OBJECT_TABLE,
        DamageKind.TRANSACTION,
        DamageKind.OVERLAP,
        DamageKind.GAP,
    }
)
"""With one of these the ledger may not know of objects that hold its records."""
SHOWN_KEPT: Final = 10


@dataclass(frozen=True, slots=True)
class AuditOptions:
    topics: Sequence[str] = ()
    repair: bool = False
    as_json: bool = False
    engine: EngineOptions = field(default_factory=EngineOptions)


@dataclass(slots=True)
class AuditSummary:
    """What is printed. `unnamed`: damages beyond those that are named. `repaired`: objects that were
    deleted."""

    cluster_id: str = ""
    entries: int = 0
    totals: AuditTotals = field(default_factory=AuditTotals)
    notes: list[str] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    unnamed: int = 0
    repaired: list[str] = field(default_factory=list)


def audit(settings: Settings, options: AuditOptions) -> Exit:
    """Print damages and what was looked at. FINDINGS if any damage is left."""
    if options.repair and options.topics:
        raise UsageError("--repair looks at the whole ledger first: leave --topics out")
    summary = run(lambda: _audit(settings, options))
    if options.as_json:
        print_json(summary)
    else:
        _print(summary)
    left = len(summary.damages) + summary.unnamed
    if summary.repaired:
        talk(f"{counted(len(summary.repaired), 'stray object')} deleted.")
    talk(f"{counted(left, 'damage')}." if left else "No damage.")
    return Exit.FINDINGS if left else Exit.OK


async def _audit(settings: Settings, options: AuditOptions) -> AuditSummary:
    findings = Findings()
    part = options.engine.request()
    engine = JobEngine(settings.storage, part) if part["engine"] != LOCAL else None
    try:
        async with offline_ledger(settings) as (stores, journal, image):
            return await LedgerAudit(stores, journal, image, settings, findings).run(options, engine)
    except StoreDamaged as error:
        # A metadata store that cannot even be opened, or that cannot be read to its end.
        findings.report(unreadable(error))
        return AuditSummary(damages=findings.damages, unnamed=findings.unnamed)


class LedgerAudit:
    """One audit of open stores."""

    def __init__(
        self,
        stores: Stores,
        journal: Journal,
        image: ImageStore | None,
        settings: Settings,
        findings: Findings,
    ) -> None:
        self._stores = stores
        self._journal = journal
        self._image = image
        self._grace_ms = settings.ledger.orphan_grace_ms
        self._findings = findings
        self._summary = AuditSummary()

    async def run(self, options: AuditOptions, engine: AuditEngine | None = None) -> AuditSummary:
        """Without an `engine` this process reads the objects."""
        journal, summary = self._journal, self._summary
        recovered = await audit_journal(journal, self._stores.blobs, self._findings.report)
        if recovered is None:
            return self._finished()
        state = recovered.state
        summary.cluster_id, summary.entries = state.cluster_id, state.applied
        summary.notes.append(f"journal: {read_in_words(recovered)}")
        topics = _topics_of(state, options.topics)
        copies = Copies(journal, self._stores.blobs, self._image, self._findings.report)
        await copies.audit(state.applied)
        summary.notes += copies.notes
        with _Shown() as shown:
            objects = LedgerObjects(self._stores.segments, journal, state)
            reading = StoreAudit(state, objects, self._findings, self._grace_ms, shown, engine)
            summary.totals = await reading.run(topics)
        await self._recheck(state)
        if options.repair:
            await self._repair(state)
        await warn_of_writer(journal, state)
        return self._finished()

    async def _recheck(self, state: LedgerState) -> None:
        """A gateway over far stores is not locked out: what it has deleted meanwhile is no damage."""
        if self._journal.exclusive or not self._findings.damages:
            return
        if await self._journal.get(state.applied) is None:
            return
        later = (await read_journal(self._journal, self._stores.blobs)).state
        self._findings.keep(lambda damage: is_there_still(damage, later))

    async def _repair(self, state: LedgerState) -> None:
        if UNTRUSTED & self._findings.counts.keys():
            self._summary.notes.append(
                "repair: nothing is deleted, as the ledger itself is damaged and may not know of all its "
                "objects; repair that first"
            )
        elif not self._stores.segments.capabilities.deletes:
            self._summary.notes.append("repair: this store deletes nothing")
        else:
            objects = LedgerObjects(self._stores.segments, self._journal, state)
            self._summary.repaired = await delete_stray(state, objects)
            self._findings.forget(DamageKind.STRAY_OBJECT)

    def _finished(self) -> AuditSummary:
        self._summary.damages, self._summary.unnamed = self._findings.damages, self._findings.unnamed
        return self._summary


def _topics_of(state: LedgerState, names: Sequence[str]) -> frozenset[str] | None:
    """None: all topics. UsageError for a name that there is not."""
    if not names:
        return None
    unknown = [name for name in names if name not in state.topics.by_name]
    if unknown:
        raise UsageError(
            f"there is no topic {escaped(unknown[0])} in this ledger: see `dragoman ledger show`"
        )
    return frozenset(names)


class _Shown(AbstractContextManager["_Shown"]):
    """Shows progress on stderr: as a bar on a terminal, otherwise as a line now and then."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._update: Callable[[AuditProgress], None] = self._print_line
        self._shown_s = precise_s()

    def __enter__(self) -> "_Shown":
        if sys.stderr is not None and sys.stderr.isatty():
            self._update = self._bar()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, progress: AuditProgress) -> None:
        self._update(progress)

    def _bar(self) -> Callable[[AuditProgress], None]:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._stack.enter_context(bar)
        task = bar.add_task("reading", total=None)
        return lambda progress: bar.update(
            task, total=progress.all_bytes, completed=progress.read_bytes, refresh=False
        )

    def _print_line(self, progress: AuditProgress) -> None:
        now_s = precise_s()
        if now_s - self._shown_s >= ELSEWHERE_S:
            self._shown_s = now_s
            talk(
                f"{progress.objects} of {counted(progress.all_objects, 'object')}, "
                f"{size_text(progress.read_bytes)} of {size_text(progress.all_bytes)}"
            )


def _print(summary: AuditSummary) -> None:
    for damage in summary.damages:
        print_text(f"{'FOUND':<6} {_in_words(damage)}")
    if summary.unnamed:
        print_text(f"{'FOUND':<6} and {summary.unnamed} more that are not named here")
    for note in [*summary.notes, *_totals(summary.totals)]:
        print_text(f"{'seen':<6} {note}")


def _in_words(damage: Damage) -> str:
    places = []
    if damage.topic is not None:
        places.append(f"{damage.topic}-{damage.partition}")
    if damage.offset is not None:
        one = damage.last_offset in (None, damage.offset)
        places.append(
            f"offset {damage.offset}" if one else f"offsets {damage.offset} to {damage.last_offset}"
        )
    if damage.object is not None:
        at = "" if damage.position is None else f" at byte {damage.position}"
        places.append(f"{damage.object}{at}")
    where = f" {', '.join(places)}:" if places else ""
    return f"{damage.kind}:{where} {damage.what}; {damage.remedy}"


def _totals(totals: AuditTotals) -> list[str]:
    objects = totals.objects
    markers = f", {counted(totals.markers, 'transaction marker')}" if totals.markers else ""
    lines = [
        f"offsets: {totals.offsets} in {counted(totals.partitions, 'partition')} of "
        f"{counted(totals.topics, 'topic')}, {counted(totals.runs, 'run')}{markers}",
        f"batches: {totals.batches} with {counted(totals.records, 'record')}, "
        f"{size_text(totals.read_bytes)} read",
        f"objects: {objects.live} live ({size_text(objects.live_bytes)}), {objects.garbage} garbage "
        f"({objects.due} of it due), {objects.new} new, {objects.kept} kept for ever, {objects.stray} stray",
    ]
    if totals.settled:
        lines.append(f"settled ledgers: {totals.settled}")
    if totals.kept:
        more = f" and {len(totals.kept) - SHOWN_KEPT} more" if len(totals.kept) > SHOWN_KEPT else ""
        lines.append(
            "kept: they may hold records from after the backup that this ledger was restored from: "
            f"{', '.join(totals.kept[:SHOWN_KEPT])}{more}"
        )
    return lines
