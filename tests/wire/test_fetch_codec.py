"""Fetch by hand against the codec that is compiled from Kafka's definitions."""

import timeit
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.apis import ApiKey
from gateway.wire.errors import Malformed, UnsupportedVersion
from gateway.wire.messages import codec, fetch
from gateway.wire.messages.fetch_decoding import decode_fetch
from gateway.wire.messages.fetch_encoding import encode_fetch_response
from gateway.wire.messages.generated import fetch as generated
from gateway.wire.messages.produce import LeaderIdAndEpoch, NodeEndpoint
from gateway.wire.primitives import ZERO_UUID

VERSIONS = range(4, 19)
FLEXIBLE = range(12, 19)
versions = pytest.mark.parametrize("version", VERSIONS)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=12)
ids = st.binary(min_size=16, max_size=16)
buffers = st.binary(max_size=100) | st.integers(100, 9000).map(bytes)

partitions = st.builds(generated.FetchPartition, int32, int32, int64, int32, int64, int32, ids, int64)
requests = st.builds(
    generated.FetchRequest,
    st.none() | names,
    int32,
    st.builds(generated.ReplicaState, int32, int64),
    int32,
    int32,
    int32,
    st.integers(-128, 127),
    int32,
    int32,
    st.lists(st.builds(generated.FetchTopic, names, ids, st.lists(partitions, max_size=4)), max_size=3),
    st.lists(st.builds(generated.ForgottenTopic, names, ids, st.lists(int32, max_size=4)), max_size=3),
    names,
)
fetched = st.builds(
    fetch.FetchPartitionResponse,
    int32,
    int16,
    int64,
    int64,
    int64,
    st.none() | st.lists(st.builds(fetch.AbortedTransaction, int64, int64), max_size=2),
    int32,
    st.none() | st.lists(buffers, max_size=3),
    st.none() | st.builds(fetch.EpochEndOffset, st.integers(0, 9), int64),
    st.none() | st.builds(LeaderIdAndEpoch, st.integers(0, 9), int32),
    st.none() | st.builds(fetch.SnapshotId, st.integers(0, 9), int32),
)
responses = st.builds(
    fetch.FetchResponse,
    st.lists(st.builds(fetch.FetchTopicResponse, names, ids, st.lists(fetched, max_size=3)), max_size=3),
    int16,
    int32,
    int32,
    st.lists(st.builds(NodeEndpoint, int32, names, int32, st.none() | names), max_size=2),
)


def as_generated(version: int, request: fetch.FetchRequest) -> generated.FetchRequest:
    """In the terms of the definitions, where the replica is in another field from version 15 on."""
    replica = generated.ReplicaState(request.replica_id, request.replica_epoch)
    return generated.FetchRequest(
        request.cluster_id,
        request.replica_id if version < 15 else -1,
        replica if version >= 15 else generated.ReplicaState(),
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        [
            generated.FetchTopic(topic.name, topic.topic_id, [as_partition(one) for one in topic.partitions])
            for topic in request.topics
        ],
        [
            generated.ForgottenTopic(topic.name, topic.topic_id, topic.partitions)
            for topic in request.forgotten_topics
        ],
        request.rack_id,
    )


def as_partition(one: fetch.FetchPartition) -> generated.FetchPartition:
    return generated.FetchPartition(
        one.index,
        one.current_leader_epoch,
        one.fetch_offset,
        one.last_fetched_epoch,
        one.log_start_offset,
        one.max_bytes,
        one.replica_directory_id,
        one.high_watermark,
    )


def encodable(version: int, request: generated.FetchRequest) -> generated.FetchRequest:
    """Without what the version cannot carry and must not drop."""
    if version < 7:
        request.forgotten_topics_data = []
    if version < 12:
        for topic in request.topics:
            for partition in topic.partitions:
                partition.last_fetched_epoch = -1
    if version < 15:
        request.replica_state = generated.ReplicaState()
    else:
        request.replica_id = -1
    return request


def generated_response(version: int, response: fetch.FetchResponse) -> generated.FetchResponse:
    return generated.FetchResponse(
        response.throttle_time_ms,
        response.error_code,
        response.session_id if version >= 7 else 0,
        [
            generated.FetchableTopicResponse(
                topic.name, topic.topic_id, [generated_partition(version, one) for one in topic.partitions]
            )
            for topic in response.topics
        ],
        [generated.NodeEndpoint(*one) for one in response.node_endpoints] if version >= 16 else [],
    )


