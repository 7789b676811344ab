"""Keys of stores: how many parts each kind has, those of what jobs write, and UUIDv7 (RFC 9562) for keys that
carry their creation time and sort by age. Ids in keys are lower-case hex.

Jobs write segments and settled ledgers. Each is one object, under the key by which the ledger names it, with
other keys next to it that are never named: they are written and deleted with it."""

import re
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from ledger.types import TOPIC_ID_BYTES, TopicId

KEY_PARTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "archive": 3,
        "claim": 3,
        "cluster-id": 1,
        "hold": 3,
        "journal": 3,
        "journal-start": 2,
        "log": 3,
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
SETTLED_PREFIX: Final = "settled/"
JOB_PREFIXES: Final = (SEGMENT_PREFIX, SETTLED_PREFIX)
"""Of what jobs write, ascending."""
INLINE_PREFIX: Final = "journal/"
"""Of batches inside of journal entries, which go with their entries."""
ADOPTED_PREFIX: Final = "adopted/"
ADOPTED_SEPARATOR: Final = "|"
"""Between the place of an adopted segment, a URL, and its key there. Neither has it."""
_ENDING = ".kfs"
_INDEX_ENDING = ".index"
_SEGMENT = re.compile(r"seg/([0-9a-f]{32})/(0|[1-9][0-9]{0,9})/([0-9]{20})-[0-9a-f-]{36}\.(?:kfs|index)")
_SETTLED = re.compile(r"settled/([0-9a-f]{32})/(0|[1-9][0-9]{0,9})/[0-9a-f-]{36}\.(log|index|json)")
_LOG_ENDING = ".log"
LOG_PREFIX: Final = "log/"
"""Of the files of a local log. Before `JOB_PREFIXES`, after which only `wal/` comes."""
_PLACED_PREFIXES: Final = (INLINE_PREFIX, LOG_PREFIX)
_LOG = re.compile(r"log/(?:0|[1-9][0-9]{0,9})/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.log")
_INLINE = re.compile(r"journal/(0|[1-9][0-9]{0,9})/([0-9]{20})-([0-9a-f]{8})")
_WAL = re.compile(r"wal/(?:0|[1-9][0-9]{0,9})/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.[a-z]+)?")
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


@lru_cache(maxsize=64)
def log_locator(shard: int, file_id: bytes) -> str:
    """The key of a file of a shard's local log. `file_id`: the 16 bytes of its UUIDv7, which are in its
    header and its frames."""
    return f"{LOG_PREFIX}{shard}/{uuid.UUID(bytes=file_id)}{_LOG_ENDING}"


def is_log(locator: str) -> bool:
    """Whether an object is a file of a local log, going by how its key begins."""
    return locator.startswith(LOG_PREFIX)


@lru_cache(maxsize=1024)
def log_file_id(locator: str) -> bytes | None:
    """The file id of a file of a local log; None if this is the key of none."""
    parts = _LOG.fullmatch(locator)
    if parts is None or (found := uuid.UUID(parts[1])).version != 7:
        return None
    return found.bytes


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


def adopted_locator(topic_id: TopicId, place: str, key: str) -> str:
    """The locator of a segment that an adopted topic has in another bucket. It names the topic, so that a
    topic that is deleted and adopted again has other objects."""
    return f"{ADOPTED_PREFIX}{topic_id.hex()}/{place}{ADOPTED_SEPARATOR}{key}"


def is_adopted(locator: str) -> bool:
    """Whether an object is in a bucket that is not the gateway's own, going by how its locator begins."""
    return locator.startswith(ADOPTED_PREFIX)


@lru_cache(maxsize=1024)
def adopted_place(locator: str) -> tuple[str, str]:
    """The URL of the bucket of an adopted segment, and its key there."""
    place, _, key = locator.removeprefix(ADOPTED_PREFIX)[2 * TOPIC_ID_BYTES + 1 :].rpartition(
        ADOPTED_SEPARATOR
    )
    return place, key


