"""The topic service: finds topics, and creates, alters and deletes them through the shard."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from gateway.configs.alter import ResourceEdit, plan_changes
from gateway.configs.describe import topic_value
from gateway.configs.service import ConfigService
from gateway.coordination.ledger import Ledger
from gateway.host import new_uuid4
from gateway.scheduling.slices import Slices, paced
from gateway.settings import Settings
from gateway.topics.creation import (
    CreationLimits,
    NewTopic,
    check_new_name,
    check_partition_count,
)
from ledger.errors import ErrorName, OutcomeUnknown, StoreUnavailable
from ledger.partitions.requests import DeleteRecords, LowWatermark
from ledger.partitions.state import PartitionLog
from ledger.requests import LedgerResult, Refused, Request
from ledger.settings.configs import Altered
from ledger.topics.requests import AddPartitions, Created, CreateTopic, Deleted, DeleteTopic, Grown
from ledger.topics.state import INTERNAL_TOPICS, Topic
from ledger.types import TopicId

ABSENCE_TTL_S: Final = 0.2
MAX_KNOWN_ABSENT: Final = 10_000
CREATIONS_AT_ONCE: Final = 100
CHANGES_AT_ONCE: Final = 100

TopicKey = str | TopicId
Create = Callable[[NewTopic, float], Awaitable[Topic | Refused]]
"""Creates a topic by a deadline."""


class TopicService:
    """Topics by name and id. That a topic is absent is certain only after a linearizable read."""

    def __init__(
        self,
        shard: Ledger,
        settings: Settings,
        configs: ConfigService,
        new_uuid: Callable[[], uuid.UUID] = new_uuid4,
    ) -> None:
        self._shard = shard
        self._new_uuid = new_uuid
        self._settings = settings
        self._configs = configs
        self._absent: dict[TopicKey, float] = {}
        """Keys that a linearizable read has found absent, and until when that counts (loop time)."""
        self._altering = asyncio.Lock()

    def all(self) -> Sequence[Topic]:
        """Every topic, by name."""
        topics = self._shard.state.topics
        return [topics.by_name[name] for name in topics.names]

    def get(self, key: TopicKey) -> Topic | None:
        """A topic by name or id, as it is known here and now."""
        topics = self._shard.state.topics
        return topics.by_name.get(key) if isinstance(key, str) else topics.by_id.get(key)

    async def confirm_absent(
        self, keys: Collection[TopicKey], deadline: float, slices: Slices | None = None
    ) -> bool:
        """Linearizable read: afterwards, topics of these keys that `get` does not know do not exist. False if
        the journal could not be read: then nothing is certain. `slices` of a request that may name very many
        keys."""
        now = asyncio.get_running_loop().time()
        missing = list[TopicKey]()
        async for key in paced(slices, keys):
            if (
                self.get(key) is None
                and self._absent.get(key, 0.0) <= now
                and len(missing) < MAX_KNOWN_ABSENT
            ):
                missing.append(key)
        if not missing:
            return True
        if await self.barrier(deadline) is not None:
            return False
        self._remember_absent([key for key in missing if self.get(key) is None])
        return True

    def partition(self, name: str, index: int) -> PartitionLog | None:
        """A partition, as it is known here and now."""
        topic = self.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def has_partition(self, name: str, index: int) -> bool:
        topic = self.get(name)
        return topic is not None and 0 <= index < len(topic.partitions)

    async def confirm_partitions_absent(
        self, partitions: Collection[tuple[str, int]], deadline: float, slices: Slices | None = None
    ) -> bool:
        """As `confirm_absent`, for partitions by topic name and index."""
        names = {name: None async for name, i in paced(slices, partitions) if not self.has_partition(name, i)}
        if slices is not None:
            slices.keep(names)
        known = [name async for name in paced(slices, names) if self.get(name) is not None]
        if known:
            return await self.barrier(deadline) is None
        return await self.confirm_absent(names, deadline, slices)

    async def barrier(self, deadline: float) -> Refused | None:
        """Linearizable read: wait until all that was durable at this call is known here. Returns the error if
        that fails."""
        try:
            await self._shard.barrier(deadline)
        except (OutcomeUnknown, TimeoutError):
            return Refused(ErrorName.REQUEST_TIMED_OUT, "The journal did not answer in time.")
        except StoreUnavailable as error:
            return Refused(ErrorName.KAFKA_STORAGE_ERROR, str(error))
        return None

    def creation_limits(self) -> CreationLimits:
        limits, broker = self._settings.limits, self._settings.broker
        return CreationLimits(
            default_partitions=broker.num_partitions,
            max_partitions=limits.topic_partitions,
            partitions_left=limits.partitions - self._shard.state.partition_count,
            node_id=broker.node_id,
        )

    def check_name(self, name: str) -> Refused | None:
        """Why a topic of this name cannot be created, unless it is that it exists."""
        return check_new_name(name, self._shard.state.topics)

    def new_id(self) -> TopicId:
        """Of no other topic."""
        return TopicId(self._new_uuid().bytes)

    async def create(self, topic: NewTopic, deadline: float) -> Topic | Refused:
        """Create, durably. Refused with TOPIC_ALREADY_EXISTS if the topic exists."""
        request = CreateTopic(topic.name, self.new_id(), topic.partitions, topic.configs)
        result = await self._submit(request, deadline)
        self._absent.pop(topic.name, None)
        if isinstance(result, Created):
            created = self.get(result.topic_id)
            return created or Refused(
                ErrorName.UNKNOWN_TOPIC_OR_PARTITION, "The topic was deleted meanwhile."
            )
        return _refusal(result)

    async def create_missing(
        self, names: Collection[str], deadline: float, create: Create | None = None
    ) -> dict[str, Refused]:
        """Create topics with default configs for a Metadata request. Returns the refusals by name. `create`
        is called in place of this service's own method."""
        refused: dict[str, Refused] = {}
        all_names = list(names)
        # Names and numbers of partitions are refused by the newest state alone.
        if (outdated := await self.barrier(deadline)) is not None:
            return dict.fromkeys(all_names, outdated)
        for start in range(0, len(all_names), CREATIONS_AT_ONCE):
            part = all_names[start : start + CREATIONS_AT_ONCE]
            results = await asyncio.gather(
                *(self._create_default(name, deadline, create or self.create) for name in part)
            )
            refused.update({name: result for name, result in zip(part, results, strict=True) if result})
        return refused

    async def delete(self, topic_id: TopicId, deadline: float) -> Refused | None:
        """Delete, durably; None when done."""
        result = await self._submit(DeleteTopic(topic_id), deadline)
        return None if isinstance(result, Deleted) else _refusal(result)

    async def grow(self, topic: Topic, total: int, deadline: float) -> Refused | None:
        """Add partitions, durably, until there are `total`; None when done."""
        result = await self._submit(AddPartitions(topic.topic_id, total), deadline)
        return None if isinstance(result, Grown) else _refusal(result)

    async def alter(
        self, resources: Sequence[ResourceEdit], validate_only: bool, deadline: float
    ) -> list[Refused | None]:
        """Alter the configs of topics, durably, each by itself. A topic that is not known here is refused."""
        try:
            # One request at a time: what was checked as a whole must still hold when it is decided.
            async with asyncio.timeout_at(deadline):
                await self._altering.acquire()
        except TimeoutError:
            return [Refused(ErrorName.REQUEST_TIMED_OUT, "Other changes of configs took too long.")] * len(
                resources
            )
        try:
            results: list[Refused | None] = []
            for start in range(0, len(resources), CHANGES_AT_ONCE):
                part = resources[start : start + CHANGES_AT_ONCE]
                alterations = (self._alter_one(resource, validate_only, deadline) for resource in part)
                results += await asyncio.gather(*alterations)
            return results
        finally:
            self._altering.release()

    async def delete_records(
        self, topic: Topic, partition: int, offset: int, deadline: float
    ) -> int | Refused:
        """Raise the log start offset, durably, and return the new one. -1 means the high watermark."""
        result = await self._submit(DeleteRecords(topic.topic_id, partition, offset), deadline)
        return result.offset if isinstance(result, LowWatermark) else _refusal(result)

    async def _alter_one(
        self, resource: ResourceEdit, validate_only: bool, deadline: float
    ) -> Refused | None:
        topic = self.get(resource.name)
        configs = {} if topic is None else topic.configs
        plan = plan_changes(configs, resource, lambda name: topic_value(name, {}, self._configs.defaults))
        if isinstance(plan, Refused):
            return plan
        if topic is None:
            return Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION, "There is no topic of this name.")
        if validate_only:
            return None
        result = await self._submit(plan.request(topic.topic_id), deadline)
        return None if isinstance(result, Altered) else _refusal(result)

    async def _create_default(self, name: str, deadline: float, create: Create) -> Refused | None:
        limits = self.creation_limits()
        refused = self.check_name(name) or check_partition_count(limits.default_partitions, limits)
        if refused is not None:
            return refused
        if name in INTERNAL_TOPICS:
            return Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)
        result = await create(NewTopic(name, limits.default_partitions, {}), deadline)
        if isinstance(result, Refused) and result.error != ErrorName.TOPIC_ALREADY_EXISTS:
            return result
        return None

    async def _submit(self, request: Request, deadline: float) -> LedgerResult:
        try:
            return await self._shard.ask(request, deadline)
        except (OutcomeUnknown, TimeoutError):
            return Refused(ErrorName.REQUEST_TIMED_OUT, "The journal did not answer in time.")
        except StoreUnavailable as error:
            return Refused(ErrorName.KAFKA_STORAGE_ERROR, str(error))

    def _remember_absent(self, keys: Sequence[TopicKey]) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._absent) + len(keys) > MAX_KNOWN_ABSENT:
            self._absent = {key: until for key, until in self._absent.items() if until > now}
        capacity = MAX_KNOWN_ABSENT - len(self._absent)
        self._absent.update((key, now + ABSENCE_TTL_S) for key in keys[: max(capacity, 0)])


def _refusal(result: LedgerResult) -> Refused:
    assert isinstance(result, Refused), result
    return result