def generated_partition(version: int, one: fetch.FetchPartitionResponse) -> generated.PartitionData:
    data = generated.PartitionData(
        one.index, one.error_code, one.high_watermark, one.last_stable_offset, one.log_start_offset
    )
    if version >= 12:
        data.diverging_epoch = generated.EpochEndOffset(*one.diverging_epoch or (-1, -1))
        data.current_leader = generated.LeaderIdAndEpoch(*one.current_leader or (-1, -1))
        data.snapshot_id = generated.SnapshotId(*one.snapshot_id or (-1, -1))
    if one.aborted_transactions is None:
        data.aborted_transactions = None
    else:
        data.aborted_transactions = [generated.AbortedTransaction(*t) for t in one.aborted_transactions]
    data.preferred_read_replica = one.preferred_read_replica if version >= 11 else -1
    data.records = None if one.records is None else b"".join(one.records)
    return data


def sent(version: int, request: generated.FetchRequest) -> memoryview:
    return memoryview(codec.encode_request(ApiKey.FETCH, version, encodable(version, request)))


def some_request() -> generated.FetchRequest:
    one = generated.FetchPartition(7, 0, 2**40, 0, -1, 1 << 20, b"d" * 16, 99)
    topic = generated.FetchTopic("orders", b"i" * 16, [one, one])
    return generated.FetchRequest(
        "cluster",
        -1,
        generated.ReplicaState(3, 4),
        500,
        1,
        1 << 24,
        1,
        77,
        5,
        [topic, topic],
        [generated.ForgottenTopic("old", b"o" * 16, [1, 2, 3])],
        "rack",
    )


@versions
@given(request=requests)
def test_a_request_is_read_as_the_definitions_say(version: int, request: generated.FetchRequest) -> None:
    body = sent(version, request)
    read = as_generated(version, decode_fetch(version, body))
    assert read == codec.decode_request(ApiKey.FETCH, version, body)


@versions
@given(response=responses)
def test_a_response_is_written_as_the_definitions_say(version: int, response: fetch.FetchResponse) -> None:
    expected = codec.encode_response(ApiKey.FETCH, version, generated_response(version, response))
    assert b"".join(encode_fetch_response(version, response)) == expected


@versions
def test_records_are_sent_as_the_buffers_in_which_they_were_read(version: int) -> None:
    bodies = [memoryview(bytearray(100 * n)) for n in range(1, 5)]
    response = fetch.FetchResponse(
        [
            fetch.FetchTopicResponse(
                "orders",
                b"i" * 16,
                [
                    fetch.FetchPartitionResponse(0, 0, records=bodies[:2]),
                    fetch.FetchPartitionResponse(1, 0, records=()),
                    fetch.FetchPartitionResponse(2, 0, records=bodies[2:]),
                ],
            )
        ]
    )
    out = encode_fetch_response(version, response)
    assert [type(buffer) for buffer in out[:6]] == [
        bytes,
        memoryview,
        memoryview,
        bytes,
        memoryview,
        memoryview,
    ]
    assert [buffer for buffer in out if type(buffer) is memoryview] == bodies
    assert all(a is b for a, b in zip([out[1], out[2], out[4], out[5]], bodies, strict=True))
    assert len(out) == (7 if version >= 12 else 6)


@versions
def test_every_strict_prefix_is_malformed(version: int) -> None:
    body = sent(version, some_request())
    decode_fetch(version, body)
    for end in range(len(body)):
        with pytest.raises(Malformed):
            decode_fetch(version, body[:end])


@versions
def test_bytes_after_the_message_are_ignored(version: int) -> None:
    body = sent(version, some_request())
    assert decode_fetch(version, memoryview(bytes(body) + b"more")) == decode_fetch(version, body)


@versions
@given(
    request=requests,
    at=st.integers(0, 200),
    patch=st.binary(min_size=1, max_size=6),
    noise=st.binary(max_size=60),
)
def test_damaged_frames_are_malformed_or_read_as_the_definitions_say(
    version: int, request: generated.FetchRequest, at: int, patch: bytes, noise: bytes
) -> None:
    damaged = bytearray(sent(version, request))
    damaged[at : at + len(patch)] = patch
    for data in (bytes(damaged), noise):
        body = memoryview(data)
        try:
            expected = codec.decode_request(ApiKey.FETCH, version, body)
        except Malformed:
            with pytest.raises(Malformed):
                decode_fetch(version, body)
        else:
            assert as_generated(version, decode_fetch(version, body)) == expected


