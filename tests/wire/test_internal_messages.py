"""The messages of the internal APIs: bytes that are written by hand, field by field, and what they mean; and
the client of jobs, which has a codec of its own, against the gateway's."""

from typing import Any

import pytest

from gateway.wire.apis import ApiKey, InternalApi, codec_range, flexible
from gateway.wire.errors import Malformed, NeedsSlices
from gateway.wire.header import decode_request_header, encode_response_header
from gateway.wire.messages import codec
from gateway.wire.messages.internal import adopt_runs, adopt_topic, pin, segments_swap, take_snapshot
from gateway.wire.messages.internal import describe_shard as shard
from gateway.wire.messages.internal import diskless_commit_file as commit
from gateway.wire.messages.internal import diskless_describe_files as files
from gateway.wire.messages.internal import diskless_find_batches as find
from gateway.wire.messages.internal import diskless_list_offsets as offsets
from gateway.wire.messages.internal import journal_follow as journal
from gateway.wire.messages.internal import settled_ledger as settled
from ledger.adoption.requests import Adopted, AdoptedSegment, Adopting, AdoptRuns, AdoptStep, AdoptTopic
from ledger.errors import ErrorName
from ledger.merging.found import FoundMarker
from ledger.objects.uploads import ObjectKind
from ledger.settled.requests import NameSettled, SettledFiles
from ledger.swaps.requests import Pinned, SegmentFile, SegmentRun, SwapMarker, Swapped, SwapSegments
from ledger.types import TopicId
from pipeline import adoption_messages, messages, snapshot_messages, swap_messages
from pipeline.primitives import Reader

ID = "00112233445566778899aabbccddeeff"
UUID = bytes.fromhex(ID)
JOB = bytes.fromhex("0f1e2d3c4b5a69788796a5b4c3d2e1f0")
TIMEOUT = "0000ea60"
"""60,000 ms."""

