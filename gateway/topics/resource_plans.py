"""Decides what changes of the configs of brokers and groups come to. Pure: the ledger makes it durable.

Of a broker the defaults of topics can be set while it runs, on this one or on all; its other configs come
from the gateway's settings at its start. Kafka's order of checks (KIP-226, KIP-339).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gateway.config import Broker, Groups, Quotas
from gateway.topics.altering import LIST_OPERATIONS, OPERATIONS, ConfigEdit, ResourceEdit
from gateway.topics.configs import MAX_NAME_SHOWN, MAX_VALUE_LENGTH, BadValue, ConfigType
from gateway.topics.defaults import DYNAMIC
from gateway.topics.group_configs import parse_group_config
from ledger.requests import ConfigChange, ConfigOp, Refused, SetResourceConfigs
from ledger.setting_decisions import altered_configs

BROKER, GROUP = "broker", "group"
ALL_BROKERS: Final = ""
AT_START: Final[Mapping[str, str]] = {
    entry.encode_name: f"{section}.{entry.encode_name}"
    for section, settings in (("broker", Broker), ("groups", Groups), ("quotas", Quotas))
    for entry in msgspec.structs.fields(settings)
}
"""Kafka's configs that the gateway takes from its settings, and what those are called."""
FOR_ALL_ONLY: Final = "min.insync.replicas"
"""As with Kafka since KIP-966."""


def plan_broker(
    before: Mapping[str, str], resource: ResourceEdit, list_defaults: Mapping[str, str]
) -> SetResourceConfigs | Refused:
    """What to ask of the ledger, for a broker or (name "") all of them; `before` is set on it now, and
    `list_defaults` is what lists hold that are not set."""
    changes = []
    for edit in resource.edits:
        change = _broker_change(edit)
        if isinstance(change, Refused):
            return change
        if change.name == FOR_ALL_ONLY and resource.name != ALL_BROKERS:
            return Refused("INVALID_CONFIG", f"{FOR_ALL_ONLY} is set for all brokers only.")
        changes.append(change)
    asked = SetResourceConfigs(BROKER, resource.name, changes, resource.is_whole, list_defaults)
    return _checked(before, asked)


def plan_group(before: Mapping[str, str], resource: ResourceEdit) -> SetResourceConfigs | Refused:
    """What to ask of the ledger for a group on which `before` is set; whether it exists does not matter."""
    if not resource.name:
        return Refused("INVALID_REQUEST", "Groups have no configs in common; name one.")
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
        return Refused("INVALID_REQUEST", f"There is no operation {edit.operation}.")
    if operation is ConfigOp.DELETE:
        return ConfigChange(operation, edit.name)
    config = DYNAMIC.get(edit.name)
    if operation in LIST_OPERATIONS and (config is None or config.type is not ConfigType.LIST):
        return Refused("INVALID_CONFIG", f"{operation.name} is for lists, which {edit.name} is not.")
    if config is None:
        return Refused("INVALID_REQUEST", _why_not_dynamic(edit.name))
    value = edit.value or ""
    if len(value) > MAX_VALUE_LENGTH:
        return Refused("INVALID_REQUEST", f"The value of {edit.name} is too long.")
    if operation in LIST_OPERATIONS:
        items = [item.strip() for item in value.split(",")]
        if operation is ConfigOp.APPEND and "" in items:
            return Refused("INVALID_REQUEST", f"An item of {edit.name} is empty.")
        return ConfigChange(operation, edit.name, ",".join(dict.fromkeys(items)))
    return ConfigChange(operation, edit.name, value)


def _why_not_dynamic(name: str) -> str:
    shown = name[:MAX_NAME_SHOWN]
    setting = AT_START.get(name)
    if setting is None:
        return f"The gateway has no config {shown}."
    return f"{shown} cannot be changed while the gateway runs; set it at its start ({setting})."


def _checked(before: Mapping[str, str], asked: SetResourceConfigs) -> SetResourceConfigs | Refused:
    """The same with values in their kept form, if what they would make of the whole is allowed."""
    after = altered_configs(before, asked)
    kept: dict[str, str] = {}
    for name, value in after.items():
        try:
            kept[name] = DYNAMIC[name].parse(value)
        except BadValue as error:
            shown = value[:MAX_NAME_SHOWN]
            return Refused("INVALID_REQUEST", f"Invalid value {shown} for {name}: {error}")
    refused = _contradicts(kept)
    return refused or SetResourceConfigs(
        asked.resource_type, asked.name, _settled(asked.changes, kept), asked.replace, asked.list_defaults
    )


def _settled(changes: Sequence[ConfigChange], kept: Mapping[str, str]) -> list[ConfigChange]:
    return [
        ConfigChange(change.op, change.name, kept[change.name]) if change.op is ConfigOp.SET else change
        for change in changes
    ]


def _contradicts(kept: Mapping[str, str]) -> Refused | None:
    shortest, longest = (
        int(kept.get(name, DYNAMIC[name].default))
        for name in ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")
    )
    if shortest <= longest:
        return None
    return Refused("INVALID_REQUEST", f"A shortest compaction lag of {shortest} is more than the longest.")


def _group_change(edit: ConfigEdit) -> ConfigChange | Refused:
    operation = OPERATIONS.get(edit.operation)
    if operation is None:
        # Kafka's controller fails on such a number, and its answer says no more.
        return Refused("UNKNOWN_SERVER_ERROR", f"There is no operation {edit.operation}.")
    if operation in LIST_OPERATIONS:
        return Refused("INVALID_CONFIG", f"{operation.name} is for lists, which {edit.name} is not.")
    if operation is ConfigOp.DELETE:
        return ConfigChange(operation, edit.name)
    value = edit.value or ""
    if len(value) > MAX_VALUE_LENGTH:
        return Refused("INVALID_CONFIG", f"The value of {edit.name} is too long.")
    try:
        return ConfigChange(operation, edit.name, parse_group_config(edit.name, value))
    except BadValue as error:
        return Refused("INVALID_CONFIG", str(error))
