"""Changes of configs: of topics, of brokers and of groups alike. Values were checked before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

MAX_CONFIG_BYTES = 128 * 1024
"""Of all configs of one topic or other resource, names and values."""


class ConfigOp(Enum):
    """KIP-339; APPEND and SUBTRACT work on comma-separated lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """`value` is a checked value, or for a list operation its items; for DELETE it is not looked at."""

    op: ConfigOp
    name: str
    value: str = ""


class ConfigChanges(Protocol):
    """Some configs of one resource change. `replace`: what is not named goes back to its default.
    `list_defaults`: what a list that is not set holds, for APPEND and SUBTRACT."""

    @property
    def changes(self) -> Sequence[ConfigChange]: ...

    @property
    def replace(self) -> bool: ...

    @property
    def list_defaults(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class Altered:
    """What is set on the resource from now on."""

    configs: Mapping[str, str]


def is_too_long(configs: Mapping[str, str]) -> bool:
    return sum(len(name) + len(value) for name, value in configs.items()) * 4 > MAX_CONFIG_BYTES


def altered_configs(before: Mapping[str, str], request: ConfigChanges) -> dict[str, str]:
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
