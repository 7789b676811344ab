"""What an embedded gateway and its clients do, step by step, through restarts; and what it then owes them."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ledger.errors import StoreError
from ledger.groups.requests import CommitOffsets, DrainOffsets, OffsetsStored, StoreGroup
from ledger.groups.state import Group, Member, OffsetKey, OffsetRow
from ledger.requests import Done, Refused
from ledger.settings.requests import QuotaChange, SetClientQuotas
from ledger.settings.state import QuotaEntity
from ledger.topics.requests import Created, CreateTopic, Deleted, DeleteTopic
from ledger.types import DraftBatch, TopicId
from tests.support.embedded import GRACE_MS, Client, Clock, Embedded
from tests.support.faulty import Faults
from tests.support.journalled import topic_id

ATTEMPTS = 6
GROUP = "g"
QUOTA_OF: QuotaEntity = (("user", None),)


@dataclass
class Promises:
    """What the gateway said: base offsets by batch, and batches that it refused for certain."""

    acked: dict[tuple[TopicId, int], dict[bytes, int]] = field(default_factory=dict)
    refused: dict[bytes, None] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    offsets: dict[OffsetKey, int] = field(default_factory=dict)
    """That the one group has committed."""
    generation: int = 0
    """Of the group, and its quota as well."""


class Script:
    """What a gateway and its clients do, through restarts. A failed step is tried again as they would."""

    def __init__(self, root: Path, faults: Faults, *, exclusive: bool = True) -> None:
        self.root = root
        self.faults = faults
        self.exclusive = exclusive
        self.clock = Clock()
        self.promises = Promises()
        self.clients: list[Client] = []
        self.plain = Client()
        self.host: Embedded

    async def run(self) -> None:
        await self.start()
        await self.create("a", 1, 2)
        await self.create("b", 2, 1)
        await self.new_client()
        await self.produce_everywhere()
        await self.group_goes_on()
        await self.housekeeping(lambda: self.host.checkpointer.write_image())
        await self.checkpoint()
        await self.restart()
        self.check_group()
        await self.produce("b", 0)  # a file of its own, dead once the topic is
        await self.restart()
        await self.repeat_last("a", 0)
        await self.produce_everywhere()
        await self.an_orphan()
        await self.group_goes_on()
        await self.delete("b")
        await self.drain_offsets()
        await self.sweep()
        await self.checkpoint()
        await self.new_client()
        self.clock.now_ms += GRACE_MS + 1
        await self.sweep()
        await self.produce_everywhere()  # into a file below the floor by now: stored again
        self.clock.now_ms += GRACE_MS + 1
        await self.sweep()
        await self.create("b", 3, 1)
        await self.produce_everywhere()
        await self.checkpoint()
        await self.group_goes_on()
        await self.restart(image=False)
        self.check_group()
        await self.repeat_last("a", 1)
        await self.produce_everywhere()
        await self.housekeeping(self.read_all)
        await self.host.stop()

    async def start(self) -> None:
        for _ in range(ATTEMPTS):
            host = Embedded(self.root, self.clock, self.faults, exclusive=self.exclusive)
            try:
                self.host = await host.start()
                return
            except StoreError:
                continue
        raise AssertionError("the gateway does not start any more")

    async def restart(self, image: bool = True) -> None:
        await self.host.stop()
        if not image:
            for path in self.root.glob("image*"):
                path.unlink()
        await self.start()

    async def again_until(self, step: Callable[[], Awaitable[bool]]) -> None:
        """As a client retries, and as a supervisor starts a gateway that gave up."""
        for _ in range(ATTEMPTS):
            if self.host.shard.lost.is_set():
                await self.restart()
            try:
                if await step():
                    return
            except (StoreError, TimeoutError):
                continue
        raise AssertionError("a step never succeeds although only one call failed")

    async def housekeeping(self, step: Callable[[], Awaitable[object]]) -> None:
        """A failure is logged, and the step done again when its time comes."""
        with suppress(StoreError, TimeoutError, RuntimeError):
            await step()

    async def create(self, name: str, number: int, partitions: int) -> None:
        async def step() -> bool:
            result = await self.host.ask(CreateTopic(name, topic_id(number), partitions, {}))
            assert isinstance(result, (Created, Refused))
            return True

        await self.again_until(step)
        assert self.host.shard.state.topics.by_name[name].topic_id == topic_id(number)

    async def delete(self, name: str) -> None:
        gone = self.host.shard.state.topics.by_name[name].topic_id

        async def step() -> bool:
            return isinstance(await self.host.ask(DeleteTopic(gone)), (Deleted, Refused))

        await self.again_until(step)
        assert name not in self.host.shard.state.topics.by_name
        for partition in [key for key in self.promises.acked if key[0] == gone]:
            del self.promises.acked[partition]
        self.promises.offsets = {k: v for k, v in self.promises.offsets.items() if k[0] != gone}
        for client in self.clients:
            client.next_sequence = {k: v for k, v in client.next_sequence.items() if k[0] != name}

    async def group_goes_on(self) -> None:
        """The next generation of the group, which then commits an offset of every partition."""
        promises = self.promises
        generation = promises.generation + 1
        rows = [
            OffsetRow(topic.topic_id, partition, 10 * generation + partition)
            for topic in self.host.shard.state.topics.by_name.values()
            for partition in range(len(topic.partitions))
        ]
        quota = QuotaChange(QUOTA_OF, {"producer_byte_rate": float(generation)})

        async def step() -> bool:
            stored = await self.host.ask(StoreGroup(group_of(generation)))
            committed = await self.host.ask(CommitOffsets(GROUP, rows))
            limited = await self.host.ask(SetClientQuotas([quota]))
            assert isinstance(stored, Done) and isinstance(limited, Done)
            assert committed == OffsetsStored([None] * len(rows))
            return True

        await self.again_until(step)
        promises.generation = generation
        promises.offsets = {(row.topic_id, row.partition): row.offset for row in rows}

    def check_group(self) -> None:
        """It is after a restart as it was before (invariant 9)."""
        wrong = _wrong_of_group(self.host, self.promises)
        assert not wrong, wrong

    async def drain_offsets(self) -> None:
        async def step() -> bool:
            return await self.host.ask(DrainOffsets()) == Done(0)

        await self.again_until(step)

    async def new_client(self) -> None:
        async def step() -> bool:
            taken = await self.host.producer_ids.take(self.host.deadline())
            assert taken not in [client.producer_id for client in self.clients]
            self.clients.append(Client(taken))
            return True

        await self.again_until(step)

    async def produce_everywhere(self) -> None:
        for name, topic in list(self.host.shard.state.topics.by_name.items()):
            for partition in range(len(topic.partitions)):
                await self.produce(name, partition)

    async def produce(self, topic: str, partition: int) -> None:
        for client in self.clients:
            await self.send_until_acked(topic, partition, client.batch(topic, partition))
        await self.send_once(topic, partition, self.plain.batch(topic, partition))

    async def send_until_acked(self, topic: str, partition: int, batch: bytes) -> None:
        async def step() -> bool:
            (result,) = await self.host.send(topic, partition, batch)
            if isinstance(result, int):
                self.ack(topic, partition, batch, result)
                return True
            assert result in ("KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT")
            return False

        await self.again_until(step)

    async def send_once(self, topic: str, partition: int, batch: bytes) -> None:
        if self.host.shard.lost.is_set():
            await self.restart()
        (result,) = await self.host.send(topic, partition, batch)
        if isinstance(result, int):
            self.ack(topic, partition, batch, result)
        elif result == "KAFKA_STORAGE_ERROR":
            self.promises.refused[batch] = None
        else:
            assert result == "REQUEST_TIMED_OUT"
            self.promises.unknown.add(batch)

    def ack(self, topic: str, partition: int, batch: bytes, base: int) -> None:
        key = (self.host.shard.state.topics.by_name[topic].topic_id, partition)
        assert self.promises.acked.setdefault(key, {}).setdefault(batch, base) == base

    async def repeat_last(self, topic: str, partition: int) -> None:
        """A retry across a restart gets the first result (invariant 3): `ack` compares."""
        acked = self.promises.acked[self.host.shard.state.topics.by_name[topic].topic_id, partition]
        last = [batch for batch in acked if b"-1/" not in batch][-1]
        await self.send_until_acked(topic, partition, last)

    async def checkpoint(self) -> None:
        await self.housekeeping(self.host.checkpointer.snapshot)
        await self.housekeeping(self.host.checkpointer.prune)

    async def sweep(self) -> None:
        if self.host.shard.lost.is_set():
            await self.restart()
        await self.housekeeping(self.host.sweep)

    async def an_orphan(self) -> None:
        """The gateway dies between store and commit."""
        await self.restart()
        log, batch = self.host.log("a"), self.plain.batch("a", 0)
        draft = [DraftBatch(log.topic_id, log.index, batch, 2)]
        await self.housekeeping(lambda: self.host.segments.write(draft, self.clock.now_ms))
        self.promises.refused[batch] = None
        await self.restart()

    async def read_all(self) -> None:
        for name, topic in self.host.shard.state.topics.by_name.items():
            for partition in range(len(topic.partitions)):
                await self.host.read(name, partition)


async def broken_promises(root: Path, clock: Clock, promises: Promises) -> list[str]:
    """Open the directory without faults: what of all that was promised is not so. AssertionError if the
    log cannot be read, or the gateway does not work."""
    async with Embedded(root, clock) as host:
        wrong = await _wrong(host, promises)
        await _works_and_cleans_up(host)
        wrong += await _wrong(host, promises)
    return wrong


async def _wrong(host: Embedded, promises: Promises) -> list[str]:
    wrong = _wrong_of_group(host, promises)
    seen: set[bytes] = set()
    for topic in host.shard.state.topics.by_name.values():
        if topic.name == "works":
            continue
        for partition in range(len(topic.partitions)):
            acked = promises.acked.get((topic.topic_id, partition), {})
            found = await host.read(topic.name, partition)
            by_data = {stored.data: stored.base for stored in found}
            where = f"{topic.name}/{partition}"
            wrong += [
                f"{where}: acked at {base}: {b!r}" for b, base in acked.items() if by_data.get(b) != base
            ]
            wrong += [f"{where}: twice: {s.data!r}" for s in found if s.base != by_data[s.data]]
            strange = [b for b in by_data if b in seen or (b not in acked and b not in promises.unknown)]
            wrong += [f"{where}: never accepted: {batch!r}" for batch in strange]
            seen.update(by_data)
    return wrong


def group_of(generation: int) -> Group:
    member = Member("m", None, "c", "/h", 6, 5, (("range", b"s"),), bytes(generation))
    return Group(GROUP, "consumer", generation, "range", "m", (member,), True)


def _wrong_of_group(host: Embedded, promises: Promises) -> list[str]:
    state = host.shard.state
    held = {key: committed.offset for key, committed in state.groups.offsets.get(GROUP, {}).items()}
    found: list[tuple[str, Any, Any]] = [("offsets", held, promises.offsets)]
    if promises.generation:
        group = replace(state.groups.by_id[GROUP], changed_ms=0)
        found.append(("group", group, group_of(promises.generation)))
        found.append(("quota", state.quotas.by_entity[QUOTA_OF]["producer_byte_rate"], promises.generation))
    return [f"{what}: promised {wanted}, found {there}" for what, there, wanted in found if there != wanted]


async def _works_and_cleans_up(host: Embedded) -> None:
    """Produce works, and in the end the store has only live objects (invariant 6)."""
    await host.ask(CreateTopic("works", topic_id(99), 1, {}))
    client = Client()
    for _ in range(3):
        host.clock.now_ms += GRACE_MS + 1
        assert isinstance((await host.send("works", 0, client.batch("works", 0)))[0], int)
        await host.sweep()
    objects = host.shard.state.objects
    assert await host.objects() == {s.locator for s in objects.by_number.values() if s.live_runs}
    assert len(await host.read("works")) == 3
