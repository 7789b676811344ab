"""What the log says of groups that are refused or not stored: the setting, or the sentence of the store."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.shard import Shard
from gateway.groups import events
from gateway.groups.coordinator import GroupCoordinator
from gateway.groups.messages import Sync
from gateway.groups.offset_manager import Committer, OffsetManager
from gateway.groups.transactional_offsets import TransactionalOffsets, TransactionalProducer
from gateway.settings import Groups, Limits, Settings
from gateway.telemetry.logs import QuietLog
from ledger.errors import StoreUnavailable
from ledger.groups.records import MAX_GROUP_BYTES
from ledger.groups.state import OffsetRow
from ledger.ports import PutOutcome
from ledger.topics.requests import CreateTopic
from ledger.types import TopicId
from tests.support.groups import join_of
from tests.support.shards import open_shard

WAIT_S = 5.0
TOPIC = TopicId(b"t" * 16)
REASON = "the bucket is not there"
FULL = "GROUP_MAX_SIZE_REACHED"
PRODUCER = TransactionalProducer("a", 1, 0, adds=True)
Events = Sequence[MutableMapping[str, Any]]


def soon() -> float:
    return asyncio.get_running_loop().time() + WAIT_S


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What other tests have logged has no effect on these."""
    monkeypatch.setattr(events, "quiet", QuietLog(60.0, keyed_by=("setting",)))
    monkeypatch.setattr(events, "quiet_by_group", QuietLog(60.0, keyed_by=("setting", "group")))
    yield


class AwayMetadata(MemoryMetadata):
    is_away = False

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        if self.is_away:
            raise StoreUnavailable(REASON)
        return await super().put(key, value, expect)


class Host:
    def __init__(self, shard: Shard, store: AwayMetadata, settings: Settings) -> None:
        self.shard = shard
        self.store = store
        ids = iter(range(1_000_000))
        self.groups = GroupCoordinator(shard, settings, lambda: str(next(ids)))
        self.offsets = OffsetManager(shard, self.groups, settings)
        self.pending = TransactionalOffsets(shard, self.groups, self.offsets)

    async def join(self, group_id: str = "g", **fields: Any) -> str:
        """The error; members of one group come at once."""
        request = replace(join_of(), **{"needs_member_id": False, **fields})
        return (await self.groups.join(group_id, request, soon())).error

    async def commit(self, group_id: str, metadata: str = "") -> list[str]:
        rows = [OffsetRow(TOPIC, 0, 1, metadata=metadata), OffsetRow(TOPIC, 1, 1, metadata=metadata)]
        return [str(error) for error in await self.offsets.commit(Committer(group_id), rows, soon())]


@asynccontextmanager
async def hosting(limits: Mapping[str, int] | None = None, **groups: int) -> AsyncIterator[Host]:
    store = AwayMetadata()
    shard = await open_shard(store, None, None, 1, lambda: 1_000)
    await shard.ask(CreateTopic("t", TOPIC, 300, {}), soon())
    configs = Groups(**{"group_initial_rebalance_delay_ms": 0, **groups})
    host = Host(shard, store, Settings(groups=configs, limits=Limits(**(limits or {}))))
    await host.groups.begin_epoch()
    yield host
    host.groups.close()
    host.offsets.close()
    await shard.close()


def of(event: str, logged: Events) -> list[tuple[str, str]]:
    return [
        (str(one.get("setting", one.get("message"))), str(one["group"]))
        for one in logged
        if one["event"] == event
    ]


async def refused_joins(host: Host, *group_ids: str, **fields: Any) -> list[tuple[str, str]]:
    with capture_logs() as logged:
        for group_id in group_ids:
            assert await host.join(group_id, **fields) == FULL
    return of("group.limit_reached", logged)


