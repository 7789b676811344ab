"""Requests of many elements."""

import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from gateway.requests.context import NAMES_ALL_PARTITIONS
from gateway.router import HANDLERS
from gateway.settings import Settings
from gateway.wire.apis import RANGES, ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages import codec
from gateway.wire.messages.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from gateway.wire.messages.generated.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from gateway.wire.primitives import encode_uvarint
from gateway.wire.schema import Field
from tests.hostile.arena import Arena, Bounds, Figures
from tests.hostile.conftest import OpenArena
from tests.hostile.speaking import ask, connect, exchange
from tests.hostile.test_answers import create
from tests.support.messages import message, read
from tests.support.raw import Outcome, RawConnection, frame

MINI_REQUEST: Final = b"\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff"
"""The header of ApiVersions v3, without its tagged fields."""
PIPELINED: Final = 100
MAX_RESPONSE_S: Final = 1.0
"""Some requests wait for members that never come."""


@pytest.mark.parametrize("place", ["header", "body"])
@pytest.mark.parametrize("tags", [1_000_000, 10_000_000, pytest.param(47_500_000, marks=pytest.mark.full)])
def test_tagged_fields_without_number(arena: Arena, place: str, tags: int) -> None:
    many = encode_uvarint(tags) + b"\0\0" * tags
    names = b"\x02a\x02b"
    payload = (
        MINI_REQUEST + many + names + b"\0" if place == "header" else MINI_REQUEST + b"\0" + names + many
    )
    # What it takes to receive the bytes is not what the finding is about.
    bounds = Bounds(
        cpu_s=0.05 + len(payload) / 400e6, memory_bytes=max(64 << 20, 2 * len(payload) + (64 << 20))
    )

    def run() -> None:
        assert exchange(arena, frame(payload)) == [Outcome.CLOSED]

    arena.withstands(f"{tags:,} tagged fields in the {place}", run, bounds)


def topics(arena: Arena, count: int) -> None:
    names = [CreatableTopic(f"topic-{i}", 1, 1) for i in range(count)]
    for at in range(0, count, 1000):
        ask(arena, ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(names[at : at + 1000], 30_000, False))


@pytest.mark.parametrize("names", [4000, pytest.param(40_000, marks=pytest.mark.full)])
def test_names_that_might_collide(arena: Arena, names: int) -> None:
    arena.once("3,000 topics", lambda: topics(arena, 3000))

    def validate(prefix: str) -> Figures:
        body = [CreatableTopic(f"{prefix}{i}", 0, 1) for i in range(names)]
        frame = message(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(body, 30_000, True))
        return arena.measured(lambda: response_to(arena, frame))

    plain_s = validate("vx").cpu_s
    body = [CreatableTopic(f"v.{i}", 0, 1) for i in range(names)]
    frame = message(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(body, 30_000, True))
    bounds = Bounds(cpu_s=1.5 * plain_s + 0.05)
    arena.withstands(f"CreateTopics, {names:,} names with a dot", lambda: response_to(arena, frame), bounds)


def test_names_that_metadata_makes(open_arena: OpenArena) -> None:
    arena = open_arena()
    topics(arena, 3000)

    def make(prefix: str) -> Callable[[], None]:
        body = MetadataRequest([MetadataRequestTopic(name=f"{prefix}{i}") for i in range(1000)], True)
        frame = message(ApiKey.METADATA, 8, body)
        return lambda: response_to(arena, frame)

    plain_s = arena.measured(make("cc")).cpu_s
    arena.withstands("Metadata, 1,000 new names with a dot", make("c.c"), Bounds(cpu_s=1.5 * plain_s + 0.1))


def response_to(arena: Arena, frame: bytes) -> None:
    assert isinstance(exchange(arena, frame)[0], bytes)


def with_arrays() -> list[ApiKey]:
    """The served APIs that have an array in their request."""
    schemas = {key: codec.request_schema(key) for key in sorted(HANDLERS)}
    return [
        key
        for key, of in schemas.items()
        if any(field.array for field in of.untagged(of.root, RANGES[key][1]))
    ]


def max_elements(key: ApiKey) -> int:
    """That a request may have by default, less a few for the arrays around them."""
    limits = Settings().limits
    return limits.request_elements + (2 * limits.partitions if key in NAMES_ALL_PARTITIONS else 0) - 10


@pytest.mark.parametrize(
    "is_short", [True, pytest.param(False, marks=pytest.mark.full)], ids=["short", "full"]
)
@pytest.mark.parametrize("key", with_arrays(), ids=lambda key: ApiKey(key).name)
def test_the_most_elements(arena: Arena, key: ApiKey, is_short: bool) -> None:
    version = RANGES[key][1]
    count = 20_000 if is_short else max_elements(key)
    frames = of_many_elements(key, version, count)

    def run() -> None:
        for each in frames:
            connection = connect(arena)
            connection.sock.settimeout(MAX_RESPONSE_S * (1 if is_short else 10))
            connection.send(each)
            connection.read_frame()
            connection.sock.close()

    arena.withstands(f"{key.name}, {count:,} elements", run, Bounds(ping_s=0.25))


