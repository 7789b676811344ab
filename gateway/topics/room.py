"""The topics room: finds topics, and creates, changes and deletes them through the shard."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from gateway.config import Settings
from gateway.coordination.shard import Shard
from gateway.requests.slicing import Slices, paced
from gateway.topics.altering import ResourceEdit, plan_changes
from gateway.topics.configs_room import ConfigsRoom
from gateway.topics.creation import (
    CreationRules,
    NewTopic,
    check_new_name,
    check_partition_count,
)
from gateway.topics.describing import topic_value
from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.partitions import PartitionLog
from ledger.requests import (
    AddPartitions,
    Altered,
    Answer,
    Created,
    CreateTopic,
    Deleted,
    DeleteRecords,
    DeleteTopic,
    Grown,
    LowWatermark,
    Refused,
    Request,
)
from ledger.topics import INTERNAL_TOPICS, Topic
from ledger.types import TopicId

REMEMBER_SECONDS: Final = 0.2
MOST_REMEMBERED: Final = 10_000
CREATIONS_AT_ONCE: Final = 100
CHANGES_AT_ONCE: Final = 100

Key = str | TopicId
Create = Callable[[NewTopic, float], Awaitable[Topic | Refused]]
"""Creates a topic by a deadline."""


class TopicsRoom:
    """Topics by name and id. Negative answers come only after a barrier."""

    def __init__(self, shard: Shard, settings: Settings, configs: ConfigsRoom) -> None:
        self._shard = shard
        self._settings = settings
        self._configs = configs
        self._unknown: dict[Key, float] = {}
        """What a barrier has just shown not to exist, and until when that is believed (loop time)."""
        self._altering = asyncio.Lock()

    def all(self) -> Sequence[Topic]:
        """Every topic, by name."""
        topics = self._shard.state.topics
        return [topics.by_name[name] for name in topics.names]

    def get(self, key: Key) -> Topic | None:
        """What is known here and now of a topic, by name or id."""
        topics = self._shard.state.topics
        return topics.by_name.get(key) if isinstance(key, str) else topics.by_id.get(key)

    async def prove_unknown(
        self, keys: Collection[Key], deadline: float, slices: Slices | None = None
    ) -> bool:
        """Make sure that `get` knows all that exists under these keys, for negative answers. False if
        the journal could not be asked: then nothing may be denied. Of a request that may name very many keys,
        `slices` are given."""
        now = asyncio.get_running_loop().time()
        missing = [
            key
            async for key in paced(slices, keys)
            if self.get(key) is None and self._unknown.get(key, 0.0) <= now
        ]
        if not missing:
            return True
        if await self.barrier(deadline) is not None:
            return False
        self._remember([key for key in missing[:MOST_REMEMBERED] if self.get(key) is None])
        return True

    def partition(self, name: str, index: int) -> PartitionLog | None:
        """What is known here and now of a partition."""
        topic = self.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    async def prove_partitions_unknown(
        self, partitions: Collection[tuple[str, int]], deadline: float, slices: Slices | None = None
    ) -> bool:
        """As `prove_unknown`, for partitions by topic name and index."""
        missing = [name async for name, i in paced(slices, partitions) if self.partition(name, i) is None]
        names = dict.fromkeys(missing)
        if any([self.get(name) is not None async for name in paced(slices, names)]):
            return await self.barrier(deadline) is None
        return await self.prove_unknown(names, deadline, slices)

    async def barrier(self, deadline: float) -> Refused | None:
        """Know all that was durable when this was called, or why that cannot be."""
        try:
            await self._shard.barrier(deadline)
        except (OutcomeUnknown, TimeoutError):
            return Refused("REQUEST_TIMED_OUT", "The journal did not answer in time.")
        except StoreUnavailable as error:
            return Refused("KAFKA_STORAGE_ERROR", str(error))
        return None

    def rules(self) -> CreationRules:
        limits, broker = self._settings.limits, self._settings.broker
        return CreationRules(
            default_partitions=broker.num_partitions,
            most_partitions=limits.topic_partitions,
            partitions_left=limits.partitions - len(self._shard.state.logs),
            node_id=broker.node_id,
        )

    def check_name(self, name: str) -> Refused | None:
        """Why a topic of this name cannot be created, its existence apart."""
        return check_new_name(name, self._shard.state.topics)

    async def create(self, topic: NewTopic, deadline: float) -> Topic | Refused:
        """Create, durably. Refused with TOPIC_ALREADY_EXISTS if it is there."""
        request = CreateTopic(topic.name, TopicId(uuid.uuid4().bytes), topic.partitions, topic.configs)
        answer = await self._ask(request, deadline)
        self._unknown.pop(topic.name, None)
        if isinstance(answer, Created):
            created = self.get(answer.topic_id)
            return created or Refused("UNKNOWN_TOPIC_OR_PARTITION", "The topic was deleted meanwhile.")
        return _refusal(answer)

    async def create_missing(
        self, names: Collection[str], deadline: float, create: Create | None = None
    ) -> dict[str, Refused]:
        """Create topics as a metadata request asks for them; returns what could not be created. `create` is
        called instead of this service's own."""
        refused: dict[str, Refused] = {}
        wanted = list(names)
        for start in range(0, len(wanted), CREATIONS_AT_ONCE):
            part = wanted[start : start + CREATIONS_AT_ONCE]
            answers = await asyncio.gather(
                *(self._create_default(name, deadline, create or self.create) for name in part)
            )
            refused.update({name: answer for name, answer in zip(part, answers, strict=True) if answer})
        return refused

    async def delete(self, topic_id: TopicId, deadline: float) -> Refused | None:
        """Delete, durably; None when done."""
        answer = await self._ask(DeleteTopic(topic_id), deadline)
        return None if isinstance(answer, Deleted) else _refusal(answer)

    async def grow(self, topic: Topic, total: int, deadline: float) -> Refused | None:
        """Add partitions, durably, until there are `total`; None when done."""
        answer = await self._ask(AddPartitions(topic.topic_id, total), deadline)
        return None if isinstance(answer, Grown) else _refusal(answer)

    async def alter(
        self, resources: Sequence[ResourceEdit], validate_only: bool, deadline: float
    ) -> list[Refused | None]:
        """Change the configs of topics, durably, each by itself; a topic that is not known here is denied."""
        try:
            # One request at a time: what was checked as a whole must still be so when it is decided.
            async with asyncio.timeout_at(deadline):
                await self._altering.acquire()
        except TimeoutError:
            return [Refused("REQUEST_TIMED_OUT", "Other changes of configs took too long.")] * len(resources)
        try:
            answers: list[Refused | None] = []
            for start in range(0, len(resources), CHANGES_AT_ONCE):
                part = resources[start : start + CHANGES_AT_ONCE]
                asked = (self._alter_one(resource, validate_only, deadline) for resource in part)
                answers += await asyncio.gather(*asked)
            return answers
        finally:
            self._altering.release()

    async def delete_records(
        self, topic: Topic, partition: int, offset: int, deadline: float
    ) -> int | Refused:
        """Raise the log start offset, durably, and return what it is then. -1 means the high watermark."""
        answer = await self._ask(DeleteRecords(topic.topic_id, partition, offset), deadline)
        return answer.offset if isinstance(answer, LowWatermark) else _refusal(answer)

    async def _alter_one(
        self, resource: ResourceEdit, validate_only: bool, deadline: float
    ) -> Refused | None:
        topic = self.get(resource.name)
        configs = {} if topic is None else topic.configs
        plan = plan_changes(configs, resource, lambda name: topic_value(name, {}, self._configs.defaults))
        if isinstance(plan, Refused):
            return plan
        if topic is None:
            return Refused("UNKNOWN_TOPIC_OR_PARTITION", "There is no topic of this name.")
        if validate_only:
            return None
        answer = await self._ask(plan.request(topic.topic_id), deadline)
        return None if isinstance(answer, Altered) else _refusal(answer)

    async def _create_default(self, name: str, deadline: float, create: Create) -> Refused | None:
        rules = self.rules()
        refused = self.check_name(name) or check_partition_count(rules.default_partitions, rules)
        if refused is not None:
            return refused
        if name in INTERNAL_TOPICS:
            return Refused("UNKNOWN_TOPIC_OR_PARTITION")
        answer = await create(NewTopic(name, rules.default_partitions, {}), deadline)
        if isinstance(answer, Refused) and answer.error != "TOPIC_ALREADY_EXISTS":
            return answer
        return None

    async def _ask(self, request: Request, deadline: float) -> Answer:
        try:
            return await self._shard.ask(request, deadline)
        except (OutcomeUnknown, TimeoutError):
            return Refused("REQUEST_TIMED_OUT", "The journal did not answer in time.")
        except StoreUnavailable as error:
            return Refused("KAFKA_STORAGE_ERROR", str(error))

    def _remember(self, keys: Sequence[Key]) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._unknown) + len(keys) > MOST_REMEMBERED:
            self._unknown = {key: until for key, until in self._unknown.items() if until > now}
        room = MOST_REMEMBERED - len(self._unknown)
        self._unknown.update((key, now + REMEMBER_SECONDS) for key in keys[: max(room, 0)])


def _refusal(answer: Answer) -> Refused:
    assert isinstance(answer, Refused), answer
    return answer
