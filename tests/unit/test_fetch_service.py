"""Fetches against a real shard over stores in memory: what is served, when, and what is refused."""

import asyncio
import time
from dataclasses import replace

import pytest

from gateway.fetch.operation import FetchOptions
from gateway.fetch.stream import COPIED_BYTES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import FetchResponse
from gateway.wire.messages.fetch_encoding import encode_fetch_response
from ledger.batch.header import HEADER_BYTES, verify_crc
from tests.support.reading import (
    CountingSegments,
    batch_of,
    only,
    parts,
    reading_world,
    records_of,
    with_base,
)

WAIT_S = 30.0
"""For what comes at once, on a busy machine too; shorter than the fetches would wait."""
A, B, C = batch_of(b"a"), batch_of(b"b1", b"b2"), batch_of(b"c" * 100)


async def test_a_fetch_returns_the_batches_from_its_offset_on_with_their_true_offsets() -> None:
    async with reading_world() as world:
        await world.create()
        await world.produce(A, B)
        await world.produce(C)
        fetched = await world.one("t", 0, 0)
        assert records_of(fetched) == with_base(A, 0) + with_base(B, 1) + with_base(C, 3)
        assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (4, 4, 0)
        assert all(verify_crc(memoryview(batch)) for batch in (with_base(A, 0), with_base(B, 1)))


async def test_an_offset_within_a_batch_gets_the_whole_batch() -> None:
    async with reading_world() as world:
        await world.create()
        await world.produce(A, B, C)
        assert records_of(await world.one("t", 0, 2)) == with_base(B, 1) + with_base(C, 3)


async def test_each_batch_is_sent_as_a_patched_head_and_a_view_that_is_not_copied() -> None:
    first, second = batch_of(b"a" * COPIED_BYTES), batch_of(b"b" * COPIED_BYTES)
    async with reading_world() as world:
        await world.create()
        await world.produce(first, second)
        records = (await world.one("t", 0, 0)).records
        assert records is not None
        assert [len(buffer) for buffer in records] == [16, len(first) - 16, 16, len(second) - 16]
        assert isinstance(records[1], memoryview)
        assert records[1].obj is first


async def test_the_cache_and_the_store_give_the_same_bytes() -> None:
    for cache_bytes in (0, 64 * 1024 * 1024):
        async with reading_world(cache_bytes=cache_bytes) as world:
            await world.create()
            await world.produce(A, B, C)
            assert records_of(await world.one("t", 0, 1)) == with_base(B, 1) + with_base(C, 3)
            assert bool(world.segments.reads) == (cache_bytes == 0)


async def test_all_partitions_of_a_fetch_are_read_in_one_call_of_a_local_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for keeps_reads in (True, False):
        capabilities = replace(CountingSegments.capabilities, keeps_reads=keeps_reads)
        monkeypatch.setattr(CountingSegments, "capabilities", capabilities)
        async with reading_world(cache_bytes=0) as world:
            await world.create(partitions=3)
            for partition in range(3):
                await world.produce(A, partition=partition)
            fetched = await world.fetch(*[("t", partition, 0) for partition in range(3)])
            assert [records_of(part) for part in parts(fetched)] == [with_base(A, 0)] * 3
            # Of a far store each object by itself, so that one that is slow delays no other.
            assert [len(read) for read in world.segments.reads] == ([3] if keeps_reads else [1, 1, 1])


async def test_the_first_batch_is_served_whole_however_small_the_limits() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create(partitions=2)
        large = batch_of(b"x" * 300_000)
        await world.produce(large, A)
        await world.produce(A, partition=1)
        fetched = await world.fetch(("t", 0, 0, 1), ("t", 1, 0, 1000), max_bytes=10)
        assert [records_of(part) for part in parts(fetched)] == [with_base(large, 0), b""]


