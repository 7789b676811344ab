"""The configs of brokers and groups: what is set while the gateway runs, and what topics are given by it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.config import Settings
from gateway.coordination.shard import Shard
from gateway.topics.altering import ResourceEdit, ResourceType
from gateway.topics.configs import ConfigType
from gateway.topics.defaults import DYNAMIC, Defaults
from gateway.topics.resource_plans import ALL_BROKERS, BROKER, GROUP, plan_broker, plan_group
from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.requests import Refused, SetResourceConfigs

NOTHING: Final[Mapping[str, str]] = {}


class ConfigsRoom:
    """Topics have theirs with themselves, in the topics room."""

    def __init__(self, shard: Shard, settings: Settings) -> None:
        self._shard = shard
        self._broker = settings.broker
        self._most_groups = settings.limits.groups
        self._altering = asyncio.Lock()
        self._known_version = -1
        self._defaults = Defaults(settings.broker)

    @property
    def defaults(self) -> Defaults:
        """What topics are given, now. The same object until it changes."""
        held = self._shard.state.resource_configs
        if held.version != self._known_version:
            self._known_version = held.version
            own, common = self.of_broker(str(self._broker.node_id)), self.of_broker(ALL_BROKERS)
            if (own, common) != (self._defaults.own, self._defaults.common):
                self._defaults = Defaults(self._broker, own, common)
        return self._defaults

    def of_broker(self, name: str) -> Mapping[str, str]:
        """What is set on a broker, or under the empty name on all."""
        return self._shard.state.resource_configs.by_resource.get((BROKER, name), NOTHING)

    def of_group(self, group_id: str) -> Mapping[str, str]:
        return self._shard.state.resource_configs.by_resource.get((GROUP, group_id), NOTHING)

    def groups(self) -> list[str]:
        """Those that have configs, by id."""
        by_resource = self._shard.state.resource_configs.by_resource
        return sorted(name for kind, name in by_resource if kind == GROUP)

    async def alter(
        self, resources: Sequence[ResourceEdit], validate_only: bool, deadline: float
    ) -> list[Refused | None]:
        """Change configs, durably, each resource by itself; None for one that was changed."""
        try:
            # One request at a time: what was checked as a whole must still be so when it is decided.
            async with asyncio.timeout_at(deadline), self._altering:
                return [await self._alter(resource, validate_only) for resource in resources]
        except (OutcomeUnknown, TimeoutError):
            refused = Refused("REQUEST_TIMED_OUT", "The journal did not answer in time.")
        except StoreUnavailable as error:
            refused = Refused("KAFKA_STORAGE_ERROR", str(error))
        return [refused] * len(resources)

    async def _alter(self, resource: ResourceEdit, validate_only: bool) -> Refused | None:
        plan = self._plan(resource)
        if isinstance(plan, Refused):
            return plan
        if not validate_only and (plan.changes or plan.replace):
            answer = await self._shard.submit(plan)
            return answer if isinstance(answer, Refused) else None
        return None

    def _plan(self, resource: ResourceEdit) -> SetResourceConfigs | Refused:
        if resource.type == ResourceType.GROUP:
            before = self.of_group(resource.name)
            plan = plan_group(before, resource)
            if not before and isinstance(plan, SetResourceConfigs) and self._is_full():
                return Refused("POLICY_VIOLATION", f"{self._most_groups} groups have configs already.")
            return plan
        defaults = self.defaults
        lists = {
            name: defaults.of(config)[0].value or ""
            for name, config in DYNAMIC.items()
            if config.type is ConfigType.LIST
        }
        return plan_broker(self.of_broker(resource.name), resource, lists)

    def _is_full(self) -> bool:
        return len(self._shard.state.resource_configs.by_resource) >= self._most_groups
