"""`dragoman ledger holds`: lists the holds of backups, and releases them, also while a gateway runs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.cli.exits import Exit
from gateway.cli.offline_state import check_there, run
from gateway.cli.output import UsageError, counted, print_json, print_table, shown_time, talk
from gateway.coordination.holds import Hold, holds_in, place_of
from gateway.settings import Settings
from gateway.store_assembly import opened_blobs, opened_source, urls_of

SHARD = 0


@dataclass(frozen=True, slots=True)
class ListedHold:
    name: str
    backup: str
    made_ms: int
    until_ms: int
    is_being_written: bool


def holds(settings: Settings, released: Sequence[str], as_json: bool) -> Exit:
    """Release these by their names, and print those that are left."""
    check_there(settings)
    if released:
        run(lambda: _release(settings, released))
        talk(
            f"Released {counted(len(released), 'hold')}: a gateway deletes what they kept at its next sweep."
        )
    left = run(lambda: _listed(settings))
    if as_json:
        print_json(left)
        return Exit.OK
    now_ms = time.time_ns() // 1_000_000
    rows = [(hold.name, shown_time(hold.made_ms), _until(hold, now_ms), hold.backup) for hold in left]
    print_table(("hold", "made", "until", "backup"), rows)
    if not left:
        talk("There is no hold; dragoman ledger backup makes one.")
    return Exit.OK


def _until(hold: ListedHold, now_ms: int) -> str:
    shown = shown_time(hold.until_ms)
    if hold.until_ms <= now_ms:
        return f"{shown} (over)"
    return f"{shown} (being written)" if hold.is_being_written else shown


async def _release(settings: Settings, names: Sequence[str]) -> None:
    async with opened_blobs(_place(settings), settings.storage) as blobs:
        found: dict[str, list[Hold]] = {}
        for hold in await holds_in(blobs, SHARD):
            found.setdefault(hold.name, []).append(hold)
        if unknown := [name for name in names if name not in found]:
            raise UsageError(f"there is no hold {', '.join(unknown)}: dragoman ledger holds lists all")
        await blobs.delete([hold.key for name in names for hold in found[name]])


async def _listed(settings: Settings) -> list[ListedHold]:
    async with opened_source(_place(settings), settings.storage) as blobs:
        return [
            ListedHold(
                hold.name, await place_of(blobs, hold), hold.made_ms, hold.until_ms, hold.is_of_everything
            )
            for hold in await holds_in(blobs, SHARD)
        ]


def _place(settings: Settings) -> str:
    return urls_of(settings.storage).blobs.removeprefix("file:")
