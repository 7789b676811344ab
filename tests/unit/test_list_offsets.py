"""ListOffsets against a real shard over stores in memory."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.fetch.list_offsets import OffsetQuery, OffsetResult
from gateway.scheduling.batch_opening import Work
from gateway.scheduling.slices import Owner, Slices, SliceScheduler
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ledger.batch.header import Codec, seal
from ledger.batch.records import Record, build_batch
from tests.support.in_memory import in_memory_gateway
from tests.support.reading import NOW_MS, batch_of, reading_world

NOT_FOUND = OffsetResult()
EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -2, -1, -3, -4, -5, -6
FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    PENDING_UPLOAD: 11,
}


def found(timestamp: int, offset: int) -> OffsetResult:
    return OffsetResult(ErrorCode.NONE, timestamp, offset, 0)


async def test_earliest_and_latest_are_log_start_and_high_watermark() -> None:
    async with reading_world() as world:
        topic_id = await world.create()
        assert await world.offset(EARLIEST) == await world.offset(LATEST) == found(-1, 0)
        await world.produce(batch_of(b"1", b"2", b"3"))
        await world.delete_records(topic_id, 0, 1)
        assert await world.offset(EARLIEST) == await world.offset(EARLIEST_LOCAL) == found(-1, 1)
        assert await world.offset(LATEST) == await world.offset(LATEST, isolation=1) == found(-1, 3)


async def test_without_tiered_storage_there_is_no_tiered_offset() -> None:
    async with reading_world() as world:
        await world.create()
        await world.produce(batch_of(b"1"))
        assert await world.offset(LATEST_TIERED) == await world.offset(PENDING_UPLOAD) == NOT_FOUND


@pytest.mark.parametrize("timestamp", sorted(FIRST_VERSIONS))
async def test_each_special_timestamp_is_known_from_its_version_on(timestamp: int) -> None:
    async with reading_world() as world:
        await world.create()
        first = FIRST_VERSIONS[timestamp]
        assert (await world.offset(timestamp, version=first)).error is ErrorCode.NONE
        if first > 1:
            assert (await world.offset(timestamp, version=first - 1)).error is ErrorCode.UNSUPPORTED_VERSION


async def test_other_negative_timestamps_are_unsupported() -> None:
    async with reading_world() as world:
        await world.create()
        assert (await world.offset(-7)).error is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("codec", list(Codec))
async def test_by_time_the_first_record_of_that_time_or_later_is_found(codec: Codec) -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(
            batch_of(b"a", b"b", timestamps=[0, 10], codec=codec),
            batch_of(b"c", b"d", b"e", timestamps=[30, 20, 40], codec=codec),
        )
        assert await world.offset(0) == found(NOW_MS, 0)
        assert await world.offset(NOW_MS) == found(NOW_MS, 0)
        assert await world.offset(NOW_MS + 1) == found(NOW_MS + 10, 1)
        assert await world.offset(NOW_MS + 15) == found(NOW_MS + 30, 2)
        assert await world.offset(NOW_MS + 31) == found(NOW_MS + 40, 4)
        assert await world.offset(NOW_MS + 41) == NOT_FOUND


async def test_timestamps_need_not_ascend() -> None:
    async with reading_world() as world:
        await world.create()
        for stamp in (50, 20, 70, 10):
            await world.produce(batch_of(b"x", timestamps=[stamp]))
        assert await world.offset(NOW_MS + 15) == found(NOW_MS + 50, 0)
        assert await world.offset(NOW_MS + 60) == found(NOW_MS + 70, 2)


async def test_the_latest_timestamp_is_found_at_its_first_record() -> None:
    async with reading_world() as world:
        await world.create()
        assert await world.offset(MAX_TIMESTAMP) == NOT_FOUND
        await world.produce(batch_of(b"a", b"b", timestamps=[5, 90]))
        await world.produce(batch_of(b"c", b"d", b"e", timestamps=[90, 1, 90]))
        assert await world.offset(MAX_TIMESTAMP) == found(NOW_MS + 90, 1)


async def test_records_below_the_log_start_offset_are_not_found_by_time() -> None:
    async with reading_world() as world:
        topic_id = await world.create()
        await world.produce(batch_of(b"a", timestamps=[90]), batch_of(b"b", b"c", timestamps=[80, 10]))
        await world.produce(batch_of(b"d", timestamps=[20]), batch_of(b"e", timestamps=[85]))
        await world.delete_records(topic_id, 0, 2)
        assert await world.offset(0) == found(NOW_MS + 10, 2)
        assert await world.offset(NOW_MS + 15) == found(NOW_MS + 20, 3)
        assert await world.offset(NOW_MS + 86) == NOT_FOUND
        assert await world.offset(MAX_TIMESTAMP) == found(NOW_MS + 85, 4)


async def test_with_log_append_time_every_record_has_the_time_of_its_batch() -> None:
    async with reading_world() as world:
        await world.create()
        await world.produce(batch_of(b"a", b"b", timestamps=[900, 5]), stamp=True)
        assert await world.offset(NOW_MS) == found(NOW_MS, 0)
        assert await world.offset(NOW_MS + 1) == NOT_FOUND
        assert await world.offset(MAX_TIMESTAMP) == found(NOW_MS, 0)


async def test_a_large_run_is_searched_a_window_at_a_time() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        batches = [batch_of(bytes(100_000), timestamps=[i]) for i in range(60)]
        await world.produce(*batches)
        assert await world.offset(NOW_MS + 30) == found(NOW_MS + 30, 30)
        assert max(position.size for read in world.segments.reads for position in read) <= 1024 * 1024
        assert world.segments.bytes_read < 5_000_000


async def test_a_partition_that_does_not_exist_is_unknown() -> None:
    async with reading_world() as world:
        await world.create()
        unknown = OffsetResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        queries = [
            OffsetQuery("nope", 0, LATEST),
            OffsetQuery("t", 1, 5),
            OffsetQuery("t", -1, EARLIEST),
        ]
        assert await world.offsets(*queries) == [unknown] * 3


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-2, ErrorCode.FENCED_LEADER_EPOCH)],
)
async def test_the_leader_epoch_is_checked(epoch: int, error: ErrorCode) -> None:
    async with reading_world() as world:
        await world.create()
        (result,) = await world.offsets(OffsetQuery("t", 0, LATEST, epoch))
        assert result.error is error


async def test_many_partitions_are_searched_each_by_itself_with_results_in_order() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create(partitions=40)
        await world.produce_many([("t", i, batch_of(b"x", timestamps=[i])) for i in range(40)])
        queries = [OffsetQuery("t", i, NOW_MS + 20) for i in range(40)]
        results = await world.offsets(*queries)
        assert results == [NOT_FOUND if i < 20 else found(NOW_MS + i, 0) for i in range(40)]


async def test_a_missing_object_is_an_error_and_an_alarm() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(batch_of(b"x"))
        run = world.log().find(0, 1)[0]
        await world.segments.delete([world.shard.state.objects.locator(run.object_number)])
        assert (await world.offset(5)).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert (len(world.segments.reads), len(world.alarms)) == (4, 1)
        assert await world.offset(LATEST) == found(-1, 1)


async def test_records_that_decompress_beyond_the_bound_are_an_error_but_no_alarm() -> None:
    async with reading_world() as world:
        await world.create()
        await world.produce(build_batch([Record(value=bytes(10_000_000))], Codec.ZSTD, base_timestamp=NOW_MS))
        world.list_offsets_service.max_decompressed_bytes = 1_000_000
        assert (await world.offset(5)).error is ErrorCode.CORRUPT_MESSAGE
        assert world.alarms == []


async def test_there_is_no_offset_unless_the_state_is_confirmed_to_be_the_newest() -> None:
    async with reading_world(exclusive=False) as world:
        await world.create()
        question = OffsetQuery("t", 0, LATEST)
        over = asyncio.get_running_loop().time() - 1
        (late,) = await world.list_offsets_service.list_offsets(11, [question], 0, over)
        assert late.error is ErrorCode.REQUEST_TIMED_OUT
        await world.shard.close()
        (unowned,) = await world.offsets(question)
        assert unowned.error is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_partition_that_is_named_twice_has_one_result_an_invalid_request() -> None:
    from gateway.handlers.list_offsets import handle

    async with reading_world() as world:
        await world.create(partitions=2)
        context = SimpleNamespace(
            services=SimpleNamespace(offsets=world.list_offsets_service),
            header=SimpleNamespace(api_version=11),
            deadline=lambda timeout_ms: world.soon(),
            connection_id=1,
            peer_host="127.0.0.1",
            error="NONE",
            slices=Slices(SliceScheduler(), Owner(1, "127.0.0.1")),
        )
        named = [ListOffsetsPartition(index, -1, LATEST) for index in (0, 1, 0)]
        response = await handle(context, ListOffsetsRequest(topics=[ListOffsetsTopic("t", named)]))  # type: ignore[arg-type]
        assert [part.error_code for part in response.topics[0].partitions] == [42, 0]
        assert context.error == "INVALID_REQUEST"


async def test_among_records_without_a_timestamp_the_first_has_the_latest() -> None:
    async with reading_world() as world:
        topic_id = await world.create()
        for _ in range(3):
            await world.produce(batch_of(b"a", base_timestamp=-1))
        assert await world.offset(MAX_TIMESTAMP) == found(-1, 0)
        await world.delete_records(topic_id, 0, 2)
        assert await world.offset(MAX_TIMESTAMP) == found(-1, 2)
        await world.delete_records(topic_id, 0, 3)
        assert await world.offset(MAX_TIMESTAMP) == NOT_FOUND


async def test_a_timestamp_beyond_int64_spoils_no_lookup() -> None:
    async with reading_world() as world:
        await world.create(partitions=2)
        lying = bytearray(build_batch([Record(0, 2**62)], base_timestamp=0))
        lying[27:43] = (2**62 + 5).to_bytes(8, "big") + NOW_MS.to_bytes(8, "big")
        seal(lying)
        await world.produce(bytes(lying))
        await world.produce(batch_of(b"x"), partition=1)
        for timestamp, there in ((NOW_MS - 10, 0), (MAX_TIMESTAMP, 0)):
            lied, honest = await world.offsets(*[OffsetQuery("t", i, timestamp) for i in range(2)])
            assert lied == NOT_FOUND
            assert honest == found(NOW_MS, there)


async def test_a_batch_whose_header_has_a_timestamp_of_no_record_is_decompressed_once() -> None:
    async with reading_world() as world:
        await world.create()
        lying = bytearray(build_batch([Record(i, i) for i in range(50)], base_timestamp=0))
        lying[35:43] = NOW_MS.to_bytes(8, "big")
        seal(lying)
        await world.produce(bytes(lying), batch_of(b"x"))
        opened: list[object] = []
        run = world.opener.run

        async def counted(owner: Owner, topic: object, work: Work, *rest: Any) -> None:
            opened.append(work)
            await run(owner, topic, work, *rest)

        world.opener.run = counted  # type: ignore[method-assign, assignment]
        for _ in range(5):
            assert await world.offset(NOW_MS - 10) == found(NOW_MS, 50)
        assert len(opened) == 1 + 5
        # What its records do hold is still found in it.
        assert await world.offset(20) == found(20, 20)


async def test_the_setting_bounds_what_a_lookup_decompresses() -> None:
    async with in_memory_gateway({"limits.decompressed_bytes": str(1 << 20)}) as gateway:
        await gateway.create("t", max_message_bytes="5000000")
        await gateway.send("t", [Record(0, 0, None, bytes(2 << 20))])
        topic = ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, NOW_MS)])
        response = await gateway.ask(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(topics=[topic]))
        assert response.topics[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE
