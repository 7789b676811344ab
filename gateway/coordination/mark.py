"""The newest durable entry, as far as the data knows: a blob next to the data names its number and nonce.

A metadata store that was restored from a backup of its own may lack the entries that were acknowledged since,
and nothing in it says so. The claim (`claim.py`) shows that if a gateway was started since, a snapshot if one
was made since. So the owner puts a mark about once a minute while it writes, and a start compares the newest
mark with the journal.

A blob `mark/{shard}/{entry}-{uuidv7}` is JSON: format version, cluster id, epoch, number and nonce of the
entry; and `ended` in the last mark of an owner that has ended in order (docs/decisions/0052). Marks from
before the last restore are those of the journal that it replaced: they are set aside, by the creation time in
their keys, and deleted by the owners that follow (docs/decisions/0046).
"""

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from gateway.host import RandomBytes
from ledger.errors import NotFound, StoreDamaged, StoreLocked, StoreTooNew
from ledger.journal import nonce_of
from ledger.keys import RANDOM_BYTES, created_ms, uuid7
from ledger.ports import Blobs, Journal
from ledger.state import LedgerState

VERSION: Final = 1
PAGE: Final = 1000
ATTEMPTS: Final = 5
_NAME: Final = re.compile(r"[0-9]{20}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Mark:
    """`entry` of the journal of this cluster was durable, and counted, in `epoch`."""

    cluster_id: str
    epoch: int
    entry: int
    nonce: bytes
    has_ended: bool = False
    """Its owner has written nothing after the entry, and never will."""


class Verdict(Enum):
    """What a journal says to a mark."""

    HELD = auto()
    """It has the entry, or has had it: everything before the mark is in it, or was pruned."""
    OLDER = auto()
    """It ends before the entry."""
    ANOTHER = auto()
    """It has another entry under that number."""


def judge(mark: Mark, found: bytes | None, start: int) -> Verdict:
    """`found`: the nonce of the journal's entry with the number of the mark, None if that is absent. `start`
    of the journal must be read after it, as the owner may prune meanwhile. What is below does not count: a
    gateway that was deposed long ago may still have put an entry there."""
    if mark.entry < start or found == mark.nonce:
        return Verdict.HELD
    return Verdict.OLDER if found is None else Verdict.ANOTHER


async def verify_mark(journal: Journal, blobs: Blobs, state: LedgerState) -> None:
    """Call this before anything is written, with the state at the journal's end. StoreDamaged if the journal
    lacks what was acknowledged: its offsets would be given again."""
    key, mark = await newest_mark(blobs, journal.shard, state)
    if mark is None:
        return
    found = await journal.get(mark.entry)
    verdict = judge(mark, nonce_of(found) if found is not None else None, await journal.start())
    if verdict is Verdict.OLDER:
        raise StoreDamaged(
            f"the journal of shard {journal.shard} ends after {state.applied} entries, but {mark.entry + 1} "
            f"were durable, as {key} in the data says: the metadata store is an older copy, such as one that "
            f"was restored from a backup of its own. {_REMEDY}"
        )
    if verdict is Verdict.ANOTHER:
        raise StoreDamaged(
            f"entry {mark.entry} of the journal of shard {journal.shard} is not the one that {key} in the "
            f"data names: a gateway has gone on with an older copy of the metadata store. {_REMEDY}"
        )


_REMEDY: Final = (
    "Put back the newest copy; if there is none, give the metadata an empty place (another --metadata, or "
    "move this one away) and run `dragoman ledger restore`"
)


async def newest_mark(blobs: Blobs, shard: int, state: LedgerState) -> tuple[str, Mark | None]:
    """The newest mark of this journal and its key; ("", None) if there is none. StoreDamaged, StoreTooNew if
    it cannot be read. An owner that puts marks meanwhile deletes older ones, but not often."""
    for _ in range(ATTEMPTS):
        keys = [key for key in await mark_keys(blobs, shard) if not is_set_aside(key, state)]
        if not keys:
            return "", None
        try:
            return keys[-1], _decode(await blobs.get(keys[-1]), keys[-1])
        except NotFound:
            continue
    raise StoreLocked("another gateway puts marks again and again: start only one")


def is_set_aside(key: str, state: LedgerState) -> bool:
    """Whether this mark is of a journal that a restore has replaced: every mark that was there then has an
    earlier time in its key than the restore, and every mark of this journal a later one."""
    return created_ms(key) < max((record.kept_to_ms for record in state.restores), default=0)


async def mark_keys(blobs: Blobs, shard: int) -> list[str]:
    """Of all marks, in the order of their entries. A blob with another name is none."""
    keys: list[str] = []
    after = ""
    while page := await blobs.list(_prefix(shard), after, PAGE):
        keys += [info.key for info in page if _NAME.fullmatch(info.key.rpartition("/")[2])]
        after = page[-1].key
    return keys


def older_marks(keys: Sequence[str], own: str, state: LedgerState) -> list[str]:
    """Those of `keys` that are of no use after the mark `own`. Never one of a later entry of this journal,
    which another gateway has put meanwhile."""
    return [key for key in keys if key < own or (key != own and is_set_aside(key, state))]


def new_mark_key(shard: int, entry: int, made_ms: int, random: RandomBytes) -> str:
    return f"{_prefix(shard)}{entry:020d}-{_name(made_ms, random)}"


def _name(made_ms: int, random: RandomBytes) -> uuid.UUID:
    return uuid7(made_ms, random(RANDOM_BYTES))


def _prefix(shard: int) -> str:
    return f"mark/{shard}/"


def encode_mark(mark: Mark) -> bytes:
    fields: dict[str, object] = {
        "version": VERSION,
        "cluster_id": mark.cluster_id,
        "epoch": mark.epoch,
        "entry": mark.entry,
        "nonce": mark.nonce.hex(),
    }
    if mark.has_ended:
        fields["ended"] = True
    return json.dumps(fields).encode()


def _decode(data: bytes, key: str) -> Mark:
    try:
        fields = json.loads(data)
        version = int(fields["version"])
        if version <= VERSION:
            nonce = bytes.fromhex(fields["nonce"])
            epoch, entry, has_ended = int(fields["epoch"]), int(fields["entry"]), bool(fields.get("ended"))
            return Mark(str(fields["cluster_id"]), epoch, entry, nonce, has_ended)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StoreDamaged(
            f"the blob {key}, which names the newest durable entry, is damaged; delete it if the metadata "
            "store is surely the newest copy"
        ) from None
    raise StoreTooNew(f"the blob {key} has format version {version}, this build knows up to {VERSION}")
