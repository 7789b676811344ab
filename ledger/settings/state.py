"""Client quotas and the configs of brokers and groups, as they were set."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""(entity type, name) sorted by type; the name None is the default of that type (KIP-546)."""

ResourceKey: TypeAlias = tuple[str, str]
"""("broker" or "group", name); for brokers the name "" means all of them."""


@dataclass(slots=True)
class ClientQuotas:
    """`version` counts the changes, for callers that keep what they made of them."""

    by_entity: dict[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    by_key: dict[str, dict[QuotaEntity, float]] = field(default_factory=dict)
    """The same by quota key; a key without any quota is not in it."""
    version: int = 0

    def put(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """All quotas of the entity from now on; none: it is forgotten."""
        self.version += 1
        for key in self.by_entity.pop(entity, ()):
            held = self.by_key[key]
            del held[entity]
            if not held:
                del self.by_key[key]
        if values:
            self.by_entity[entity] = dict(values)
        for key, value in values.items():
            self.by_key.setdefault(key, {})[entity] = value


@dataclass(slots=True)
class ResourceConfigs:
    """Configs that are set; those of topics are with the topics. `version` as in `ClientQuotas`."""

    by_resource: dict[ResourceKey, Mapping[str, str]] = field(default_factory=dict)
    version: int = 0

    def put(self, resource: ResourceKey, configs: Mapping[str, str]) -> None:
        """All configs that are set on the resource from now on."""
        self.version += 1
        if configs:
            self.by_resource[resource] = dict(configs)
        else:
            self.by_resource.pop(resource, None)
