"""Moves a ledger with its records from embedded stores to others, step by step (docs/decisions/0037).

1. The other place is claimed for this cluster, as one that a ledger is arriving at: no gateway starts there.
2. Objects are copied, then a snapshot.
3. The place that is left is claimed for the entry with which the journal will begin: no gateway starts there.
4. The journal begins in the other place.
5. The other place is claimed for that entry. This one create-only put is the move: before it the ledger is in
   the place that is left, after it in the other.
6. The claim of the place that was left says so.

A process may die at any step. The next one finds by the claims where it is to go on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import structlog

from gateway.coordination.blob_keys import new_snapshot_key
from gateway.coordination.claim import (
    Claim,
    Move,
    MoveState,
    delete_claims,
    encode_claim,
    newest_claim,
    next_key,
    put_claim,
    verify_data,
)
from gateway.coordination.cluster_id import claim_cluster_id, cluster_id_in
from gateway.coordination.mark import mark_keys
from gateway.coordination.recovery import Recovered, snapshot_keys
from gateway.host import RandomBytes, random_bytes
from gateway.offline.backup import all_objects, is_empty, is_lone_index, pins_released
from gateway.offline.move_plan import MovePlan
from gateway.offline.object_copies import ATTEMPTS, FIRST_PAUSE_S, Copied, ObjectCopies, Pause, Progress
from ledger.cluster.owners import NO_GATEWAY
from ledger.cluster.records import OwnerChanged
from ledger.errors import AlreadyExists, OutcomeUnknown, StoreError, StoreUnavailable
from ledger.formats.snapshot import Snapshot, encode_snapshot
from ledger.image import all_rows
from ledger.journal import MAX_ENTRY_BYTES, NONCE_BYTES, encode_entry, nonce_of
from ledger.ports import Blobs, ImageStore, Journal, SegmentStore
from ledger.registry import encode_record
from ledger.state import LedgerState

log = structlog.get_logger(__name__)

T = TypeVar("T")
SETTLED_S: Final = 120.0
"""A store that is asked to delete something has done so by then, or never will: a client gives a request up
after 30 s, and a request whose client is gone is carried out within seconds."""
BEGUN_BYTES: Final = 4 * MAX_ENTRY_BYTES
"""More than the two entries with which a journal begins."""


class MoveRefused(StoreError):
    """The ledger stays where it is, or has moved already; the message says what to do instead."""


@dataclass(frozen=True, slots=True)
class Place:
    """The stores of one ledger."""

    journal: Journal
    segments: SegmentStore
    blobs: Blobs
    image: ImageStore | None


@dataclass(frozen=True, slots=True)
class MoveSummary:
    """What was moved, or would be. `moved` False: the ledger stays where it was. `missing`: locators of
    objects; `damaged`: sentences, each with one. With any of them, and unless they are accepted, the ledger
    stays."""

    moved: bool
    metadata: str
    data: str
    cluster_id: str
    feature_level: int
    journal_entries: int
    topics: int
    partitions: int
    groups: int
    committed_offsets: int
    objects: int
    size_bytes: int
    kept_objects: int
    left_objects: int
    copied_objects: int = 0
    copied_bytes: int = 0
    there_before: int = 0
    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


def summary(state: LedgerState, plan: MovePlan, metadata: str, data: str) -> MoveSummary:
    """Of a move that has not begun."""
    groups = state.groups
    return MoveSummary(
        moved=False,
        metadata=metadata,
        data=data,
        cluster_id=state.cluster_id,
        feature_level=state.feature_level,
        journal_entries=state.applied,
        topics=len(state.topics.by_id),
        partitions=sum(len(topic.partitions) for topic in state.topics.by_id.values()),
        groups=len({*groups.by_id, *groups.offsets}),
        committed_offsets=sum(len(offsets) for offsets in groups.offsets.values()),
        objects=len(plan.objects),
        size_bytes=plan.size_bytes,
        kept_objects=plan.kept,
        left_objects=plan.left,
        missing=plan.missing,
    )


async def interrupted_move(blobs: Blobs, shard: int, metadata: str, data: str) -> Claim | None:
    """The claim of a move to these stores that has come to its third step, from the blobs of the place that
    it leaves. MoveRefused if that of another move is there."""
    _, claim = await newest_claim(blobs, shard)
    if claim is None or claim.move is None:
        return None
    move = claim.move
    if move.state is MoveState.ARRIVING:
        raise MoveRefused(
            "a ledger is being moved to this place, and that is not complete: run that move again"
        )
    if (move.metadata, move.data) != (metadata, data):
        has = "has moved" if move.state is MoveState.LEFT else "is at the last step of a move"
        raise MoveRefused(
            f"the ledger {has} to metadata {move.metadata} and data {move.data}: name these with "
            "--to-metadata and --to-data"
        )
    return claim


def has_left(claim: Claim | None) -> bool:
    """Whether the move of this claim is complete, so that the other place need not be opened."""
    return claim is not None and claim.move is not None and claim.move.state is MoveState.LEFT


class LedgerMove:
    """One run of a move from a place that this process alone has open."""

    def __init__(  # noqa: PLR0913 - two places, their names, and what the host decides
        self,
        source: Place,
        target: Place,
        metadata: str,
        data: str,
        clock: Callable[[], int],
        random: RandomBytes = random_bytes,
        pause: Pause = asyncio.sleep,
    ) -> None:
        """`metadata` and `data` name the target to operators, without secrets."""
        self._source = source
        self._target = target
        self._metadata = metadata
        self._data = data
        self._clock = clock
        self._random = random
        self._pause = pause
        self._shard = source.journal.shard

    async def run(
        self,
        recovered: Recovered,
        plan: MovePlan,
        on_progress: Callable[[Progress], None],
        *,
        accept_damage: bool = False,
    ) -> MoveSummary:
        """All steps that are left. MoveRefused, and the errors of the stores: then the same call by a later
        process goes on."""
        state = recovered.state
        planned = summary(state, plan, self._metadata, self._data)
        leaving = await interrupted_move(self._source.blobs, self._shard, self._metadata, self._data)
        if leaving is not None:
            await self._complete(leaving)
            return replace(planned, moved=True)
        await verify_data(self._source.journal, self._source.blobs, state)
        there = await self._arrive(state)
        copies = ObjectCopies(self._source.segments, self._target.blobs, on_progress, pause=self._pause)
        copied = await copies.copy(plan, there, damaged_too=accept_damage)
        planned = _copied(planned, copied)
        if (plan.missing or copied.damaged) and not accept_damage:
            return planned
        await self._put_snapshot(recovered)
        leaving = await self._leave(state)
        await self._complete(leaving)
        return replace(planned, moved=True)

    async def cancel(self, leaving: Claim) -> None:
        """Make the place that was about to be left the only one again. MoveRefused if the ledger has
        moved."""
        assert leaving.move is not None
        if has_left(leaving):
            raise self._has_moved()
        # What the journal there has begun with stays: a deletion that takes effect late might meet a later
        # move. The claim says that it may be there.
        await self._persist(lambda: self._keep_from_completing(leaving))
        await self._put_back(leaving.move.replaced)

    async def _keep_from_completing(self, leaving: Claim) -> None:
        """Take the key of the put that would complete the move, which may still be under way: only one of the
        two can be there."""
        key, completed, keys = await self._next_claim(leaving)
        if completed is not None:
            raise self._has_moved()
        assert leaving.move is not None
        given_up = replace(self._move(MoveState.ARRIVING), begin=leaving.move.begin)
        arriving = replace(leaving, nonce=self._random(NONCE_BYTES), move=given_up)
        try:
            await self._target.blobs.put(key, [encode_claim(arriving)])
        except AlreadyExists as error:
            raise OutcomeUnknown(str(error)) from error
        # A gateway that has begun there may have deleted the claim with which the move was completed.
        if await self._is_completed(leaving) is not None:
            raise self._has_moved()
        await delete_claims(self._target.blobs, keys)

    def _has_moved(self) -> MoveRefused:
        return MoveRefused(
            f"the ledger has moved to metadata {self._metadata} and data {self._data}: start the gateway "
            "there"
        )

    # The steps

    async def _arrive(self, state: LedgerState) -> dict[str, int]:
        """Claim the target. Returns the sizes of the objects that it has."""
        blobs = self._target.blobs
        owner = await cluster_id_in(blobs)
        keys, claim = await newest_claim(blobs, self._shard)
        found = [found async for found in all_objects(self._target.segments)]
        there = {one.locator: one.size for one in found if not is_lone_index(one)}
        if owner not in (None, state.cluster_id):
            raise self._refused("its data belongs to another cluster")
        if claim is not None and (claim.move is None or claim.move.state is not MoveState.ARRIVING):
            raise self._refused("its data belongs to a ledger already")
        if claim is None and found:
            raise self._refused("its data has objects of something else")
        if await mark_keys(blobs, self._shard):
            # A start would compare the journal with them.
            raise self._refused("its data names the newest entry of another journal (mark/)")
        if claim is not None and claim.cluster_id != state.cluster_id:
            raise self._refused("another ledger is being moved there")
        if claim is not None and claim.move is not None and claim.move.begin:
            await self._clear(claim.entry, claim.move.begin)
        if not await is_empty(self._target.journal):
            raise self._refused("its metadata store holds a journal")
        await claim_cluster_id(blobs, state.cluster_id, lasting=True)
        arriving = Claim(
            state.cluster_id,
            state.epoch + 1,
            state.applied,
            self._random(NONCE_BYTES),
            self._move(MoveState.ARRIVING),
        )
        await self._persist(lambda: self._put_own(blobs, next_key(keys, self._shard), arriving))
        await delete_claims(blobs, keys)
        if self._target.image is not None:
            await self._target.image.remove()
        return there

    async def _clear(self, number: int, begin: bytes) -> None:
        """Remove what the journal has begun with in a move that was given up, or may have. The claim says so
        until this is over: a process that dies here leaves it to the next."""
        journal = self._target.journal
        if await self._has_begun(number, begin, None) is None:
            raise self._refused("its metadata store holds a journal")
        for _ in range(ATTEMPTS):
            await self._persist(lambda: journal.discard(number))
            # An earlier process may have died with puts or deletions under way, and a call that was made
            # again may take effect twice: that would take away what this move puts under the same keys.
            log.warning("move.waits", seconds=SETTLED_S, reason="what a move before may have under way")
            await self._pause(SETTLED_S)
            if await is_empty(journal):
                return

    async def _put_snapshot(self, recovered: Recovered) -> None:
        state, blobs = recovered.state, self._target.blobs
        earlier = await snapshot_keys(blobs, self._shard)
        snapshot = Snapshot(state.applied, recovered.nonce, list(all_rows(state)))
        data = await asyncio.to_thread(encode_snapshot, snapshot)
        now_ms = max(self._clock(), state.entry_time_ms)
        key = new_snapshot_key(self._shard, state.applied, now_ms, self._random)

        async def put() -> None:
            try:
                await blobs.put(key, [data])
            except AlreadyExists:
                log.info("move.snapshot_in_place", key=key)

        await self._persist(put)
        # Of moves that were interrupted, after which the ledger went on.
        await self._persist(lambda: blobs.delete(earlier))

    async def _leave(self, state: LedgerState) -> Claim:
        owner = OwnerChanged(state.epoch + 1, NO_GATEWAY, self._random(NONCE_BYTES))
        now_ms = max(self._clock(), state.entry_time_ms)
        records = [encode_record(each, state.feature_level) for each in (owner, *pins_released(state))]
        begin = encode_entry(owner.epoch, now_ms, self._random(NONCE_BYTES), records)
        _, replaced = await newest_claim(self._source.blobs, self._shard)
        move = replace(self._move(MoveState.LEAVING), begin=begin, replaced=replaced)
        leaving = Claim(state.cluster_id, owner.epoch, state.applied, nonce_of(begin), move)
        await put_claim(self._source.blobs, self._shard, leaving, is_restored=True)
        return leaving

    async def _complete(self, leaving: Claim) -> None:
        assert leaving.move is not None
        if has_left(leaving):
            return
        key, claim, keys = await self._next_claim(leaving)
        if claim is None:
            await self._persist(lambda: self._begin(leaving))
            arrived = replace(leaving, move=None)
            await self._persist(lambda: self._put_own(self._target.blobs, key, arrived))
            await delete_claims(self._target.blobs, keys)
        left = replace(leaving, move=replace(leaving.move, state=MoveState.LEFT))
        await put_claim(self._source.blobs, self._shard, left, is_restored=True)

    async def _begin(self, leaving: Claim) -> None:
        """The journal in the target, whole, whatever an earlier attempt has left of it."""
        assert leaving.move is not None
        journal, number, begin = self._target.journal, leaving.entry, leaving.move.begin
        # With it in the journal no snapshot of another journal is taken for one of this.
        before = await self._source.journal.get(number - 1)
        has_begun = await self._has_begun(number, begin, before)
        if has_begun is None:
            raise self._refused("its metadata store holds a journal")
        if has_begun:
            return
        # Only what is missing is put, and nothing is deleted: a deletion that takes effect late would take
        # away what was put since.
        try:
            await journal.begin(number, begin, before)
        except StoreUnavailable:
            raise
        except StoreError as error:
            raise OutcomeUnknown(str(error)) from error

    async def _has_begun(self, number: int, begin: bytes, before: bytes | None) -> bool | None:
        """Whether all of the journal's beginning is in the target; None if something else is. Without
        `before` any entry may be in its place."""
        journal = self._target.journal
        page = await journal.read(0, BEGUN_BYTES)
        found = {stored.number: stored.data for stored in page.entries}
        start, first = await journal.start(), number if before is None else number - 1
        others = found.keys() - {number, number - 1}
        is_other = found.get(number, begin) != begin or (
            before is not None and found.get(number - 1, before) != before
        )
        if others or is_other or start not in (0, number - 1, number):
            return None
        return start == first and number in found and (before is None or number - 1 in found)

    # Claims

    async def _next_claim(self, leaving: Claim) -> tuple[str, Claim | None, list[str]]:
        """The key of the target's next claim, the claim with which the move was completed if it was, and the
        keys of all claims there."""
        keys, newest = await newest_claim(self._target.blobs, self._shard)
        completed = await self._is_completed(leaving)
        if completed is None and (newest is None or newest.move is None):
            raise self._refused("it is not the place that was being moved to, or something was removed there")
        return next_key(keys, self._shard), completed, keys

    async def _is_completed(self, leaving: Claim) -> Claim | None:
        """The target's newest claim if the ledger is there: its entry may be one of a gateway that has begun
        since."""
        _, newest = await newest_claim(self._target.blobs, self._shard)
        if newest is None or newest.move is not None or newest.cluster_id != leaving.cluster_id:
            return None
        assert leaving.move is not None
        has_begun = await self._target.journal.get(leaving.entry) == leaving.move.begin
        return newest if has_begun else None

    async def _put_own(self, blobs: Blobs, key: str, claim: Claim) -> None:
        """AlreadyExists if there is another under the key."""
        data = encode_claim(claim)
        try:
            await blobs.put(key, [data])
        except AlreadyExists:
            if await blobs.get(key) != data:
                raise

    async def _put_back(self, replaced: Claim | None) -> None:
        if replaced is not None:
            await put_claim(self._source.blobs, self._shard, replaced, is_restored=True)
            return
        keys, _ = await newest_claim(self._source.blobs, self._shard)
        await self._source.blobs.delete(keys)

    def _move(self, state: MoveState) -> Move:
        return Move(state, self._metadata, self._data)

    def _refused(self, why: str) -> MoveRefused:
        return MoveRefused(
            f"the ledger cannot move to metadata {self._metadata} and data {self._data}: {why}; choose an "
            "empty place (--to-metadata, --to-data)"
        )

    async def _persist(self, call: Callable[[], Awaitable[T]]) -> T:
        """The same call again, after pauses, while it is unknown whether it had its effect."""
        pause_s = FIRST_PAUSE_S
        for _ in range(ATTEMPTS - 1):
            try:
                return await call()
            except (StoreUnavailable, OutcomeUnknown) as error:
                log.info("move.call_failed", error=str(error), retry_s=pause_s)
                await self._pause(pause_s)
                pause_s *= 2
        return await call()


def _copied(planned: MoveSummary, copied: Copied) -> MoveSummary:
    return replace(
        planned,
        copied_objects=copied.objects,
        copied_bytes=copied.size_bytes,
        there_before=copied.there,
        damaged=sorted(copied.damaged),
    )