def inline_locator(shard: int, entry: int, crc: int) -> str:
    """The locator of the batches inside of journal entry `entry`: the key of that entry, and the CRC that
    their WAL frame ends with. A number that was pruned is free again, so the key alone would not say which
    batches they are."""
    return f"{INLINE_PREFIX}{shard}/{entry:020d}-{crc:08x}"


@lru_cache(maxsize=1024)
def is_wal(locator: str) -> bool:
    """Whether this is the key of a WAL object in blobs or in a file."""
    return _WAL.fullmatch(locator) is not None


def is_inline(locator: str) -> bool:
    """Whether an object is inside of a journal entry, going by how its locator begins."""
    return locator.startswith(INLINE_PREFIX)


class InlineName(NamedTuple):
    """What the locator of batches inside of a journal entry says."""

    shard: int
    entry: int
    crc: int


@lru_cache(maxsize=1024)
def inline_name(locator: str) -> InlineName | None:
    """What the locator of batches inside of an entry says; None if it is no such locator."""
    parts = _INLINE.fullmatch(locator)
    return None if parts is None else InlineName(int(parts[1]), int(parts[2]), int(parts[3], 16))


def index_locator(locator: str) -> str:
    """The key of the index of a segment."""
    return locator.removesuffix(_ENDING) + _INDEX_ENDING


def is_segment(locator: str) -> bool:
    """Whether an object is a segment, going by how its key begins."""
    return locator.startswith(SEGMENT_PREFIX)


def is_settled(locator: str) -> bool:
    """Whether an object is a settled ledger, going by how its key begins."""
    return locator.startswith(SETTLED_PREFIX)


def is_of_job(locator: str) -> bool:
    """Whether jobs write such objects, going by how its key begins."""
    return locator.startswith(JOB_PREFIXES)


def is_placed(locator: str) -> bool:
    """Whether the batches of an object are in journal entries, or next to them in a log file, going by how
    its key begins."""
    return locator.startswith(_PLACED_PREFIXES)


class SettledKeys(NamedTuple):
    """Where the three files of one settled ledger are. The ledger names it by `log_key`."""

    log_key: str
    index_key: str
    meta_key: str


def settled_prefix(topic_id: TopicId, partition: int) -> str:
    """Of all settled ledgers of a partition, which sort by age."""
    return f"{SETTLED_PREFIX}{topic_id.hex()}/{partition}/"


def settled_keys(topic_id: TopicId, partition: int, created_ms: int, random: bytes) -> SettledKeys:
    """New keys, from 10 random bytes that no other key has."""
    return settled_keys_of(f"{settled_prefix(topic_id, partition)}{uuid7(created_ms, random)}{_LOG_ENDING}")


def settled_keys_of(locator: str) -> SettledKeys:
    """Of the settled ledger that the ledger names so."""
    stem = locator.removesuffix(_LOG_ENDING)
    return SettledKeys(locator, f"{stem}.index", f"{stem}.json")


class SettledName(NamedTuple):
    """What the key of a settled ledger says: the partition, and when it was written."""

    topic_id: TopicId
    partition: int
    created_ms: int


@lru_cache(maxsize=1024)
def settled_name(locator: str) -> SettledName | None:
    """What the key of a settled ledger says; None if it is no such key."""
    parts = _SETTLED.fullmatch(locator)
    if parts is None or not locator.endswith(_LOG_ENDING):
        return None
    try:
        created = created_ms(locator)
    except ValueError:
        return None
    return SettledName(TopicId(bytes.fromhex(parts[1])), int(parts[2]), created)


def job_object_of(key: str) -> str | None:
    """The object that this key belongs to, as the ledger names it; None if jobs write no such key."""
    if key.startswith(SETTLED_PREFIX):
        locator = key.rpartition(".")[0] + _LOG_ENDING
        return locator if _SETTLED.fullmatch(key) and settled_name(locator) is not None else None
    return key if segment_name(key) is not None else segment_of_index(key)


def job_object_keys(locator: str) -> Sequence[str]:
    """All keys of an object, in the order in which they are deleted: what a reader looks for comes first.
    None if jobs write no such object."""
    if segment_name(locator) is not None:
        return locator, index_locator(locator)
    if settled_name(locator) is not None:
        return settled_keys_of(locator)[::-1]
    return ()


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
