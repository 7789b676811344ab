"""Decides changes of the configs of brokers and groups. Pure: the ledger makes them durable.

While a broker runs, the defaults of topics can be set, on this one or on all. Its other configs come from the
gateway's settings when it starts. Checks are in Kafka's order (KIP-226, KIP-339).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gateway.configs.alter import LIST_OPERATIONS, OPERATIONS, ConfigEdit, ResourceEdit
from gateway.configs.defaults import DYNAMIC
from gateway.configs.group_configs import parse_group_config
from gateway.configs.topic_configs import MAX_NAME_SHOWN, MAX_VALUE_LENGTH, BadValue, ConfigType
from gateway.settings import Broker, Groups, Quotas, Transactions
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.settings.configs import ConfigChange, ConfigOp, altered_configs
from ledger.settings.requests import SetResourceConfigs

BROKER, GROUP = "broker", "group"
ALL_BROKERS: Final = ""
AT_START: Final[Mapping[str, str]] = {
    entry.encode_name: f"{section}.{entry.encode_name}"
    for section, settings in (
        ("broker", Broker),
        ("groups", Groups),
        ("quotas", Quotas),
        ("transactions", Transactions),
    )
    for entry in msgspec.structs.fields(settings)
}
"""Kafka's configs that the gateway takes from its settings, and the names of those settings."""
FOR_ALL_ONLY: Final = "min.insync.replicas"
"""As in Kafka since KIP-966."""


def plan_broker(
    before: Mapping[str, str], resource: ResourceEdit, list_defaults: Mapping[str, str]
) -> SetResourceConfigs | Refused:
    """The change to submit for a broker, or for all of them (name ""). `before` is what is set now,
    `list_defaults` has the values of lists that are not set."""
    changes = []
    for edit in resource.edits:
        change = _broker_change(edit)
        if isinstance(change, Refused):
            return change
        if change.name == FOR_ALL_ONLY and resource.name != ALL_BROKERS:
            return Refused(ErrorName.INVALID_CONFIG, f"{FOR_ALL_ONLY} is set for all brokers only.")
        changes.append(change)
    requested = SetResourceConfigs(BROKER, resource.name, changes, resource.is_whole, list_defaults)
    return _check(before, requested)


def plan_group(before: Mapping[str, str], resource: ResourceEdit) -> SetResourceConfigs | Refused:
    """The change to submit for a group on which `before` is set. The group need not exist."""
    if not resource.name:
        return Refused(ErrorName.INVALID_REQUEST, "Groups have no configs in common; name one.")
    changes = []
    for edit in resource.edits:
        change = _group_change(edit)
        if isinstance(change, Refused):
            return change
        changes.append(change)
    return SetResourceConfigs(GROUP, resource.name, changes, resource.is_whole)


def _broker_change(edit: ConfigEdit) -> ConfigChange | Refused:
    operation = OPERATIONS.get(edit.operation)
    if operation is None:
        return Refused(ErrorName.INVALID_REQUEST, f"There is no operation {edit.operation}.")
    if operation is ConfigOp.DELETE:
        return ConfigChange(operation, edit.name)
    config = DYNAMIC.get(edit.name)
    if operation in LIST_OPERATIONS and (config is None or config.type is not ConfigType.LIST):
        return Refused(ErrorName.INVALID_CONFIG, f"{operation.name} is for lists, which {edit.name} is not.")
    if config is None:
        return Refused(ErrorName.INVALID_REQUEST, _why_not_dynamic(edit.name))
    value = edit.value or ""
    if len(value) > MAX_VALUE_LENGTH:
        return Refused(ErrorName.INVALID_REQUEST, f"The value of {edit.name} is too long.")
    if operation in LIST_OPERATIONS:
        items = [item.strip() for item in value.split(",")]
        if operation is ConfigOp.APPEND and "" in items:
            return Refused(ErrorName.INVALID_REQUEST, f"An item of {edit.name} is empty.")
        return ConfigChange(operation, edit.name, ",".join(dict.fromkeys(items)))
    return ConfigChange(operation, edit.name, value)


def _why_not_dynamic(name: str) -> str:
    shown = name[:MAX_NAME_SHOWN]
    setting = AT_START.get(name)
    if setting is None:
        return f"The gateway has no config {shown}."
    return f"{shown} cannot be changed while the gateway runs; set it at its start ({setting})."


def _check(before: Mapping[str, str], requested: SetResourceConfigs) -> SetResourceConfigs | Refused:
    """The same with normalized values, if the configs that would result are allowed as a whole."""
    after = altered_configs(before, requested)
    normalized: dict[str, str] = {}
    for name, value in after.items():
        try:
            normalized[name] = DYNAMIC[name].parse(value)
        except BadValue as error:
            shown = value[:MAX_NAME_SHOWN]
            return Refused(ErrorName.INVALID_REQUEST, f"Invalid value {shown} for {name}: {error}")
    refused = _check_combination(normalized)
    return refused or SetResourceConfigs(
        requested.resource_type,
        requested.name,
        _with_values(requested.changes, normalized),
        requested.replace,
        requested.list_defaults,
    )


def _with_values(changes: Sequence[ConfigChange], normalized: Mapping[str, str]) -> list[ConfigChange]:
    return [
        ConfigChange(change.op, change.name, normalized[change.name]) if change.op is ConfigOp.SET else change
        for change in changes
    ]


def _check_combination(normalized: Mapping[str, str]) -> Refused | None:
    shortest, longest = (
        int(normalized.get(name, DYNAMIC[name].default))
        for name in ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")
    )
    if shortest <= longest:
        return None
    return Refused(
        ErrorName.INVALID_REQUEST, f"A shortest compaction lag of {shortest} is more than the longest."
    )


def _group_change(edit: ConfigEdit) -> ConfigChange | Refused:
    operation = OPERATIONS.get(edit.operation)
    if operation is None:
        # Kafka's controller fails on such a number, and returns no other error.
        return Refused(ErrorName.UNKNOWN_SERVER_ERROR, f"There is no operation {edit.operation}.")
    if operation in LIST_OPERATIONS:
        return Refused(ErrorName.INVALID_CONFIG, f"{operation.name} is for lists, which {edit.name} is not.")
    if operation is ConfigOp.DELETE:
        return ConfigChange(operation, edit.name)
    value = edit.value or ""
    if len(value) > MAX_VALUE_LENGTH:
        return Refused(ErrorName.INVALID_CONFIG, f"The value of {edit.name} is too long.")
    try:
        return ConfigChange(operation, edit.name, parse_group_config(edit.name, value))
    except BadValue as error:
        return Refused(ErrorName.INVALID_CONFIG, str(error))
