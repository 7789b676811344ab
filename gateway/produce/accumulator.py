"""Gathers the batches of all connections into drafts (sans-I/O).

Batches of a partition keep their order of arrival, and are adjacent in their draft.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from gateway.telemetry.traces import RequestTrace
from ledger.batch.header import BatchHeader
from ledger.errors import ErrorName
from ledger.partitions.requests import ProducerTransaction, transaction_weight
from ledger.partitions.state import PartitionLog
from ledger.types import Buffer

MAX_TRANSACTIONS_BYTES: Final = 64 * 1024
"""Journal bytes with which the transactions of one draft begin: they share an entry with its batches."""


class ProduceCompletion:
    """Completion of one Produce request (`gateway.completion.Completion`), which counts its batches down.

    `sender` is its connection, and the address at the other end. `remaining` batches have no result yet.
    Once `is_done` the request is answered or cancelled, and batches that no draft has taken must not be
    stored any more.
    """

    __slots__ = ("is_done", "remaining", "sender", "trace", "transaction")

    def __init__(self, sender: tuple[int, str] = (0, "")) -> None:
        self.sender = sender
        self.remaining = 0
        self.is_done = False
        self.trace: RequestTrace | None = None
        """If the request is sampled."""
        self.transaction: ProducerTransaction | None = None
        """What it says of the transaction of its batches, if it names one."""

    def done(self) -> bool:
        return self.is_done

    def set_result(self, result: None, /) -> None:
        """Every batch has its result, in the fields of its `PendingBatch`."""

    def set_exception(self, error: Exception, /) -> None:
        """TimeoutError: the deadline has passed."""

    def wants_result(self) -> bool:
        """Whether work is still to be put into its batches."""
        return not self.is_done

    def count_down(self) -> None:
        """One batch has its result."""
        self.remaining -= 1
        if self.remaining == 0:
            self.set_result(None)


class PendingBatch(msgspec.Struct, eq=False):
    """One batch that is not committed yet. Its result is written into the fields below and counted by its
    completion."""

    log: PartitionLog
    header: BatchHeader
    data: Buffer
    completion: ProduceCompletion
    error: ErrorName | None = None
    """Why it is refused."""
    message: str = ""
    record_errors: Sequence[tuple[int, str]] = ()
    in_log: bool = False
    """Whether the response to a refused batch has the log start offset."""
    base_offset: int = -1
    log_start: int = -1
    append_time_ms: int = -1
    """LogAppendTime that was stamped, or -1 for CreateTime."""

    def accepted(self, base_offset: int, log_start: int) -> None:
        self.base_offset = base_offset
        self.log_start = log_start
        self.completion.count_down()

    def refused(self, error: ErrorName, message: str = "") -> None:
        self.error = error
        self.message = message
        self.append_time_ms = -1
        self.completion.count_down()


class Accumulator:
    """Batches that wait for a draft. `left_out` is called with those whose requests are done before."""

    def __init__(
        self, draft_bytes: int, draft_batches: int, left_out: Callable[[PendingBatch], None] | None = None
    ) -> None:
        self.draft_bytes = draft_bytes
        self.draft_batches = draft_batches
        self.waiting_bytes = 0
        self._waiting: deque[PendingBatch] = deque()
        self._left_out = left_out
        self._sweep_at = (draft_bytes, draft_batches)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether waiting longer would not make the next draft larger."""
        return self.waiting_bytes >= self.draft_bytes or len(self._waiting) >= self.draft_batches

    @property
    def next_batches(self) -> int:
        """How many batches `take` would return at most."""
        return min(len(self._waiting), self.draft_batches)

    def add(self, batch: PendingBatch) -> None:
        batch.completion.remaining += 1
        self._waiting.append(batch)
        self.waiting_bytes += len(batch.data)
        if self.waiting_bytes > self._sweep_at[0] or len(self._waiting) > self._sweep_at[1]:
            self._sweep()

    def take(self) -> list[PendingBatch]:
        """The next draft, grouped by partition; at least one batch, if any waits. A batch whose request is
        done is left out: it has a response with an error, and must not be stored."""
        groups: dict[int, list[PendingBatch]] = {}
        size = count = 0
        transactions = dict[ProducerTransaction, None]()
        while self._waiting and count < self.draft_batches:
            batch = self._waiting[0]
            if count and size + len(batch.data) > self.draft_bytes:
                break
            transaction = batch.completion.transaction
            if transaction is not None and transaction not in transactions:
                transactions[transaction] = None
                if count and sum(map(transaction_weight, transactions)) > MAX_TRANSACTIONS_BYTES:
                    break
            self._waiting.popleft()
            self.waiting_bytes -= len(batch.data)
            if batch.completion.is_done:
                self._leave_out(batch)
                continue
            groups.setdefault(batch.log.number, []).append(batch)
            size += len(batch.data)
            count += 1
        return [batch for group in groups.values() for batch in group]

    def _sweep(self) -> None:
        """Leave out batches whose requests are done: with a store that hangs no draft takes them, and the
        clients send them again and again. Runs when twice as much waits as was left by the last run."""
        waiting, self._waiting = self._waiting, deque()
        self.waiting_bytes = 0
        for batch in waiting:
            if batch.completion.is_done:
                self._leave_out(batch)
            else:
                self._waiting.append(batch)
                self.waiting_bytes += len(batch.data)
        self._sweep_at = (
            max(self.draft_bytes, 2 * self.waiting_bytes),
            max(self.draft_batches, 2 * len(self._waiting)),
        )

    def _leave_out(self, batch: PendingBatch) -> None:
        if self._left_out is not None:
            self._left_out(batch)
