"""The ledger's values: topic ids, batches on their way into storage, and their positions afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, NewType, TypeAlias

import msgspec

Buffer: TypeAlias = bytes | bytearray | memoryview
Offset = NewType("Offset", int)
TopicId = NewType("TopicId", bytes)

TOPIC_ID_BYTES = 16
ZERO_TOPIC_ID = TopicId(bytes(TOPIC_ID_BYTES))
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1


class DraftBatch(NamedTuple):
    """One checked record batch of a draft, as the producer sent it (base offset not yet assigned).

    The fields other than `data` repeat what its header says; a segment store may write them next to the
    batch for diagnosis, but the ledger alone is the truth.
    """

    topic_id: TopicId
    partition: int
    data: Buffer
    record_count: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = -1


@dataclass(frozen=True, slots=True)
class Position:
    """A byte range in an object. Only the segment store that made it reads it."""

    locator: str
    start: int
    size: int


class Placement(msgspec.Struct, frozen=True):
    """Where a segment store put a draft: one object, and the start of each batch in the order given."""

    locator: str
    starts: Sequence[int]
    object_bytes: int
    """Size of the object up to and including this draft."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that a segment store holds, live or orphan."""

    locator: str
    created_ms: int
    size: int
