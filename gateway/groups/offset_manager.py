"""The offset manager: commits and removes the offsets of groups, and makes that durable.

The group coordinator checks a commit, and in the same event-loop iteration it is submitted to the shard.
Whatever the group decides later follows in the journal, so no commit of an older generation overwrites one of
a newer one.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from gateway.completion import Completion
from gateway.coordination.ledger import Ledger
from gateway.groups.coordinator import GroupCoordinator
from gateway.groups.describe import EMPTY
from gateway.groups.events import log_limit
from gateway.groups.limits import MAX_GROUPS, OFFSET_BYTES, exceeds_max_groups
from gateway.groups.offset_commit import OUTCOME_UNKNOWN, OffsetCommit, error_name
from gateway.groups.subscriptions import CONSUMER_PROTOCOL
from gateway.settings import Settings
from gateway.timers.deadlines import Deadlines
from ledger.errors import ErrorName
from ledger.groups.requests import MAX_OFFSETS, CommitOffsets, RemoveOffsets
from ledger.groups.state import CommittedOffset, OffsetKey, OffsetRow
from ledger.requests import LedgerResult, Refused
from ledger.transactions.state import Transactions

MAX_COMMIT_BYTES: Final = 128 * 1024
"""Of one request to the shard; a larger commit becomes several."""
ROW_BYTES: Final = 64
NO_OFFSETS: Final[Mapping[OffsetKey, CommittedOffset]] = {}


class Committer(NamedTuple):
    """Origin of a commit: a member of a generation, or a simple consumer without id and generation (-1)."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class OffsetManager:
    """Offsets of all groups."""

    def __init__(self, shard: Ledger, groups: GroupCoordinator, settings: Settings) -> None:
        self._shard = shard
        self._groups = groups
        self._metadata_units = settings.groups.offset_metadata_max_bytes
        self._max_groups = settings.limits.groups
        self._max_bytes = settings.limits.offset_bytes
        self.deadlines = Deadlines()

    def close(self) -> None:
        """Cancel all deadlines."""
        self.deadlines.close()

    def of(self, group_id: str) -> Mapping[OffsetKey, CommittedOffset]:
        """The group's offsets as they are known here and now, those of deleted topics included."""
        return self._shard.state.groups.offsets.get(group_id, NO_OFFSETS)

    async def commit(
        self, committer: Committer, rows: Sequence[OffsetRow], deadline: float
    ) -> list[ErrorName]:
        """Make offsets durable. Returns an error's name for each row, ErrorName.NONE for a committed one.

        GROUP_ID_NOT_FOUND: the commit names a generation of a group that does not exist.
        """
        committed: asyncio.Future[list[ErrorName]] = asyncio.get_running_loop().create_future()
        commit = self.start(committer, rows, deadline, committed)
        try:
            return await committed
        finally:
            commit.cancel()

    def start(
        self,
        committer: Committer,
        rows: Sequence[OffsetRow],
        deadline: float,
        completion: Completion[list[ErrorName]],
    ) -> OffsetCommit:
        """The same without waiting: in the order of these calls. It may be complete before this returns."""
        commit = OffsetCommit(completion, self.deadlines)
        group_id, member_id, instance_id, generation = committer
        error = self._groups.check_commit(group_id, member_id, instance_id, generation)
        if error is not None:
            confirm = partial(self._confirm_refusal, group_id, error, len(rows), deadline)
            commit.refuse(confirm, len(rows), deadline)
        elif self.has_max_groups(group_id):
            log_limit(MAX_GROUPS, group_id)
            full = [ErrorName.GROUP_MAX_SIZE_REACHED] * len(rows)
            commit.submit_parts(
                self._shard, group_id, rows, self._proved(commit, full, deadline), (), deadline
            )
        else:
            self._submit(commit, group_id, rows, deadline)
        return commit

    def _submit(
        self, commit: OffsetCommit, group_id: str, rows: Sequence[OffsetRow], deadline: float
    ) -> None:
        offsets = self.of(group_id)
        errors = self.check_rows(group_id, rows, offsets)
        whole = CommitOffsets(group_id, rows)
        if (
            len(rows) <= MAX_OFFSETS
            and whole.weight <= MAX_COMMIT_BYTES
            and errors == [ErrorName.NONE] * len(rows)
        ):
            commit.submit(self._shard, whole, deadline)
            return
        accepted = [i for i, error in enumerate(errors) if error == ErrorName.NONE]
        errors = self._proved(commit, errors, deadline)
        commit.submit_parts(self._shard, group_id, rows, errors, list(parts_of(rows, accepted)), deadline)

    def _proved(self, commit: OffsetCommit, errors: list[ErrorName], deadline: float) -> list[ErrorName]:
        """The same, but rows that are refused by what is committed so far have no result before a proof."""
        error = ErrorName.GROUP_MAX_SIZE_REACHED
        full = [i for i, each in enumerate(errors) if each == error]
        if full and not self._shard.is_exclusive:
            commit.refuse_part(partial(self._groups.confirmed, error, deadline), full)
            return [OUTCOME_UNKNOWN if each == error else each for each in errors]
        return errors

    async def remove(
        self, group_id: str, keys: Sequence[tuple[str, OffsetKey]], deadline: float
    ) -> ErrorName | list[ErrorName]:
        """Remove the offsets of these (topic name, key). Returns one error's name for all, or one each; it is
        no error if an offset does not exist."""
        group = self._groups.listing(group_id)
        if group is None:
            return await self._groups.confirmed(ErrorName.GROUP_ID_NOT_FOUND, deadline)
        has_members = group.state != EMPTY
        if has_members and group.protocol_type != CONSUMER_PROTOCOL:
            return await self._groups.confirmed(ErrorName.NON_EMPTY_GROUP, deadline)
        subscribed = self._groups.subscribed_topics(group_id) if has_members and keys else frozenset()
        removable = [
            i for i, (name, _) in enumerate(keys) if subscribed is not None and name not in subscribed
        ]
        parts = [removable[at : at + MAX_OFFSETS] for at in range(0, len(removable), MAX_OFFSETS)]
        pending = [self._shard.submit(RemoveOffsets(group_id, [keys[i][1] for i in part])) for part in parts]
        errors = [ErrorName.NONE] * len(keys)
        if len(removable) < len(keys):
            subscribed_error = ErrorName.GROUP_SUBSCRIBED_TO_TOPIC
            errors = [await self._groups.confirmed(subscribed_error, deadline)] * len(keys)
        for part, result in zip(parts, await self._results(pending, deadline), strict=True):
            for i in part:
                errors[i] = result.error if isinstance(result, Refused) else ErrorName.NONE
        return errors

    async def _confirm_refusal(
        self, group_id: str, error: ErrorName, count: int, deadline: float
    ) -> list[ErrorName]:
        error = await self._groups.confirm_refusal(group_id, error, deadline)
        is_missing = error == ErrorName.ILLEGAL_GENERATION and self._groups.listing(group_id) is None
        return [ErrorName.GROUP_ID_NOT_FOUND if is_missing else error] * count

    def has_max_groups(self, group_id: str) -> bool:
        """Whether the group is new, and there are as many as may be."""
        groups = self._shard.state.groups
        return not groups.has(group_id) and exceeds_max_groups(
            group_id, len(groups.offsets), self._max_groups
        )

    def check_rows(
        self, group_id: str, rows: Sequence[OffsetRow], offsets: Mapping[OffsetKey, CommittedOffset]
    ) -> list[ErrorName]:
        """The error of each offset to commit, by its size, or NONE; `offsets` of its group."""
        errors = [self._check_row(row, offsets) for row in rows]
        if ErrorName.GROUP_MAX_SIZE_REACHED in errors:
            log_limit(OFFSET_BYTES, group_id)
        return errors

    def _check_row(self, row: OffsetRow, offsets: Mapping[OffsetKey, CommittedOffset]) -> ErrorName:
        if row.metadata and not self._fits(row.metadata):
            return ErrorName.OFFSET_METADATA_TOO_LARGE
        state = self._shard.state
        if state.groups.offset_bytes + state.part(Transactions).pending_bytes < self._max_bytes:
            return ErrorName.NONE
        before = offsets.get((row.topic_id, row.partition))
        # Existing offsets may be replaced; commits that need more memory are refused.
        grows = before is None or len(row.metadata) > len(before.metadata)
        return ErrorName.GROUP_MAX_SIZE_REACHED if grows else ErrorName.NONE

    def _fits(self, metadata: str) -> bool:
        """Kafka counts UTF-16 code units, whatever the config's name says."""
        if 2 * len(metadata) <= self._metadata_units:
            return True
        return len(metadata.encode("utf-16-le")) // 2 <= self._metadata_units

    async def _results(
        self, pending: Sequence[asyncio.Future[LedgerResult]], deadline: float
    ) -> list[LedgerResult]:
        """In order. A failure becomes a refusal that says whether it is certain or the outcome unknown."""
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.gather(*pending, return_exceptions=True)
        except TimeoutError:
            pass
        return [_result(future) for future in pending]


def parts_of(rows: Sequence[OffsetRow], accepted: Sequence[int]) -> Iterator[list[int]]:
    """Divide `accepted` (indexes of rows) into parts that fit a journal entry."""
    part: list[int] = []
    size = 0
    for i in accepted:
        # A character may need four bytes.
        cost = ROW_BYTES + 4 * len(rows[i].metadata)
        if part and (len(part) == MAX_OFFSETS or size + cost > MAX_COMMIT_BYTES):
            yield part
            part, size = [], 0
        part.append(i)
        size += cost
    if part:
        yield part


def _result(future: asyncio.Future[LedgerResult]) -> LedgerResult:
    if future.cancelled() or not future.done():
        return Refused(OUTCOME_UNKNOWN)
    error = future.exception()
    return future.result() if error is None else Refused(error_name(error))