async def test_a_group_with_too_many_members_is_logged_with_its_setting_and_once_in_a_while() -> None:
    async with hosting(group_max_size=1) as host:
        for group_id in ("g", "h"):
            assert await host.join(group_id) == "NONE"
        setting = "groups.group.max.size"
        assert await refused_joins(host, "g", "h", "g", "g") == [(setting, "g"), (setting, "h")]


async def test_a_group_with_too_many_bytes_is_logged_with_its_setting() -> None:
    async with hosting({"group_bytes": 1024}) as host:
        large = (("range", bytes(1_000)),)
        assert await refused_joins(host, "g", protocols=large) == [("limits.group_bytes", "g")]


async def test_members_without_memory_are_logged_with_the_setting_once_for_all_groups() -> None:
    async with hosting({"members_bytes": 65_536}) as host:
        assert await host.join("g", protocols=(("range", bytes(70_000)),)) == "NONE"
        assert await refused_joins(host, "h", "i") == [("limits.members_bytes", "h")]


async def test_assignments_without_memory_are_logged_with_the_setting() -> None:
    async with hosting({"members_bytes": 65_536}) as host:
        joined = await host.groups.join("g", replace(join_of(), needs_member_id=False), soon())
        sync = Sync(joined.member_id, None, 1, None, None, {joined.member_id: bytes(100_000)})
        with capture_logs() as logged:
            assert (await host.groups.sync("g", sync, soon())).error == "COORDINATOR_NOT_AVAILABLE"
        assert of("group.limit_reached", logged) == [("limits.members_bytes", "g")]


async def test_a_group_too_many_is_logged_with_the_setting_once_for_all_of_them() -> None:
    async with hosting({"groups": 1}) as host:
        assert await host.join("g") == "NONE"
        assert await refused_joins(host, "h", "i") == [("limits.groups", "h")]


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_offsets_of_a_group_too_many_are_logged_with_the_setting(in_transaction: bool) -> None:
    async with hosting({"groups": 1}) as host:
        assert await host.commit("g") == ["NONE", "NONE"]
        with capture_logs() as logged:
            if in_transaction:
                await host.pending.commit(PRODUCER, Committer("h"), [OffsetRow(TOPIC, 0, 1)], soon())
            else:
                assert await host.commit("h") == [FULL, FULL]
        assert of("group.limit_reached", logged) == [("limits.groups", "h")]


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_offsets_without_memory_are_logged_with_the_setting(in_transaction: bool) -> None:
    async with hosting({"offset_bytes": 65_536}) as host:
        number = 0
        while host.shard.state.groups.offset_bytes < 65_536:
            assert await host.commit(f"g{(number := number + 1)}", "m" * 1_000) == ["NONE", "NONE"]
        with capture_logs() as logged:
            if in_transaction:
                await host.pending.commit(PRODUCER, Committer("h"), [OffsetRow(TOPIC, 0, 1)], soon())
            else:
                assert await host.commit("h") == [FULL, FULL]
        assert of("group.limit_reached", logged) == [("limits.offset_bytes", "h")]


async def test_a_group_that_a_store_does_not_take_is_logged_with_the_reason_and_once_in_a_while() -> None:
    async with hosting() as host:
        host.store.is_away = True
        with capture_logs() as logged:
            for _ in range(3):
                assert await host.join() == "COORDINATOR_NOT_AVAILABLE"
        assert of("group.not_stored", logged) == [(REASON, "g")]


async def test_a_group_that_the_ledger_refuses_is_logged_with_the_sentence() -> None:
    async with hosting() as host:
        joined = await host.groups.join("g", replace(join_of(), needs_member_id=False), soon())
        sync = Sync(joined.member_id, None, 1, None, None, {joined.member_id: bytes(MAX_GROUP_BYTES)})
        with capture_logs() as logged:
            assert (await host.groups.sync("g", sync, soon())).error == "UNKNOWN_SERVER_ERROR"
        ((sentence, group_id),) = of("group.not_stored", logged)
        assert group_id == "g" and "more than a journal entry holds" in sentence
