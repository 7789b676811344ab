"""The journal that the data belongs to: a blob next to the data names the entry that began the newest epoch.

A copy of a metadata store has the cluster id of the original. So every start claims the data for its epoch. A
journal without the entry of the newest claim is an outdated copy, or one that was continued elsewhere; its
owner would take records of the other journal for orphans.

A blob `claim/{shard}/{number}` is JSON: format version, cluster id, epoch, number and nonce of the entry.
Numbers only grow, and each is used once: of two gateways that claim at the same time, one fails.

`dragoman ledger move` claims the data of both places for entries that no journal there has, so that no
gateway starts. It has fields of its own in the blob (`Move`), which older builds pass over.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import structlog

from gateway.coordination.cluster_id import (
    claim_cluster_id,
    cluster_id_in,
    verify_cluster_id,
    verify_unclaimed,
)
from gateway.coordination.mark import verify_mark
from gateway.coordination.shard import Shard
from ledger.cluster.owners import Owners
from ledger.errors import AlreadyExists, NotFound, StoreDamaged, StoreError, StoreLocked, StoreTooNew
from ledger.journal import nonce_of
from ledger.ports import Blobs, Journal
from ledger.state import LedgerState

log = structlog.get_logger(__name__)

VERSION = 1
PAGE = 1000
ATTEMPTS = 5


class MoveState(StrEnum):
    """What a claim of a move says of the place that it is in."""

    ARRIVING = "arriving"
    """The ledger is being copied to this place."""
    LEAVING = "leaving"
    """All of it was copied from this place: the newest claim of the other place says whether it has moved."""
    LEFT = "left"
    """It is in the other place."""


@dataclass(frozen=True, slots=True)
class Move:
    """A move of the ledger to the stores with these URLs."""

    state: MoveState
    metadata: str
    data: str
    begin: bytes = b""
    """The entry with which the journal begins there: of a place that is left. In one that a ledger arrives
    at: that of a move that was given up, and may be in the journal."""
    replaced: "Claim | None" = None
    """The claim that this one is in the place of, which a cancelled move puts back."""


@dataclass(frozen=True, slots=True)
class Claim:
    """`entry` began `epoch` in the journal of this cluster."""

    cluster_id: str
    epoch: int
    entry: int
    nonce: bytes
    move: Move | None = None


async def verify_data(journal: Journal, blobs: Blobs, state: LedgerState, *, identity: str = "") -> None:
    """Call this before an epoch begins. StoreDamaged if the data belongs to another cluster, another journal
    than this has claimed it, the metadata store is not the one in which the journal was written, or the
    journal lacks an entry that was durable. `state` is that at the journal's end; `identity` of the metadata
    store: see `identity_of`."""
    verify_store(state, identity)
    if state.applied:
        await verify_cluster_id(blobs, state.cluster_id)
    await check_claim(journal, blobs)
    await verify_mark(journal, blobs, state)


def verify_store(state: LedgerState, identity: str) -> None:
    """StoreDamaged if the newest owner wrote to another metadata store than this."""
    recorded = state.part(Owners).store
    if recorded and identity and recorded != identity:
        raise StoreDamaged(
            f"the journal was written in {recorded}, and this is {identity}: the metadata store was restored "
            "from a backup of its own, or copied, and may lack what was acknowledged since. Start with the "
            "one that the journal was written in, or name an empty place for the metadata (--metadata) and "
            "run `dragoman ledger restore`, which begins a journal there from the newest snapshot of this one"
        )


async def claim_data(shard: Shard, blobs: Blobs, *, is_lasting: bool) -> None:
    """Call this right after the entry that began the epoch. A journal that is not kept claims nothing."""
    state = shard.state
    await claim_cluster_id(blobs, state.cluster_id, lasting=is_lasting)
    if is_lasting:
        claim = Claim(state.cluster_id, state.epoch, state.applied - 1, shard.replica.last_nonce)
        await put_claim(blobs, shard.journal.shard, claim)


async def is_claimed(blobs: Blobs, shard: int) -> bool:
    """Whether these blobs are next to the data of a gateway, of any cluster. Those of a backup are not."""
    return await cluster_id_in(blobs) is not None or bool(await _keys(blobs, shard))


async def check_claim(journal: Journal, blobs: Blobs) -> None:
    """Call this before anything is written. StoreDamaged if another journal than this has claimed the
    data."""
    _, claim = await newest_claim(blobs, journal.shard)
    if claim is not None and claim.move is not None:
        raise StoreDamaged(_moving(claim.move))
    if claim is not None and not await _has_begun(journal, claim):
        raise StoreDamaged(
            "the data was opened since by another copy of this metadata store (its epoch "
            f"{claim.epoch} began at journal entry {claim.entry}, which this copy does not have): "
            "the objects of that copy would be deleted. Start with the newest copy, give this one a place of "
            "its own for data (--data), or, to continue without the later records, move this one and run "
            "`dragoman ledger restore`"
        )


async def verify_place(journal: Journal, blobs: Blobs) -> None:
    """Call this before anything is read. StoreDamaged if this is a place of a move that is not completed, or
    if the data belongs to a cluster and the journal is empty."""
    _, claim = await newest_claim(blobs, journal.shard)
    if claim is not None and claim.move is not None:
        raise StoreDamaged(_moving(claim.move))
    await verify_unclaimed(journal, blobs)


def _moving(move: Move) -> str:
    to = f"to metadata {move.metadata} and data {move.data}"
    if move.state is MoveState.LEFT:
        return f"this ledger was moved {to}: start the gateway there (--metadata, --data)"
    if move.state is MoveState.LEAVING:
        return (
            f"a move of this ledger {to} was interrupted at its last step, in which neither place starts: "
            "run the same `dragoman ledger move` again, which completes it; or the same with --cancel, which "
            "gives it up, and then start the gateway here again"
        )
    return (
        "a ledger is being moved here by `dragoman ledger move`, and that is not complete: run the same "
        "command again, which goes on; or start the gateway where the ledger was, and if that says that the "
        "move was interrupted at its last step, run the command with --cancel first"
    )


async def put_claim(blobs: Blobs, shard: int, claim: Claim, *, is_restored: bool = False) -> None:
    """Claim the data. StoreLocked if another gateway does so at this moment, or has done so for a later epoch
    of the same journal; a journal that was restored (`is_restored`) goes back to an earlier one."""
    keys, newest = (await _keys(blobs, shard), None) if is_restored else await newest_claim(blobs, shard)
    if newest is not None and newest.cluster_id == claim.cluster_id and newest.epoch > claim.epoch:
        raise StoreLocked(f"another gateway has claimed the data, for epoch {newest.epoch}: start only one")
    try:
        await blobs.put(next_key(keys, shard), [encode_claim(claim)])
    except AlreadyExists:
        raise StoreLocked("another gateway claims the data at this moment: start only one") from None
    await delete_claims(blobs, keys)


def next_key(keys: list[str], shard: int) -> str:
    """Of the claim after the newest of these."""
    number = int(keys[-1].rpartition("/")[2]) + 1 if keys else 0
    return f"{_prefix(shard)}{number:020d}"


async def delete_claims(blobs: Blobs, keys: list[str]) -> None:
    """As far as possible: only the newest counts."""
    try:
        await blobs.delete(keys)
    except StoreError as error:
        log.warning("claim.older_not_deleted", error=str(error))


async def _has_begun(journal: Journal, claim: Claim) -> bool:
    """Whether the entry of the claim is in this journal. An entry that begins an epoch is never pruned: if it
    is absent, even below the journal's start, it was never there."""
    found = await journal.get(claim.entry)
    return found is not None and nonce_of(found) == claim.nonce