async def test_the_exception_for_the_first_batch_holds_for_the_first_partition_with_data() -> None:
    async with reading_world() as world:
        await world.create(partitions=3)
        await world.produce(C, partition=1)
        await world.produce(C, partition=2)
        fetched = await world.fetch(("t", 0, 0, 1), ("t", 1, 0, 1), ("t", 2, 0, 1))
        assert [len(records_of(part)) for part in parts(fetched)] == [0, len(C), 0]


async def test_a_partition_gets_whole_batches_up_to_its_own_maximum() -> None:
    async with reading_world() as world:
        await world.create()
        await world.produce(A, B, C)
        fetched = await world.one("t", 0, 0, len(A) + len(B) + len(C) - 1)
        assert records_of(fetched) == with_base(A, 0) + with_base(B, 1)


async def test_later_partitions_get_what_is_left_of_the_requests_maximum() -> None:
    async with reading_world() as world:
        await world.create(partitions=3)
        for partition in range(3):
            await world.produce(A, partition=partition)
        fetched = await world.fetch(*[("t", i, 0) for i in range(3)], max_bytes=2 * len(A) + 10)
        assert [len(records_of(part)) for part in parts(fetched)] == [len(A), len(A), 0]


async def test_a_consumer_that_follows_never_reads_a_byte_twice() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        batches = [batch_of(bytes(1000)) for _ in range(100)]
        await world.produce(*batches)
        got, offset = b"", 0
        while offset < 100:
            part = await world.one("t", 0, offset, 10_000)
            got += records_of(part)
            offset = len(got) // len(batches[0])
        assert got == b"".join(with_base(batch, i) for i, batch in enumerate(batches))
        # What is cut off at the end of each read is read again: less than a batch.
        assert world.segments.bytes_read < 1.2 * len(got)


async def test_deep_in_a_large_run_only_the_first_fetch_has_to_search() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        batches = [batch_of(bytes(10_000)) for _ in range(300)]
        await world.produce(*batches)
        assert len(world.log().find(0, 1)) == 1
        part = await world.one("t", 0, 250, 30_000)
        assert (
            records_of(part)[:30_000] == b"".join(with_base(batches[i], i) for i in range(250, 252))[:30_000]
        )
        world.segments.reads.clear()
        await world.one("t", 0, 250, 30_000)
        assert world.segments.bytes_read <= 30_000


@pytest.mark.serial
async def test_a_fetch_with_nothing_to_read_ends_after_max_wait_and_no_sooner() -> None:
    async with reading_world() as world:
        await world.create()
        before = time.monotonic()
        fetched = await world.one("t", 0, 0, max_wait_ms=120)
        assert records_of(fetched) == b""
        assert 0.1 < time.monotonic() - before < 2


async def test_a_waiting_fetch_is_woken_by_a_commit_and_finds_the_batch_in_the_cache() -> None:
    async with reading_world() as world:
        await world.create()
        waiting = asyncio.create_task(world.one("t", 0, 0, max_wait_ms=60_000))
        await asyncio.sleep(0.01)
        assert world.fetch_service.purgatory.parked == 1
        await world.produce(A)
        assert records_of(await waiting) == with_base(A, 0)
        assert world.segments.reads == []
        assert world.fetch_service.purgatory.parked == 0


async def test_a_fetch_waits_for_min_bytes_of_all_partitions_together() -> None:
    async with reading_world() as world:
        await world.create(partitions=2)
        requested = [("t", 0, 0), ("t", 1, 0)]
        waiting = asyncio.create_task(world.fetch(*requested, max_wait_ms=60_000, min_bytes=len(A) + len(C)))
        await asyncio.sleep(0.01)
        await world.produce(A)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await world.produce(C, partition=1)
        assert [len(records_of(part)) for part in parts(await waiting)] == [len(A), len(C)]


async def test_bytes_before_the_offset_in_the_same_run_do_not_count_for_min_bytes() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(C, C, C, A)
        waiting = asyncio.create_task(world.one("t", 0, 3, max_wait_ms=60_000, min_bytes=len(A) + 1))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await world.produce(B)
        assert records_of(await waiting) == with_base(A, 3) + with_base(B, 4)