def flexible_body(version: int, partition_tags: bytes = b"\0", request_tags: bytes = b"\0") -> memoryview:
    """One topic of two partitions, unknown tags after the topic, and these tags."""
    head = bytes(4 * (version < 15)) + bytes(13) + bytes(8)
    topic = b"i" * 16 if version >= 13 else b"\x02t"
    body = head + b"\x02" + topic + b"\x03" + (bytes(32) + partition_tags) * 2 + b"\x01\x05\x01x"
    return memoryview(body + b"\x01\x01" + request_tags)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_unknown_tagged_fields_are_skipped_at_every_level(version: int) -> None:
    tags = b"\x02\x62\x01x\x63\x03abc"
    assert decode_fetch(version, flexible_body(version, tags, tags)) == decode_fetch(
        version, flexible_body(version)
    )
    body = flexible_body(version, tags, tags)
    for end in range(len(body)):
        with pytest.raises(Malformed):
            decode_fetch(version, body[:end])


@pytest.mark.parametrize("version", FLEXIBLE)
def test_tagged_fields_are_read_from_the_version_that_has_them(version: int) -> None:
    partition_tags = b"\x02\x00\x10" + b"d" * 16 + b"\x01\x08" + bytes(7) + b"\x05"
    request_tags = b"\x02\x00\x03\x03ab\x01\x0d" + bytes(3) + b"\x09" + bytes(7) + b"\x08\x00"
    request = decode_fetch(version, flexible_body(version, partition_tags, request_tags))
    one = request.topics[0].partitions[1]
    assert request.cluster_id == "ab"
    assert (request.replica_id, request.replica_epoch) == ((9, 8) if version >= 15 else (0, -1))
    assert one.replica_directory_id == (b"d" * 16 if version >= 17 else ZERO_UUID)
    assert one.high_watermark == (5 if version >= 18 else 2**63 - 1)


@pytest.mark.parametrize(
    ("partition_tags", "request_tags"),
    [
        (b"\x01\x00\x0f" + b"d" * 15, b"\0"),
        (b"\x01\x00\x11" + b"d" * 17, b"\0"),
        (b"\x01\x01\x07" + bytes(7), b"\0"),
        (b"\x01\x01\x09" + bytes(9), b"\0"),
        (b"\0", b"\x01\x00\x02\x03ab"),
        (b"\0", b"\x01\x00\x04\x03abc"),
        (b"\0", b"\x01\x01\x0c" + bytes(13)),
        (b"\0", b"\x01\x01\x0e" + bytes(14)),
    ],
)
def test_a_known_tag_of_another_size_is_malformed(partition_tags: bytes, request_tags: bytes) -> None:
    with pytest.raises(Malformed):
        decode_fetch(18, flexible_body(18, partition_tags, request_tags))


@pytest.mark.parametrize("version", [-1, 0, 3, 19])
def test_other_versions_are_unsupported(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        decode_fetch(version, memoryview(bytes(100)))
    with pytest.raises(UnsupportedVersion):
        encode_fetch_response(version, fetch.FetchResponse([]))


@pytest.mark.parametrize("size", [0, 126, 127, 16382, 16383, 2097150, 2097151])
def test_sizes_of_records_are_right_where_their_encoding_grows(size: int) -> None:
    neither: tuple[list[fetch.AbortedTransaction] | None, ...] = (None, [])
    for aborted in neither:
        one = fetch.FetchPartitionResponse(0, 0, aborted_transactions=aborted, records=[bytes(size)])
        response = fetch.FetchResponse([fetch.FetchTopicResponse("orders", b"i" * 16, [one])])
        expected = codec.encode_response(ApiKey.FETCH, 18, generated_response(18, response))
        assert b"".join(encode_fetch_response(18, response)) == expected


def test_speed_is_printed() -> None:
    for count in (1, 100):
        some = [generated.FetchPartition(index, 0, 100, -1, -1, 1 << 20) for index in range(count)]
        request = generated.FetchRequest(topics=[generated.FetchTopic("orders", b"i" * 16, some)])
        records = (memoryview(bytes(16)), memoryview(bytes(1000)))
        partitions = [
            fetch.FetchPartitionResponse(index, 0, 5, 5, 0, records=records) for index in range(count)
        ]
        response = fetch.FetchResponse([fetch.FetchTopicResponse("orders", b"i" * 16, partitions)])
        for version in (11, 13, 18):
            body = sent(version, request)
            read = min(timeit.repeat(partial(decode_fetch, version, body), number=50, repeat=5))
            write = min(timeit.repeat(partial(encode_fetch_response, version, response), number=50, repeat=5))
            print(  # noqa: T201
                f"Fetch v{version}, {count} partitions: read {read / 50 * 1e6:.1f} us, "
                f"write {write / 50 * 1e6:.1f} us"
            )
            assert len(decode_fetch(version, body).topics[0].partitions) == count
