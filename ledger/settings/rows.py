"""Image rows of client quotas and configs: the bodies of their records."""

from collections.abc import Iterable, Sequence

from ledger.errors import StoreDamaged
from ledger.fields import FieldReader, encode_text
from ledger.machine import Section
from ledger.settings.records import (
    ClientQuotasSet,
    ResourceConfigsSet,
    decode_client_quotas,
    decode_resource_configs,
    encode_client_quotas,
    encode_entity,
    encode_resource_configs,
    read_entity,
)
from ledger.settings.state import QuotaEntity, ResourceKey
from ledger.state import LedgerState

QUOTA, RESOURCE_CONFIG = 9, 10


def _entities(state: LedgerState) -> Iterable[QuotaEntity]:
    return state.quotas.by_entity


def _resources(state: LedgerState) -> Iterable[ResourceKey]:
    return state.resource_configs.by_resource


def _decode_entity(key: bytes) -> QuotaEntity:
    reader = FieldReader(memoryview(key))
    entity = read_entity(reader)
    reader.end()
    return entity


def _encode_quotas(state: LedgerState, entity: QuotaEntity) -> bytes | None:
    values = state.quotas.by_entity.get(entity)
    return encode_client_quotas(ClientQuotasSet(entity, values)) if values is not None else None


def _restore_quotas(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    for key, value in rows:
        record = decode_client_quotas(memoryview(value))
        if encode_entity(record.entity) != key:
            raise StoreDamaged("the row of a quota in an image names another entity")
        state.quotas.put(record.entity, record.values)


def _encode_resource(resource: ResourceKey) -> bytes:
    return encode_text(resource[0]) + encode_text(resource[1])


def _decode_resource(key: bytes) -> ResourceKey:
    reader = FieldReader(memoryview(key))
    resource = reader.text(), reader.text()
    reader.end()
    return resource


def _encode_configs(state: LedgerState, resource: ResourceKey) -> bytes | None:
    configs = state.resource_configs.by_resource.get(resource)
    return encode_resource_configs(ResourceConfigsSet(*resource, configs)) if configs is not None else None


def _restore_configs(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    for key, value in rows:
        record = decode_resource_configs(memoryview(value))
        resource = record.resource_type, record.name
        if _decode_resource(key) != resource:
            raise StoreDamaged("the row of configs in an image names another resource")
        state.resource_configs.put(resource, record.configs)


SECTIONS = (
    Section(QUOTA, _entities, encode_entity, _decode_entity, _encode_quotas, _restore_quotas),
    Section(
        RESOURCE_CONFIG, _resources, _encode_resource, _decode_resource, _encode_configs, _restore_configs
    ),
)
