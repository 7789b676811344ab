"""Which partition a record goes to, as Kafka's own producer chooses it."""

from collections.abc import Sequence
from typing import Final

SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed, unsigned."""
    h = SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Java's producer selects for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner:
    """By key. Records without a key go to one partition a batch, in round-robin order."""

    def __init__(self, partitions: int, chosen: Sequence[int] = ()) -> None:
        self._partitions = partitions
        self._chosen = chosen
        self._batches = 0

    def choose(self, key: bytes | None) -> int:
        if self._chosen:
            return self._chosen[self._batches % len(self._chosen)]
        return self._batches % self._partitions if key is None else partition_of(key, self._partitions)

    def next_batch(self) -> None:
        self._batches += 1
