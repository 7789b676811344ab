"""Requests that set client quotas and the configs of brokers and groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ledger.requests import SMALL, UTF8
from ledger.settings.configs import MAX_CONFIG_BYTES, ConfigChange
from ledger.settings.state import QuotaEntity

MAX_QUOTA_BYTES = 4 * 1024
"""Of one entity with all its quotas."""


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """New values by quota key; None takes the quota away. What is not named stays."""

    entity: QuotaEntity
    values: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class SetClientQuotas:
    """Change quotas of entities, all or none of them. Result: Done(how many entities changed)."""

    changes: Sequence[QuotaChange]
    work: ClassVar[int] = 0

    @property
    def weight(self) -> int:
        return SMALL + MAX_QUOTA_BYTES * len(self.changes)


@dataclass(frozen=True, slots=True)
class SetResourceConfigs:
    """Change configs of a broker (name "": of all) or of a group, as `AlterTopicConfigs` does."""

    resource_type: str
    name: str
    changes: Sequence[ConfigChange]
    replace: bool = False
    list_defaults: Mapping[str, str] = field(default_factory=dict)
    work: ClassVar[int] = 0

    @property
    def weight(self) -> int:
        return SMALL + UTF8 * len(self.name) + MAX_CONFIG_BYTES
