"""Offsets that a transaction commits: who may, what comes first, how long they stay, and what fails."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.shard import Shard
from gateway.groups.coordinator import GroupCoordinator
from gateway.groups.messages import JoinResult
from gateway.groups.offset_expiry import OffsetExpiry
from gateway.groups.offset_manager import Committer, OffsetManager
from gateway.groups.transactional_offsets import TransactionalOffsets, TransactionalProducer
from gateway.settings import Groups, Limits, Settings
from gateway.transactions.coordinator import TransactionCoordinator
from ledger.errors import ErrorName, StoreUnavailable
from ledger.groups.requests import RemoveOffsets, StoreGroup
from ledger.groups.state import Group, OffsetRow
from ledger.ports import PutOutcome
from ledger.requests import Done, Refused
from ledger.topics.requests import CreateTopic
from ledger.transactions.requests import AddToTransaction, EndTransaction, ProducerEpoch
from ledger.types import TopicId
from tests.support.groups import join_of
from tests.support.shards import open_shard

WAIT_S = 60.0
RETENTION_MS = 1_000
TOPIC = TopicId(b"t" * 16)
PARTITIONS = 3_000
NONE = ErrorName.NONE


class AwayMetadata(MemoryMetadata):
    is_away = False

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().put(key, value, expect)


@dataclass
class Host:
    """The services over one shard, and a producer with a transactional id."""

    store: AwayMetadata
    shard: Shard
    groups: GroupCoordinator
    offsets: OffsetManager
    pending: TransactionalOffsets
    transactions: TransactionCoordinator
    expiry: OffsetExpiry
    now_ms: list[int]
    producer: TransactionalProducer

    async def pend(
        self, *offsets: int, committer: Committer | None = None, metadata: str = "", **producer: int | bool
    ) -> list[ErrorName]:
        rows = [
            OffsetRow(TOPIC, partition, offset, metadata=metadata) for partition, offset in enumerate(offsets)
        ]
        by = self.producer._replace(**producer)  # type: ignore[arg-type]
        return await self.pending.commit(by, committer or Committer("g"), rows, soon())

    async def end(self, *, is_commit: bool) -> None:
        transactional_id, producer_id, epoch, _ = self.producer
        ending = EndTransaction(transactional_id, producer_id, epoch, is_commit, bumps=True)
        ended = await self.transactions.end(ending, soon())
        assert isinstance(ended, ProducerEpoch)
        self.producer = self.producer._replace(epoch=ended.epoch)

    def committed(self, group_id: str = "g") -> list[int]:
        return [one.offset for one in self.offsets.of(group_id).values()]

    async def joined(self) -> JoinResult:
        """The only member of group `g`, which has no assignment yet."""
        request = replace(join_of(), needs_member_id=False)
        return await self.groups.join("g", request, soon())


def soon() -> float:
    return asyncio.get_running_loop().time() + WAIT_S


@pytest_asyncio.fixture
async def host(request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    now_ms = [1_700_000_000_000]
    settings = Settings(
        groups=Groups(group_initial_rebalance_delay_ms=0, offset_metadata_max_bytes=8),
        limits=Limits(groups=2, offset_bytes=64 * 1024),
    )
    store = AwayMetadata()
    shard = await open_shard(store, None, None, 1, lambda: now_ms[0])
    await shard.ask(CreateTopic("t", TOPIC, PARTITIONS, {}), soon())
    groups = GroupCoordinator(shard, settings)
    await groups.begin_epoch()
    offsets = OffsetManager(shard, groups, settings)
    transactions = TransactionCoordinator(shard, 60_000)
    begun = await transactions.init("a", 60_000, None, soon())
    assert isinstance(begun, ProducerEpoch)
    yield Host(
        store,
        shard,
        groups,
        offsets,
        TransactionalOffsets(shard, groups, offsets),
        transactions,
        OffsetExpiry(shard, groups, RETENTION_MS, lambda: now_ms[0], 5.0),
        now_ms,
        TransactionalProducer("a", *begun[:2], adds=True),
    )
    groups.close()
    await shard.close()


@pytest.mark.parametrize("is_commit", [True, False])
async def test_offsets_are_committed_if_the_transaction_is(host: Host, is_commit: bool) -> None:
    assert await host.pend(5, 6) == [NONE, NONE]
    assert host.committed() == []
    await host.end(is_commit=is_commit)
    assert host.committed() == ([5, 6] if is_commit else [])


async def test_a_producer_of_version_1_adds_the_group_before(host: Host) -> None:
    assert await host.pend(5, adds=False) == [ErrorName.INVALID_TXN_STATE]
    adding = AddToTransaction(*host.producer[:3], groups=["g"])
    assert await host.transactions.add(adding, soon()) is None
    assert await host.pend(5, adds=False) == [NONE]


async def test_a_group_with_members_takes_offsets_of_its_generation_and_of_producers_without_one(
    host: Host,
) -> None:
    joined = await host.joined()
    generation = joined.generation
    # It waits for its assignment: a commit of a member would be refused in this state.
    for committer, error in (
        (Committer("g", joined.member_id, None, generation), NONE),
        (Committer("g"), NONE),
        (Committer("g", joined.member_id, None, generation + 1), ErrorName.ILLEGAL_GENERATION),
        (Committer("g", "other", None, generation), ErrorName.UNKNOWN_MEMBER_ID),
        (Committer("none", "member", None, 3), ErrorName.ILLEGAL_GENERATION),
        (Committer(""), ErrorName.INVALID_GROUP_ID),
    ):
        assert await host.pend(1, committer=committer) == [error], committer


async def test_the_errors_of_a_producer_come_before_those_of_a_member(host: Host) -> None:
    stranger = Committer("g", "other", None, 4)
    assert await host.pend(1, committer=stranger, epoch=7) == [ErrorName.INVALID_PRODUCER_EPOCH]
    assert await host.pend(1, committer=stranger, producer_id=99) == [ErrorName.INVALID_PRODUCER_ID_MAPPING]
    # The group is added nevertheless, so there is a transaction that can be committed.
    assert await host.pend(1, committer=stranger) == [ErrorName.ILLEGAL_GENERATION]
    await host.end(is_commit=True)


async def test_each_offset_is_checked_by_itself(host: Host) -> None:
    assert await host.pend(1, metadata="123456789") == [ErrorName.OFFSET_METADATA_TOO_LARGE]
    await host.end(is_commit=True)


async def test_pending_offsets_have_the_bound_of_committed_ones(host: Host) -> None:
    full = 64 * 1024 // 256
    assert await host.pend(*range(full)) == [NONE] * full
    assert await host.pend(*range(full + 1)) == [ErrorName.GROUP_MAX_SIZE_REACHED] * (full + 1)
    await host.end(is_commit=False)
    assert await host.pend(1) == [NONE]


async def test_the_number_of_groups_has_a_bound(host: Host) -> None:
    for group_id in "gh":
        await host.offsets.commit(Committer(group_id), [OffsetRow(TOPIC, 0, 1)], soon())
    assert await host.pend(1, committer=Committer("i")) == [ErrorName.GROUP_MAX_SIZE_REACHED]
    assert await host.pend(1, committer=Committer("h")) == [NONE]


async def test_while_the_journal_is_away_clients_repeat_their_requests(host: Host) -> None:
    host.store.is_away = True
    retriable = ErrorName.COORDINATOR_NOT_AVAILABLE
    assert await host.pend(1) == [retriable]
    adding = AddToTransaction(*host.producer[:3], groups=["g"])
    refused = await host.transactions.add(adding, soon())
    assert isinstance(refused, Refused) and refused.error is retriable
    begun = await host.transactions.init("b", 60_000, None, soon())
    assert isinstance(begun, Refused) and begun.error is retriable
    host.store.is_away = False
    assert await host.pend(1) == [NONE]


async def test_an_offset_that_a_transaction_replaces_does_not_expire_before(host: Host) -> None:
    await host.offsets.commit(Committer("g"), [OffsetRow(TOPIC, 0, 1), OffsetRow(TOPIC, 1, 2)], soon())
    host.now_ms[0] += 2 * RETENTION_MS
    await host.pend(7)
    await host.expiry.apply()
    assert host.committed() == [1]
    await host.end(is_commit=False)
    host.now_ms[0] += 1
    await host.transactions.init("b", 60_000, None, soon())
    await host.expiry.apply()
    assert host.committed() == []


async def test_a_group_whose_offsets_pend_is_not_removed_as_unused(host: Host) -> None:
    await host.shard.ask(StoreGroup(Group("g", "consumer", 1, None, None, (), True)), soon())
    await host.pend(7)
    host.now_ms[0] += 2 * RETENTION_MS
    await host.expiry.apply()
    assert "g" in host.shard.state.groups.by_id
    await host.end(is_commit=True)
    assert host.committed() == [7]


async def test_an_offset_that_is_deleted_is_not_committed_by_an_open_transaction(host: Host) -> None:
    await host.pend(5, 6)
    assert await host.offsets.remove("g", [("t", (TOPIC, 0))], soon()) == [NONE]
    await host.end(is_commit=True)
    assert host.committed() == [6]


async def test_a_group_that_has_pending_offsets_alone_is_listed_and_can_be_deleted(host: Host) -> None:
    await host.pend(5, 6)
    assert list(host.groups.ids()) == ["g"]
    assert await host.groups.delete("g", soon()) is None
    assert (list(host.groups.ids()), host.groups.listing("g")) == ([], None)
    await host.end(is_commit=True)
    assert host.committed() == []
    missing = await host.groups.delete("g", soon())
    assert missing is not None and missing.error is ErrorName.GROUP_ID_NOT_FOUND


async def test_expiry_that_was_overtaken_by_a_transaction_leaves_the_offset(host: Host) -> None:
    await host.offsets.commit(Committer("g"), [OffsetRow(TOPIC, 0, 1)], soon())
    removal = RemoveOffsets("g", [(TOPIC, 0)], committed_before_ms=host.now_ms[0] + 1)
    await host.pend(7)
    assert await host.shard.ask(removal, soon()) == Done(0)
    await host.end(is_commit=False)
    assert await host.shard.ask(removal, soon()) == Done(1)
