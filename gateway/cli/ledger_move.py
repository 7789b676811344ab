"""`dragoman ledger move`: takes a ledger and its records from a data directory to other stores."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from gateway.cli.exits import Exit
from gateway.cli.offline_state import offline_ledger, recover_offline, run
from gateway.cli.output import UsageError, counted, print_json, size_text, talk
from gateway.cli.ownership import hand_over
from gateway.coordination.claim import Claim
from gateway.host import clock_ms, precise_s
from gateway.offline.ledger_objects import LedgerObjects
from gateway.offline.move import (
    LedgerMove,
    MoveRefused,
    MoveSummary,
    Place,
    has_left,
    interrupted_move,
    summary,
)
from gateway.offline.move_plan import plan_move
from gateway.offline.object_copies import Progress
from gateway.settings import Settings
from gateway.store_assembly import Stores, directory_of, opened_stores

LOCAL = ("sqlite:", "objects+file:")
SHOWN = 10
ON_TERMINAL_S, ELSEWHERE_S = 2.0, 15.0
"""How often progress is printed."""


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """`metadata` and `data`: URLs of the stores to move to."""

    metadata: str
    data: str
    dry_run: bool = False
    accept_damage: bool = False
    cancel: bool = False
    as_json: bool = False


def move_ledger(settings: Settings, options: MoveOptions) -> Exit:
    """Move, and print what was moved. FINDINGS if objects are missing or damaged and that is not accepted."""
    target = _target_of(settings, options)
    try:
        done = run(lambda: _move(settings, target, options))
    except MoveRefused as error:
        raise UsageError(str(error)) from None
    finally:
        if not options.dry_run:
            hand_over(settings.storage)
            hand_over(target.storage)
    if options.cancel:
        talk("The move was given up: the gateway may be started on the old directory again.")
        return Exit.OK
    assert done is not None
    if options.as_json:
        print_json(done)
    return _report(done, target, options)


def _target_of(settings: Settings, options: MoveOptions) -> Settings:
    """The settings of a gateway over the new stores. UsageError for URLs that cannot be moved to."""
    metadata, data = _checked(options.metadata, "--to-metadata"), _checked(options.data, "--to-data")
    if data.startswith("file:"):
        raise UsageError(
            "--to-data is an object store: objects+file:DIR, or one that is not local; to move local files, "
            "copy the data directory"
        )
    storage = settings.storage
    if data == storage.data:
        raise UsageError("--to-data is where the records are: name another place")
    own = {Path(storage.data_dir), directory_of(storage.metadata), directory_of(storage.data)}
    new = [found for found in (directory_of(metadata), directory_of(data)) if found is not None]
    if {found.resolve() for found in new} & {found.resolve() for found in own if found is not None}:
        raise UsageError("--to-metadata and --to-data name a directory that the ledger is in: name another")
    directory = str(new[0]) if new else storage.data_dir
    changed = msgspec.structs.replace(storage, metadata=metadata, data=data, data_dir=directory, image="")
    return msgspec.structs.replace(settings, storage=changed)


def _checked(url: str, flag: str) -> str:
    """The URL, with an absolute path if it is local."""
    if "://" in url and "@" in url:
        # Not repeated: it may be a password.
        raise UsageError(f"{flag} holds no credentials: they come from settings and the environment")
    if url.removeprefix("objects+").startswith("memory:"):
        raise UsageError(f"{flag}: what is in memory ends with the process; name a store that lasts")
    for scheme in LOCAL:
        if url.startswith(scheme) and len(url) > len(scheme):
            path = Path(url.removeprefix(scheme).removeprefix("//"))
            return f"{scheme}{path.absolute()}"
    return url


async def _move(settings: Settings, target: Settings, options: MoveOptions) -> MoveSummary | None:
    metadata, data = target.storage.metadata, target.storage.data
    async with offline_ledger(settings) as (stores, journal, image):
        if not journal.exclusive:
            raise UsageError(
                "only a ledger whose metadata is in a local file can be moved: other gateways may write to "
                "this one"
            )
        source = Place(journal, stores.segments, stores.blobs, image)
        interrupted = await interrupted_move(stores.blobs, journal.shard, metadata, data)
        if options.cancel:
            await _cancel(source, target, interrupted)
            return None
        recovered = await recover_offline(stores, journal, image)
        if recovered.state.applied == 0:
            raise UsageError("the ledger is empty: start a gateway on the new stores instead")
        plan = await plan_move(recovered.state, LedgerObjects(stores.segments, journal, recovered.state))
        planned = summary(recovered.state, plan, metadata, data)
        if has_left(interrupted):
            # The other place may be in use.
            return replace(planned, moved=True)
        if options.dry_run:
            return planned
        talk(f"Moving {_content(planned)} to metadata {metadata} and data {data}.")
        async with opened_stores(target, prove=True) as opened:
            moving = LedgerMove(source, _place(opened), metadata, data, clock_ms)
            return await moving.run(recovered, plan, _Shown(), accept_damage=options.accept_damage)


async def _cancel(source: Place, target: Settings, interrupted: Claim | None) -> None:
    if interrupted is None:
        raise UsageError(
            "no move is at its last step: the gateway may be started on the old directory as it is"
        )
    if has_left(interrupted):
        raise UsageError("the ledger has moved already: start the gateway on the new stores")
    async with opened_stores(target, prove=True) as opened:
        names = target.storage.metadata, target.storage.data
        await LedgerMove(source, _place(opened), *names, clock_ms).cancel(interrupted)


def _place(stores: Stores) -> Place:
    return Place(stores.journal, stores.segments, stores.blobs, stores.image)


class _Shown:
    """Prints progress now and then."""

    def __init__(self) -> None:
        self._every_s = ON_TERMINAL_S if sys.stderr is not None and sys.stderr.isatty() else ELSEWHERE_S
        self._shown_s = precise_s()

    def __call__(self, progress: Progress) -> None:
        now_s = precise_s()
        if now_s - self._shown_s < self._every_s:
            return
        self._shown_s = now_s
        left = "" if progress.seconds_left is None else f", {progress.seconds_left:.0f} s left"
        talk(
            f"{progress.objects} of {counted(progress.all_objects, 'object')}, "
            f"{size_text(progress.size_bytes)} of {size_text(progress.all_bytes)}{left}"
        )


def _report(done: MoveSummary, target: Settings, options: MoveOptions) -> Exit:
    for what, names in (("missing", done.missing), ("damaged", done.damaged)):
        if names:
            more = f"; and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            talk(f"{counted(len(names), 'object')} {what}: {'; '.join(names[:SHOWN])}{more}")
    if options.dry_run and not done.moved:
        talk(f"Would move {_content(done)}. {_left(done)}")
        return Exit.FINDINGS if done.missing else Exit.OK
    if not done.moved:
        talk(
            "Nothing has moved: put these objects back from a copy of the data, or accept with "
            "--accept-damage that their records cannot be read, and run the same command again. Until then "
            "the gateway may be started on the old directory."
        )
        return Exit.FINDINGS
    if done.copied_objects or done.there_before:
        copied = f"{counted(done.copied_objects, 'object')} copied now, {done.there_before} before"
        talk(f"Moved {_content(done)} ({copied}). {_left(done)}")
    else:
        talk(f"The ledger has moved: {_content(done)}. {_left(done)}")
    talk(f"Start the gateway with: {_serve(target)}")
    return Exit.OK


def _content(done: MoveSummary) -> str:
    return ", ".join(
        [
            counted(done.topics, "topic"),
            counted(done.partitions, "partition"),
            counted(done.groups, "group"),
            counted(done.committed_offsets, "committed offset"),
            f"{counted(done.objects, 'object')} of {size_text(done.size_bytes)}",
        ]
    )


def _left(done: MoveSummary) -> str:
    stays = (
        f" {counted(done.left_objects, 'object')} that nothing needs not copied." if done.left_objects else ""
    )
    return f"The old directory stays as it is; archives of the journal stay in it.{stays}"


def _serve(target: Settings) -> str:
    storage = target.storage
    flags: Mapping[str, str] = {"--metadata": storage.metadata, "--data": storage.data}
    if directory_of(storage.metadata) is not None or directory_of(storage.data) is not None:
        flags = {**flags, "--data-dir": storage.data_dir}
    return shlex.join(["dragoman", "serve", *(part for flag in flags.items() for part in flag)])