REQUESTS: list[tuple[InternalApi, str, Any]] = [
    (
        InternalApi.DISKLESS_COMMIT_FILE,
        "06 77616c2f78"  # object key "wal/x"
        "01"  # format: WAL object
        "0000000000001000"  # file size
        "03 00000005 00000006"  # owner ids 5 and 6
        "02"  # one batch
        "02"  # magic
        "00000009" + ID + "00000003"  # request id  # partition
        "00000040 00000050"  # byte offset, size
        "0000000000000000 0000000000000004"  # base and last offset
        "0000018bcfe56800 01"  # max timestamp, LogAppendTime
        "00000000000003e9 0002"  # producer id and epoch
        "0000000a 0000000e"  # first and last sequence
        "02"  # two tagged fields
        "00 02 0009"  # 0, of 2 bytes: attributes gzip, LogAppendTime
        "01 04 00000005"  # 1, of 4 bytes: 5 records
         + TIMEOUT + "00",
        commit.DisklessCommitFileRequest(
            "wal/x",
            1,
            4096,
            [5, 6],
            [
                commit.CommitFileBatch(
                    *(2, 9, UUID, 3, 64, 80, 0, 4),
                    *(1_700_000_000_000, 1, 1001, 2, 10, 14),
                    attributes=9,
                    record_count=5,
                )
            ],
        ),
    ),
    (
        InternalApi.DISKLESS_LIST_OFFSETS,
        "02" + ID + "02 00000003 fffffffffffffffd 00 00" + TIMEOUT + "00",
        offsets.DisklessListOffsetsRequest(
            [offsets.ListOffsetsTopic(UUID, [offsets.ListOffsetsPartition(3, -3)])]
        ),
    ),
    (
        InternalApi.DISKLESS_FIND_BATCHES,
        "00100000 000007d0"  # bytes of all, batches of each
        "02" + ID + "02 00000003 000000000000000a 00010000 00 00" + TIMEOUT + "00",
        find.DisklessFindBatchesRequest(
            1 << 20, 2000, [find.FindBatchesTopic(UUID, [find.FindBatchesPartition(3, 10, 65536)])]
        ),
    ),
    (
        InternalApi.DISKLESS_DESCRIBE_FILES,
        "03 02 61 00 02 62 00" + TIMEOUT + "00",
        files.DisklessDescribeFilesRequest([files.DescribeFilesFile("a"), files.DescribeFilesFile("b")]),
    ),
    (
        InternalApi.JOURNAL_FOLLOW,
        "00000000 000000000000002a 00100000 00007530" + TIMEOUT + "00",
        journal.JournalFollowRequest(0, 42, 1 << 20, 30_000),
    ),
    (
        InternalApi.SEGMENTS_SWAP,
        JOB.hex()
        + "00000002"  # attempt
        + ID
        + "00000003"  # partition
        "000000000000000a 0000000000000013 00000007"  # first, last, layout version
        "02 02 61 0000000000000100"  # one segment, "a" of 256 bytes
        "02 00000020 000000d0 000000000000000a 0000000000000013 00000000000003e8 00"  # its run
        "00" + TIMEOUT + "00",
        segments_swap.SegmentsSwapRequest(
            *(JOB, 2, UUID, 3, 10, 19, 7),
            [segments_swap.SwapSegment("a", 256, [segments_swap.SwapRun(32, 208, 10, 19, 1000)])],
        ),
    ),
    (InternalApi.PIN, JOB.hex() + "01" + TIMEOUT + "00", pin.PinRequest(JOB, True)),
    (
        InternalApi.DESCRIBE_SHARD,
        "00000000" + ID + "000003e8" + TIMEOUT + "00",
        shard.DescribeShardRequest(0, UUID, 1000),
    ),
    (
        InternalApi.SETTLED_LEDGER,
        JOB.hex()
        + "00000002"  # attempt
        + ID
        + "00000003 02 73"  # partition, key "s"
        "0000000000000100 0000000000000030 0000000000000005"  # sizes of the .log, the .index and the .json
        "000000000000002a 0000000000000014 00000009"  # entry, high watermark, layout version
         + TIMEOUT + "00",
        settled.SettledLedgerRequest(JOB, 2, UUID, 3, "s", 256, 48, 5, 42, 20, 9),
    ),
    (
        InternalApi.ADOPT_TOPIC,
        "02 74"
        + ID
        + "00000003 05 73333a2f"  # name, id, partitions, place
        + JOB.hex()
        + "01"
        + TIMEOUT
        + "00",  # digest, begin
        adopt_topic.AdoptTopicRequest("t", UUID, 3, "s3:/", JOB, 1),
    ),
    (
        InternalApi.ADOPT_RUNS,
        ID + "00000003 05 73333a2f"  # partition, place
        "02 02 61 0000000000000100 00000000000003e7"  # one segment, "a" of 256 bytes, created at 999
        "02 00000020 000000d0 000000000000000a 0000000000000013 00000000000003e8 00"  # its run
        "00" + TIMEOUT + "00",
        adopt_runs.AdoptRunsRequest(
            *(UUID, 3, "s3:/"),
            [adopt_runs.AdoptedFile("a", 256, 999, [adopt_runs.AdoptedRun(32, 208, 10, 19, 1000)])],
        ),
    ),
    (
        InternalApi.TAKE_SNAPSHOT,
        "03 2f62000000000000002a" + TIMEOUT + "00",  # place "/b", 42 ms
        take_snapshot.TakeSnapshotRequest("/b", 42),
    ),
]
RESPONSES: list[tuple[InternalApi, Any, str]] = [
    (
        InternalApi.DISKLESS_COMMIT_FILE,
        commit.DisklessCommitFileResponse(
            0,
            [
                commit.CommitFileBatchResponse(
                    assigned_base_offset=5, log_append_time=9, log_start_offset=2, is_duplicate=True
                ),
                commit.CommitFileBatchResponse(45, "gap"),
            ],
        ),
        "00000000 03"
        "0000 00 0000000000000005 0000000000000009 0000000000000002 01 00"
        "002d 04 676170 ffffffffffffffff ffffffffffffffff ffffffffffffffff 00 00"
        "00",
    ),
    (
        InternalApi.DISKLESS_LIST_OFFSETS,
        offsets.DisklessListOffsetsResponse(
            0,
            [offsets.ListOffsetsTopicResponse(UUID, [offsets.ListOffsetsPartitionResponse(3, offset=8)])],
        ),
        "00000000 02" + ID + "02 00000003 0000 00 ffffffffffffffff 0000000000000008 00 00 00",
    ),
    (
        InternalApi.DISKLESS_FIND_BATCHES,
        find.DisklessFindBatchesResponse(
            0,
            [
                find.FindBatchesTopicResponse(
                    UUID,
                    [
                        find.FindBatchesPartitionResponse(
                            *(3, 0, 5, 20),
                            [
                                find.FoundBatch(10, "w", 2, 64, 80, 10, 14, -1, 1000, record_count=5),
                                find.FoundBatch(15, "s", 2, 32, 90, 15, 19, -1, -1, object_kind=2),
                            ],
                            layout_version=7,
                        )
                    ],
                )
            ],
        ),
        "00000000 02" + ID + "02 00000003 0000 0000000000000005 0000000000000014 03"
        "000000000000000a 02 77 02 0000000000000040 0000000000000050"
        "000000000000000a 000000000000000e ffffffffffffffff 00000000000003e8 ff"
        "01 01 04 00000005"  # a tagged field: 5 records
        "000000000000000f 02 73 02 0000000000000020 000000000000005a"
        "000000000000000f 0000000000000013 ffffffffffffffff ffffffffffffffff ff"
        "01 02 01 02"  # a tagged field: a segment
        "01 00 04 00000007"  # a tagged field: layout version 7
        "00 00",
    ),
    (
        InternalApi.DISKLESS_DESCRIBE_FILES,
        files.DisklessDescribeFilesResponse(
            0, [files.DescribedFile("a", has_live_batches=True), files.DescribedFile("b", 91, "no")]
        ),
        "00000000 03 02 61 0000 00 01 00 02 62 005b 03 6e6f 00 00 00",
    ),
    (
        InternalApi.JOURNAL_FOLLOW,
        journal.JournalFollowResponse(0, 0, None, 2, 9, [journal.StoredEntry(8, b"\xab\xcd")]),
        "00000000 0000 00 0000000000000002 0000000000000009 02 0000000000000008 03 abcd 00 00",
    ),
    (
        InternalApi.SEGMENTS_SWAP,
        segments_swap.SegmentsSwapResponse(0, 0, None, 8, 2, is_duplicate=True),
        "00000000 0000 00 00000008 0000000000000002 01 00 01 01",
    ),
    (
        InternalApi.PIN,
        pin.PinResponse(0, 35, "low", 0, 0),
        "00000000 0023 04 6c6f77 0000000000000000 0000000000000000 00",
    ),
    (
        InternalApi.DESCRIBE_SHARD,
        shard.DescribeShardResponse(
            *(0, 0, None, "c", "file:/d", 3, 42, 1_700_000_000_000),
            [shard.ShardTopic(UUID, "t", 3)],
            has_more=True,
        ),
        "00000000 0000 00 02 63 08 66696c653a2f64 0003 000000000000002a 0000018bcfe56800"
        "02" + ID + "02 74 00000003 00 01 00",
    ),
    (
        InternalApi.SETTLED_LEDGER,
        settled.SettledLedgerResponse(0, 95, "old", "s", 256, 48, 5, 42, 20, 9, 7, is_duplicate=True),
        "00000000 005f 04 6f6c64 02 73"
        "0000000000000100 0000000000000030 0000000000000005"
        "000000000000002a 0000000000000014 00000009 0000000000000007"
        "01 00 01 01",
    ),
    (
        InternalApi.ADOPT_TOPIC,
        adopt_topic.AdoptTopicResponse(0, 36, "no", UUID, is_open=False, has_ended=True),
        "00000000 0024 03 6e6f" + ID + "00 01 00",
    ),
    (
        InternalApi.ADOPT_RUNS,
        adopt_runs.AdoptRunsResponse(0, 0, None, 20, is_duplicate=True),
        "00000000 0000 00 0000000000000014 01 00",
    ),
    (
        InternalApi.TAKE_SNAPSHOT,
        take_snapshot.TakeSnapshotResponse(0, 0, None, "k", "c", 42, 20, 3, "h", 9),
        "00000000 0000 00 02 6b 02 63 000000000000002a 0000000000000014 00000003 02 68 0000000000000009 00",
    ),
]


