"""`dragoman doctor`: checks the stores of a gateway that does not run, and reports what needs an operator."""

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Final

from gateway.cli.exits import Exit
from gateway.cli.offline_state import check_there, owner_of, run
from gateway.cli.output import counted, print_json, print_text, talk
from gateway.offline.doctor import (
    Diagnosis,
    check_batches,
    check_image,
    check_journal,
    check_no_gateway_writes,
    check_objects,
    check_versions,
    note_transactions,
    state_now,
)
from gateway.offline.ledger_objects import LedgerObjects
from gateway.settings import Settings
from gateway.store_assembly import opened_stores, urls_of
from ledger.errors import StoreDamaged, StoreTooNew

FEW_FREE_BYTES: Final = 1024**3
FEW_FREE_PERCENT: Final = 5
SHOWN_PATHS: Final = 10


def diagnose(settings: Settings, whole: bool, as_json: bool) -> Exit:
    """Print findings and notes. FINDINGS if there is any finding."""
    diagnosis = Diagnosis()
    directory = urls_of(settings.storage).directory
    if directory is not None:
        _check_directory(directory, diagnosis)
    if not diagnosis.findings:
        check_there(settings)
    if not diagnosis.findings:
        run(lambda: _check_stores(settings, diagnosis, whole))
    if as_json:
        print_json(diagnosis)
    else:
        for finding in diagnosis.findings:
            _say("FOUND", finding)
        for note in diagnosis.notes:
            _say("ok", note)
    count = len(diagnosis.findings)
    talk(f"{counted(count, 'finding')}." if count else "Nothing found.")
    return Exit.FINDINGS if diagnosis.findings else Exit.OK


def _say(head: str, text: str) -> None:
    print_text(f"{head:<6} {text}")


def _check_directory(directory: Path, diagnosis: Diagnosis) -> None:
    """Permissions and free space."""
    closed = _closed_in(directory)
    if closed:
        more = f" and {len(closed) - SHOWN_PATHS} more" if len(closed) > SHOWN_PATHS else ""
        diagnosis.findings.append(
            f"permissions: this user cannot read and write {', '.join(closed[:SHOWN_PATHS])}{more}; run as "
            f"{owner_of(directory)}, or chown the files of other users"
        )
    else:
        diagnosis.notes.append(f"permissions: this user can read and write {directory}")
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return  # permissions, already reported; or it is missing, which is reported next
    percent = usage.free * 100 // usage.total
    free = f"{usage.free // 1024**2} MiB ({percent} %) are free"
    if usage.free < FEW_FREE_BYTES and percent < FEW_FREE_PERCENT:
        diagnosis.findings.append(f"disk: only {free}; free some space, or produce will fail")
    else:
        diagnosis.notes.append(f"disk: {free}")


def _closed_in(directory: Path) -> list[str]:
    """The paths that this user cannot use, of the directory, its entries and the directories below."""
    closed = [] if _is_open(directory, os.X_OK) else [str(directory)]

    def note(error: OSError) -> None:
        if isinstance(error, PermissionError):
            closed.append(str(error.filename))

    for at, directories, files in os.walk(directory, onerror=note):
        below = [*directories, *files] if Path(at) == directory else directories
        closed += [str(Path(at, name)) for name in below if not _is_open(Path(at, name))]
    return sorted(set(closed))


def _is_open(path: Path, more: int = 0) -> bool:
    """True also of a missing path, which is reported elsewhere."""
    try:
        return not path.exists() or os.access(path, os.R_OK | os.W_OK | more)
    except OSError:
        return False


async def _check_stores(settings: Settings, diagnosis: Diagnosis, whole: bool) -> None:
    try:
        async with opened_stores(settings, thorough=True) as stores:
            if stores.urls.directory is not None:
                diagnosis.notes.append("lock: no gateway uses the directory")
            inspection = await stores.far.inspect()
            diagnosis.findings += inspection.findings
            diagnosis.notes += inspection.notes
            recovered = await check_journal(stores.journal, stores.blobs, diagnosis)
            if recovered is None:
                return
            note_transactions(recovered.state, diagnosis)
            if stores.image is not None:
                await check_image(stores.journal, stores.image, stores.blobs, diagnosis)
            now = partial(state_now, stores.journal, stores.blobs, recovered.state)
            objects = LedgerObjects(stores.segments, stores.journal, recovered.state)
            await check_objects(recovered.state, objects, diagnosis, now)
            await check_versions(objects, diagnosis)
            await check_batches(recovered.state, stores.segments, diagnosis, whole)
            await check_no_gateway_writes(stores.journal, recovered.state, diagnosis)
    except (StoreDamaged, StoreTooNew) as error:
        diagnosis.findings.append(f"stores: {error}")
