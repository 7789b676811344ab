"""Decides what AlterConfigs and IncrementalAlterConfigs change. Pure: the ledger makes it durable.

Kafka's order of checks (KIP-133, KIP-339): nulls and repeats, the operations, the topic's name, the configs
that the topic would have as a whole, and only then whether it exists. What brokers and groups take,
`gateway.topics.resource_plans` decides.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from gateway.topics.configs import TOPIC_CONFIGS, BadValue, ConfigType, check_configs
from ledger.requests import AlterTopicConfigs, ConfigChange, ConfigOp, Refused
from ledger.setting_decisions import altered_configs
from ledger.topics import check_topic_name
from ledger.types import TopicId


class ResourceType(IntEnum):
    """What has configs in Kafka, as its ConfigResource numbers it."""

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
    """One line of a request, as it came. `operation` may be any number, and the value null."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class ResourceEdit:
    """All lines for one resource. `is_whole`: what is not named goes back to its default."""

    type: int
    name: str
    edits: Sequence[ConfigEdit]
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes that a topic may undergo; `list_defaults` are those of lists that are appended to."""

    changes: Sequence[ConfigChange]
    is_whole: bool
    list_defaults: Mapping[str, str]

    def request(self, topic_id: TopicId) -> AlterTopicConfigs:
        return AlterTopicConfigs(topic_id, self.changes, self.is_whole, self.list_defaults)


def check_edits(resource: ResourceEdit) -> Refused | None:
    """What is wrong with a resource's lines whatever the resource holds."""
    for edit in resource.edits:
        if edit.value is None and edit.operation != ConfigOp.DELETE.value:
            return Refused("INVALID_REQUEST", f"The value of {edit.name} is null.")
    twice = next((name for name, n in Counter(e.name for e in resource.edits).items() if n > 1), None)
    if twice is not None:
        return Refused("INVALID_REQUEST", f"The config {twice} is named more than once.")
    return None


def check_resource(resource: ResourceEdit, node_id: int) -> Refused | None:
    """Why a resource takes no changes, whatever they are."""
    match resource.type:
        case ResourceType.TOPIC:
            return None
        case ResourceType.BROKER:
            return check_broker_name(resource.name, node_id)
        case ResourceType.GROUP:
            return None
    return Refused("INVALID_REQUEST", f"Resources of type {resource.type} have no configs here.")


def plan_changes(
    configs: Mapping[str, str], resource: ResourceEdit, default: Callable[[str], str]
) -> Plan | Refused:
    """What to ask of the ledger for a topic that has `configs`, or would have if it existed; they are checked
    as a whole as they would become. `default` tells the value of a topic config that is not set."""
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
        return Refused("INVALID_CONFIG", f"An item of {blank} is empty.")
    try:
        kept = check_configs(altered_configs(configs, plan.request(NO_TOPIC)))
    except BadValue as error:
        return Refused("INVALID_CONFIG", str(error))
    settled = [replace(c, value=kept[c.name]) if c.op is ConfigOp.SET else c for c in changes]
    return replace(plan, changes=settled)


def _change(edit: ConfigEdit) -> ConfigChange | Refused:
    operation = OPERATIONS.get(edit.operation)
    if operation is None:
        # Kafka's controller fails on such a number, and its answer says no more.
        return Refused("UNKNOWN_SERVER_ERROR", f"There is no operation {edit.operation}.")
    value = edit.value or ""
    if operation not in LIST_OPERATIONS:
        return ConfigChange(operation, edit.name, value)
    config = TOPIC_CONFIGS.get(edit.name)
    if config is None or config.type is not ConfigType.LIST:
        return Refused("INVALID_CONFIG", f"{operation.name} is for lists, which {edit.name} is not.")
    if operation is ConfigOp.APPEND:
        value = ",".join(dict.fromkeys(item.strip() for item in value.split(",")))
    return ConfigChange(operation, edit.name, value)


def _check_topic_name(name: str) -> Refused | None:
    if not name:
        return Refused("INVALID_REQUEST", "Topics have no configs in common; name one.")
    reason = check_topic_name(name)
    return None if reason is None else Refused("INVALID_TOPIC_EXCEPTION", f"Topic name is invalid: {reason}")


def check_broker_name(name: str, node_id: int) -> Refused | None:
    """Why a name is none of a broker here: it is this gateway's id, in any way that Java reads a number, or
    empty for all brokers."""
    if not name or (JAVA_INTEGER.fullmatch(name) and int(name) == node_id):
        return None
    return Refused("INVALID_REQUEST", f"Expected broker id {node_id} or none, not {name!r}.")