async def test_bytes_in_later_objects_count_for_min_bytes_before_the_offset_was_ever_searched() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(C, C, C, A)
        await world.produce(B)
        fetch = world.one("t", 0, 3, len(C), max_wait_ms=60_000, min_bytes=len(A) + 1)
        assert records_of(await asyncio.wait_for(fetch, WAIT_S)) == with_base(A, 3) + with_base(B, 4)


@pytest.mark.serial
async def test_bytes_beyond_a_partitions_maximum_do_not_count_for_min_bytes() -> None:
    async with reading_world() as world:
        await world.create()
        await world.produce(A, A, A, A)
        fetch = world.one("t", 0, 0, len(A) + 10, max_wait_ms=60, min_bytes=3 * len(A))
        before = time.monotonic()
        assert records_of(await fetch) == with_base(A, 0)
        assert time.monotonic() - before > 0.05


async def test_at_the_deadline_a_fetch_gets_less_than_min_bytes() -> None:
    async with reading_world() as world:
        await world.create()
        await world.produce(A)
        fetched = await world.one("t", 0, 0, max_wait_ms=30, min_bytes=10_000)
        assert records_of(fetched) == with_base(A, 0)


async def test_min_bytes_beyond_max_bytes_is_max_bytes() -> None:
    async with reading_world() as world:
        await world.create()
        await world.produce(A, A)
        fetch = world.one("t", 0, 0, max_wait_ms=60_000, min_bytes=10_000, max_bytes=len(A))
        assert records_of(await asyncio.wait_for(fetch, WAIT_S)) == with_base(A, 0)


async def test_an_offset_out_of_range_is_reported_at_once_with_kafkas_values() -> None:
    async with reading_world() as world:
        await world.create(partitions=2)
        await world.produce(A)
        fetch = world.fetch(("t", 0, 2), ("t", 1, 0), max_wait_ms=60_000)
        wrong, fine = parts(await asyncio.wait_for(fetch, WAIT_S))
        assert wrong.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (wrong.high_watermark, wrong.last_stable_offset, wrong.log_start_offset) == (-1, -1, -1)
        assert fine.error_code == ErrorCode.NONE


@pytest.mark.parametrize(("offset", "is_fine"), [(-1, False), (1, False), (2, True), (3, True), (4, False)])
async def test_offsets_from_log_start_to_high_watermark_are_readable(offset: int, is_fine: bool) -> None:
    async with reading_world() as world:
        topic_id = await world.create()
        await world.produce(A, A, A)
        await world.delete_records(topic_id, 0, 2)
        fetched = await world.one("t", 0, offset)
        assert fetched.error_code == (ErrorCode.NONE if is_fine else ErrorCode.OFFSET_OUT_OF_RANGE)


async def test_a_partition_that_does_not_exist_is_unknown_by_name_and_by_id() -> None:
    async with reading_world() as world:
        topic_id = await world.create()
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await world.one("nope", 0, 0, max_wait_ms=60_000)).error_code == unknown
        assert (await world.one("t", 1, 0, max_wait_ms=60_000)).error_code == unknown
        assert (await world.one("t", -1, 0, max_wait_ms=60_000)).error_code == unknown
        assert (await world.one(topic_id, 1, 0, version=13, max_wait_ms=60_000)).error_code == unknown
        absent = await world.one(bytes([7]) * 16, 0, 0, version=13, max_wait_ms=60_000)
        assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_partitions_that_do_not_exist_come_last_those_with_unknown_topic_ids_first() -> None:
    async with reading_world() as world:
        topic_id = await world.create()
        await world.produce(A)
        nothing = bytes([7]) * 16
        requested = [(topic_id, 1, 0), (nothing, 0, 0), (topic_id, 0, 0), (nothing, 1, 0), (topic_id, 2, 0)]
        response = await world.fetch(*requested, version=13)
        unknown, absent = ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        returned = [(topic.topic_id, part) for topic in response.topics for part in topic.partitions]
        assert [(returned_id, part.index, part.error_code) for returned_id, part in returned] == [
            (topic_id, 0, ErrorCode.NONE),
            (nothing, 0, unknown),
            (nothing, 1, unknown),
            (topic_id, 1, absent),
            (topic_id, 2, absent),
        ]