def body(text: str) -> memoryview:
    return memoryview(bytes.fromhex(text))


def named(rows: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows, ids=[row[0].name.lower() for row in rows])


def test_there_is_an_example_of_every_message() -> None:
    assert [row[0] for row in REQUESTS] == [row[0] for row in RESPONSES] == list(InternalApi)


@named(REQUESTS)
def test_a_request_by_hand_is_read(row: tuple[InternalApi, str, Any]) -> None:
    key, text, request = row
    assert codec.decode_request(key, 0, body(text)) == request
    assert codec.encode_request(key, 0, request) == body(text)


@named(RESPONSES)
def test_a_response_is_written_as_by_hand(row: tuple[InternalApi, Any, str]) -> None:
    key, response, text = row
    assert codec.encode_response(key, 0, response) == body(text)
    assert codec.decode_response(key, 0, body(text)) == response


@named(REQUESTS)
def test_a_request_that_ends_too_early_is_malformed(row: tuple[InternalApi, str, Any]) -> None:
    key, text, _ = row
    whole = body(text)
    for size in range(len(whole)):
        with pytest.raises(Malformed):
            codec.decode_request(key, 0, whole[:size])


@named(REQUESTS)
def test_unknown_tagged_fields_are_passed_over(row: tuple[InternalApi, str, Any]) -> None:
    key, text, request = row
    assert codec.decode_request(key, 0, memoryview(bytes(body(text))[:-1] + b"\x01\x7f\x02ab")) == request


