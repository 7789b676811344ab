"""Request and response headers, against kio's and on bytes written by hand."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_reader, entity_writer

from gateway.wire.apis import RANGES, ApiKey, flexible, request_header_version, response_header_version
from gateway.wire.errors import Malformed
from gateway.wire.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    read_fixed_header,
)

HEADERS = [
    RequestHeader(key, version, 2**31 - 1, client_id)
    for key, (low, high) in RANGES.items()
    for version in range(low, high + 1)
    for client_id in (None, "", "müşteri-1")
]


def test_request_headers_are_the_ones_that_kio_writes_and_reads() -> None:
    for header in HEADERS:
        version = request_header_version(ApiKey(header.api_key), header.api_version)
        kio_header: Any = {1: KioHeaderV1, 2: KioHeaderV2}[version]
        raw = encode_request_header(header)
        out = io.BytesIO()
        theirs = kio_header(
            request_api_key=header.api_key,
            request_api_version=header.api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
        )
        entity_writer(kio_header)(out, theirs)
        assert out.getvalue() == raw
        assert entity_reader(kio_header)(raw, 0) == (theirs, len(raw))
        assert decode_request_header(memoryview(raw + b"body")) == (header, len(raw))


def test_response_headers_have_tags_in_flexible_versions_save_for_api_versions() -> None:
    assert encode_response_header(ApiKey.METADATA, 8, 5) == b"\x00\x00\x00\x05"
    assert encode_response_header(ApiKey.METADATA, 9, 5) == b"\x00\x00\x00\x05\x00"
    assert encode_response_header(ApiKey.API_VERSIONS, 4, 5) == b"\x00\x00\x00\x05"
    for key, (_, version) in RANGES.items():
        raw = encode_response_header(key, version, -7)
        assert decode_response_header(key, version, memoryview(raw + b"body")) == (-7, len(raw))
        assert len(raw) == 4 + response_header_version(key, version)


def test_a_too_new_api_versions_still_has_a_header() -> None:
    header = RequestHeader(ApiKey.API_VERSIONS, 99, 3, "new")
    assert flexible(ApiKey.API_VERSIONS, 99)
    assert decode_request_header(memoryview(encode_request_header(header)))[0] == header


def test_an_unknown_api_gives_the_fixed_part_alone() -> None:
    frame = memoryview(bytes.fromhex("7fff 0003 0000000a") + b"anything")
    assert decode_request_header(frame) == (RequestHeader(0x7FFF, 3, 10, None), 8)
    assert read_fixed_header(frame) == RequestHeader(0x7FFF, 3, 10, None)


def test_unknown_header_tags_are_skipped() -> None:
    frame = memoryview(bytes.fromhex("0003 0009 00000001 0001 61 01 05 02 aabb") + b"body")
    assert decode_request_header(frame) == (RequestHeader(3, 9, 1, "a"), len(frame) - 4)


def test_every_prefix_of_a_header_is_malformed() -> None:
    raw = encode_request_header(RequestHeader(ApiKey.METADATA, 9, 1, "client"))
    for end in range(len(raw)):
        with pytest.raises(Malformed):
            decode_request_header(memoryview(raw)[:end])
    for end in range(5):
        with pytest.raises(Malformed):
            decode_response_header(ApiKey.METADATA, 9, memoryview(bytes(end)))


@given(st.binary(max_size=40))
def test_random_bytes_are_malformed_or_a_header(raw: bytes) -> None:
    try:
        _, pos = decode_request_header(memoryview(raw))
    except Malformed:
        return
    assert 8 <= pos <= len(raw)