async def test_from_version_13_on_topics_are_requested_and_returned_by_id() -> None:
    async with reading_world() as world:
        topic_id = await world.create()
        await world.produce(A)
        response = await world.fetch((topic_id, 0, 0), version=13)
        assert response.topics[0].topic_id == topic_id
        assert records_of(only(response)) == with_base(A, 0)


async def test_an_unknown_partition_neither_hides_the_others_nor_ends_the_wait() -> None:
    async with reading_world() as world:
        await world.create()
        waiting = asyncio.create_task(world.fetch(("nope", 0, 0), ("t", 0, 0), max_wait_ms=60_000))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await world.produce(A)
        fine, absent = parts(await waiting)
        assert records_of(fine) == with_base(A, 0)
        assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, ErrorCode.NONE),
        (0, ErrorCode.NONE),
        (1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-2, ErrorCode.NONE),
    ],
)
async def test_the_leader_epoch_is_always_zero(epoch: int, error: ErrorCode) -> None:
    async with reading_world() as world:
        await world.create()
        assert (await world.one("t", 0, 0, 1000, epoch)).error_code == error


async def test_deleting_a_topic_wakes_the_fetches_that_wait_for_it() -> None:
    async with reading_world() as world:
        topic_id = await world.create()
        by_name = asyncio.create_task(world.one("t", 0, 0, max_wait_ms=60_000))
        by_id = asyncio.create_task(world.one(topic_id, 0, 0, version=13, max_wait_ms=60_000))
        await asyncio.sleep(0.01)
        await world.delete(topic_id)
        for fetch in (by_name, by_id):
            fetched = await asyncio.wait_for(fetch, WAIT_S)
            assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert fetched.aborted_transactions is None


async def test_the_id_of_a_topic_created_again_under_its_name_is_inconsistent_in_a_session() -> None:
    async with reading_world() as world:
        topic_id = await world.create()
        first = await world.fetch((topic_id, 0, 0), version=13, session=(0, 0))
        await world.delete(topic_id)
        await world.create()
        again = await world.fetch(version=13, session=(first.session_id, 1))
        assert only(again).error_code == ErrorCode.INCONSISTENT_TOPIC_ID


async def test_read_committed_gets_an_empty_list_of_aborted_transactions_and_others_null() -> None:
    async with reading_world() as world:
        await world.create()
        await world.produce(A)
        assert (await world.one("t", 0, 0, isolation=1)).aborted_transactions == ()
        assert (await world.one("t", 0, 0, isolation=0)).aborted_transactions is None


async def test_a_missing_object_is_an_error_and_an_alarm_never_an_empty_success() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create(partitions=2)
        await world.produce(A)
        await world.produce(B, partition=1)
        locator = world.shard.state.objects.locator(world.log().find(0, 1)[0].object_number)
        await world.segments.delete([locator])
        lost, fine = parts(await world.fetch(("t", 0, 0), ("t", 1, 0)))
        assert lost.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert records_of(fine) == with_base(B, 0)
        assert len(world.alarms) == 1
        assert len([read for read in world.segments.reads if any(p.locator == locator for p in read)]) == 4


async def test_a_damaged_batch_is_an_error_and_an_alarm_but_the_batches_before_it_are_served() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(A, B, C)
        run = world.log().find(0, 1)[0]
        locator = world.shard.state.objects.locator(run.object_number)
        world.segments.overwrite(locator, run.start + len(A) + 16, b"\x07")
        assert records_of(await world.one("t", 0, 0)) == with_base(A, 0)
        broken = await world.one("t", 0, 1)
        assert broken.error_code == ErrorCode.CORRUPT_MESSAGE
        assert len(world.alarms) == 2


