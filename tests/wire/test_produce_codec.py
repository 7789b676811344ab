"""Produce by hand against the codec that is compiled from Kafka's definitions."""

import timeit
import tracemalloc
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.apis import ApiKey
from gateway.wire.errors import Malformed, UnsupportedVersion
from gateway.wire.messages import codec, produce
from gateway.wire.messages.generated import produce as generated
from gateway.wire.messages.produce import decode_produce, encode_produce_response, encode_topic
from gateway.wire.primitives import ZERO_UUID

VERSIONS = range(3, 14)
FLEXIBLE = range(9, 14)
versions = pytest.mark.parametrize("version", VERSIONS)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=12)
ids = st.binary(min_size=16, max_size=16)
records = st.none() | st.binary(max_size=20) | st.integers(100, 20000).map(bytes)

requests = st.builds(
    generated.ProduceRequest,
    st.none() | names,
    int16,
    int32,
    st.lists(
        st.builds(
            generated.TopicProduceData,
            names,
            ids,
            st.lists(st.builds(generated.PartitionProduceData, int32, records), max_size=4),
        ),
        max_size=3,
    ),
)
responses = st.builds(
    produce.ProduceResponse,
    st.lists(
        st.builds(
            produce.ProduceTopicResponse,
            names,
            ids,
            st.lists(
                st.builds(
                    produce.ProducePartitionResponse,
                    int32,
                    int16,
                    int64,
                    int64,
                    int64,
                    st.lists(st.builds(produce.RecordError, int32, st.none() | names), max_size=2),
                    st.none() | names,
                    st.none() | st.builds(produce.LeaderIdAndEpoch, st.integers(0, 9), int32),
                ),
                max_size=3,
            ),
        ),
        max_size=3,
    ),
    int32,
    st.lists(st.builds(produce.NodeEndpoint, int32, names, int32, st.none() | names), max_size=2),
)


def as_generated(request: produce.ProduceRequest) -> generated.ProduceRequest:
    topics = [
        generated.TopicProduceData(
            topic.name,
            topic.topic_id,
            [generated.PartitionProduceData(one.index, one.records) for one in topic.partitions],
        )
        for topic in request.topics
    ]
    return generated.ProduceRequest(request.transactional_id, request.acks, request.timeout_ms, topics)


def generated_response(version: int, response: produce.ProduceResponse) -> generated.ProduceResponse:
    return generated.ProduceResponse(
        [
            generated.TopicProduceResponse(
                topic.name, topic.topic_id, [generated_partition(version, one) for one in topic.partitions]
            )
            for topic in response.topics
        ],
        response.throttle_time_ms,
        [generated.NodeEndpoint(*one) for one in response.node_endpoints] if version >= 10 else [],
    )


def generated_partition(
    version: int, one: produce.ProducePartitionResponse
) -> generated.PartitionProduceResponse:
    leader = one.current_leader if version >= 10 else None
    return generated.PartitionProduceResponse(
        one.index,
        one.error_code,
        one.base_offset,
        one.log_append_time_ms,
        one.log_start_offset if version >= 5 else -1,
        [generated.BatchIndexAndErrorMessage(*error) for error in one.record_errors] if version >= 8 else [],
        one.error_message if version >= 8 else None,
        generated.LeaderIdAndEpoch(*leader) if leader else generated.LeaderIdAndEpoch(),
    )


def sent(version: int, request: generated.ProduceRequest) -> memoryview:
    return memoryview(codec.encode_request(ApiKey.PRODUCE, version, request))


def some_request() -> generated.ProduceRequest:
    partitions = [generated.PartitionProduceData(7, b"r" * 200), generated.PartitionProduceData(8, None)]
    topic = generated.TopicProduceData("orders", b"i" * 16, partitions)
    return generated.ProduceRequest("tx", -1, 30000, [topic, replace(topic, name="")])


@versions
@given(request=requests)
def test_a_request_is_read_as_the_definitions_say(version: int, request: generated.ProduceRequest) -> None:
    body = sent(version, request)
    assert as_generated(decode_produce(version, body)) == codec.decode_request(ApiKey.PRODUCE, version, body)


@versions
@given(response=responses)
def test_a_response_is_written_as_the_definitions_say(
    version: int, response: produce.ProduceResponse
) -> None:
    expected = codec.encode_response(ApiKey.PRODUCE, version, generated_response(version, response))
    assert encode_produce_response(version, response) == expected


