"""Holds of backups: blobs next to the data that say which objects stay although no run is in them any more.

A backup names objects. Merging, retention and deletions make garbage of them later, and a restore from that
backup would lack their records. A hold keeps what the backup names until an hour that it states, or until an
operator releases it.

The blob `hold/{shard}/{since}-{objects}-{until}-{uuidv7}` holds the objects with numbers below `objects` that
lost their last run at entry time `since` or later, until `until`: so a listing says all that a sweep has to
know. Numbers have 20 digits. Its bytes are the place of the backup, for operators.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from gateway.host import RandomBytes, random_bytes
from ledger.errors import AlreadyExists, NotFound, StoreDamaged
from ledger.keys import RANDOM_BYTES, created_ms, uuid7
from ledger.ports import Blobs
from ledger.state import LedgerState

PAGE: Final = 1000
MAX_HOLDS: Final = 10_000
EVERYTHING: Final = 2**63 - 1
WRITING_MS: Final = 6 * 3_600_000
"""How long everything is held for a backup that is being written. It is replaced as soon as that is there."""
_NAME: Final = re.compile(
    r"([0-9]{20})-([0-9]{20})-([0-9]{20})-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
)


@dataclass(frozen=True, slots=True)
class Hold:
    """`name` is for operators; two holds never have the same."""

    key: str
    name: str
    since_ms: int
    objects: int
    until_ms: int

    @property
    def made_ms(self) -> int:
        return created_ms(self.key)

    @property
    def is_of_everything(self) -> bool:
        """Whether its backup is still being written, or its command has died."""
        return self.objects == EVERYTHING

    def keeps(self, number: int, closed_ms: int) -> bool:
        """Whether an object without live runs stays."""
        return number < self.objects and closed_ms >= self.since_ms


def hold_prefix(shard: int) -> str:
    return f"hold/{shard}/"


def hold_key(shard: int, limits: tuple[int, int, int], name: str) -> str:
    """`limits`: since when, below which number, until when."""
    since_ms, objects, until_ms = limits
    return f"{hold_prefix(shard)}{since_ms:020d}-{objects:020d}-{until_ms:020d}-{name}"


def hold_of(key: str) -> Hold:
    """StoreDamaged if this is no key of a hold."""
    found = _NAME.fullmatch(key.rpartition("/")[2])
    if found is None:
        raise StoreDamaged(f"{key} is no hold of a backup: remove it, nothing is deleted while it is there")
    since, objects, until, name = found.groups()
    return Hold(key, name, int(since), int(objects), int(until))


async def holds_in(blobs: Blobs, shard: int) -> Sequence[Hold]:
    """All that are there, over or not, the oldest last entry first."""
    found: list[Hold] = []
    after = ""
    while page := await blobs.list(hold_prefix(shard), after, PAGE):
        found += [hold_of(info.key) for info in page]
        after = page[-1].key
        if len(found) > MAX_HOLDS:
            raise StoreDamaged(f"there are more than {MAX_HOLDS} holds of backups in {hold_prefix(shard)}")
    return found


async def hold_everything(
    blobs: Blobs, shard: int, place: str, now_ms: int, random: RandomBytes = random_bytes
) -> Hold:
    """Call this before the journal is read for a backup. Whatever a sweep that has not seen this hold deletes
    has been garbage before, so that the backup will not need it."""
    return await _put(
        blobs, shard, (0, EVERYTHING, now_ms + WRITING_MS), place, str(uuid7(now_ms, random(RANDOM_BYTES)))
    )


async def hold_backup(
    blobs: Blobs, shard: int, state: LedgerState, place: str, until_ms: int, everything: Hold
) -> Hold:
    """What a backup of this state names, in place of everything."""
    limits = state.entry_time_ms, state.objects.next_number, until_ms
    return await hold_limits(blobs, shard, limits, place, everything)


async def hold_limits(
    blobs: Blobs, shard: int, limits: tuple[int, int, int], place: str, everything: Hold
) -> Hold:
    """`limits`: since when, below which number, until when. In place of everything."""
    held = await _put(blobs, shard, limits, place, everything.name)
    await blobs.delete([everything.key])
    return held


async def place_of(blobs: Blobs, hold: Hold) -> str:
    """Where its backup is, as far as the hold says; empty if it has been released meanwhile."""
    try:
        return (await blobs.get(hold.key)).decode(errors="replace")
    except NotFound:
        return ""


async def _put(blobs: Blobs, shard: int, limits: tuple[int, int, int], place: str, name: str) -> Hold:
    key = hold_key(shard, limits, name)
    with suppress(AlreadyExists):  # A put that was repeated after its response was lost.
        await blobs.put(key, [place.encode()])
    return hold_of(key)