async def test_a_batch_whose_length_points_beyond_its_run_is_damage() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(A)
        run = world.log().find(0, 1)[0]
        locator = world.shard.state.objects.locator(run.object_number)
        world.segments.overwrite(locator, run.start + 8, (2**31 - 1).to_bytes(4, "big"))
        assert (await world.one("t", 0, 0)).error_code == ErrorCode.CORRUPT_MESSAGE


async def test_fetches_share_a_budget_and_get_nothing_rather_than_more_of_it() -> None:
    options = FetchOptions(in_flight_bytes=1000, ledger_wait_s=0.05)
    async with reading_world(options, cache_bytes=0) as world:
        await world.create()
        await world.produce(A)
        held = await world.fetch_service.budget.acquire(1000, world.soon())
        assert records_of(await world.one("t", 0, 0)) == b""
        waiting = asyncio.create_task(world.one("t", 0, 0, max_wait_ms=60_000))
        await asyncio.sleep(0.01)
        held.release()
        assert records_of(await waiting) == with_base(A, 0)
        assert world.fetch_service.budget.held_bytes == 0


async def test_closing_completes_every_fetch_that_waits() -> None:
    async with reading_world() as world:
        await world.create()
        waiting = asyncio.create_task(world.one("t", 0, 0, max_wait_ms=60_000))
        await asyncio.sleep(0.01)
        world.fetch_service.close()
        assert (await asyncio.wait_for(waiting, WAIT_S)).error_code == ErrorCode.NONE


async def test_a_fetch_that_is_cancelled_releases_all_that_it_held() -> None:
    async with reading_world() as world:
        await world.create()
        waiting = asyncio.create_task(world.one("t", 0, 0, max_wait_ms=60_000))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        assert world.fetch_service.purgatory.parked == 0
        assert world.fetch_service.purgatory._waiting == {}


async def test_an_absence_is_not_reported_unless_the_state_is_confirmed_to_be_the_newest() -> None:
    options = FetchOptions(ledger_wait_s=0.05)
    async with reading_world(options, exclusive=False) as world:
        await world.create()
        await world.produce(A)
        await world.shard.close()
        assert (await world.one("t", 0, 9)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await world.one("nope", 0, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert records_of(await world.one("t", 0, 0)) == with_base(A, 0)


async def test_a_fetch_response_can_be_encoded_in_every_version() -> None:
    async with reading_world() as world:
        topic_id = await world.create()
        await world.produce(A)
        for version in range(4, 19):
            topic = topic_id if version >= 13 else "t"
            response: FetchResponse = await world.fetch((topic, 0, 0), version=version)
            body = b"".join(encode_fetch_response(version, response))
            assert with_base(A, 0) in body
            assert len(body) > HEADER_BYTES


@pytest.mark.serial
async def test_a_fetch_does_not_wait_for_batches_committed_while_it_reads() -> None:
    small, large = batch_of(b"a" * 100), batch_of(b"b" * 2000)
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        # One run: before it was searched, all of it counts as if it could be served from offset 3 on.
        await world.produce(large, large, large, small)
        reading, go_on = asyncio.Event(), asyncio.Event()
        read = world.segments.read

        async def held(positions):  # type: ignore[no-untyped-def]
            reading.set()
            await go_on.wait()
            return await read(positions)

        world.segments.read = held  # type: ignore[method-assign]
        began = time.monotonic()
        fetch = asyncio.create_task(world.one("t", 0, 3, max_wait_ms=8000, min_bytes=2000))
        await reading.wait()
        await world.produce(large)
        go_on.set()
        assert records_of(await fetch) == with_base(small, 3) + with_base(large, 4)
        assert time.monotonic() - began < 4
