"""The internal APIs on a gateway over stores in memory, straight to their router."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import pytest
import pytest_asyncio

from gateway.internal import find_batches, journal_follow
from gateway.network.pipeline import Peer
from gateway.router import HANDLERS, served_versions
from gateway.security.principals import ANONYMOUS
from gateway.topics.creation import NewTopic
from gateway.wire.apis import AnyApi, ApiKey, InternalApi
from gateway.wire.connection import Request
from gateway.wire.errors import ErrorCode
from gateway.wire.header import RequestHeader
from gateway.wire.messages import codec
from gateway.wire.messages.generated.api_versions import ApiVersionsRequest
from gateway.wire.messages.internal.describe_shard import DescribeShardRequest
from gateway.wire.messages.internal.diskless_commit_file import (
    CommitFileBatch,
    CommitFileBatchResponse,
    DisklessCommitFileRequest,
)
from gateway.wire.messages.internal.diskless_describe_files import (
    DescribeFilesFile,
    DisklessDescribeFilesRequest,
)
from gateway.wire.messages.internal.diskless_find_batches import (
    DisklessFindBatchesRequest,
    FindBatchesPartition,
    FindBatchesPartitionResponse,
    FindBatchesTopic,
)
from gateway.wire.messages.internal.diskless_list_offsets import (
    DisklessListOffsetsRequest,
    ListOffsetsPartition,
    ListOffsetsTopic,
)
from gateway.wire.messages.internal.journal_follow import JournalFollowRequest
from ledger.errors import ErrorName
from ledger.journal import decode_entry
from ledger.keys import uuid7
from ledger.partitions.requests import DrainRuns
from ledger.partitions.state import PartitionLog
from ledger.requests import Refused
from ledger.swaps.requests import SegmentFile, SegmentRun, Swapped
from ledger.swaps.state import Pins
from ledger.topics.requests import DeleteTopic
from ledger.types import TopicId
from pipeline.links import InheritedLink
from pipeline.peer import PeerClient, PeerRefused
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, records
from tests.support.loop_time import longest_turn
from tests.support.swapping import JOB, swap_of

Result = TypeVar("Result")

NOBODY: Final = bytes(15) + b"\1"
HOUR_MS: Final = 3_600_000
LONGEST_TURN_S: Final = 0.02


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    async with in_memory_gateway({"limits.topic_partitions": "2000", "limits.partitions": "3000"}) as running:
        yield running


async def ask(gateway: InMemoryGateway, key: AnyApi, message: object, version: int = 0) -> Any:
    router = gateway.running.internal.router
    header = RequestHeader(int(key), version, 1, "job")
    request = Request(0, header, memoryview(codec.encode_request(key, version, message)), False)
    peer = Peer(7, gateway.running.listeners[0], "", ANONYMOUS)
    response = await router.answer(request, peer, asyncio.get_running_loop().time())
    assert response is not None
    _, *buffers = response.buffers
    return codec.decode_response(key, version, memoryview(b"".join(buffers)))


async def find(
    gateway: InMemoryGateway,
    topic_id: bytes,
    *offsets: int,
    max_bytes: int = 1 << 30,
    max_runs: int = 2_000,
    of_each: int = 1 << 30,
) -> Sequence[FindBatchesPartitionResponse]:
    """Of partition 0 on, an offset each."""
    parts = [FindBatchesPartition(index, offset, of_each) for index, offset in enumerate(offsets)]
    request = DisklessFindBatchesRequest(max_bytes, max_runs, [FindBatchesTopic(topic_id, parts)])
    response = await ask(gateway, InternalApi.DISKLESS_FIND_BATCHES, request)
    found: Sequence[FindBatchesPartitionResponse] = response.topics[0].partitions
    return found


def object_key(gateway: InMemoryGateway, ahead_ms: int = 0) -> str:
    shard = gateway.running.shard
    return f"wal/0/{uuid7(shard.now_ms() + ahead_ms, bytes(10))}"


def batch(topic_id: bytes, at: int = 0, size: int = 100, last: int = 4, **others: Any) -> CommitFileBatch:
    made = CommitFileBatch(2, 0, topic_id, 0, at, size, 0, last, 1_700_000_000_000, 0)
    return replace(made, **others)


async def commit(
    gateway: InMemoryGateway, key: str, *batches: CommitFileBatch, file_size: int = 1_000, form: int = 1
) -> Sequence[CommitFileBatchResponse]:
    request = DisklessCommitFileRequest(key, form, file_size, [], list(batches))
    response = await ask(gateway, InternalApi.DISKLESS_COMMIT_FILE, request)
    committed: Sequence[CommitFileBatchResponse] = response.batches
    return committed


async def test_clients_neither_see_nor_reach_the_internal_apis(gateway: InMemoryGateway) -> None:
    response = await gateway.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("a", "1"))
    assert {row.api_key for row in response.api_keys} == set(served_versions(HANDLERS))
    assert not {row.api_key for row in response.api_keys} & set(map(int, InternalApi))


async def test_the_internal_listener_reports_what_it_serves(gateway: InMemoryGateway) -> None:
    response = await ask(gateway, ApiKey.API_VERSIONS, ApiVersionsRequest("a", "1"), version=3)
    served = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert served.pop(int(ApiKey.API_VERSIONS)) == (0, 4)
    assert set(served) <= set(map(int, InternalApi)) and set(served.values()) == {(0, 0)}
    assert InternalApi.DISKLESS_FIND_BATCHES in served


async def test_runs_are_found_where_they_are_stored(gateway: InMemoryGateway) -> None:
    topic_id = await gateway.create("t", 2)
    await gateway.send("t", records(3))
    await gateway.send("t", records(2))
    first, second = await find(gateway, topic_id, 0, 0)
    objects = gateway.running.shard.state.objects
    assert (first.log_start_offset, first.high_watermark, first.layout_version) == (0, 5, 0)
    assert [(run.base_offset, run.last_offset) for run in first.batches] == [(0, 2), (3, 4)]
    assert all(run.object_key in objects.by_locator and run.object_kind == 1 for run in first.batches)
    assert [run.record_count for run in first.batches] == [3, 2]
    assert (second.error_code, second.high_watermark, list(second.batches)) == (0, 0, [])


async def test_runs_are_bounded_by_bytes_and_by_number(gateway: InMemoryGateway) -> None:
    topic_id = await gateway.create("t", 3)
    for _ in range(4):
        await gateway.send("t", records(1))
    await gateway.send("t", records(1), partition=1)
    everything, other, _ = await find(gateway, topic_id, 0, 0, 0)
    assert [len(part.batches) for part in (everything, other)] == [4, 1]
    size = everything.batches[0].byte_size
    assert [len(part.batches) for part in await find(gateway, topic_id, 0, 0, max_runs=3)] == [3, 1]
    assert [len(part.batches) for part in await find(gateway, topic_id, 0, 0, max_bytes=2 * size)] == [2, 0]
    assert [len(part.batches) for part in await find(gateway, topic_id, 0, 0, of_each=1)] == [1, 1]
    assert [len(part.batches) for part in await find(gateway, topic_id, 0, max_bytes=-5, max_runs=-1)] == [1]


async def test_a_response_has_a_bounded_number_of_runs(
    gateway: InMemoryGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_batches, "MAX_RUNS", 3)
    topic_id = await gateway.create("t", 2)
    for partition in (0, 0, 1, 1):
        await gateway.send("t", records(1), partition=partition)
    first, second = await find(gateway, topic_id, 0, 0)
    assert [len(first.batches), len(second.batches), second.high_watermark] == [2, 1, 2]


async def test_offsets_out_of_range_and_unknown_partitions_have_their_errors(
    gateway: InMemoryGateway,
) -> None:
    topic_id = await gateway.create("t", 2)
    await gateway.send("t", records(3))
    (beyond,) = await find(gateway, topic_id, 4)
    (below,) = await find(gateway, topic_id, -1)
    (end,) = await find(gateway, topic_id, 3)
    _, _, absent = await find(gateway, topic_id, 0, 0, 0)
    (unknown,) = await find(gateway, NOBODY, 0)
    codes = [ErrorCode(part.error_code) for part in (beyond, below, end, absent, unknown)]
    assert codes == [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    assert beyond.high_watermark == 3 and not end.batches


async def test_nothing_is_said_to_be_absent_without_a_proof(
    gateway: InMemoryGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = await gateway.create("t")
    await gateway.send("t", records(3))

    async def never(deadline: float) -> None:
        raise TimeoutError

    monkeypatch.setattr(gateway.running.shard, "barrier", never)
    (there,) = await find(gateway, topic_id, 0)
    (end,) = await find(gateway, topic_id, 3)
    (unknown,) = await find(gateway, NOBODY, 0)
    assert [there.error_code, len(there.batches)] == [0, 1]
    assert {end.error_code, unknown.error_code} == {ErrorCode.REQUEST_TIMED_OUT}
    files = DisklessDescribeFilesRequest([DescribeFilesFile("wal/0/x")])
    described = await ask(gateway, InternalApi.DISKLESS_DESCRIBE_FILES, files)
    assert described.files[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    page = await ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, 99))
    assert page.error_code == ErrorCode.REQUEST_TIMED_OUT
    shard = await ask(gateway, InternalApi.DESCRIBE_SHARD, DescribeShardRequest())
    assert shard.error_code == ErrorCode.REQUEST_TIMED_OUT
    listed = await ask(gateway, InternalApi.DISKLESS_LIST_OFFSETS, offsets_of(topic_id, -1))
    assert listed.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def offsets_of(topic_id: bytes, *timestamps: int) -> DisklessListOffsetsRequest:
    """Of partition 0, once for each."""
    parts = [ListOffsetsPartition(0, timestamp) for timestamp in timestamps]
    return DisklessListOffsetsRequest([ListOffsetsTopic(topic_id, parts)])


async def test_exact_offsets_are_listed_by_topic_id(gateway: InMemoryGateway) -> None:
    topic_id = await gateway.create("t")
    await gateway.send("t", records(3))
    request = offsets_of(topic_id, -1, -2, -3, -4, -5, -6, 0)
    listed = (await ask(gateway, InternalApi.DISKLESS_LIST_OFFSETS, request)).topics[0].partitions
    assert [part.offset for part in listed] == [3, 0, 2, 0, -1, -1, -1]
    assert listed[2].timestamp == 1_700_000_000_002
    invalid = ErrorCode.INVALID_REQUEST
    assert [part.error_code for part in listed] == [0, 0, 0, 0, 0, invalid, invalid]
    unknown = await ask(gateway, InternalApi.DISKLESS_LIST_OFFSETS, offsets_of(NOBODY, -3))
    assert unknown.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_file_is_numbered_and_a_repeat_gets_the_first_result(gateway: InMemoryGateway) -> None:
    topic_id = await gateway.create("t")
    key = object_key(gateway)
    both = batch(topic_id, 0), batch(topic_id, 100, last=2)
    first = await commit(gateway, key, *both)
    again = await commit(gateway, key, *both)
    assert [(done.assigned_base_offset, done.is_duplicate) for done in first] == [(0, False), (5, False)]
    assert [(done.assigned_base_offset, done.is_duplicate) for done in again] == [(0, True), (5, True)]
    (later,) = await commit(gateway, key, batch(topic_id, 200), file_size=1_100)
    assert later.assigned_base_offset == 8
    (found,) = await find(gateway, topic_id, 0)
    assert found.high_watermark == 13 and [run.object_key for run in found.batches] == [key]


async def test_batches_of_an_idempotent_producer_are_judged_one_by_one(gateway: InMemoryGateway) -> None:
    topic_id = await gateway.create("t")

    def numbered(at: int, first: int) -> CommitFileBatch:
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": first, "last_sequence": first + 4}
        return batch(topic_id, at, **fields)

    gap = await commit(gateway, object_key(gateway), numbered(0, 0), numbered(100, 10), numbered(200, 5))
    errors = [ErrorCode(done.error_code) for done in gap]
    assert errors == [ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE]
    (twice,) = await commit(gateway, object_key(gateway, 1), numbered(0, 5))
    assert (twice.assigned_base_offset, twice.is_duplicate) == (5, True)


async def test_an_object_below_the_orphan_floor_is_stored_again(gateway: InMemoryGateway) -> None:
    topic_id = await gateway.create("t")
    gateway.running.shard.state.objects.raise_floor(gateway.running.shard.now_ms())
    (stale,) = await commit(gateway, object_key(gateway, -HOUR_MS), batch(topic_id))
    assert stale.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert stale.error_message is not None and "under a new key" in stale.error_message


async def test_the_log_append_time_is_returned_where_there_is_one(gateway: InMemoryGateway) -> None:
    topic_id = await gateway.create("t")
    stamped = batch(topic_id, timestamp_type=1, attributes=8, record_count=5)
    done, unstamped = await commit(gateway, object_key(gateway), stamped, batch(topic_id, 100))
    assert (done.log_append_time, unstamped.log_append_time) == (1_700_000_000_000, -1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"magic": 1},
        {"size": 60},
        {"byte_offset": -1},
        {"byte_offset": 901},
        {"last_offset": -1},
        {"record_count": 4},
        {"timestamp_type": 2},
        {"batch_max_timestamp": -2},
        {"attributes": 8},
        {"attributes": 0x10},
        {"attributes": 0x20},
        {"producer_epoch": 0},
        {"producer_id": -2},
        {"producer_id": 7},
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "last_sequence": 5},
        {"byte_offset": 199},
    ],
    ids=str,
)
async def test_a_batch_that_cannot_be_is_refused_with_its_file(
    gateway: InMemoryGateway, wrong: dict[str, Any]
) -> None:
    topic_id = await gateway.create("t")
    done = await commit(gateway, object_key(gateway), batch(topic_id, 200), replace(batch(topic_id), **wrong))
    assert [one.error_code for one in done] == [ErrorCode.INVALID_REQUEST] * 2
    assert all(one.error_message for one in done)
    assert gateway.running.shard.state.topics.by_id[TopicId(topic_id)].partitions[0].high_watermark == 0


@pytest.mark.parametrize(
    "key", ["", "wal/0/x", "wal/1/{}", "seg/0/{}", "wal/0/../{}", "wal/0/a/{}", "/wal/0/{}"]
)
async def test_an_object_key_that_no_store_has_made_is_refused(gateway: InMemoryGateway, key: str) -> None:
    topic_id = await gateway.create("t")
    name = str(uuid7(gateway.running.shard.now_ms(), bytes(10)))
    (refused,) = await commit(gateway, key.format(name), batch(topic_id))
    assert refused.error_code == ErrorCode.INVALID_REQUEST


async def test_files_that_cannot_be_are_refused(gateway: InMemoryGateway) -> None:
    topic_id = await gateway.create("t")
    many = [batch(topic_id, at * 100) for at in range(3_001)]
    for refused in (
        await commit(gateway, object_key(gateway), batch(topic_id), form=2),
        await commit(gateway, object_key(gateway), batch(topic_id), file_size=0),
        await commit(gateway, object_key(gateway), batch(topic_id), file_size=2**31),
        await commit(gateway, object_key(gateway, 2 * HOUR_MS), batch(topic_id)),
        await commit(gateway, object_key(gateway), *many, file_size=400_000),
    ):
        assert {one.error_code for one in refused} == {ErrorCode.INVALID_REQUEST}
    assert await commit(gateway, object_key(gateway)) == []


async def test_files_are_described(gateway: InMemoryGateway) -> None:
    topic_id = await gateway.create("t")
    key = object_key(gateway)
    await commit(gateway, key, batch(topic_id))
    request = DisklessDescribeFilesRequest([DescribeFilesFile(key), DescribeFilesFile("wal/0/none")])
    live, unknown = (await ask(gateway, InternalApi.DISKLESS_DESCRIBE_FILES, request)).files
    assert (live.error_code, live.has_live_batches) == (0, True)
    assert (unknown.error_code, unknown.has_live_batches) == (ErrorCode.RESOURCE_NOT_FOUND, False)
    shard = gateway.running.shard
    await shard.submit(DeleteTopic(TopicId(topic_id)))
    async with asyncio.timeout(5):
        while shard.state.objects.by_locator[key].live_runs:
            await asyncio.sleep(0.01)
            await shard.submit(DrainRuns(10))
    (dead, _) = (await ask(gateway, InternalApi.DISKLESS_DESCRIBE_FILES, request)).files
    assert (dead.error_code, dead.has_live_batches) == (0, False)


async def test_the_journal_is_followed_entry_by_entry(gateway: InMemoryGateway) -> None:
    await gateway.create("t")
    page = await ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, 0, 1 << 20))
    applied = gateway.running.shard.state.applied
    assert (page.start, page.durable_end) == (0, applied)
    assert [entry.number for entry in page.entries] == list(range(applied))
    assert [decode_entry(entry.data, "").epoch for entry in page.entries] == [0, *[1] * (applied - 1)]
    few = await ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, 0, -1))
    assert [entry.number for entry in few.entries] == [0]
    last = await ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, applied - 1, 1))
    assert [entry.number for entry in last.entries] == [applied - 1]


async def test_a_follower_is_woken_by_the_next_entry(gateway: InMemoryGateway) -> None:
    end = gateway.running.shard.state.applied
    waiting = [
        asyncio.create_task(ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, end, 1, 60_000)))
        for _ in range(3)
    ]
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in waiting)
    await gateway.create("t")
    async with asyncio.timeout(5):
        pages = await asyncio.gather(*waiting)
    assert [[entry.number for entry in page.entries] for page in pages] == [[end]] * 3


async def test_a_follower_waits_no_longer_than_it_asks_for(gateway: InMemoryGateway) -> None:
    end = gateway.running.shard.state.applied
    loop = asyncio.get_running_loop()
    for wait_ms in (0, -1, 50):
        began = loop.time()
        page = await ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, end, 1, wait_ms))
        assert (page.error_code, page.durable_end, list(page.entries)) == (0, end, [])
        assert loop.time() - began >= max(wait_ms, 0) / 1000 - 0.01
    for _ in range(20):
        await ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, end, 1, 1))
    waits = [task for task in asyncio.all_tasks() if task.get_name() == "next entry"]
    assert len(waits) == 1


async def test_a_gateway_that_ends_lets_its_followers_go(gateway: InMemoryGateway) -> None:
    end = gateway.running.shard.state.applied
    waiting = asyncio.create_task(
        ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, end, 1, 60_000))
    )
    await asyncio.sleep(0.05)
    gateway.running.internal.stop_waiting()
    async with asyncio.timeout(5):
        assert not (await waiting).entries
        assert not (
            await ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, end, 1, 60_000))
        ).entries


async def test_an_entry_that_is_not_known_to_count_is_not_shown(gateway: InMemoryGateway) -> None:
    """It is in the journal, and not applied."""
    shard = gateway.running.shard
    end = shard.state.applied
    data = await shard.journal.get(end - 1)
    assert data is not None
    await shard.journal.append(end, data)
    for first in (0, end):
        page = await ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, first, 1 << 20))
        assert (page.error_code, page.durable_end) == (0, end)
        assert [entry.number for entry in page.entries] == list(range(first, end))


async def test_a_reader_below_the_start_loads_a_snapshot(gateway: InMemoryGateway) -> None:
    for name in "abc":
        await gateway.create(name)
    shard = gateway.running.shard
    await shard.journal.raise_start(2)
    await shard.journal.delete([1])
    below = await ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, 1, 1 << 20))
    assert (below.error_code, below.start, list(below.entries)) == (0, 2, [])
    assert below.durable_end == shard.state.applied
    at_start = await ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, 2, 1 << 20))
    assert [entry.number for entry in at_start.entries] == list(range(2, shard.state.applied))


async def test_a_journal_with_a_hole_is_damaged(gateway: InMemoryGateway) -> None:
    for name in "abc":
        await gateway.create(name)
    await gateway.running.shard.journal.delete([2])
    page = await ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, 1, 1 << 20))
    assert page.error_code == ErrorCode.KAFKA_STORAGE_ERROR and "entry 2" in page.error_message


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (JournalFollowRequest(1, 0), ErrorCode.INVALID_REQUEST),
        (JournalFollowRequest(0, -1), ErrorCode.INVALID_REQUEST),
        (JournalFollowRequest(0, 10_000), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
async def test_a_reader_of_no_such_journal_is_refused(
    gateway: InMemoryGateway, request_: JournalFollowRequest, error: ErrorCode
) -> None:
    page = await ask(gateway, InternalApi.JOURNAL_FOLLOW, request_)
    assert page.error_code == error and page.error_message


async def test_a_page_of_the_journal_is_bounded(
    gateway: InMemoryGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_follow, "MAX_BYTES", 1)
    await gateway.create("t")
    page = await ask(gateway, InternalApi.JOURNAL_FOLLOW, JournalFollowRequest(0, 0, 2**31 - 1))
    assert len(page.entries) == 1


async def test_a_shard_and_its_topics_are_described_by_page(gateway: InMemoryGateway) -> None:
    ids = {await gateway.create(f"t{i}", i + 1): (f"t{i}", i + 1) for i in range(5)}
    after, seen = bytes(16), []
    for _ in range(3):
        page = await ask(gateway, InternalApi.DESCRIBE_SHARD, DescribeShardRequest(0, after, 2))
        seen += [(topic.topic_id, (topic.name, topic.partitions)) for topic in page.topics]
        after = page.topics[-1].topic_id
    assert dict(seen) == ids and [topic_id for topic_id, _ in seen] == sorted(ids)
    assert not page.has_more
    state = gateway.running.shard.state
    assert (page.cluster_id, page.data_url) == (state.cluster_id, "memory:")
    assert (page.applied_entries, page.feature_level) == (state.applied, state.feature_level)
    nothing = await ask(gateway, InternalApi.DESCRIBE_SHARD, DescribeShardRequest(0, bytes(16), -1))
    assert not nothing.topics and nothing.has_more
    other = await ask(gateway, InternalApi.DESCRIBE_SHARD, DescribeShardRequest(1))
    assert other.error_code == ErrorCode.INVALID_REQUEST


async def test_very_many_topics_are_described_in_pages(gateway: InMemoryGateway) -> None:
    for i in range(1_005):
        await gateway.running.services.topics.create(
            NewTopic(f"t{i:04}", 1, {}), asyncio.get_running_loop().time() + 5
        )
    page = await ask(gateway, InternalApi.DESCRIBE_SHARD, DescribeShardRequest(0, bytes(16), 5_000))
    assert len(page.topics) == 1_000 and page.has_more
    rest = await ask(
        gateway, InternalApi.DESCRIBE_SHARD, DescribeShardRequest(0, page.topics[-1].topic_id, 5_000)
    )
    assert len(rest.topics) == 5 and not rest.has_more


async def on_child(gateway: InMemoryGateway, job: Callable[[PeerClient], Result]) -> Result:
    """What a child process does, in a thread."""
    child = gateway.running.internal.connect_child()

    def work() -> Result:
        with PeerClient(InheritedLink(child.detach()), 5.0) as client:
            return job(client)

    return await asyncio.to_thread(work)


async def with_runs(gateway: InMemoryGateway, count: int = 3) -> PartitionLog:
    """A partition of single records in runs of their own."""
    topic_id = await gateway.create("t")
    for _ in range(count):
        await gateway.send("t", records(1))
    return gateway.running.shard.state.topics.by_id[TopicId(topic_id)].partitions[0]


async def test_segments_take_the_place_of_runs_and_a_repeat_gets_the_first_result(
    gateway: InMemoryGateway,
) -> None:
    log = await with_runs(gateway)
    await on_child(gateway, lambda client: client.pin(JOB))
    swap = swap_of(log, list(log.runs()), gateway.running.shard.now_ms(), segments=2, join=2)
    first = await on_child(gateway, lambda client: client.swap(swap))
    again = await on_child(gateway, lambda client: client.swap(swap))
    assert (first, again) == (Swapped(1, 0), Swapped(1, 0, duplicate=True))
    (found,) = await find(gateway, log.topic_id, 0)
    assert found.layout_version == 1 and {run.object_kind for run in found.batches} == {2}
    assert [run.object_key for run in found.batches] == [segment.locator for segment in swap.segments]
    assert {run.record_count for run in found.batches} == {-1}
    stale = await on_child(gateway, lambda client: client.swap(replace(swap, attempt=1)))
    assert isinstance(stale, Refused) and stale.error is ErrorName.INVALID_UPDATE_VERSION


async def test_a_swap_of_a_job_without_a_pin_is_refused(gateway: InMemoryGateway) -> None:
    log = await with_runs(gateway)
    await on_child(gateway, lambda client: client.pin(JOB))
    swap = swap_of(log, list(log.runs()), gateway.running.shard.now_ms())
    await on_child(gateway, lambda client: client.release(JOB))
    refused = await on_child(gateway, lambda client: client.swap(swap))
    assert isinstance(refused, Refused) and refused.error is ErrorName.UNKNOWN_MEMBER_ID
    assert log.layout_version == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempt": -1},
        {"partition": -1},
        {"first": -1},
        {"layout_version": -1},
        {"last": -1},
        {"segments": [], "runs": []},
        {"segments": [SegmentFile("x" * 201, 500)]},
        {"segments": [SegmentFile("\u00fc", 500)]},
        {"segments": [SegmentFile("seg/x", 0)]},
        {"segments": [SegmentFile("seg/x", 2**31)]},
        {"segments": [SegmentFile("wal/0/x", 500)]},
        {"runs": [SegmentRun(0, -1, 100, 0, 2, 0)]},
        {"runs": [SegmentRun(0, 32, 0, 0, 2, 0)]},
        {"runs": [SegmentRun(0, 400, 101, 0, 2, 0)]},
        {"runs": [SegmentRun(0, 32, 100, 2, 0, 0)]},
        {"runs": [SegmentRun(0, 32, 100, -1, 2, 0)]},
        {"runs": [SegmentRun(0, 32, 1, i, i, 0) for i in range(2_001)]},
    ],
    ids=str,
)
async def test_a_swap_that_cannot_be_is_refused(gateway: InMemoryGateway, wrong: dict[str, Any]) -> None:
    log = await with_runs(gateway)
    await on_child(gateway, lambda client: client.pin(JOB))
    swap = swap_of(log, list(log.runs()), gateway.running.shard.now_ms())
    sized = replace(swap, segments=[swap.segments[0]._replace(object_bytes=500)])
    refused = await on_child(gateway, lambda client: client.swap(replace(sized, **wrong)))
    assert isinstance(refused, Refused) and refused.error is ErrorName.INVALID_REQUEST and refused.message
    assert log.layout_version == 0
    assert isinstance(await on_child(gateway, lambda client: client.swap(swap)), Swapped)


async def test_a_pin_is_taken_renewed_and_released(gateway: InMemoryGateway) -> None:
    shard = gateway.running.shard
    first = await on_child(gateway, lambda client: client.pin(JOB))
    assert first.entry == shard.state.applied - 1 and JOB in shard.state.part(Pins)
    applied = shard.state.applied
    assert await on_child(gateway, lambda client: client.pin(JOB)) == first
    assert shard.state.applied == applied
    await on_child(gateway, lambda client: client.release(JOB))
    assert JOB not in shard.state.part(Pins)
    with pytest.raises(PeerRefused, match="a job needs an id of its own"):
        await on_child(gateway, lambda client: client.pin(bytes(16)))


async def test_pins_are_counted_with_the_age_of_the_oldest(gateway: InMemoryGateway) -> None:
    def figures() -> tuple[float | None, ...]:
        registry = gateway.running.services.metrics.registry
        return tuple(map(registry.get_sample_value, ("dragoman_pins", "dragoman_oldest_pin_seconds")))

    assert figures() == (0, 0)
    await on_child(gateway, lambda client: client.pin(JOB))
    await asyncio.sleep(0.05)
    pins, oldest_s = figures()
    assert pins == 1 and oldest_s is not None and 0.01 < oldest_s < 60
    await on_child(gateway, lambda client: client.release(JOB))
    assert figures() == (0, 0)


@pytest.mark.serial
async def test_no_request_about_many_files_holds_the_event_loop(gateway: InMemoryGateway) -> None:
    files = [DescribeFilesFile(f"seg/{'a' * 22}/0/{number:020d}-{'b' * 36}.kfs") for number in range(45_000)]
    key = InternalApi.DISKLESS_DESCRIBE_FILES
    body = memoryview(codec.encode_request(key, 0, DisklessDescribeFilesRequest(files)))
    del files
    router, listener = gateway.running.internal.router, gateway.running.listeners[0]
    request = Request(0, RequestHeader(int(key), 0, 1, "job"), body, False)
    answering = router.answer(request, Peer(7, listener, "", ANONYMOUS), asyncio.get_running_loop().time())
    assert await longest_turn(answering) < LONGEST_TURN_S


async def test_each_pin_request_renews_the_pin_at_its_owner(
    gateway: InMemoryGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[bytes] = []
    monkeypatch.setattr(gateway.running.internal.pins, "renew", renewed.append)
    for _ in range(2):
        await on_child(gateway, lambda client: client.pin(JOB))
    await on_child(gateway, lambda client: client.release(JOB))
    # The first when it was taken, the second also before.
    assert renewed == [JOB, JOB, JOB]
    assert await gateway.running.internal.pins.expire() == 0


async def test_a_child_speaks_over_the_socket_that_it_inherits(gateway: InMemoryGateway) -> None:
    topic_id = await gateway.create("t", 2)
    await gateway.send("t", records(3))

    def job(client: PeerClient) -> tuple[list[str], int]:
        names = [topic.name for topic in client.topics()]
        return names, client.find_batches(TopicId(topic_id), 0, 0).high_watermark

    assert await on_child(gateway, job) == (["t"], 3)
