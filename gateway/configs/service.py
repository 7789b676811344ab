"""The config service: what is set on brokers and groups, and the defaults of topics that follow from it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.configs.alter import ResourceEdit, ResourceType
from gateway.configs.defaults import DYNAMIC, Defaults
from gateway.configs.resource_plans import ALL_BROKERS, BROKER, GROUP, plan_broker, plan_group
from gateway.configs.topic_configs import ConfigType
from gateway.coordination.ledger import Ledger
from gateway.settings import Settings
from ledger.errors import ErrorName, OutcomeUnknown, StoreUnavailable
from ledger.requests import Refused
from ledger.settings.requests import SetResourceConfigs

NO_CONFIGS: Final[Mapping[str, str]] = {}


class ConfigService:
    """Configs of topics are with the topics, in TopicService."""

    def __init__(self, shard: Ledger, settings: Settings) -> None:
        self._shard = shard
        self._broker = settings.broker
        self._max_groups = settings.limits.groups
        self._altering = asyncio.Lock()
        self._known_version = -1
        self._defaults = Defaults(settings.broker)

    @property
    def defaults(self) -> Defaults:
        """The defaults of topic configs. The same object until they change."""
        stored = self._shard.state.resource_configs
        if stored.version != self._known_version:
            self._known_version = stored.version
            own, common = self.of_broker(str(self._broker.node_id)), self.of_broker(ALL_BROKERS)
            if (own, common) != (self._defaults.own, self._defaults.common):
                self._defaults = Defaults(self._broker, own, common)
        return self._defaults

    def of_broker(self, name: str) -> Mapping[str, str]:
        """The configs set on a broker, or under the empty name on all."""
        return self._shard.state.resource_configs.by_resource.get((BROKER, name), NO_CONFIGS)

    def of_group(self, group_id: str) -> Mapping[str, str]:
        return self._shard.state.resource_configs.by_resource.get((GROUP, group_id), NO_CONFIGS)

    def groups(self) -> list[str]:
        """Ids of groups that have configs, sorted."""
        by_resource = self._shard.state.resource_configs.by_resource
        return sorted(name for kind, name in by_resource if kind == GROUP)

    async def alter(
        self, resources: Sequence[ResourceEdit], validate_only: bool, deadline: float
    ) -> list[Refused | None]:
        """Alter configs, durably, each resource by itself; None for one that was altered."""
        try:
            # One request at a time: what was checked as a whole must still hold when it is decided.
            async with asyncio.timeout_at(deadline), self._altering:
                return [await self._alter(resource, validate_only) for resource in resources]
        except (OutcomeUnknown, TimeoutError):
            refused = Refused(ErrorName.REQUEST_TIMED_OUT, "The journal did not answer in time.")
        except StoreUnavailable as error:
            refused = Refused(ErrorName.KAFKA_STORAGE_ERROR, str(error))
        return [refused] * len(resources)

    async def _alter(self, resource: ResourceEdit, validate_only: bool) -> Refused | None:
        plan = self._plan(resource)
        if isinstance(plan, Refused):
            return plan
        if not validate_only and (plan.changes or plan.replace):
            result = await self._shard.submit(plan)
            return result if isinstance(result, Refused) else None
        return None

    def _plan(self, resource: ResourceEdit) -> SetResourceConfigs | Refused:
        if resource.type == ResourceType.GROUP:
            before = self.of_group(resource.name)
            plan = plan_group(before, resource)
            if not before and isinstance(plan, SetResourceConfigs) and self._has_max_groups():
                return Refused(ErrorName.POLICY_VIOLATION, f"{self._max_groups} groups have configs already.")
            return plan
        defaults = self.defaults
        lists = {
            name: defaults.of(config)[0].value or ""
            for name, config in DYNAMIC.items()
            if config.type is ConfigType.LIST
        }
        return plan_broker(self.of_broker(resource.name), resource, lists)

    def _has_max_groups(self) -> bool:
        return len(self._shard.state.resource_configs.by_resource) >= self._max_groups
