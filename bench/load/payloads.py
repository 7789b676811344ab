"""What producers send and consumers expect: record k of partition p has payload (k + p) mod POOL.

A running CRC-32C a partition so checks content, order and number without the two sides talking.
"""

import random
from collections.abc import Sequence

import crc32c

POOL = 1009
"""Distinct payloads."""


def payload_pool(payload_bytes: int) -> list[bytes]:
    """The same random bytes for the same size, in every process."""
    source = random.Random(payload_bytes)
    return [source.randbytes(payload_bytes) for _ in range(POOL)]


def records_in(partition: int, records: int, partitions: int) -> int:
    """How many of `records` records go to this partition."""
    return len(range(partition, records, partitions))


def expected_crcs(pool: Sequence[bytes], records: int, partitions: int) -> list[int]:
    """The running CRC of each partition."""
    crcs = [0] * partitions
    for partition in range(partitions):
        crc = 0
        for k in range(records_in(partition, records, partitions)):
            crc = crc32c.crc32c(pool[(k + partition) % POOL], crc)
        crcs[partition] = crc
    return crcs
