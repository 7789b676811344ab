"""Gathers the batches of all connections into drafts (sans-I/O).

Batches of a partition keep the order in which they came, and lie side by side in their draft.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ledger.batch.header import BatchHeader
from ledger.partitions import PartitionLog
from ledger.types import Buffer


class Waiter:
    """A produce request that waits for `remaining` partitions. `given_up`: it was answered meanwhile.
    `sender` is its connection, and the address at the other end."""

    __slots__ = ("given_up", "remaining", "sender")

    def __init__(self, sender: tuple[int, str] = (0, "")) -> None:
        self.sender = sender
        self.remaining = 0
        self.given_up = False

    def is_waiting(self) -> bool:
        """Whether work is still to be put into its batches."""
        return not self.given_up

    def settle(self) -> None:
        """All partitions are answered; a subclass wakes who waits."""

    def resolved(self, count: int = 1) -> None:
        self.remaining -= count
        if self.remaining == 0:
            self.settle()


@dataclass(slots=True, eq=False)
class PendingBatch:
    """One batch on its way. Its answer is written into the fields below and told to its waiter."""

    log: PartitionLog
    header: BatchHeader
    data: Buffer
    waiter: Waiter
    error: str = ""
    """Kafka's error name, or empty."""
    message: str = ""
    record_errors: Sequence[tuple[int, str]] = ()
    in_log: bool = False
    """Whether an error tells where the log begins."""
    base_offset: int = -1
    log_start: int = -1
    append_time_ms: int = -1
    """LogAppendTime that was stamped, or -1 for CreateTime."""

    def accepted(self, base_offset: int, log_start: int) -> None:
        self.base_offset = base_offset
        self.log_start = log_start
        self.waiter.resolved()

    def refused(self, error: str, message: str = "") -> None:
        self.error = error
        self.message = message
        self.append_time_ms = -1
        self.waiter.resolved()


class Accumulator:
    """Batches that wait for a draft. `left_out` is told of those whose requests have given up."""

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

    def add(self, batch: PendingBatch) -> None:
        batch.waiter.remaining += 1
        self._waiting.append(batch)
        self.waiting_bytes += len(batch.data)
        if self.waiting_bytes > self._sweep_at[0] or len(self._waiting) > self._sweep_at[1]:
            self._sweep()

    def take(self) -> list[PendingBatch]:
        """The next draft, grouped by partition; at least one batch, if any waits. A batch whose request
        was answered with a timeout is left out: once answered with an error, it must not be stored."""
        groups: dict[int, list[PendingBatch]] = {}
        size = count = 0
        while self._waiting and count < self.draft_batches:
            batch = self._waiting[0]
            if count and size + len(batch.data) > self.draft_bytes:
                break
            self._waiting.popleft()
            self.waiting_bytes -= len(batch.data)
            if batch.waiter.given_up:
                self._leave_out(batch)
                continue
            groups.setdefault(batch.log.number, []).append(batch)
            size += len(batch.data)
            count += 1
        return [batch for group in groups.values() for batch in group]

    def _sweep(self) -> None:
        """Let go of batches whose requests have given up: with a store that hangs, no draft takes them, and
        the clients send them again and again. Looked for when twice as much waits as was left last time."""
        waiting, self._waiting = self._waiting, deque()
        self.waiting_bytes = 0
        for batch in waiting:
            if batch.waiter.given_up:
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
