"""Idempotence: the last batches of each producer in a partition, and what a new batch is to them.

The rules are Kafka's (KIP-98, KIP-360): a batch that repeats one of the last five gets its first
result, the next in sequence is accepted, an older epoch is fenced, anything else is out of order.
"""

import struct
from dataclasses import dataclass
from typing import TypeAlias

from ledger.errors import ErrorName

REMEMBERED_BATCHES = 5
MAX_SEQUENCE = 0x7FFFFFFF
NO_EPOCH = -1
SILENT_MS = 15 * 60 * 1000
"""A producer that has sent nothing for that long may be forgotten, so that others fit."""
TOO_MANY_PRODUCERS = ErrorName.NOT_ENOUGH_REPLICAS
"""Of Kafka's errors the one that every producer takes to say that nothing was stored, and that it should send
the same again. (KIP-936 would throttle; THROTTLING_QUOTA_EXCEEDED is final for librdkafka.)"""

_BATCH = struct.Struct(">iiq")
BATCH_BYTES = _BATCH.size
_SEQUENCES = struct.Struct(">ii")
_OLDER_BYTES = (REMEMBERED_BATCHES - 1) * BATCH_BYTES


@dataclass(frozen=True, slots=True)
class ProducerBounds:
    """How many producers are remembered in all, each once for every partition, and in one partition."""

    total: int
    partition: int


UNBOUNDED = ProducerBounds(MAX_SEQUENCE, MAX_SEQUENCE)


@dataclass(slots=True)
class ProducerState:
    """The last batches of one producer in a partition: (first sequence, last sequence, base offset), the
    newest at the end.

    `packed` holds them as images do, 16 bytes each: a gateway remembers thousands of producers and
    looks at each seldom, so what counts is how few places of memory that touches.
    """

    epoch: int
    packed: bytes = b""
    last_ms: int = 0

    @property
    def batches(self) -> list[tuple[int, int, int]]:
        return list(_BATCH.iter_unpack(self.packed))

    @property
    def last_sequence(self) -> int | None:
        """Of the newest batch."""
        return _BATCH.unpack_from(self.packed, len(self.packed) - BATCH_BYTES)[1] if self.packed else None

    def record(self, epoch: int, first: int, last: int, base_offset: int, now_ms: int) -> None:
        """Remember a batch that was accepted."""
        # As `_packed_with`, without a call: this is done for every batch.
        older = self.packed[-_OLDER_BYTES:] if epoch == self.epoch else b""
        self.packed = older + _BATCH.pack(first, last, base_offset)
        self.epoch = epoch
        self.last_ms = now_ms

    def after(self, epoch: int, first: int, last: int, base_offset: int) -> "ProducerState":
        """What it will be with one more batch."""
        return ProducerState(epoch, self._packed_with(epoch, first, last, base_offset), self.last_ms)

    def _packed_with(self, epoch: int, first: int, last: int, base_offset: int) -> bytes:
        older = self.packed[-_OLDER_BYTES:] if epoch == self.epoch else b""
        return older + _BATCH.pack(first, last, base_offset)

    def find(self, first: int, last: int) -> int | None:
        """The base offset of a batch with exactly these sequences."""
        # Rarely true, and then perhaps only by chance.
        if _SEQUENCES.pack(first, last) in self.packed:
            for known_first, known_last, base_offset in _BATCH.iter_unpack(self.packed):
                if known_first == first and known_last == last:
                    return int(base_offset)
        return None


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


def is_after(sequence: int, other: int) -> bool:
    """Whether `sequence` comes after `other`, as they wrap after 2^31 - 1."""
    return 0 < (sequence - other) & MAX_SEQUENCE <= MAX_SEQUENCE >> 1


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
        # A producer without an epoch may begin one at any sequence.
        return FRESH if first == 0 or state.epoch == NO_EPOCH else OutOfOrder(0)
    base_offset = state.find(first, last)
    if base_offset is not None:
        return Repeat(base_offset)
    if epoch == NO_EPOCH:
        return FRESH  # without an epoch there is no order to keep, says Kafka
    newest = state.last_sequence
    expected = add_sequence(newest, 1) if newest is not None else 0
    return FRESH if first == expected else OutOfOrder(expected)
