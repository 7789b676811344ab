"""`dragoman ledger snapshot`, and `ledger backup` while a gateway uses the data directory: the gateway writes
the snapshot, and goes on serving."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gateway.cli.client import ClientError
from gateway.cli.exits import Exit
from gateway.cli.job_process import TlsFiles, ready_request
from gateway.cli.offline_state import run
from gateway.cli.output import counted, print_json, shown_time, talk
from gateway.offline.held_backup import HeldBackup
from gateway.settings import Settings
from gateway.store_assembly import opened_blobs, opened_source, urls_of
from ledger.errors import AlreadyExists, NotFound
from pipeline.links import Link, PlainLink, TlsLink, UnixLink
from pipeline.peer import PeerClient, PeerRefused, PeerUnavailable
from pipeline.snapshot_messages import TakenSnapshot

TIMEOUT_S: Final = 600.0
"""A large ledger takes a minute or two."""
OTHER_TARGET: Final = "another place with --to"


def snapshot(settings: Settings, tls: TlsFiles, as_json: bool) -> Exit:
    """Of the running gateway, or of one that is started for it. Print what it has."""
    taken = _taken(settings, tls, "", 0)
    if as_json:
        print_json(taken._asdict())
    talk(
        f"The snapshot {taken.key} has {counted(taken.entries, 'journal entry', 'journal entries')} "
        f"({counted(taken.topics, 'topic')}), the last of {shown_time(taken.entry_time_ms)}. A copy of the "
        "data that is made from now on can be restored up to there."
    )
    return Exit.OK


def online_backup(settings: Settings, to: str, hold_ms: int) -> HeldBackup:
    """A snapshot of the gateway on this host, copied to another place. ClientError, StoreError."""
    taken = _taken(settings, TlsFiles(), to, hold_ms)
    run(lambda: _copy(settings, taken.key, to))
    return HeldBackup(
        taken.key,
        taken.cluster_id,
        taken.entries,
        taken.entry_time_ms,
        taken.topics,
        taken.hold,
        taken.held_until_ms,
    )


def _taken(settings: Settings, tls: TlsFiles, place: str, hold_ms: int) -> TakenSnapshot:
    with _peer(settings, tls) as peer:
        try:
            return peer.take_snapshot(place, hold_ms)
        except (PeerRefused, PeerUnavailable) as error:
            raise ClientError(f"the gateway has made no snapshot: {error}") from error


@contextmanager
def _peer(settings: Settings, tls: TlsFiles) -> Iterator[PeerClient]:
    with ready_request(settings, tls) as ready:
        with PeerClient(_link(ready["peer"]), TIMEOUT_S) as peer:
            yield peer


def _link(place: Mapping[str, Any]) -> Link:
    """By the fields of a job's request."""
    if "path" in place:
        return UnixLink(Path(place["path"]), connects_again=not place.get("once"))
    host, port = place["host"], place["port"]
    if not place.get("certificate"):
        return PlainLink(host, port)
    ca, certificate, key = (Path(place[name]) for name in ("ca", "certificate", "key"))
    return TlsLink(host, port, ca, certificate, key)


async def _copy(settings: Settings, key: str, to: str) -> None:
    own = urls_of(settings.storage).blobs.removeprefix("file:")
    async with (
        opened_source(own, settings.storage) as source,
        opened_blobs(to, settings.storage, OTHER_TARGET) as target,
    ):
        try:
            content = await source.get(key)
        except NotFound:
            raise ClientError(f"newer snapshots have replaced {key}: try again") from None
        try:
            await target.put(key, [content])
        except AlreadyExists:
            # Nothing has changed since the last backup to this place.
            return
