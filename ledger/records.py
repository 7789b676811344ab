"""Metadata records: the typed lines of a journal entry, and their bytes.

Each is framed as `u8 type | u8 version | u32 length | body` (big-endian). Partitions are named by their
*number*, which `TopicCreated` hands out once for ever, so that a commit does not repeat topic ids.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.fields import decode_pairs, encode_pairs
from ledger.group_records import (
    ClientQuotasSet,
    GroupRemoved,
    GroupStored,
    OffsetsCommitted,
    OffsetsRemoved,
    ResourceConfigsSet,
    decode_client_quotas,
    decode_group_removed,
    decode_group_stored,
    decode_offsets_committed,
    decode_offsets_removed,
    decode_resource_configs,
    encode_client_quotas,
    encode_group_removed,
    encode_group_stored,
    encode_offsets_committed,
    encode_offsets_removed,
    encode_resource_configs,
)
from ledger.types import Buffer, TopicId

FRAME = struct.Struct(">BBI")


@dataclass(frozen=True, slots=True)
class ClusterCreated:
    """The first record of a journal."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class OwnerChanged:
    """Begins every epoch."""

    epoch: int
    gateway: int
    incarnation: bytes


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """Partition i gets the number first_number + i."""

    topic_id: TopicId
    name: str
    first_number: int
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The name is free and the partitions unreadable at once; their runs drain in `RunsDropped` slices."""

    topic_id: TopicId


RunRow: TypeAlias = tuple[int, int, int, int, int, int, int]
"""(partition number, start, size, base offset, last offset, max timestamp, batch count). A plain tuple,
unlike everything else here: thousands a second are unpacked and applied. A max timestamp below zero is of
records without one: -1, or -2 - (the unix ms of the entry) (`ledger.runs.without_timestamp`)."""

BatchRow: TypeAlias = tuple[int, int, int, int, int, int, int]
"""(size, record count, max timestamp, producer id, producer epoch, base sequence, attributes)."""


@dataclass(frozen=True, slots=True)
class FileCommitted:
    """Batches of one object got their offsets. `runs` in object order, their batches in `batches`."""

    locator: str
    object_bytes: int
    runs: Sequence[RunRow]
    batches: Sequence[BatchRow]


@dataclass(frozen=True, slots=True)
class RecordsDeleted:
    """The log start offset moved up."""

    number: int
    log_start: int


@dataclass(frozen=True, slots=True)
class RunsDropped:
    """The first `count` runs of a deleted partition, or of those below its log start, are let go."""

    number: int
    count: int


@dataclass(frozen=True, slots=True)
class ProducerIdsReserved:
    """Producer ids below `next_id` are taken."""

    next_id: int


@dataclass(frozen=True, slots=True)
class ProducersExpired:
    """(partition number, producer id) pairs that were silent for too long."""

    pairs: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ObjectsForgotten:
    """Bytes of these dead objects are gone from the store."""

    objects: Sequence[int]


@dataclass(frozen=True, slots=True)
class FloorRaised:
    """No object created before `floor_ms` may be committed any more."""

    floor_ms: int


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic grew: its next partitions get the numbers from first_number on."""

    topic_id: TopicId
    first_number: int
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicConfigsSet:
    """All configs that are set on a topic from now on."""

    topic_id: TopicId
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LedgerRestored:
    """The journal was put back from a backup of its first `entries` entries; begins a cluster epoch.

    Objects created from `kept_from_ms` to `kept_to_ms` may hold records that were acknowledged after the
    backup, so none of them is ever deleted, known to the ledger or not.
    """

    entries: int
    kept_from_ms: int
    kept_to_ms: int


MetadataRecord: TypeAlias = (
    ClusterCreated
    | OwnerChanged
    | TopicCreated
    | TopicDeleted
    | FileCommitted
    | RecordsDeleted
    | RunsDropped
    | ProducerIdsReserved
    | ProducersExpired
    | ObjectsForgotten
    | FloorRaised
    | PartitionsAdded
    | TopicConfigsSet
    | LedgerRestored
    | GroupStored
    | OffsetsCommitted
    | OffsetsRemoved
    | GroupRemoved
    | ClientQuotasSet
    | ResourceConfigsSet
)

