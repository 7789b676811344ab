"""The sliced forms of codecs do what the plain forms do, a few hundred elements at a time."""

import time
from collections.abc import Callable, Generator
from random import Random
from typing import Any

import pytest

from gateway.wire.apis import MINIMUM_SERVED, RANGES, ApiKey
from gateway.wire.connection import CloseConnection, Connection
from gateway.wire.errors import Malformed, NeedsSlices
from gateway.wire.messages import codec
from gateway.wire.messages import fetch as fetch_codec
from gateway.wire.messages import produce as produce_codec
from gateway.wire.messages.fetch_decoding import decode_small_fetch, decoding_fetch
from gateway.wire.messages.fetch_encoding import encode_fetch_response, encoding_fetch_response
from gateway.wire.messages.generated.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from gateway.wire.primitives import CHUNK_ITEMS, MAX_TAGS, SMALL_ITEMS, encode_string, encode_uvarint, run_out
from tests.support.quiet import as_if_quiet
from tests.wire.populate import populated

MESSAGES_EACH = 20
SLOWEST_S = 0.05


def served() -> list[tuple[ApiKey, int]]:
    return [
        (key, version)
        for key, (low, high) in RANGES.items()
        for version in range(max(low, MINIMUM_SERVED.get(key, low)), high + 1)
    ]


def test_both_forms_of_a_decoder_give_the_same_request() -> None:
    too_long = 0
    for key, version in served():
        rng, schema = Random(f"{key} {version}"), codec.request_schema(key)
        for _ in range(MESSAGES_EACH):
            message = populated(schema, version, rng)
            body = memoryview(codec.encode_request(key, version, message))
            sliced = run_out(codec.decoding_request(key, version, body))
            try:
                assert sliced == codec.decode_small_request(key, version, body), f"{key.name} v{version}"
            except NeedsSlices:
                too_long += 1
    assert too_long < 20


def test_both_forms_of_an_encoder_give_the_same_bytes() -> None:
    for key, version in served():
        rng, schema = Random(f"{key} {version}"), codec.response_schema(key)
        for _ in range(MESSAGES_EACH):
            message = populated(schema, version, rng)
            at_once = codec.encode_response(key, version, message)
            assert run_out(codec.encoding_response(key, version, message)) == at_once, (
                f"{key.name} v{version}"
            )


