"""What an audit finds: damages, each with its place and its remedy."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from ledger.types import TopicId


class DamageKind(StrEnum):
    JOURNAL = "journal"
    STALE_OWNER = "stale owner"
    IMAGE = "image"
    SNAPSHOT = "snapshot"
    OVERLAP = "overlap"
    GAP = "gap"
    OBJECT_TABLE = "object table"
    MISSING_OBJECT = "missing object"
    SHORT_OBJECT = "short object"
    DAMAGED_BATCH = "damaged batch"
    WRONG_COUNT = "wrong count"
    FOREIGN_BATCH = "foreign batch"
    TRANSACTION = "transaction"
    DAMAGED_FRAME = "damaged frame"
    DAMAGED_SEGMENT = "damaged segment"
    DAMAGED_INDEX = "damaged index"
    SETTLED_LEDGER = "settled ledger"
    STRAY_OBJECT = "stray object"


RESTORE_METADATA: Final = (
    "keep a copy of the metadata store and restore it from a backup (`dragoman ledger restore`)"
)
REPORT: Final = "keep a copy of the stores and report this: it is an error of Dragoman"
PUT_BACK: Final = (
    "put the object back from a copy of the data, or delete the records up to there (kafka-delete-records)"
)
CHECK_DISK: Final = "no record is lost by this; check the disk, and copy the data while it can be read"


@dataclass(frozen=True, slots=True)
class Damage:
    """One damage. What does not apply is None; `position` is a byte of the object."""

    kind: DamageKind
    what: str
    remedy: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    last_offset: int | None = None
    object: str | None = None
    position: int | None = None


Report: TypeAlias = Callable[[Damage], None]


class Place(NamedTuple):
    """A partition, with the name of its topic. `compacts`: its topic's records may be removed by their keys,
    which leaves gaps between offsets in segments, or it was adopted with such gaps."""

    topic: str
    topic_id: TopicId
    partition: int
    compacts: bool = False
