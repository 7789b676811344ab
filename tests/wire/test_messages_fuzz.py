"""Bytes that no honest client sends: the codec refuses them, and never allocates what they merely claim."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.apis import PEER_RANGES, RANGES, ApiKey, codec_range
from gateway.wire.errors import Malformed
from gateway.wire.messages import codec
from gateway.wire.messages.fetch_decoding import decode_fetch
from gateway.wire.messages.generated.api_versions import ApiVersion, ApiVersionsResponse
from gateway.wire.messages.produce import decode_produce
from gateway.wire.primitives import MAX_REQUEST_ITEMS, SMALL_BYTES, encode_string
from gateway.wire.schema import ZERO, Field, Schema
from tests.wire.populate import populated

Decode = Callable[[ApiKey, int, memoryview], Any]
SIDES: dict[str, tuple[Callable[[ApiKey], Schema], Callable[[ApiKey, int, Any], bytes], Decode]] = {
    "request": (codec.request_schema, codec.encode_request, codec.decode_request),
    "response": (codec.response_schema, codec.encode_response, codec.decode_response),
}
PREFIXES_EACH = 120
# A list or an object takes this much more memory than the one or two bytes that stand for it on the wire.
MAX_BYTES_PER_BYTE = 64
# What a refusal costs whatever its size: the exception, its text and its traceback.
SLACK_BYTES = 4096


def combinations() -> list[tuple[ApiKey, int]]:
    made = []
    for key in (*RANGES, *PEER_RANGES):
        versions = codec_range(key)
        assert versions is not None
        made += [(key, version) for version in range(versions[0], versions[1] + 1)]
    return made


def bodies(side: str) -> Iterator[tuple[ApiKey, int, bytes]]:
    schema_of, encode, _ = SIDES[side]
    for key, version in combinations():
        message = populated(schema_of(key), version, Random(f"{key.name} {side} {version}"))
        yield key, version, encode(key, version, message)


@pytest.mark.parametrize("side", SIDES)
def test_every_strict_prefix_of_a_body_is_malformed(side: str) -> None:
    decode = SIDES[side][2]
    refused = 0
    for key, version, raw in bodies(side):
        rng = Random(len(raw))
        for end in rng.sample(range(len(raw)), min(len(raw), PREFIXES_EACH)):
            with pytest.raises(Malformed):
                decode(key, version, memoryview(raw)[:end])
            refused += 1
    assert refused > 10_000


@pytest.mark.parametrize("side", SIDES)
def test_bytes_after_a_message_are_ignored_as_kafka_does(side: str) -> None:
    decode = SIDES[side][2]
    for key, version, raw in bodies(side):
        assert decode(key, version, memoryview(raw + b"\x07rest")) == decode(key, version, memoryview(raw))


@pytest.mark.parametrize("side", SIDES)
def test_a_mutated_body_is_malformed_or_reads_as_a_message_that_can_be_written_again(side: str) -> None:
    _, encode, decode = SIDES[side]
    refused = read = 0
    for key, version, raw in bodies(side):
        rng = Random(len(raw))
        for _ in range(12):
            mutated = mutate(raw, rng)
            try:
                message = decode(key, version, memoryview(mutated))
            except Malformed:
                refused += 1
                continue
            read += 1
            again = encode(key, version, message)
            assert encode(key, version, decode(key, version, memoryview(again))) == again
    assert refused > 500 and read > 500


@settings(max_examples=400, deadline=None)
@given(
    combination=st.sampled_from(combinations()),
    side=st.sampled_from(sorted(SIDES)),
    raw=st.binary(max_size=200),
)
def test_random_bytes_are_malformed_or_a_message(
    combination: tuple[ApiKey, int], side: str, raw: bytes
) -> None:
    _, encode, decode = SIDES[side]
    try:
        message = decode(*combination, memoryview(raw))
    except Malformed:
        return
    encode(*combination, message)


def mutate(raw: bytes, rng: Random) -> bytes:
    mutated = bytearray(raw)
    for _ in range(rng.randrange(1, 4)):
        if not mutated:
            break
        at = rng.randrange(len(mutated))
        match rng.randrange(4):
            case 0:
                mutated[at] ^= 1 << rng.randrange(8)
            case 1:
                mutated[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del mutated[at : at + rng.randrange(1, 9)]
            case _:
                mutated[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(mutated)


LIES = [b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\x7f", b"\x7f\xff"]


@contextmanager
def tracing() -> Iterator[None]:
    """Allocations are counted. Once a test, not once a message: Python 3.11 may crash where the counting
    stops while another thread allocates (python/cpython#128679)."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def test_a_length_beyond_the_frame_allocates_nothing() -> None:
    lying = []
    for key, version, raw in bodies("request"):
        rng = Random(len(raw))
        for lie in LIES:
            at = rng.randrange(len(raw) + 1)
            lying.append((key, version, memoryview(raw[:at] + lie + raw[at + len(lie) :])))
    with tracing():
        worst = max(bytes_a_byte(*each) for each in lying)
    assert worst < MAX_BYTES_PER_BYTE


def test_a_lying_array_count_at_the_head_of_a_short_body_allocates_nothing() -> None:
    with tracing():
        for key, version in combinations():
            for lie in LIES:
                assert bytes_a_byte(key, version, memoryview(lie + bytes(32))) < MAX_BYTES_PER_BYTE


def test_the_densest_request_takes_at_most_64_times_its_size_in_memory() -> None:
    """Arrays full of their smallest elements: the most objects that a byte on the wire can stand for."""
    crowded = [
        (key, version, memoryview(codec.encode_request(key, version, dense(key, version, path))))
        for key, version in combinations()
        for path in array_paths(codec.request_schema(key), version)
    ]
    with tracing():
        worst = max(bytes_a_byte(*each) for each in crowded)
    assert 10 < worst < MAX_BYTES_PER_BYTE


def bytes_a_byte(key: ApiKey, version: int, body: memoryview) -> float:
    """How much memory is taken at once for each byte of a body."""
    return (peak_bytes(key, version, body) - SLACK_BYTES) / max(1, len(body))


def peak_bytes(key: ApiKey, version: int, body: memoryview) -> int:
    # Both forms are compiled before they are measured.
    decode_quietly(key, version, body[:0])
    decode_quietly(key, version, memoryview(bytes(SMALL_BYTES + 1)))
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    decode_quietly(key, version, body)
    _, peak = tracemalloc.get_traced_memory()
    return peak - before


def decode_quietly(key: ApiKey, version: int, body: memoryview) -> Any:
    try:
        return codec.decode_request(key, version, body)
    except Malformed:
        return None


def array_paths(schema: Schema, version: int) -> list[list[Field]]:
    """The fields that lead to each array of a message, the array's own last."""

    def below(struct: type) -> Iterator[list[Field]]:
        for field in schema.untagged(struct, version):
            if field.array:
                yield [field]
            if isinstance(field.kind, type):
                yield from ([field, *path] for path in below(field.kind))

    return list(below(schema.root))


def dense(key: ApiKey, version: int, path: list[Field]) -> Any:
    """A message whose array at the end of the path has 1,000 elements as small as can be, and little else."""
    schema = codec.request_schema(key)

    def smallest(struct: type) -> Any:
        made = struct()
        for field in schema.untagged(struct, version):
            if field.is_nullable(version):
                setattr(made, field.name, None)
        return made

    message = owner = smallest(schema.root)
    for depth, field in enumerate(path):
        item = (
            smallest(field.kind)
            if isinstance(field.kind, type)
            else field._replace(array=False, default=ZERO).initial
        )
        count = 1000 if depth == len(path) - 1 else 1
        setattr(owner, field.name, [item] * count if field.array else item)
        owner = item
    return message


MANY = MAX_REQUEST_ITEMS + 1


def empty_protocols(count: int) -> bytes:
    """JoinGroup, version 5, of `count` protocols that have neither a name nor metadata."""
    head = encode_string("g") + bytes(8) + encode_string("") + encode_string(None) + encode_string("consumer")
    return head + count.to_bytes(4, "big") + bytes(6) * count


def empty_partitions(count: int) -> bytes:
    """Produce, version 8, of `count` partitions without records."""
    return PRODUCE_HEAD + count.to_bytes(4, "big") + (bytes(4) + b"\xff" * 4) * count


def empty_topics(count: int) -> bytes:
    """Produce, version 8, of `count` topics without a name or partitions."""
    return PRODUCE_HEAD[:8] + count.to_bytes(4, "big") + bytes(6) * count


def fetched_partitions(count: int) -> bytes:
    """Fetch, version 4, of `count` partitions of one topic."""
    return (
        bytes(17) + (1).to_bytes(4, "big") + encode_string("t") + count.to_bytes(4, "big") + bytes(16) * count
    )


PRODUCE_HEAD = encode_string(None) + bytes(6) + (1).to_bytes(4, "big") + encode_string("t")
CROWDS: dict[str, tuple[Callable[[memoryview], Any], Callable[[int], bytes]]] = {
    "JoinGroup": (lambda body: codec.decode_request(ApiKey.JOIN_GROUP, 5, body), empty_protocols),
    "Produce": (lambda body: decode_produce(8, body), empty_partitions),
    "Produce, topics": (lambda body: decode_produce(8, body), empty_topics),
    "Fetch": (lambda body: decode_fetch(4, body), fetched_partitions),
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_a_request_of_too_many_elements_is_refused_before_they_are_made(crowd: str) -> None:
    decode, bodies_of = CROWDS[crowd]
    decode(memoryview(bodies_of(1000)))
    body = memoryview(bodies_of(MANY))
    with tracing():
        with pytest.raises(Malformed, match="elements"):
            decode(body)
        _, peak = tracemalloc.get_traced_memory()
    assert peak < 64 * 1024


def test_a_response_may_have_as_many_elements_as_it_likes() -> None:
    names = [ApiVersion(key, 0, 1) for key in range(3)] * (MANY // 3 + 1)
    raw = codec.encode_response(ApiKey.API_VERSIONS, 0, ApiVersionsResponse(api_keys=names))
    assert len(codec.decode_response(ApiKey.API_VERSIONS, 0, memoryview(raw)).api_keys) > MAX_REQUEST_ITEMS