@pytest.mark.parametrize("configs", [1, 7, 8, 9, CHUNK_ITEMS // 2, CHUNK_ITEMS, 3 * CHUNK_ITEMS])
def test_a_list_that_elements_share_is_encoded_as_often_as_it_is_there(configs: int) -> None:
    def made(name: str) -> list[CreatableTopicConfigs]:
        return [CreatableTopicConfigs(f"{name}-{i}", "x" * (i % 200)) for i in range(configs)]

    rng, one, other = Random(configs), made("one"), made("other")
    for _ in range(10):
        lists = [rng.choice([one, one, one, one, other, [], None, list(one)]) for _ in range(60)]
        topics = [CreatableTopicResult(f"t{i}", configs=shared) for i, shared in enumerate(lists)]
        response = CreateTopicsResponse(0, topics)
        for version in range(2, 8):
            at_once = codec.encode_response(ApiKey.CREATE_TOPICS, version, response)
            assert run_out(codec.encoding_response(ApiKey.CREATE_TOPICS, version, response)) == at_once


def test_copies_of_a_shared_list_count_as_work() -> None:
    shared = [CreatableTopicConfigs("name", "x" * 1000) for _ in range(100)]
    response = CreateTopicsResponse(0, [CreatableTopicResult("t", configs=shared) for _ in range(1000)])
    slices = list(codec.encoding_response(ApiKey.CREATE_TOPICS, 7, response))
    assert len(slices) > 300
    assert max(slices) < 2 * CHUNK_ITEMS


Decoding = Callable[[int, memoryview], Generator[int, None, Any]]
BY_HAND: dict[ApiKey, tuple[Callable[[int, memoryview], Any], Decoding]] = {
    ApiKey.PRODUCE: (produce_codec.decode_small_produce, produce_codec.decoding_produce),
    ApiKey.FETCH: (decode_small_fetch, decoding_fetch),
}


@pytest.mark.parametrize("key", BY_HAND, ids=lambda key: key.name)
def test_both_forms_of_a_decoder_by_hand_give_the_same_request(key: ApiKey) -> None:
    small, sliced = BY_HAND[key]
    schema = codec.request_schema(key)
    for version in (version for served_key, version in served() if served_key == key):
        rng = Random(version)
        for _ in range(10 * MESSAGES_EACH):
            body = codec.encode_request(key, version, populated(schema, version, rng))
            assert run_out(sliced(version, memoryview(body))) == small(version, memoryview(body))
            cut = memoryview(body)[: rng.randrange(len(body))]
            in_slices = outcome(lambda: run_out(sliced(version, cut)))  # noqa: B023
            assert in_slices == outcome(lambda: small(version, cut))  # noqa: B023


def outcome(decode: Callable[[], Any]) -> Any:
    try:
        return decode()
    except Malformed:
        return Malformed


def test_both_forms_of_an_encoder_by_hand_give_the_same_bytes() -> None:
    fetched = fetch_codec.FetchResponse(
        [
            fetch_codec.FetchTopicResponse(
                f"t{i}",
                bytes(16),
                [
                    fetch_codec.FetchPartitionResponse(
                        j, 0, 7, 7, 0, None, -1, (b"records", b"more") if j % 3 else ()
                    )
                    for j in range(600)
                ],
            )
            for i in range(3)
        ]
    )
    for version in range(fetch_codec.FIRST_VERSION, fetch_codec.LAST_VERSION + 1):
        sliced = run_out(encoding_fetch_response(version, fetched))
        assert list(map(bytes, sliced)) == list(map(bytes, encode_fetch_response(version, fetched)))
    produced = produce_codec.ProduceResponse(
        [
            produce_codec.ProduceTopicResponse(
                f"t{i}",
                bytes(16),
                [produce_codec.ProducePartitionResponse(j, j % 2, j, -1, 0) for j in range(600)],
            )
            for i in range(3)
        ]
    )
    for version in range(produce_codec.FIRST_VERSION, produce_codec.LAST_VERSION + 1):
        sliced_bytes = run_out(produce_codec.encoding_produce_response(version, produced))
        assert sliced_bytes == produce_codec.encode_produce_response(version, produced)


def test_a_long_request_is_decoded_in_slices_and_not_at_once() -> None:
    body = memoryview((20_000).to_bytes(4, "big") + encode_string("t") * 20_000)
    with pytest.raises(NeedsSlices):
        codec.decode_small_request(ApiKey.METADATA, 1, body)
    weights = list(codec.decoding_request(ApiKey.METADATA, 1, body))
    assert sum(weights) >= 20_000 - CHUNK_ITEMS
    assert max(weights) < 2 * CHUNK_ITEMS
    with pytest.raises(Malformed, match="elements"):
        list(codec.decoding_request(ApiKey.METADATA, 1, body, max_items=19_999))


def test_a_request_of_a_few_elements_is_decoded_at_once() -> None:
    body = memoryview(SMALL_ITEMS.to_bytes(4, "big") + encode_string("t") * SMALL_ITEMS)
    assert len(codec.decode_small_request(ApiKey.METADATA, 1, body).topics) == SMALL_ITEMS


@pytest.mark.serial
@pytest.mark.parametrize("tags", [MAX_TAGS + 1, 10_000_000])
def test_too_many_tagged_fields_of_a_header_close_the_connection_at_once(tags: int) -> None:
    rules = Connection({int(ApiKey.API_VERSIONS): (0, 4)})
    head = b"\0\x12\0\x03\0\0\0\x01" + encode_string("c")
    frame = memoryview(head + encode_uvarint(tags) + bytes(2 * tags) + b"\x02a\x02b\0")
    began = time.process_time()
    with pytest.raises(CloseConnection, match="tagged fields"):
        rules.received(frame)
    assert as_if_quiet(time.process_time() - began) < SLOWEST_S


@pytest.mark.serial
@pytest.mark.parametrize("tags", [MAX_TAGS + 1, 10_000_000])
def test_too_many_tagged_fields_of_a_body_are_refused_at_once(tags: int) -> None:
    raw = encode_uvarint(tags) + bytes(2 * tags)
    bodies = [
        (ApiKey.API_VERSIONS, 3, b"\x02a\x02b" + raw),
        (ApiKey.PRODUCE, 9, b"\0" + bytes(6) + b"\x01" + raw),
        (ApiKey.FETCH, 12, bytes(4) + bytes(13) + bytes(8) + b"\x01\x01\x01" + raw),
    ]
    for key, version, body in bodies:
        _, sliced = BY_HAND.get(key, (None, lambda v, b, k=key: codec.decoding_request(k, v, b)))
        began = time.process_time()
        with pytest.raises(Malformed, match="tagged fields"):
            run_out(sliced(version, memoryview(body)))
        assert as_if_quiet(time.process_time() - began) < SLOWEST_S


def test_tagged_fields_are_counted_over_all_elements() -> None:
    """Metadata, version 9: each of 600 topics has two unknown tagged fields."""
    topic = b"\x02t" + b"\x02\x05\0\x06\0"
    body = memoryview(encode_uvarint(601) + topic * 600 + b"\0\0\0\0")
    with pytest.raises(Malformed, match="tagged fields"):
        run_out(codec.decoding_request(ApiKey.METADATA, 9, body))
    few = memoryview(encode_uvarint(401) + topic * 400 + b"\0\0\0\0")
    assert len(codec.decode_request(ApiKey.METADATA, 9, few).topics) == 400
