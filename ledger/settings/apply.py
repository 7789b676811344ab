"""Applying the metadata records of client quotas and of configs."""

from ledger.settings.records import ClientQuotasSet, ResourceConfigsSet
from ledger.settings.rows import QUOTA, RESOURCE_CONFIG
from ledger.state import LedgerState


def client_quotas_set(state: LedgerState, record: ClientQuotasSet) -> None:
    state.quotas.put(record.entity, record.values)
    state.dirty[QUOTA].add(record.entity)


def resource_configs_set(state: LedgerState, record: ResourceConfigsSet) -> None:
    resource = record.resource_type, record.name
    state.resource_configs.put(resource, record.configs)
    state.dirty[RESOURCE_CONFIG].add(resource)
