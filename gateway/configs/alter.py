"""Decides what AlterConfigs and IncrementalAlterConfigs change. Pure: the ledger makes it durable.

Kafka's order of checks (KIP-133, KIP-339): nulls and repeats, the operations, the topic's name, the configs
that the topic would have as a whole, and only then whether it exists. Changes of brokers and groups are
decided in `gateway.configs.resource_plans`.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from gateway.configs.topic_configs import TOPIC_CONFIGS, BadValue, ConfigType, check_configs
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.settings.configs import ConfigChange, ConfigOp, altered_configs
from ledger.topics.requests import AlterTopicConfigs
from ledger.topics.state import check_topic_name
from ledger.types import TopicId


class ResourceType(IntEnum):
    """Kinds of resources with configs, numbered as in Kafka's ConfigResource."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


OPERATIONS: Final[Mapping[int, ConfigOp]] = {operation.value: operation for operation in ConfigOp}
JAVA_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
LIST_OPERATIONS: Final = (ConfigOp.APPEND, ConfigOp.SUBTRACT)
NO_TOPIC: Final = TopicId(bytes(16))


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """One config of a request, unchecked: `operation` may be any number, and the value null."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class ResourceEdit:
    """All edits of one resource. `is_whole`: configs that are not named go back to their defaults."""

    type: int
    name: str
    edits: Sequence[ConfigEdit]
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes of a topic that are allowed; `list_defaults` has the defaults of lists that are appended to."""

    changes: Sequence[ConfigChange]
    is_whole: bool
    list_defaults: Mapping[str, str]

    def request(self, topic_id: TopicId) -> AlterTopicConfigs:
        return AlterTopicConfigs(topic_id, self.changes, self.is_whole, self.list_defaults)


def check_edits(resource: ResourceEdit) -> Refused | None:
    """Why these edits are refused, whatever is set on the resource; None if they are not."""
    for edit in resource.edits:
        if edit.value is None and edit.operation != ConfigOp.DELETE.value:
            return Refused(ErrorName.INVALID_REQUEST, f"The value of {edit.name} is null.")
    repeated = next((name for name, n in Counter(e.name for e in resource.edits).items() if n > 1), None)
    if repeated is not None:
        return Refused(ErrorName.INVALID_REQUEST, f"The config {repeated} is named more than once.")
    return None


def check_resource(resource: ResourceEdit, node_id: int) -> Refused | None:
    """Why the resource refuses any changes, or None."""
    match resource.type:
        case ResourceType.TOPIC:
            return None
        case ResourceType.BROKER:
            return check_broker_name(resource.name, node_id)
        case ResourceType.GROUP:
            return None
    return Refused(ErrorName.INVALID_REQUEST, f"Resources of type {resource.type} have no configs here.")


def plan_changes(
    configs: Mapping[str, str], resource: ResourceEdit, default: Callable[[str], str]
) -> Plan | Refused:
    """The changes to submit for a topic that has `configs`, or would have if it existed. The configs that
    would result are checked as a whole. `default` returns the value of a topic config that is not set."""
    changes = []
    for edit in resource.edits:
        change = _change(edit)
        if isinstance(change, Refused):
            return change
        changes.append(change)
    refused = _check_topic_name(resource.name)
    if refused is not None:
        return refused
    plan = Plan(
        changes, resource.is_whole, {c.name: default(c.name) for c in changes if c.op in LIST_OPERATIONS}
    )
    blank = next((c.name for c in changes if c.op is ConfigOp.APPEND and "" in c.value.split(",")), None)
    if blank is not None and configs.get(blank, plan.list_defaults[blank]):
        return Refused(ErrorName.INVALID_CONFIG, f"An item of {blank} is empty.")
    try:
        normalized = check_configs(altered_configs(configs, plan.request(NO_TOPIC)))
    except BadValue as error:
        return Refused(ErrorName.INVALID_CONFIG, str(error))
    normalized_changes = [
        replace(c, value=normalized[c.name]) if c.op is ConfigOp.SET else c for c in changes
    ]
    return replace(plan, changes=normalized_changes)


def _change(edit: ConfigEdit) -> ConfigChange | Refused:
    operation = OPERATIONS.get(edit.operation)
    if operation is None:
        # Kafka's controller fails on such a number, and returns no other error.
        return Refused(ErrorName.UNKNOWN_SERVER_ERROR, f"There is no operation {edit.operation}.")
    value = edit.value or ""
    if operation not in LIST_OPERATIONS:
        return ConfigChange(operation, edit.name, value)
    config = TOPIC_CONFIGS.get(edit.name)
    if config is None or config.type is not ConfigType.LIST:
        return Refused(ErrorName.INVALID_CONFIG, f"{operation.name} is for lists, which {edit.name} is not.")
    if operation is ConfigOp.APPEND:
        value = ",".join(dict.fromkeys(item.strip() for item in value.split(",")))
    return ConfigChange(operation, edit.name, value)


def _check_topic_name(name: str) -> Refused | None:
    if not name:
        return Refused(ErrorName.INVALID_REQUEST, "Topics have no configs in common; name one.")
    reason = check_topic_name(name)
    return (
        None
        if reason is None
        else Refused(ErrorName.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    )


def check_broker_name(name: str, node_id: int) -> Refused | None:
    """Why no broker here has this name. Allowed are this gateway's id, spelled in any way that Java parses,
    and the empty name for all brokers."""
    if not name or (JAVA_INTEGER.fullmatch(name) and int(name) == node_id):
        return None
    return Refused(ErrorName.INVALID_REQUEST, f"Expected broker id {node_id} or none, not {name!r}.")