def of_many_elements(key: ApiKey, version: int, count: int) -> list[bytes]:  # noqa: C901 - one case an API
    """For each array of a request, to the second depth, a request with `count` small, different elements."""
    schema = codec.request_schema(key)
    found = []

    def smallest(struct: type, number: int) -> Any:
        made = struct()
        for field in schema.untagged(struct, version):
            if field.is_nullable(version):
                setattr(made, field.name, None)
            elif field.array:
                setattr(made, field.name, [])
            elif field.kind == "string":
                setattr(made, field.name, f"n{number}")
        return made

    def many(field: Field) -> list[Any]:
        kind = field.kind
        return [smallest(kind, i) if isinstance(kind, type) else scalar(field, i) for i in range(count)]

    for field in schema.untagged(schema.root, version):
        if not field.array:
            continue
        body = smallest(schema.root, 0)
        setattr(body, field.name, many(field))
        found.append(message(key, version, body))
        for inner in schema.untagged(field.kind, version) if isinstance(field.kind, type) else ():
            if inner.array and isinstance(field.kind, type):
                one = smallest(field.kind, 0)
                setattr(one, inner.name, many(inner))
                setattr(body, field.name, [one])
                found.append(message(key, version, body))
    return found


def scalar(field: Field, number: int) -> Any:
    if field.kind == "string":
        return f"n{number}"
    if field.kind == "uuid":
        return number.to_bytes(16, "big")
    return number % 100 if field.kind == "int8" else number


@pytest.mark.parametrize("topics", [4, pytest.param(19, marks=pytest.mark.full)])
def test_metadata_of_all_topics(open_arena: OpenArena, topics: int) -> None:
    arena = open_arena()
    for i in range(topics):
        create(arena, f"wide-{i}", 10_000)
    frame = message(ApiKey.METADATA, 8, MetadataRequest(None))

    def run() -> None:
        connection = connect(arena)
        connection.send(frame * PIPELINED)
        for _ in range(PIPELINED):
            response = connection.read_frame()
            assert isinstance(response, bytes) and len(response) > 1_000_000
        connection.sock.close()

    arena.withstands(f"{PIPELINED} Metadata of {topics}0,000 partitions", run, Bounds(cpu_s=1.0))
    create(arena, "new", 1)
    returned = ask(arena, ApiKey.METADATA, 8, MetadataRequest(None))
    assert "new" in {topic.name for topic in returned.topics}


MAKER: Final = "maker"
RATE: Final = 10
BUCKET_S: Final = 11


def held_to_a_rate(arena: Arena) -> None:
    entity = [AlterClientQuotasRequestEntityData("client-id", MAKER)]
    entry = AlterClientQuotasRequestEntryData(entity, [OpData("controller_mutation_rate", RATE, False)])
    response = ask(arena, ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest([entry], False))
    assert not response.entries[0].error_code


def make_one(connection: RawConnection, number: int) -> int:
    """The error code of a creation."""
    body = CreateTopicsRequest([CreatableTopic(f"made-{number}", 1, 1)], 30_000, False)
    connection.send(message(ApiKey.CREATE_TOPICS, 7, body, MAKER))
    response = connection.read_frame()
    assert isinstance(response, bytes)
    return int(read(ApiKey.CREATE_TOPICS, 7, response).topics[0].error_code)


def test_topics_without_number(arena: Arena) -> None:
    arena.once("rate", lambda: held_to_a_rate(arena))
    made: list[int] = []
    took: list[float] = []

    def run() -> None:
        connection = connect(arena)
        began = time.monotonic()
        codes = [make_one(connection, i) for i in range(150)]
        took.append(time.monotonic() - began)
        made.append(codes.count(ErrorCode.NONE))
        assert set(codes) == {ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        connection.sock.close()
        # Metadata makes none either.
        names = [MetadataRequestTopic(name=f"unmade-{i}") for i in range(1000)]
        exchange(arena, message(ApiKey.METADATA, 8, MetadataRequest(names, True), MAKER))
        returned = ask(arena, ApiKey.METADATA, 8, MetadataRequest(None)).topics
        assert sum(topic.name.startswith("unmade-") for topic in returned) <= RATE

    arena.withstands(f"150 creations at {RATE} a second", run)
    assert made[0] <= RATE * (BUCKET_S + took[0]) + 1


@pytest.mark.full
def test_a_thousand_topics_take_as_long_as_the_quota_says(open_arena: OpenArena) -> None:
    arena = open_arena()
    arena.rounds = 1
    held_to_a_rate(arena)
    took: list[float] = []

    def run() -> None:
        began = time.monotonic()
        connection = connect(arena)
        for number in range(1000):
            while make_one(connection, number):
                time.sleep(0.05)
        took.append(time.monotonic() - began)

    arena.withstands(f"1,000 creations at {RATE} a second", run)
    assert 1000 / RATE - BUCKET_S - 1 <= took[0] <= 1.3 * 1000 / RATE
