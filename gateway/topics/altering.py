"""Decides what AlterConfigs and IncrementalAlterConfigs change. Pure: the ledger makes it durable.

Kafka's order of checks (KIP-133, KIP-339): what is wrong with the request, then the resource, then the
configs that the topic would have as a whole. A gateway's own configs come from its settings at its start,
so there is nothing of a broker that could be set, and nothing that deleting would change.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from gateway.topics.configs import TOPIC_CONFIGS, BadValue, ConfigType, check_configs
from ledger.machine import altered_configs
from ledger.requests import AlterTopicConfigs, ConfigChange, ConfigOp, Refused
from ledger.topics import Topic, check_topic_name


class ResourceType(IntEnum):
    """What has configs in Kafka, as its ConfigResource numbers it."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


OPERATIONS: Final[Mapping[int, ConfigOp]] = {operation.value: operation for operation in ConfigOp}
LIST_OPERATIONS: Final = (ConfigOp.APPEND, ConfigOp.SUBTRACT)


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
    """Why this resource takes no changes; a topic's existence is asked elsewhere."""
    match resource.type:
        case ResourceType.TOPIC:
            return _check_topic_name(resource.name)
        case ResourceType.BROKER:
            return _check_broker(resource, node_id)
    return Refused("INVALID_REQUEST", f"Resources of type {resource.type} have no configs here.")


def plan_changes(
    topic: Topic, resource: ResourceEdit, default: Callable[[str], str]
) -> AlterTopicConfigs | Refused:
    """What to ask of the ledger; the whole of the topic's configs is checked as it would become.

    `default` tells the value of a topic config that is not set.
    """
    changes = []
    for edit in resource.edits:
        change = _change(edit)
        if isinstance(change, Refused):
            return change
        changes.append(change)
    lists = [change.name for change in changes if change.op in LIST_OPERATIONS]
    defaults = {name: default(name) for name in lists}
    asked = AlterTopicConfigs(topic.topic_id, changes, resource.is_whole, defaults)
    blank = next((c.name for c in changes if c.op is ConfigOp.APPEND and "" in c.value.split(",")), None)
    if blank is not None and topic.configs.get(blank, defaults[blank]):
        return Refused("INVALID_CONFIG", f"An item of {blank} is empty.")
    try:
        kept = check_configs(altered_configs(topic.configs, asked))
    except BadValue as error:
        return Refused("INVALID_CONFIG", str(error))
    settled = [
        replace(change, value=kept[change.name]) if change.op is ConfigOp.SET else change
        for change in changes
    ]
    return replace(asked, changes=settled)


def _change(edit: ConfigEdit) -> ConfigChange | Refused:
    operation = OPERATIONS.get(edit.operation)
    if operation is None:
        # Kafka's controller fails on such a number, and its answer says no more.
        return Refused("UNKNOWN_SERVER_ERROR", f"There is no operation {edit.operation}.")
    if operation not in LIST_OPERATIONS:
        return ConfigChange(operation, edit.name, edit.value or "")
    config = TOPIC_CONFIGS.get(edit.name)
    if config is None or config.type is not ConfigType.LIST:
        return Refused("INVALID_CONFIG", f"{operation.name} is for lists, which {edit.name} is not.")
    items = [item.strip() for item in (edit.value or "").split(",")]
    return ConfigChange(operation, edit.name, ",".join(items))


def _check_topic_name(name: str) -> Refused | None:
    if not name:
        return Refused("INVALID_REQUEST", "Topics have no configs in common; name one.")
    reason = check_topic_name(name)
    return None if reason is None else Refused("INVALID_TOPIC_EXCEPTION", f"Topic name is invalid: {reason}")


def _check_broker(resource: ResourceEdit, node_id: int) -> Refused | None:
    if resource.name not in ("", str(node_id)):
        return Refused("INVALID_REQUEST", f"Expected broker id {node_id} or none, not {resource.name!r}.")
    for edit in resource.edits:
        operation = OPERATIONS.get(edit.operation)
        if operation is None:
            return Refused("INVALID_REQUEST", f"There is no operation {edit.operation}.")
        if operation in LIST_OPERATIONS:
            return Refused("INVALID_CONFIG", f"{operation.name} is not possible for {edit.name} of a broker.")
        if operation is ConfigOp.SET:
            return Refused(
                "INVALID_REQUEST",
                f"{edit.name} cannot be changed while the gateway runs; set it at its start (broker.*).",
            )
    return None
