"""Image rows of groups, offsets, quotas and configs: their keys and values."""

import struct

from ledger.errors import StoreDamaged
from ledger.fields import FieldReader, encode_text
from ledger.group_records import (
    ClientQuotasSet,
    ResourceConfigsSet,
    decode_client_quotas,
    decode_group,
    decode_resource_configs,
    encode_client_quotas,
    encode_entity,
    encode_group,
    encode_resource_configs,
    read_entity,
)
from ledger.groups import CommittedOffset, Group, OffsetKey
from ledger.quotas import QuotaEntity, ResourceKey
from ledger.state import LedgerState
from ledger.types import TOPIC_ID_BYTES, TopicId

_CHANGED = struct.Struct(">q")
_OFFSET = struct.Struct(">qiqqH")
_U16 = struct.Struct(">H")
_INDEX = struct.Struct(">I")


def encode_group_row(group: Group) -> bytes:
    """`i64 time of change | the fields of the group`."""
    return _CHANGED.pack(group.changed_ms) + encode_group(group)


def restore_group(state: LedgerState, key: bytes, value: bytes) -> None:
    (changed_ms,) = _CHANGED.unpack_from(value)
    group = decode_group(memoryview(value)[_CHANGED.size :], changed_ms)
    if group.group_id.encode() != key:
        raise StoreDamaged("the row of a group in an image names another one")
    state.groups.by_id[group.group_id] = group


def encode_offset_key(group_id: str, key: OffsetKey) -> bytes:
    """`u16 length | group id | topic id | u32 partition`."""
    name = group_id.encode()
    return b"".join((_U16.pack(len(name)), name, key[0], _INDEX.pack(key[1])))


def decode_offset_key(key: bytes) -> tuple[str, OffsetKey]:
    (size,) = _U16.unpack_from(key)
    at = _U16.size + size
    topic_end = at + TOPIC_ID_BYTES
    (partition,) = _INDEX.unpack(key[topic_end:])
    return key[_U16.size : at].decode(), (TopicId(key[at:topic_end]), partition)


def encode_offset_row(committed: CommittedOffset) -> bytes:
    """`i64 offset | i32 leader epoch | i64 time of the commit | i64 expire time | u16 length | metadata`."""
    offset, epoch, metadata, committed_ms, expire_ms = committed
    text = metadata.encode()
    return _OFFSET.pack(offset, epoch, committed_ms, expire_ms, len(text)) + text


def restore_offset(state: LedgerState, key: bytes, value: bytes) -> None:
    group_id, offset_key = decode_offset_key(key)
    offset, epoch, committed_ms, expire_ms, size = _OFFSET.unpack_from(value)
    if len(value) != _OFFSET.size + size:
        raise StoreDamaged("the row of an offset in an image does not have the length it claims")
    metadata = value[_OFFSET.size :].decode()
    committed = CommittedOffset(offset, epoch, metadata, committed_ms, expire_ms)
    state.groups.put_offset(group_id, offset_key, committed)


def decode_quota_key(key: bytes) -> QuotaEntity:
    reader = FieldReader(memoryview(key))
    entity = read_entity(reader)
    reader.end()
    return entity


def encode_quota_row(state: LedgerState, entity: QuotaEntity) -> tuple[bytes, bytes | None]:
    """(key: the entity, value: its record), or None if it has no quota any more."""
    values = state.quotas.by_entity.get(entity)
    value = encode_client_quotas(ClientQuotasSet(entity, values)) if values is not None else None
    return encode_entity(entity), value


def restore_quota(state: LedgerState, key: bytes, value: bytes) -> None:
    record = decode_client_quotas(memoryview(value))
    if encode_entity(record.entity) != key:
        raise StoreDamaged("the row of a quota in an image names another entity")
    state.quotas.put(record.entity, record.values)


def decode_resource_key(key: bytes) -> ResourceKey:
    reader = FieldReader(memoryview(key))
    resource = reader.text(), reader.text()
    reader.end()
    return resource


def encode_resource_row(state: LedgerState, resource: ResourceKey) -> tuple[bytes, bytes | None]:
    """(key: type and name, value: its record), or None if nothing is set any more."""
    configs = state.resource_configs.by_resource.get(resource)
    record = ResourceConfigsSet(*resource, configs) if configs is not None else None
    value = encode_resource_configs(record) if record is not None else None
    return encode_text(resource[0]) + encode_text(resource[1]), value


def restore_resource(state: LedgerState, key: bytes, value: bytes) -> None:
    record = decode_resource_configs(memoryview(value))
    resource = record.resource_type, record.name
    if decode_resource_key(key) != resource:
        raise StoreDamaged("the row of configs in an image names another resource")
    state.resource_configs.put(resource, record.configs)
