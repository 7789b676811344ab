"""Deciding changes of client quotas and of the configs of brokers and groups. Values were checked before."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ledger.group_records import MAX_GROUP_ID_BYTES, ClientQuotasSet, ResourceConfigsSet
from ledger.overlay import Overlay
from ledger.quotas import QuotaEntity
from ledger.records import MetadataRecord, encode_record
from ledger.requests import (
    MAX_CONFIG_BYTES,
    MAX_QUOTA_BYTES,
    Altered,
    AlterTopicConfigs,
    Answer,
    ConfigChange,
    ConfigOp,
    Done,
    QuotaChange,
    Refused,
    SetClientQuotas,
    SetResourceConfigs,
)
from ledger.state import LedgerState

MAX_CHANGES = 64
"""Entities whose quotas one request may change: with MAX_QUOTA_BYTES each they fit an entry."""
MAX_ENTITIES = 10_000
"""That have quotas, and resources that have configs: anybody may ask for more."""
Decided = tuple[Answer, Sequence[MetadataRecord]]


def set_client_quotas(state: LedgerState, overlay: Overlay, request: SetClientQuotas, now_ms: int) -> Decided:
    if len(request.changes) > MAX_CHANGES:
        return Refused("INVALID_REQUEST", f"more than {MAX_CHANGES} entities at once"), ()
    after: dict[QuotaEntity, Mapping[str, float]] = {}
    for change in request.changes:
        entity = change.entity
        before = after[entity] if entity in after else _quotas(state, overlay, entity)
        after[entity] = altered_quotas(before, change)
    if _too_many(state.quotas.by_entity, overlay.quotas, after):
        return Refused("POLICY_VIOLATION", f"{MAX_ENTITIES} entities have quotas already"), ()
    records = [
        ClientQuotasSet(entity, values)
        for entity, values in after.items()
        if values != _quotas(state, overlay, entity)
    ]
    if any(len(encode_record(record)) > MAX_QUOTA_BYTES for record in records):
        return Refused("INVALID_REQUEST", "the quotas of an entity would become too long"), ()
    overlay.quotas.update(after)
    return Done(len(records)), records


def _quotas(state: LedgerState, overlay: Overlay, entity: QuotaEntity) -> Mapping[str, float]:
    decided = overlay.quotas.get(entity)
    return state.quotas.by_entity.get(entity, {}) if decided is None else decided


Key = TypeVar("Key")


def _too_many(
    durable: Mapping[Key, Mapping[str, object]],
    decided: Mapping[Key, Mapping[str, object]],
    after: Mapping[Key, Mapping[str, object]],
) -> bool:
    """Whether there would be new ones beyond the bound."""
    new = [key for key, values in after.items() if values and key not in durable and key not in decided]
    return bool(new) and len(durable) + len(decided) + len(new) > MAX_ENTITIES


def altered_quotas(before: Mapping[str, float], change: QuotaChange) -> dict[str, float]:
    """What the quotas are after the change."""
    after = dict(before)
    for key, value in change.values.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


def set_resource_configs(
    state: LedgerState, overlay: Overlay, request: SetResourceConfigs, now_ms: int
) -> Decided:
    resource = (request.resource_type, request.name)
    if len(request.name.encode()) > MAX_GROUP_ID_BYTES:
        return Refused("INVALID_CONFIG", f"the name of the {request.resource_type} is too long"), ()
    before = overlay.resource_configs.get(resource)
    if before is None:
        before = state.resource_configs.by_resource.get(resource, {})
    after = altered_configs(before, request)
    if is_too_long(after):
        reason = f"the configs of the {request.resource_type} would become too long"
        return Refused("INVALID_CONFIG", reason), ()
    if _too_many(state.resource_configs.by_resource, overlay.resource_configs, {resource: after}):
        return Refused("POLICY_VIOLATION", f"{MAX_ENTITIES} resources have configs already"), ()
    overlay.resource_configs[resource] = after
    return Altered(after), (ResourceConfigsSet(*resource, after),) if after != before else ()


def is_too_long(configs: Mapping[str, str]) -> bool:
    return sum(len(name) + len(value) for name, value in configs.items()) * 4 > MAX_CONFIG_BYTES


def altered_configs(
    before: Mapping[str, str], request: AlterTopicConfigs | SetResourceConfigs
) -> dict[str, str]:
    """What the configs are after the changes."""
    after = {} if request.replace else dict(before)
    for change in request.changes:
        if change.op is ConfigOp.SET:
            after[change.name] = change.value
        elif change.op is ConfigOp.DELETE:
            after.pop(change.name, None)
        else:
            held = after.get(change.name, request.list_defaults.get(change.name, ""))
            after[change.name] = ",".join(_changed_list(held, change))
    return after


def _changed_list(held: str, change: ConfigChange) -> list[str]:
    items = [item for item in held.split(",") if item]
    named = [item for item in change.value.split(",") if item]
    if change.op is ConfigOp.APPEND:
        return items + [item for item in named if item not in items]
    return [item for item in items if item not in named]