_OWNER = struct.Struct(">ii16s")
_TOPIC = struct.Struct(">16sIIHH")
_FILE = struct.Struct(">HqII")
RUN = struct.Struct(">IIIqqqI")
BATCH = struct.Struct(">IIqqhih")
_NUMBER_OFFSET = struct.Struct(">Iq")
_NUMBER_COUNT = struct.Struct(">II")
_ADDED = struct.Struct(">16sII")
_CONFIGS = struct.Struct(">16sH")
_RESTORED = struct.Struct(">qqq")
_I64 = struct.Struct(">q")
_U32 = struct.Struct(">I")


def _encode_cluster(record: ClusterCreated) -> bytes:
    return record.cluster_id.encode()


def _decode_cluster(body: memoryview) -> ClusterCreated:
    return ClusterCreated(str(body, "utf-8"))


def _encode_owner(record: OwnerChanged) -> bytes:
    return _OWNER.pack(record.epoch, record.gateway, record.incarnation)


def _decode_owner(body: memoryview) -> OwnerChanged:
    return OwnerChanged(*_OWNER.unpack(body))


def _encode_topic(record: TopicCreated) -> bytes:
    name = record.name.encode()
    head = _TOPIC.pack(
        record.topic_id, record.first_number, record.partitions, len(name), len(record.configs)
    )
    return head + name + encode_pairs(record.configs)


def _decode_topic(body: memoryview) -> TopicCreated:
    topic_id, first, partitions, name_bytes, pairs = _TOPIC.unpack_from(body)
    pos = _TOPIC.size
    name = str(body[pos : pos + name_bytes], "utf-8")
    configs = decode_pairs(body[pos + name_bytes :], pairs)
    return TopicCreated(TopicId(topic_id), name, first, partitions, configs)


def _encode_added(record: PartitionsAdded) -> bytes:
    return _ADDED.pack(record.topic_id, record.first_number, record.partitions)


def _decode_added(body: memoryview) -> PartitionsAdded:
    topic_id, first, partitions = _ADDED.unpack(body)
    return PartitionsAdded(TopicId(topic_id), first, partitions)


def _encode_configs(record: TopicConfigsSet) -> bytes:
    return _CONFIGS.pack(record.topic_id, len(record.configs)) + encode_pairs(record.configs)


def _decode_configs(body: memoryview) -> TopicConfigsSet:
    topic_id, pairs = _CONFIGS.unpack_from(body)
    return TopicConfigsSet(TopicId(topic_id), decode_pairs(body[_CONFIGS.size :], pairs))


def _encode_file(record: FileCommitted) -> bytes:
    locator = record.locator.encode()
    head = _FILE.pack(len(locator), record.object_bytes, len(record.runs), len(record.batches))
    run, batch = RUN.pack, BATCH.pack
    return b"".join(
        [head, locator, *[run(*row) for row in record.runs], *[batch(*row) for row in record.batches]]
    )


def _decode_file(body: memoryview) -> FileCommitted:
    locator_bytes, object_bytes, runs, batches = _FILE.unpack_from(body)
    pos = _FILE.size
    locator = str(body[pos : pos + locator_bytes], "utf-8")
    pos += locator_bytes
    split = pos + runs * RUN.size
    if split + batches * BATCH.size != len(body):
        raise StoreDamaged("a FileCommitted record does not have the length it claims")
    return FileCommitted(
        locator, object_bytes, list(RUN.iter_unpack(body[pos:split])), list(BATCH.iter_unpack(body[split:]))
    )


def _encode_records_deleted(record: RecordsDeleted) -> bytes:
    return _NUMBER_OFFSET.pack(record.number, record.log_start)


def _decode_records_deleted(body: memoryview) -> RecordsDeleted:
    return RecordsDeleted(*_NUMBER_OFFSET.unpack(body))


def _encode_runs_dropped(record: RunsDropped) -> bytes:
    return _NUMBER_COUNT.pack(record.number, record.count)


def _decode_runs_dropped(body: memoryview) -> RunsDropped:
    return RunsDropped(*_NUMBER_COUNT.unpack(body))


def _encode_expired(record: ProducersExpired) -> bytes:
    return b"".join(_NUMBER_OFFSET.pack(number, producer) for number, producer in record.pairs)


def _decode_expired(body: memoryview) -> ProducersExpired:
    return ProducersExpired(list(_NUMBER_OFFSET.iter_unpack(body)))


def _encode_forgotten(record: ObjectsForgotten) -> bytes:
    return b"".join(_U32.pack(number) for number in record.objects)


