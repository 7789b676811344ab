"""OffsetFetch of many partitions, between whose slices offsets are committed."""

import asyncio
from collections.abc import Mapping

import pytest

from gateway.groups.offset_manager import Committer
from gateway.groups.transactional_offsets import TransactionalProducer
from gateway.scheduling.slices import CHECK_EVERY, Slices
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ledger.errors import ErrorName
from ledger.groups.state import CommittedOffset, OffsetKey, OffsetRow
from ledger.transactions.requests import EndTransaction, ProducerEpoch
from tests.support.in_memory import in_memory_gateway

PARTITIONS = 4 * CHECK_EVERY
LAST = PARTITIONS - 1


@pytest.mark.parametrize("is_commit", [True, False])
async def test_the_first_offset_of_a_group_is_found_if_its_transaction_ends_between_two_slices(
    monkeypatch: pytest.MonkeyPatch, is_commit: bool
) -> None:
    """Without it the consumer would begin where `auto.offset.reset` says."""
    many = {"limits.topic_partitions": str(PARTITIONS), "limits.partitions": str(PARTITIONS)}
    async with in_memory_gateway(many) as gateway:
        topic = await gateway.create("t", PARTITIONS)
        services = gateway.running.services
        deadline = asyncio.get_running_loop().time() + 60
        begun = await services.transactions.init("a", 60_000, None, deadline)
        assert isinstance(begun, ProducerEpoch)
        producer = TransactionalProducer("a", *begun[:2], adds=True)
        (known,) = [one.topic_id for one in [services.topics.get("t")] if one is not None]
        assert known == topic
        row = OffsetRow(known, LAST, 7)
        pended = await services.transactional_offsets.commit(producer, Committer("g"), [row], deadline)
        assert pended == [ErrorName.NONE]
        offsets_of, looked_up = services.group_offsets.of, list[str]()

        def looked_up_before(group_id: str) -> Mapping[OffsetKey, CommittedOffset]:
            looked_up.append(group_id)
            return offsets_of(group_id)

        next_slice, ends = Slices.next_slice, [EndTransaction("a", *begun[:2], is_commit, bumps=True)]

        async def ended_before(slices: Slices) -> None:
            while looked_up and ends:
                await services.transactions.end(ends.pop(), deadline)
            await next_slice(slices)

        monkeypatch.setattr(services.group_offsets, "of", looked_up_before)
        monkeypatch.setattr("gateway.scheduling.slices.SLICE_SECONDS", 0.0)
        monkeypatch.setattr(Slices, "next_slice", ended_before)
        request = OffsetFetchRequest(
            "g", [OffsetFetchRequestTopic("t", list(range(PARTITIONS)))], require_stable=True
        )
        response = await gateway.ask(ApiKey.OFFSET_FETCH, 7, request)
        assert not ends
        found = response.topics[0].partitions[LAST]
        unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        wanted = (7, ErrorCode.NONE) if is_commit else (-1, ErrorCode.NONE)
        assert (found.committed_offset, found.error_code) in (wanted, unstable)
