"""Every message of every served version against kio and kafka-python, in both directions.

What an oracle lacks is listed, and the number of comparisons is fixed: neither can shrink unseen.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from gateway.wire.apis import PEER_RANGES, RANGES, ApiKey, codec_range
from gateway.wire.messages import codec
from gateway.wire.schema import Schema
from tests.wire.oracles import ORACLES, Oracle
from tests.wire.populate import populated

MESSAGES_EACH = 3

# Triples (API, version, request or response) that the oracle knows; each is compared in both directions.
KNOWN = {"kio": 552, "kafka-python": 476}
LACKING = {
    "kio": set(),
    "kafka-python": {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.ENVELOPE,
    },
}


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_what_we_encode_an_independent_codec_decodes_to_the_same_values(
    oracle: Oracle, capsys: pytest.CaptureFixture[str]
) -> None:
    compared = 0
    for key, side, version, schema in known_to(oracle):
        for message in messages(oracle, key, side, version, schema):
            raw = encode(key, side, version, message)
            assert oracle.decode(key, side, version, schema, raw) == message, f"{key.name} {side} v{version}"
        compared += 1
    report(capsys, f"{oracle.name} decoded what we encoded: {compared} of API x version x side")
    assert compared == KNOWN[oracle.name]


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_what_an_independent_codec_encodes_we_decode_to_the_same_values(
    oracle: Oracle, capsys: pytest.CaptureFixture[str]
) -> None:
    compared = 0
    for key, side, version, schema in known_to(oracle):
        for message in messages(oracle, key, side, version, schema):
            raw = oracle.encode(key, side, version, schema, message)
            assert decode(key, side, version, raw) == message, f"{key.name} {side} v{version}"
            assert encode(key, side, version, message) == raw, f"{key.name} {side} v{version}"
        compared += 1
    report(capsys, f"we decoded what {oracle.name} encoded: {compared} of API x version x side")
    assert compared == KNOWN[oracle.name]


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_the_oracle_lacks_what_is_listed_and_nothing_else(oracle: Oracle) -> None:
    lacking = {key for key, side, version, _ in served() if not oracle.knows(key, side, version)}
    assert lacking == LACKING[oracle.name]
    assert KNOWN[oracle.name] == sum(1 for key, *_ in served() if key not in lacking)


def served() -> Iterator[tuple[ApiKey, str, int, Schema]]:
    for key in (*RANGES, *PEER_RANGES):
        versions = codec_range(key)
        assert versions is not None
        for version in range(versions[0], versions[1] + 1):
            yield key, "request", version, codec.request_schema(key)
            yield key, "response", version, codec.response_schema(key)


def known_to(oracle: Oracle) -> Iterator[tuple[ApiKey, str, int, Schema]]:
    return (combination for combination in served() if oracle.knows(*combination[:3]))


def messages(oracle: Oracle, key: ApiKey, side: str, version: int, schema: Schema) -> Iterator[Any]:
    for seed in range(MESSAGES_EACH):
        message = populated(schema, version, Random(f"{key.name} {side} {version} {seed}"))
        oracle.tame(key, side, message)
        yield message


def encode(key: ApiKey, side: str, version: int, message: Any) -> bytes:
    return (codec.encode_request if side == "request" else codec.encode_response)(key, version, message)


def decode(key: ApiKey, side: str, version: int, raw: bytes) -> Any:
    return (codec.decode_request if side == "request" else codec.decode_response)(
        key, version, memoryview(raw)
    )


def report(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with capsys.disabled():
        print(f"\n{line}")  # noqa: T201