@pytest.mark.parametrize("count", ["ffffffff0f", "80808008", "feffffff07"])
def test_a_count_that_the_request_cannot_have_is_malformed(count: str) -> None:
    """Of the topics of a FindBatches, and of the files of a DescribeFiles."""
    heads = {InternalApi.DISKLESS_FIND_BATCHES: "00" * 8, InternalApi.DISKLESS_DESCRIBE_FILES: ""}
    for key, head in heads.items():
        with pytest.raises((Malformed, NeedsSlices)):
            codec.decode_small_request(key, 0, body(head + count + "00" * 40))
        with pytest.raises(Malformed):
            codec.decode_request(key, 0, body(head + count + "00" * 40))


def test_keys_have_one_flexible_version_and_are_no_keys_of_clients() -> None:
    for key in InternalApi:
        assert codec_range(key) == (0, 0) and flexible(key, 0)
        assert int(key) not in set(map(int, ApiKey))


def test_headers_have_tagged_fields() -> None:
    frame = body("0062 0000 00000007 0001 63 00 ff")
    header, at = decode_request_header(frame)
    assert (header.api_key, header.correlation_id, header.client_id, at) == (98, 7, "c", 12)
    assert encode_response_header(InternalApi.DISKLESS_FIND_BATCHES, 0, 7) == bytes.fromhex("00000007 00")


