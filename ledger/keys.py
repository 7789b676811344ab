"""Keys of stores: how many parts each kind has, those of segments, and UUIDv7 (RFC 9562) for keys that carry
their creation time and sort by age. Ids in keys are lower-case hex."""

import re
import uuid
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from ledger.types import TopicId

KEY_PARTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "archive": 3,
        "claim": 3,
        "cluster-id": 1,
        "journal": 3,
        "journal-start": 2,
        "mark": 3,
        "proof": 3,
        "seg": 4,
        "settled": 4,
        "snapshot": 3,
        "wal": 3,
    }
)
"""By its first part, how many parts a key has. All keys of a kind have the same number, so none is a folder
of another. Every kind of key must be here."""

RANDOM_BYTES = 10
_VERSION_7 = 0x7 << 76
_VARIANT = 0x2 << 62
_RAND_A_MASK = 0xFFF
_RAND_B_MASK = (1 << 62) - 1
_UUID_TEXT = 36
SEGMENT_PREFIX: Final = "seg/"
_ENDING = ".kfs"
_INDEX_ENDING = ".index"
_SEGMENT = re.compile(r"seg/([0-9a-f]{32})/(0|[1-9][0-9]{0,9})/([0-9]{20})-[0-9a-f-]{36}\.(?:kfs|index)")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def uuid7(created_ms: int, random: bytes) -> uuid.UUID:
    """The UUIDv7 of a unix time in ms and 10 random bytes."""
    noise = int.from_bytes(random[:RANDOM_BYTES], "big")
    value = (created_ms & ((1 << 48) - 1)) << 80
    value |= _VERSION_7 | ((noise >> 62) & _RAND_A_MASK) << 64
    value |= _VARIANT | (noise & _RAND_B_MASK)
    return uuid.UUID(int=value)


@lru_cache(maxsize=1024)
def created_ms(locator: str) -> int:
    """Creation time in unix ms that a locator carries. ValueError if it carries none."""
    name = locator.rsplit("/", 1)[-1].split(".", 1)[0][-_UUID_TEXT:]
    if _UUID.fullmatch(name) is None or (value := uuid.UUID(name)).version != 7:
        raise ValueError(f"{locator!r} carries no creation time")
    return value.int >> 80


class SegmentName(NamedTuple):
    """What the key of a segment says: the partition, the base offset, the creation time."""

    topic_id: TopicId
    partition: int
    base: int
    created_ms: int


def segment_locator(topic_id: TopicId, partition: int, base: int, created_ms: int, random: bytes) -> str:
    """The key of a new segment. `random` has 10 bytes that no other key has, so that no attempt of a job
    writes over another's segment."""
    return f"{SEGMENT_PREFIX}{topic_id.hex()}/{partition}/{base:020d}-{uuid7(created_ms, random)}{_ENDING}"


def index_locator(locator: str) -> str:
    """The key of the index of a segment."""
    return locator.removesuffix(_ENDING) + _INDEX_ENDING


def is_segment(locator: str) -> bool:
    """Whether an object is a segment, going by how its key begins."""
    return locator.startswith(SEGMENT_PREFIX)


@lru_cache(maxsize=1024)
def segment_name(locator: str) -> SegmentName | None:
    """What the key of a segment says; None if it is no such key."""
    return _name_of(locator) if locator.endswith(_ENDING) else None


@lru_cache(maxsize=1024)
def segment_of_index(key: str) -> str | None:
    """The key of the segment whose index has this key; None if it is no such key."""
    if not key.endswith(_INDEX_ENDING) or _name_of(key) is None:
        return None
    return key.removesuffix(_INDEX_ENDING) + _ENDING


def _name_of(key: str) -> SegmentName | None:
    parts = _SEGMENT.fullmatch(key)
    if parts is None:
        return None
    try:
        created = created_ms(key)
    except ValueError:
        return None
    return SegmentName(TopicId(bytes.fromhex(parts[1])), int(parts[2]), int(parts[3]), created)
