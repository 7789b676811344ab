"""Metadata records of client quotas and of the configs of brokers and groups, and their bytes."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from ledger.fields import U32, FieldReader, decode_pairs, encode_pairs, encode_text
from ledger.records import RecordFormat
from ledger.settings.state import QuotaEntity

_QUOTA = struct.Struct(">d")


@dataclass(frozen=True, slots=True)
class ClientQuotasSet:
    """All quotas of an entity from now on; none: it has none."""

    entity: QuotaEntity
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ResourceConfigsSet:
    """All configs that are set on a broker ("" is every broker) or a group from now on."""

    resource_type: str
    name: str
    configs: Mapping[str, str]


def encode_client_quotas(record: ClientQuotasSet) -> bytes:
    """`entity | u32 values | per value: key, f64`."""
    parts = [encode_entity(record.entity), U32.pack(len(record.values))]
    for key, value in sorted(record.values.items()):
        parts += (encode_text(key), _QUOTA.pack(value))
    return b"".join(parts)


def decode_client_quotas(body: memoryview) -> ClientQuotasSet:
    reader = FieldReader(body)
    entity = read_entity(reader)
    values: dict[str, float] = {}
    for _ in range(reader.u32()):
        key = reader.text()
        (values[key],) = _QUOTA.unpack(reader.take(_QUOTA.size))
    reader.end()
    return ClientQuotasSet(entity, values)


def encode_entity(entity: QuotaEntity) -> bytes:
    """`u32 parts | per part: type, name`."""
    parts = [U32.pack(len(entity))]
    for kind, name in entity:
        parts += (encode_text(kind), encode_text(name))
    return b"".join(parts)


def read_entity(reader: FieldReader) -> QuotaEntity:
    """The reverse of `encode_entity`."""
    return tuple([(reader.text(), reader.optional_text()) for _ in range(reader.u32())])


def encode_resource_configs(record: ResourceConfigsSet) -> bytes:
    """`type | name | u32 configs | pairs`."""
    head = encode_text(record.resource_type) + encode_text(record.name)
    return head + U32.pack(len(record.configs)) + encode_pairs(record.configs)


def decode_resource_configs(body: memoryview) -> ResourceConfigsSet:
    reader = FieldReader(body)
    resource_type, name, count = reader.text(), reader.text(), reader.u32()
    return ResourceConfigsSet(resource_type, name, decode_pairs(reader.rest(), count))


CLIENT_QUOTAS_SET = RecordFormat(19, ClientQuotasSet, encode_client_quotas, decode_client_quotas)
RESOURCE_CONFIGS_SET = RecordFormat(20, ResourceConfigsSet, encode_resource_configs, decode_resource_configs)
