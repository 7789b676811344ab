"""Commits as a busy gateway makes them, without their bytes. Pure."""

from collections.abc import Callable

from ledger.keys import RANDOM_BYTES, uuid7
from ledger.partitions.requests import CommitBatch, CommitFile
from ledger.types import TOPIC_ID_BYTES, TopicId

BATCHES = 1_000
"""Batches of one draft, as many as share an entry; each becomes a run, as neighbours are of different
partitions."""
BATCH_BYTES = 4_096
RECORDS = 10
PRODUCER_ID = 7


def topic_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(TOPIC_ID_BYTES - 1, "big") + b"\1")


def new_locator(created_ms: int, random: Callable[[int], bytes]) -> str:
    return f"wal/0/{uuid7(created_ms, random(RANDOM_BYTES))}.wal"


def commit(  # noqa: PLR0913 - fields of a commit
    locator: str, start: int, first: int, count: int, sequences: list[int], now_ms: int, topic: int = 0
) -> tuple[CommitFile, int]:
    """`count` batches for the partitions from `first` on, round-robin, and where the object ends then.

    `sequences`: the next sequence of the one producer in each partition; moved on.
    """
    batches = []
    for i in range(first, first + count):
        partition = i % len(sequences)
        sequence, sequences[partition] = sequences[partition], sequences[partition] + RECORDS
        batches.append(
            CommitBatch(
                topic_id(topic), partition, start, BATCH_BYTES, RECORDS, now_ms, 0, PRODUCER_ID, 0, sequence
            )
        )
        start += BATCH_BYTES
    return CommitFile(locator, start, batches), start
