"""The room of committed offsets: who may commit or forget them, and how they become durable.

What a member may do is judged in the groups room and submitted to the shard within the same turn of the event
loop: whatever the group decides later stands behind it in the journal, so no commit of an older generation
lands on a newer one.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from gateway.config import Settings
from gateway.coordination.deadlines import Deadlines
from gateway.coordination.shard import Shard
from gateway.groups.commits import NONE, NOT_NOW, Commit, Tell, why_not_stored
from gateway.groups.room import DENIALS, GroupsRoom
from gateway.groups.states import State
from gateway.groups.values import is_one_too_many
from gateway.groups.views import CONSUMER_PROTOCOL
from ledger.errors import StoreError
from ledger.groups import CommittedOffset, OffsetKey, OffsetRow
from ledger.requests import (
    MAX_OFFSETS,
    Answer,
    CommitOffsets,
    Refused,
    RemoveOffsets,
)

COMMIT_BYTES: Final = 128 * 1024
"""Of one request to the shard; a larger commit becomes several."""
ROW_BYTES: Final = 64
NOTHING: Final[Mapping[OffsetKey, CommittedOffset]] = {}


class Committer(NamedTuple):
    """Who commits: a member of a generation, or with neither id nor generation (-1) a simple consumer."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class CommittedOffsets:
    """Offsets of all groups."""

    def __init__(self, shard: Shard, groups: GroupsRoom, settings: Settings) -> None:
        self._shard = shard
        self._groups = groups
        self._metadata_units = settings.groups.offset_metadata_max_bytes
        self._most_groups = settings.limits.groups
        self._most_bytes = settings.limits.offset_bytes
        self.deadlines = Deadlines()

    def close(self) -> None:
        """No deadline is due any more."""
        self.deadlines.close()

    def of(self, group_id: str) -> Mapping[OffsetKey, CommittedOffset]:
        """What is known here and now, those of deleted topics included."""
        return self._shard.state.groups.offsets.get(group_id, NOTHING)

    async def commit(self, who: Committer, rows: Sequence[OffsetRow], deadline: float) -> list[str]:
        """Make offsets durable. One error's name a row, NONE for a committed one.

        GROUP_ID_NOT_FOUND: a generation of a group that is not there.
        """
        told: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        commit = self.start(who, rows, deadline, partial(_set_result, told))
        try:
            return await told
        finally:
            commit.cancel()

    def start(self, who: Committer, rows: Sequence[OffsetRow], deadline: float, tell: Tell) -> Commit:
        """The same without waiting: in the order of these calls. Perhaps told before this returns."""
        commit = Commit(tell, self.deadlines)
        error = self._groups.check_commit(who.group_id, who.member_id, who.instance_id, who.generation)
        if error is not None:
            proof = partial(self._denied, who.group_id, error, len(rows), deadline)
            commit.deny(proof, len(rows), deadline)
        elif self._is_full(who.group_id):
            commit.end(["GROUP_MAX_SIZE_REACHED"] * len(rows))
        else:
            self._submit(commit, who.group_id, rows, deadline)
        return commit

    def _submit(self, commit: Commit, group_id: str, rows: Sequence[OffsetRow], deadline: float) -> None:
        held = self.of(group_id)
        errors = [self._why_not(row, held) for row in rows]
        whole = CommitOffsets(group_id, rows)
        if len(rows) <= MAX_OFFSETS and whole.weight <= COMMIT_BYTES and errors == [NONE] * len(rows):
            commit.submit(self._shard, whole, deadline)
            return
        taken = [i for i, error in enumerate(errors) if error == NONE]
        commit.submit_parts(self._shard, group_id, rows, errors, list(_parts(rows, taken)), deadline)

    async def remove(
        self, group_id: str, keys: Sequence[tuple[str, OffsetKey]], deadline: float
    ) -> str | list[str]:
        """Forget offsets of (topic name, key). One error's name for all, or one each; one that is not there
        is no error."""
        view = self._groups.view(group_id)
        if view is None:
            return await self._proved("GROUP_ID_NOT_FOUND", deadline)
        is_alive = view.state != State.EMPTY.value
        if is_alive and view.protocol_type != CONSUMER_PROTOCOL:
            return "NON_EMPTY_GROUP"
        subscribed = self._groups.subscribed_topics(group_id) if is_alive else frozenset()
        going = [i for i, (name, _) in enumerate(keys) if subscribed is not None and name not in subscribed]
        parts = [going[at : at + MAX_OFFSETS] for at in range(0, len(going), MAX_OFFSETS)]
        asked = [self._shard.submit(RemoveOffsets(group_id, [keys[i][1] for i in part])) for part in parts]
        errors = ["GROUP_SUBSCRIBED_TO_TOPIC"] * len(keys)
        for part, answer in zip(parts, await self._answers(asked, deadline), strict=True):
            for i in part:
                errors[i] = answer.error if isinstance(answer, Refused) else NONE
        return errors

    async def _denied(self, group_id: str, error: str, count: int, deadline: float) -> list[str]:
        error = await self._groups.denied(group_id, error, deadline)
        return [self._named(error, group_id)] * count

    def _named(self, error: str, group_id: str) -> str:
        is_missing = error == "ILLEGAL_GENERATION" and self._groups.view(group_id) is None
        return "GROUP_ID_NOT_FOUND" if is_missing else error

    def _is_full(self, group_id: str) -> bool:
        groups = self._shard.state.groups
        return not groups.has(group_id) and is_one_too_many(group_id, len(groups.offsets), self._most_groups)

    def _why_not(self, row: OffsetRow, held: Mapping[OffsetKey, CommittedOffset]) -> str:
        if row.metadata and not self._fits(row.metadata):
            return "OFFSET_METADATA_TOO_LARGE"
        if self._shard.state.groups.offset_bytes < self._most_bytes:
            return NONE
        before = held.get((row.topic_id, row.partition))
        # Whoever commits goes on; more is not taken.
        grows = before is None or len(row.metadata) > len(before.metadata)
        return "GROUP_MAX_SIZE_REACHED" if grows else NONE

    def _fits(self, metadata: str) -> bool:
        """Kafka counts UTF-16 code units, whatever the config's name says."""
        if 2 * len(metadata) <= self._metadata_units:
            return True
        return len(metadata.encode("utf-16-le")) // 2 <= self._metadata_units

    async def _proved(self, error: str, deadline: float) -> str:
        """The error, after a barrier if another coordinator may know better."""
        if error in DENIALS or error == "GROUP_ID_NOT_FOUND":
            try:
                await self._shard.barrier(deadline)
            except (StoreError, TimeoutError):
                return NOT_NOW
        return error

    async def _answers(self, asked: Sequence[asyncio.Future[Answer]], deadline: float) -> list[Answer]:
        """In order. What cannot be stored is refused for certain, or its outcome is not known."""
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.gather(*asked, return_exceptions=True)
        except TimeoutError:
            pass
        return [_answer(future) for future in asked]


def _parts(rows: Sequence[OffsetRow], taken: Sequence[int]) -> Iterator[list[int]]:
    """Cut `taken` (indexes of rows) into what one journal entry holds."""
    part: list[int] = []
    size = 0
    for i in taken:
        # A character may need four bytes.
        cost = ROW_BYTES + 4 * len(rows[i].metadata)
        if part and (len(part) == MAX_OFFSETS or size + cost > COMMIT_BYTES):
            yield part
            part, size = [], 0
        part.append(i)
        size += cost
    if part:
        yield part


def _set_result(told: asyncio.Future[list[str]], errors: list[str]) -> None:
    if not told.done():
        told.set_result(errors)


def _answer(asked: asyncio.Future[Answer]) -> Answer:
    if asked.cancelled() or not asked.done():
        return Refused(NOT_NOW)
    error = asked.exception()
    return asked.result() if error is None else Refused(why_not_stored(error))