def _decode_forgotten(body: memoryview) -> ObjectsForgotten:
    return ObjectsForgotten([number for (number,) in _U32.iter_unpack(body)])


def _decode_topic_deleted(body: memoryview) -> TopicDeleted:
    return TopicDeleted(TopicId(bytes(body)))


def _decode_reserved(body: memoryview) -> ProducerIdsReserved:
    return ProducerIdsReserved(*_I64.unpack(body))


def _decode_floor(body: memoryview) -> FloorRaised:
    return FloorRaised(*_I64.unpack(body))


def _encode_restored(record: LedgerRestored) -> bytes:
    return _RESTORED.pack(record.entries, record.kept_from_ms, record.kept_to_ms)


def _decode_restored(body: memoryview) -> LedgerRestored:
    return LedgerRestored(*_RESTORED.unpack(body))


# type number -> (class, newest version, encoder, decoder); a number is never given twice.
_CODECS: Mapping[int, tuple[type, int, Callable[..., bytes], Callable[[memoryview], MetadataRecord]]] = {
    1: (ClusterCreated, 0, _encode_cluster, _decode_cluster),
    2: (OwnerChanged, 0, _encode_owner, _decode_owner),
    3: (TopicCreated, 0, _encode_topic, _decode_topic),
    4: (TopicDeleted, 0, lambda record: bytes(record.topic_id), _decode_topic_deleted),
    5: (FileCommitted, 0, _encode_file, _decode_file),
    6: (RecordsDeleted, 0, _encode_records_deleted, _decode_records_deleted),
    7: (RunsDropped, 0, _encode_runs_dropped, _decode_runs_dropped),
    8: (ProducerIdsReserved, 0, lambda record: _I64.pack(record.next_id), _decode_reserved),
    9: (ProducersExpired, 0, _encode_expired, _decode_expired),
    10: (ObjectsForgotten, 0, _encode_forgotten, _decode_forgotten),
    11: (FloorRaised, 0, lambda record: _I64.pack(record.floor_ms), _decode_floor),
    12: (PartitionsAdded, 0, _encode_added, _decode_added),
    13: (TopicConfigsSet, 0, _encode_configs, _decode_configs),
    14: (LedgerRestored, 0, _encode_restored, _decode_restored),
    15: (GroupStored, 0, encode_group_stored, decode_group_stored),
    16: (OffsetsCommitted, 0, encode_offsets_committed, decode_offsets_committed),
    17: (OffsetsRemoved, 0, encode_offsets_removed, decode_offsets_removed),
    18: (GroupRemoved, 0, encode_group_removed, decode_group_removed),
    19: (ClientQuotasSet, 0, encode_client_quotas, decode_client_quotas),
    20: (ResourceConfigsSet, 0, encode_resource_configs, decode_resource_configs),
}
_BY_CLASS = {cls: (number, version, encode) for number, (cls, version, encode, _) in _CODECS.items()}


def encode_record(record: MetadataRecord) -> bytes:
    """The framed bytes of one record."""
    number, version, encode = _BY_CLASS[type(record)]
    body = encode(record)
    return FRAME.pack(number, version, len(body)) + body


def decode_records(data: Buffer, count: int) -> Iterator[MetadataRecord]:
    """The `count` records that fill `data`. StoreTooNew for an unknown type or version, StoreDamaged for
    lengths that do not add up."""
    view = memoryview(data)
    pos, end = 0, len(view)
    try:
        for _ in range(count):
            number, version, size = FRAME.unpack_from(view, pos)
            pos += FRAME.size
            begin, pos = pos, pos + size
            if pos > end:
                raise StoreDamaged("a metadata record runs past the end of its journal entry")
            yield _decode_one(number, version, view[begin:pos])
    except (struct.error, UnicodeDecodeError) as error:
        raise StoreDamaged(f"a metadata record cannot be read: {error}") from error
    if pos != end:
        raise StoreDamaged("a journal entry has bytes behind its last metadata record")


def _decode_one(number: int, version: int, body: memoryview) -> MetadataRecord:
    codec = _CODECS.get(number)
    if codec is None or version > codec[1]:
        raise StoreTooNew(
            f"the journal holds metadata record type {number} version {version}, which this build does not "
            "know: run the version of Dragoman that wrote it, or a newer one"
        )
    return codec[3](body)
