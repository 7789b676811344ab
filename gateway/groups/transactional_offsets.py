"""Offsets that are committed with a transaction (TxnOffsetCommit): until its end they pend in the ledger.

The group coordinator checks the member, and in the same event-loop iteration the offsets are submitted to the
shard, as those of OffsetCommit are. A broker looks at the producer first: so does this, in the ledger.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.coordination.ledger import Ledger
from gateway.groups.coordinator import GroupCoordinator
from gateway.groups.events import log_limit
from gateway.groups.limits import MAX_GROUPS
from gateway.groups.messages import RETRIABLE
from gateway.groups.offset_manager import Committer, OffsetManager, parts_of
from ledger.errors import ErrorName, StoreError
from ledger.groups.requests import OffsetsStored
from ledger.groups.state import OffsetRow
from ledger.requests import LedgerResult, Refused
from ledger.transactions.requests import PendOffsets

_NONE: Final = ErrorName.NONE


class TransactionalProducer(NamedTuple):
    """The producer as it names itself. `adds`: of transaction version 2, whose groups are added by their
    first offsets."""

    transactional_id: str
    producer_id: int
    epoch: int
    adds: bool


class TransactionalOffsets:
    """Pending offsets of all groups."""

    def __init__(self, shard: Ledger, groups: GroupCoordinator, offsets: OffsetManager) -> None:
        self._shard = shard
        self._groups = groups
        self._offsets = offsets

    async def commit(
        self,
        producer: TransactionalProducer,
        committer: Committer,
        rows: Sequence[OffsetRow],
        deadline: float,
    ) -> list[ErrorName]:
        """Make offsets durable that are committed with the transaction. Returns an error's name for each row.
        `deadline` is loop time."""
        group_id, member_id, instance_id, generation = committer
        if not group_id:
            return [ErrorName.INVALID_GROUP_ID] * len(rows)
        if not producer.transactional_id:
            return [ErrorName.INVALID_REQUEST] * len(rows)
        error = self._groups.check_commit(group_id, member_id, instance_id, generation, in_transaction=True)
        if error is None and self._offsets.has_max_groups(group_id):
            log_limit(MAX_GROUPS, group_id)
            error = ErrorName.GROUP_MAX_SIZE_REACHED
        if error is not None:
            # The producer adds the group nevertheless, and its own errors come first.
            (refused,) = await self._submit(producer, group_id, [[]], deadline)
            confirmed = await self._groups.confirm_refusal(group_id, error, deadline)
            return [refused.error if isinstance(refused, Refused) else confirmed] * len(rows)
        known = self._offsets.of(group_id)
        errors = self._offsets.check_rows(group_id, rows, known)
        accepted = [at for at, each in enumerate(errors) if each == _NONE]
        parts = list(parts_of(rows, accepted)) or [[]]
        submitted = [[rows[at] for at in part] for part in parts]
        results = await self._submit(producer, group_id, submitted, deadline)
        for part, result in zip(parts, results, strict=True):
            if isinstance(result, Refused):
                # Whatever else is wrong with single offsets: a broker has not looked at them.
                return [result.error] * len(rows)
            assert isinstance(result, OffsetsStored)
            for at, one in zip(part, result.results, strict=True):
                errors[at] = _NONE if one is None else one.error
        return errors

    async def _submit(
        self,
        producer: TransactionalProducer,
        group_id: str,
        parts: Sequence[Sequence[OffsetRow]],
        deadline: float,
    ) -> list[LedgerResult]:
        """One request a part, all submitted in this iteration of the event loop."""
        transactional_id, producer_id, epoch, adds = producer
        pending = [
            self._shard.submit(PendOffsets(group_id, transactional_id, producer_id, epoch, part, adds))
            for part in parts
        ]
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.gather(*pending)
        except (StoreError, TimeoutError) as error:
            return [Refused(RETRIABLE, str(error))] * len(parts)