@versions
def test_records_are_views_of_the_frame(version: int) -> None:
    body = sent(version, some_request())
    first = decode_produce(version, body).topics[0].partitions[0].records
    assert first is not None
    assert first.obj is body.obj


@versions
def test_every_strict_prefix_is_malformed(version: int) -> None:
    body = sent(version, some_request())
    decode_produce(version, body)
    for end in range(len(body)):
        with pytest.raises(Malformed):
            decode_produce(version, body[:end])


@versions
def test_bytes_after_the_message_are_ignored(version: int) -> None:
    body = sent(version, some_request())
    assert decode_produce(version, memoryview(bytes(body) + b"more")) == decode_produce(version, body)


@versions
@given(
    request=requests,
    at=st.integers(0, 200),
    patch=st.binary(min_size=1, max_size=6),
    noise=st.binary(max_size=60),
)
def test_damaged_frames_are_malformed_or_read_as_the_definitions_say(
    version: int, request: generated.ProduceRequest, at: int, patch: bytes, noise: bytes
) -> None:
    damaged = bytearray(sent(version, request))
    damaged[at : at + len(patch)] = patch
    for data in (bytes(damaged), noise):
        body = memoryview(data)
        try:
            expected = codec.decode_request(ApiKey.PRODUCE, version, body)
        except Malformed:
            with pytest.raises(Malformed):
                decode_produce(version, body)
        else:
            assert as_generated(decode_produce(version, body)) == expected


@pytest.mark.parametrize("version", FLEXIBLE)
def test_unknown_tagged_fields_are_skipped_at_every_level(version: int) -> None:
    tags = b"\x02\x00\x01x\x63\x03abc"
    topic = b"i" * 16 if version >= 13 else b"\x02t"
    partition = b"\0\0\0\x07\x03ab" + tags
    body = b"\0\xff\xff\0\0\0\x09\x02" + topic + b"\x03" + partition * 2 + tags + tags
    (read,) = decode_produce(version, memoryview(body)).topics
    assert [(one.index, bytes(one.records or b"")) for one in read.partitions] == [(7, b"ab"), (7, b"ab")]
    for end in range(len(body)):
        with pytest.raises(Malformed):
            decode_produce(version, memoryview(body[:end]))


@pytest.mark.parametrize("count", [-1, -(2**31), 2**31 - 1, 1000])
def test_a_lying_array_length_is_malformed(count: int) -> None:
    head = b"\xff\xff\0\1\0\0\0\1"
    for body in (head + count.to_bytes(4, "big", signed=True), b"\0\0\1\0\0\0\1\xff\xff\xff\xff\x0f"):
        with pytest.raises(Malformed):
            decode_produce(3 if body.startswith(head) else 9, memoryview(body + bytes(20)))


@versions
def test_a_topic_is_named_by_what_its_version_carries(version: int) -> None:
    topic = decode_produce(version, sent(version, some_request())).topics[0]
    assert (topic.name, topic.topic_id) == (("", b"i" * 16) if version >= 13 else ("orders", ZERO_UUID))


def test_names_that_no_topic_can_have_are_not_cached() -> None:
    tracemalloc.start()
    try:
        for flexible in (False, True):
            for number in range(500):
                name = f"{number}".ljust(30_000, "n")
                assert encode_topic(False, flexible, name, ZERO_UUID).endswith(name.encode())
        assert tracemalloc.get_traced_memory()[0] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [-1, 0, 2, 14])
def test_other_versions_are_unsupported(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        decode_produce(version, memoryview(bytes(100)))
    with pytest.raises(UnsupportedVersion):
        encode_produce_response(version, produce.ProduceResponse([]))


def test_reading_speed_is_printed() -> None:
    for count in (1, 100):
        partitions = [generated.PartitionProduceData(index, b"r" * 300) for index in range(count)]
        topic = generated.TopicProduceData("orders", b"i" * 16, partitions)
        for version in (8, 12, 13):
            body = sent(version, generated.ProduceRequest(None, -1, 30000, [topic]))
            best = min(timeit.repeat(partial(decode_produce, version, body), number=50, repeat=5))
            print(f"Produce v{version}, {count} partitions: {best / 50 * 1e6:.1f} us")  # noqa: T201
            assert len(decode_produce(version, body).topics[0].partitions) == count
