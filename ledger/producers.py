"""Idempotence: the last batches of each producer in a partition, and what a new batch is to them.

The rules are Kafka's (KIP-98, KIP-360): a batch that repeats one of the last five gets its first
answer, the next in sequence is taken, an older epoch is fenced, anything else is out of order.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

REMEMBERED_BATCHES = 5
MAX_SEQUENCE = 0x7FFFFFFF
NO_EPOCH = -1


@dataclass(slots=True)
class ProducerState:
    """(first sequence, last sequence, base offset) of the last batches, the newest at the end."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    last_ms: int = 0

    def copy(self) -> "ProducerState":
        return ProducerState(self.epoch, self.batches.copy(), self.last_ms)

    def record(self, epoch: int, first: int, last: int, base_offset: int, now_ms: int) -> None:
        """Take up a batch that was accepted."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []
        self.batches.append((first, last, base_offset))
        if len(self.batches) > REMEMBERED_BATCHES:
            del self.batches[0]
        self.last_ms = now_ms


@dataclass(frozen=True, slots=True)
class Fresh:
    """The next batch in sequence."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A batch that was taken before, at this base offset."""

    base_offset: int


@dataclass(frozen=True, slots=True)
class OutOfOrder:
    expected: int


@dataclass(frozen=True, slots=True)
class Fenced:
    current_epoch: int


Verdict: TypeAlias = Fresh | Repeat | OutOfOrder | Fenced
FRESH = Fresh()


def add_sequence(first: int, delta: int) -> int:
    """`first + delta`, wrapping after 2^31 - 1 to 0 as Kafka does."""
    return (first + delta) & MAX_SEQUENCE


def judge(state: ProducerState | None, epoch: int, first: int, last: int) -> Verdict:
    """What a batch with these sequences is to a partition that knows `state` of its producer."""
    if state is None and epoch < NO_EPOCH:
        return Fenced(NO_EPOCH)
    if state is None:
        # Nothing is remembered (new here, expired, or its records were deleted): any sequence may begin.
        return FRESH
    if epoch < state.epoch:
        return Fenced(state.epoch)
    if epoch > state.epoch:
        return FRESH if first == 0 else OutOfOrder(0)
    for known_first, known_last, base_offset in state.batches:
        if known_first == first and known_last == last:
            return Repeat(base_offset)
    if epoch == NO_EPOCH:
        return FRESH  # without an epoch there is no order to keep, says Kafka
    expected = add_sequence(state.batches[-1][1], 1) if state.batches else 0
    return FRESH if first == expected else OutOfOrder(expected)