def test_the_client_of_jobs_writes_what_the_gateway_reads() -> None:
    swap = SwapSegments(
        *(JOB, 2, TopicId(UUID), 3, 10, 19, 7),
        [SegmentFile("a", 256)],
        [SegmentRun(0, 32, 208, 10, 19, 1000)],
    )
    naming = NameSettled(JOB, 2, TopicId(UUID), 3, SettledFiles("s", 256, 48, 5), 42, 20, 9)
    adopting = AdoptRuns(TopicId(UUID), 3, "s3:/", [AdoptedSegment("a", 256, 999)], list(swap.runs))
    query = messages.RunQuery(TopicId(UUID), 3, 10, 65536)
    written = {
        InternalApi.DISKLESS_LIST_OFFSETS: messages.list_offsets_request(TopicId(UUID), [3], -3, 60_000),
        InternalApi.DISKLESS_FIND_BATCHES: messages.find_batches_request([query], 1 << 20, 2000, 60_000),
        InternalApi.DISKLESS_DESCRIBE_FILES: messages.describe_files_request(["a", "b"], 60_000),
        InternalApi.JOURNAL_FOLLOW: messages.journal_follow_request(42, 1 << 20, 30_000, 60_000),
        InternalApi.SEGMENTS_SWAP: swap_messages.swap_request(swap, 60_000),
        InternalApi.PIN: messages.pin_request(JOB, True, 60_000),
        InternalApi.ADOPT_TOPIC: adoption_messages.adopt_topic_request(
            AdoptTopic("t", TopicId(UUID), 3, "s3:/", JOB, AdoptStep.BEGIN), 60_000
        ),
        InternalApi.ADOPT_RUNS: adoption_messages.adopt_runs_request(adopting, 60_000),
        InternalApi.DESCRIBE_SHARD: messages.describe_shard_request(UUID, 1000, 60_000),
        InternalApi.SETTLED_LEDGER: messages.name_settled_request(naming, 60_000),
        InternalApi.TAKE_SNAPSHOT: snapshot_messages.snapshot_request("/b", 42, 60_000),
    }
    expected = {key: bytes(body(text)) for key, text, _ in REQUESTS if key in written}
    assert written == expected


def test_the_client_of_jobs_reads_what_the_gateway_writes() -> None:
    written = {key: Reader(body(text)) for key, _, text in RESPONSES}
    (found,) = messages.find_batches_response(written[InternalApi.DISKLESS_FIND_BATCHES]).values()
    assert [(run.kind, run.base, run.max_timestamp) for run in found.runs] == [
        (ObjectKind.WAL, 10, 1000),
        (ObjectKind.SEGMENT, 15, -1),
    ]
    assert found.layout_version == 7
    listed = messages.list_offsets_response(written[InternalApi.DISKLESS_LIST_OFFSETS])
    assert listed[3].offset == 8
    described = messages.describe_files_response(written[InternalApi.DISKLESS_DESCRIBE_FILES])
    assert [(file.is_known, file.has_live_batches) for file in described] == [(True, True), (False, False)]
    page = messages.journal_follow_response(written[InternalApi.JOURNAL_FOLLOW])
    assert (page.start, page.durable_end, page.entries) == (2, 9, [(8, b"\xab\xcd")])
    failure, swapped = swap_messages.swap_response(written[InternalApi.SEGMENTS_SWAP])
    assert not failure and swapped == Swapped(8, 2, duplicate=True)
    refused, adopted_topic = adoption_messages.adopt_topic_response(written[InternalApi.ADOPT_TOPIC])
    assert refused == (ErrorName.TOPIC_ALREADY_EXISTS, "no")
    assert adopted_topic == Adopting(TopicId(UUID), is_open=False, has_ended=True)
    failure, adopted = adoption_messages.adopt_runs_response(written[InternalApi.ADOPT_RUNS])
    assert not failure and adopted == Adopted(20, duplicate=True)
    failure, pinned = messages.pin_response(written[InternalApi.PIN])
    assert failure == (ErrorName.UNSUPPORTED_VERSION, "low") and pinned == Pinned(0, 0)
    shard_page = messages.describe_shard_response(written[InternalApi.DESCRIBE_SHARD])
    assert shard_page.topics == [(UUID, "t", 3)] and shard_page.has_more
    failure, newest = messages.settled_response(written[InternalApi.SETTLED_LEDGER])
    assert failure == (ErrorName.INVALID_UPDATE_VERSION, "old")
    assert newest == (SettledFiles("s", 256, 48, 5), 42, 20, 9, 7, True)
    failure, taken = snapshot_messages.snapshot_response(written[InternalApi.TAKE_SNAPSHOT])
    assert not failure and taken == ("k", "c", 42, 20, 3, "h", 9)
    assert all(reader.left == 0 for key, reader in written.items() if key != InternalApi.DISKLESS_COMMIT_FILE)


