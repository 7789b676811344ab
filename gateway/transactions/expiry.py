"""Aborts transactions that take longer than their producers may, and forgets ids that no producer uses.

The machine decides (`AbortTransaction`, `ExpireTransactionalIds`); this module proposes, in bounded steps. A
transaction has timed out when that is certain: while entry time may be ahead by a jump of the clock, the jump
does not count, but the time for which this owner has seen the transaction open always does.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import structlog

from gateway.coordination.ledger import Ledger
from ledger.requests import Done, LedgerResult, Request
from ledger.transactions.decide import expirable
from ledger.transactions.requests import AbortTransaction, ExpireTransactionalIds
from ledger.transactions.state import Transaction, Transactions

log = structlog.get_logger(__name__)

_Item = TypeVar("_Item")

SLICE_IDS: Final = 1_000
"""Checked in one event-loop iteration, and forgotten by one journal entry."""
ABORTS_AT_ONCE: Final = 50
"""Submitted together: other steps of housekeeping wait for this one."""
MAX_ID_SHOWN: Final = 200
"""Characters of a transactional id in a log line."""


@dataclass(frozen=True, slots=True)
class ExpiryClocks:
    """All in ms."""

    now: Callable[[], int]
    """Entry time, which never goes back (`Ledger.now_ms`)."""
    elapsed: Callable[[], int]
    """Monotonic."""
    doubted: Callable[[], int] = field(default=lambda: 0)
    """By how much anything may be younger than entry times say."""


class _Seen(NamedTuple):
    """Since when this owner has seen a transaction open."""

    started_ms: int
    since: int


class _TimedOut(NamedTuple):
    transaction: Transaction
    open_ms: int
    partitions: int
    groups: int


class TransactionExpiry:
    """Two steps of the owner's housekeeping."""

    def __init__(
        self,
        shard: Ledger,
        clocks: ExpiryClocks,
        expiration_ms: int,
        wait_s: float,
        on_timeout: Callable[[], None] = lambda: None,
    ) -> None:
        """`expiration_ms`: how long an unused id is remembered. `on_timeout` is called for each transaction
        that was aborted."""
        self._shard = shard
        self._clocks = clocks
        self._expiration_ms = expiration_ms
        self._wait_s = wait_s
        self._on_timeout = on_timeout
        self._seen: dict[int, _Seen] = {}
        """By producer id, in this epoch: another owner may have served the time between two epochs."""
        self._epoch = 0

    async def abort_timed_out(self) -> int:
        """Returns how many transactions were aborted."""
        due = await self._find_timed_out()
        aborted = 0
        for part in _slices(due, ABORTS_AT_ONCE):
            results = await self._submit([_abort(each.transaction) for each in part])
            for each, result in zip(part, results, strict=True):
                # 0: it ended meanwhile.
                if isinstance(result, Done) and result.count:
                    aborted += 1
                    self._on_timeout()
                    _log_timeout(each)
        return aborted

    async def forget_unused(self) -> int:
        """Returns how many ids were forgotten."""
        forgotten = 0
        for names in _slices(list(self._transactions.by_id), SLICE_IDS):
            before_ms = self._clocks.now() - self._clocks.doubted() - self._expiration_ms
            due = expirable(self._shard.state, names, before_ms, SLICE_IDS)
            if due:
                (result,) = await self._submit([ExpireTransactionalIds(before_ms, SLICE_IDS, due)])
                forgotten += result.count if isinstance(result, Done) else 0
            else:
                await asyncio.sleep(0)
        if forgotten:
            log.info("transactional_ids.expired", ids=forgotten, left=len(self._transactions.by_id))
        return forgotten

    @property
    def _transactions(self) -> Transactions:
        return self._shard.state.part(Transactions)

    async def _find_timed_out(self) -> list[_TimedOut]:
        """The longest overdue first."""
        if self._epoch != self._shard.state.epoch:
            self._epoch, self._seen = self._shard.state.epoch, {}
        due: list[_TimedOut] = []
        seen: dict[int, _Seen] = {}
        for producers in _slices(list(self._transactions.open), SLICE_IDS):
            now_ms, elapsed = self._clocks.now() - self._clocks.doubted(), self._clocks.elapsed()
            for producer_id in producers:
                transaction = self._transactions.of_producer(producer_id)
                if transaction is None or not transaction.is_open:
                    continue
                before = self._seen.get(producer_id)
                if before is None or before.started_ms != transaction.started_ms:
                    before = _Seen(transaction.started_ms, elapsed)
                seen[producer_id] = before
                open_ms = max(now_ms - transaction.started_ms, elapsed - before.since)
                if open_ms >= transaction.timeout_ms:
                    touched = self._transactions.open[producer_id]
                    due.append(_TimedOut(transaction, open_ms, len(touched.partitions), len(touched.groups)))
            await asyncio.sleep(0)
        self._seen = seen
        due.sort(key=lambda each: each.transaction.timeout_ms - each.open_ms)
        return due

    async def _submit(self, requests: Sequence[Request]) -> Sequence[LedgerResult]:
        """The results, when all are there. Raises what the first that failed has raised."""
        async with asyncio.timeout(self._wait_s):
            results = await asyncio.gather(*map(self._shard.submit, requests), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]


def _abort(transaction: Transaction) -> AbortTransaction:
    name, started_ms = transaction.transactional_id, transaction.started_ms
    return AbortTransaction(name, transaction.producer_id, transaction.epoch, started_ms)


def _log_timeout(timed_out: _TimedOut) -> None:
    transaction = timed_out.transaction
    log.warning(
        "transaction.timed_out",
        transactional_id=transaction.transactional_id[:MAX_ID_SHOWN],
        producer_id=transaction.producer_id,
        epoch=transaction.epoch,
        timeout_ms=transaction.timeout_ms,
        open_ms=timed_out.open_ms,
        partitions=timed_out.partitions,
        groups=timed_out.groups,
    )


def _slices(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (items[at : at + size] for at in range(0, len(items), size))