async def newest_claim(blobs: Blobs, shard: int) -> tuple[list[str], Claim | None]:
    """All keys of claims, and the newest claim; None if there is none. StoreDamaged, StoreTooNew if it cannot
    be read. A gateway that claims meanwhile deletes the older ones, but not often."""
    for _ in range(ATTEMPTS):
        keys = await _keys(blobs, shard)
        if not keys:
            return keys, None
        try:
            return keys, _decode(await blobs.get(keys[-1]), keys[-1])
        except NotFound:
            continue
    raise StoreLocked("other gateways claim the data again and again: start only one")


async def _keys(blobs: Blobs, shard: int) -> list[str]:
    """Oldest first; more than one only where a process died between two steps."""
    keys: list[str] = []
    while page := await blobs.list(_prefix(shard), keys[-1] if keys else "", PAGE):
        keys += [info.key for info in page]
    return keys


def _prefix(shard: int) -> str:
    return f"claim/{shard}/"


def encode_claim(claim: Claim) -> bytes:
    return json.dumps({"version": VERSION, **_fields_of(claim)}).encode()


def _fields_of(claim: Claim) -> dict[str, object]:
    fields: dict[str, object] = {
        "cluster_id": claim.cluster_id,
        "epoch": claim.epoch,
        "entry": claim.entry,
        "nonce": claim.nonce.hex(),
    }
    move = claim.move
    if move is not None:
        fields["move"] = {
            "state": move.state.value,
            "metadata": move.metadata,
            "data": move.data,
            "begin": move.begin.hex(),
            "replaced": None if move.replaced is None else _fields_of(move.replaced),
        }
    return fields


def _claim_of(fields: Mapping[str, Any]) -> Claim:
    move = fields.get("move")
    return Claim(
        str(fields["cluster_id"]),
        int(fields["epoch"]),
        int(fields["entry"]),
        bytes.fromhex(fields["nonce"]),
        None if move is None else _move_of(move),
    )


def _move_of(fields: Mapping[str, Any]) -> Move:
    replaced = fields["replaced"]
    return Move(
        MoveState(fields["state"]),
        str(fields["metadata"]),
        str(fields["data"]),
        bytes.fromhex(fields["begin"]),
        None if replaced is None else _claim_of(replaced),
    )


def _decode(data: bytes, key: str) -> Claim:
    try:
        fields = json.loads(data)
        version = int(fields["version"])
        if version <= VERSION:
            return _claim_of(fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StoreDamaged(
            f"the blob {key}, which names the owner of the data, is damaged; delete it if the metadata store "
            "is surely the newest copy"
        ) from None
    raise StoreTooNew(f"the blob {key} has format version {version}, this build knows up to {VERSION}")
