"""SettledLedger, by the client of jobs, on a gateway over stores in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest
import pytest_asyncio

from ledger.errors import ErrorName
from ledger.keys import settled_keys
from ledger.requests import Refused
from ledger.settled.requests import NameSettled, SettledFiles
from ledger.types import TopicId
from pipeline.links import InheritedLink
from pipeline.messages import NewestSettled
from pipeline.peer import PeerClient, PeerRefused
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, records

Result = TypeVar("Result")
JOB = b"w" * 16


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    async with in_memory_gateway({}) as running:
        yield running


async def as_job(gateway: InMemoryGateway, work: Callable[[PeerClient], Result]) -> Result:
    """What a child process does, in a thread."""
    child = gateway.running.internal.connect_child()

    def run() -> Result:
        with PeerClient(InheritedLink(child.detach()), 5.0) as client:
            return work(client)

    return await asyncio.to_thread(run)


def naming_of(peer: PeerClient, topic_id: TopicId, high_watermark: int, attempt: int = 0) -> NameSettled:
    pinned = peer.pin(JOB)
    key = settled_keys(topic_id, 0, pinned.started_ms, attempt.to_bytes(10, "big")).log_key
    files = SettledFiles(key, 500, 50, 30)
    return NameSettled(JOB, attempt, topic_id, 0, files, pinned.entry, high_watermark, 0)


async def test_a_settled_ledger_is_named_once_and_found(gateway: InMemoryGateway) -> None:
    topic_id = TopicId(await gateway.create("t", 2))
    await gateway.send("t", records(3))

    def work(peer: PeerClient) -> None:
        assert peer.newest_settled(topic_id, 0) == NewestSettled(None, 0, 0, 0, 0)
        naming = naming_of(peer, topic_id, 3)
        expected = NewestSettled(naming.files, naming.entry, 3, 0, 0)
        assert peer.name_settled(naming) == expected
        assert peer.name_settled(naming) == expected._replace(is_duplicate=True)
        assert peer.newest_settled(topic_id, 0) == expected
        assert peer.newest_settled(topic_id, 1).files is None
        older = peer.name_settled(naming_of(peer, topic_id, 2, attempt=1))
        assert isinstance(older, Refused) and older.error is ErrorName.INVALID_UPDATE_VERSION

    await as_job(gateway, work)
    assert gateway.running.shard.state.objects.by_number[1].locator.startswith("settled/")


async def test_partitions_that_are_not_there_are_refused(gateway: InMemoryGateway) -> None:
    topic_id = TopicId(await gateway.create("t", 1))

    def work(peer: PeerClient) -> None:
        with pytest.raises(PeerRefused, match="UNKNOWN_TOPIC_ID"):
            peer.newest_settled(TopicId(b"n" * 16), 0)
        with pytest.raises(PeerRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            peer.newest_settled(topic_id, 1)
        refused = peer.name_settled(naming_of(peer, TopicId(b"n" * 16), 1))
        assert isinstance(refused, Refused) and refused.error is ErrorName.UNKNOWN_TOPIC_OR_PARTITION

    await as_job(gateway, work)
