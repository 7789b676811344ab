"""Deciding changes of client quotas and of the configs of brokers and groups. Values were checked before."""

from collections.abc import Mapping
from typing import TypeVar

from ledger.errors import ErrorName
from ledger.groups.state import MAX_GROUP_ID_BYTES
from ledger.machine import Decision
from ledger.overlay import Overlay
from ledger.requests import Done, Refused
from ledger.settings.configs import Altered, altered_configs, is_too_long
from ledger.settings.records import CLIENT_QUOTAS_SET, ClientQuotasSet, ResourceConfigsSet
from ledger.settings.requests import MAX_QUOTA_BYTES, QuotaChange, SetClientQuotas, SetResourceConfigs
from ledger.settings.state import QuotaEntity
from ledger.state import LedgerState

MAX_CHANGES = 64
"""Entities whose quotas one request may change: with MAX_QUOTA_BYTES each they fit an entry."""
MAX_ENTITIES = 10_000
"""That have quotas, and resources that have configs: any client may request more."""


def set_client_quotas(
    state: LedgerState, overlay: Overlay, request: SetClientQuotas, now_ms: int
) -> Decision:
    if len(request.changes) > MAX_CHANGES:
        return Decision(Refused(ErrorName.INVALID_REQUEST, f"more than {MAX_CHANGES} entities at once"))
    after: dict[QuotaEntity, Mapping[str, float]] = {}
    for change in request.changes:
        entity = change.entity
        before = after[entity] if entity in after else _quotas(state, overlay, entity)
        after[entity] = altered_quotas(before, change)
    if _too_many(state.quotas.by_entity, overlay.quotas, after):
        return Decision(Refused(ErrorName.POLICY_VIOLATION, f"{MAX_ENTITIES} entities have quotas already"))
    records = [
        ClientQuotasSet(entity, values)
        for entity, values in after.items()
        if values != _quotas(state, overlay, entity)
    ]
    if any(len(CLIENT_QUOTAS_SET.framed(record)) > MAX_QUOTA_BYTES for record in records):
        return Decision(Refused(ErrorName.INVALID_REQUEST, "the quotas of an entity would become too long"))
    overlay.quotas.update(after)
    return Decision(Done(len(records)), records)


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
) -> Decision:
    resource = (request.resource_type, request.name)
    if len(request.name.encode()) > MAX_GROUP_ID_BYTES:
        return Decision(
            Refused(ErrorName.INVALID_CONFIG, f"the name of the {request.resource_type} is too long")
        )
    before = overlay.resource_configs.get(resource)
    if before is None:
        before = state.resource_configs.by_resource.get(resource, {})
    after = altered_configs(before, request)
    if is_too_long(after):
        reason = f"the configs of the {request.resource_type} would become too long"
        return Decision(Refused(ErrorName.INVALID_CONFIG, reason))
    if _too_many(state.resource_configs.by_resource, overlay.resource_configs, {resource: after}):
        return Decision(Refused(ErrorName.POLICY_VIOLATION, f"{MAX_ENTITIES} resources have configs already"))
    overlay.resource_configs[resource] = after
    if after == before:
        return Decision(Altered(after))
    return Decision(Altered(after), (ResourceConfigsSet(*resource, after),))