def test_ends_of_transactions_and_what_was_aborted_go_to_a_job_and_back() -> None:
    """None of it is sent where there are no transactions, as in the messages above."""
    query = messages.RunQuery(TopicId(UUID), 3, 10, wants_isolation=True)
    wanted = messages.find_batches_request([query], 1 << 20, 2000, 60_000)
    request = codec.decode_request(InternalApi.DISKLESS_FIND_BATCHES, 0, memoryview(wanted))
    assert request == find.DisklessFindBatchesRequest(
        1 << 20,
        2000,
        [find.FindBatchesTopic(UUID, [find.FindBatchesPartition(3, 10, 2**31 - 1)])],
        wants_isolation=True,
    )
    part = find.FindBatchesPartitionResponse(3, 0, 5, 20, layout_version=7, last_stable_offset=18)
    part.batches = [
        find.FoundBatch(10, "", 2, 0, 78, 10, 10, -1, 9, record_count=1, object_kind=5, producer_id=2**40),
        find.FoundBatch(11, "", 2, 0, 78, 11, 11, -1, 9, object_kind=5, producer_id=0, is_commit=True),
    ]
    part.batches[0].producer_epoch, part.batches[1].producer_epoch = 300, 0
    part.aborted_transactions = [find.AbortedFound(2**40, 4, 10), find.AbortedFound(6, 12, 17)]
    response = find.DisklessFindBatchesResponse(0, [find.FindBatchesTopicResponse(UUID, [part])])
    written = codec.encode_response(InternalApi.DISKLESS_FIND_BATCHES, 0, response)
    assert codec.decode_response(InternalApi.DISKLESS_FIND_BATCHES, 0, memoryview(written)) == response
    (found,) = messages.find_batches_response(Reader(memoryview(written))).values()
    assert [run.marker for run in found.runs] == [FoundMarker(2**40, 300, False), FoundMarker(0, 0, True)]
    assert (found.last_stable, found.aborted) == (18, [(2**40, 4, 10), (6, 12, 17)])


def test_a_swap_names_the_ends_of_transactions_that_it_covers() -> None:
    markers = [SwapMarker(11, 2**40, 300, False, 9), SwapMarker(19, 0, 0, True, 10)]
    swap = SwapSegments(
        *(JOB, 2, TopicId(UUID), 3, 10, 19, 7),
        [SegmentFile("a", 256)],
        [SegmentRun(0, 32, 208, 10, 19, 1000)],
        markers,
    )
    written = memoryview(swap_messages.swap_request(swap, 60_000))
    request = codec.decode_request(InternalApi.SEGMENTS_SWAP, 0, written)
    assert request.markers == [segments_swap.SwappedMarker(*marker) for marker in markers]


def test_the_client_of_jobs_finds_the_settled_ledger_of_a_partition_by_a_request_without_a_key() -> None:
    written = messages.find_settled_request(TopicId(UUID), 3, 60_000)
    request = codec.decode_request(InternalApi.SETTLED_LEDGER, 0, memoryview(written))
    assert request == settled.SettledLedgerRequest(topic_id=UUID, partition_index=3, object_key=None)
