"""The rules of one connection: what is refused, and the order of responses."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.apis import ApiKey
from gateway.wire.connection import CloseConnection, Connection
from gateway.wire.header import RequestHeader, encode_request_header
from ledger.types import Buffer

SERVED = {ApiKey.PRODUCE: (3, 13), ApiKey.METADATA: (0, 13), ApiKey.API_VERSIONS: (0, 4)}


def connection(**bounds: int) -> Connection:
    return Connection({int(key): versions for key, versions in SERVED.items()}, **bounds)


def frame(
    key: int = ApiKey.METADATA, version: int = 1, correlation_id: int = 7, body: bytes = b""
) -> memoryview:
    return memoryview(encode_request_header(RequestHeader(key, version, correlation_id, "client")) + body)


def test_a_request_carries_its_header_and_a_view_of_its_body() -> None:
    for version in (1, 9):
        request = connection().received(frame(version=version, correlation_id=42, body=b"the body"))
        assert request.header == RequestHeader(ApiKey.METADATA, version, 42, "client")
        assert bytes(request.body) == b"the body"
        assert not request.unsupported_api_versions


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_responses_are_sent_in_the_order_of_requests_however_handlers_finish(
    finishing: list[int], silent: set[int]
) -> None:
    conn = connection()
    slots = [conn.received(frame()).slot for _ in range(8)]
    sent = b""
    done = set[int]()
    for index in finishing:
        parts: list[Buffer] = [bytes([index]), memoryview(bytes([index, index]))]
        response = None if index in silent else parts
        sent += b"".join(conn.answered(slots[index], response))
        done.add(index)
        ready = next((i for i in range(8) if i not in done), 8)
        expected = [struct.pack(">i", 3) + bytes([i] * 3) for i in range(ready) if i not in silent]
        assert sent == b"".join(expected)
    assert conn.in_flight == 0
    assert conn.in_flight_bytes == 0


def test_response_buffers_are_passed_on_and_not_joined() -> None:
    conn = connection()
    records = memoryview(bytearray(1000))
    length, head, body = conn.answered(conn.received(frame()).slot, [b"head", records])
    assert (length, head) == (struct.pack(">i", 1004), b"head")
    assert body is records


def test_a_request_is_answered_once() -> None:
    conn = connection()
    first, second = conn.received(frame()).slot, conn.received(frame()).slot
    conn.answered(second, [b"x"])
    for slot in (second, second + 1, -1):
        with pytest.raises(ValueError, match="awaits no response"):
            conn.answered(slot, [b"x"])
    conn.answered(first, [b"x"])
    with pytest.raises(ValueError, match="awaits no response"):
        conn.answered(first, [b"x"])


@pytest.mark.parametrize(
    ("key", "version"),
    [(ApiKey.PRODUCE, 2), (ApiKey.PRODUCE, 14), (ApiKey.METADATA, -1), (ApiKey.FETCH, 4), (9999, 0), (-1, 0)],
)
def test_an_api_or_version_that_is_not_served_closes_the_connection(key: int, version: int) -> None:
    sent = memoryview(struct.pack(">hhih", key, version, 1, 0) + bytes(20))
    with pytest.raises(CloseConnection):
        connection().received(sent)


@pytest.mark.parametrize("version", [-1, 5, 127, 32767])
def test_api_versions_of_an_unknown_version_is_passed_on(version: int) -> None:
    conn = connection()
    request = conn.received(frame(ApiKey.API_VERSIONS, version, 3, b"\xff\xff\xff"))
    assert request.unsupported_api_versions
    assert request.header.correlation_id == 3
    assert conn.answered(request.slot, [b"error 35"]) == [struct.pack(">i", 8), b"error 35"]


def test_every_strict_prefix_of_a_header_closes_the_connection() -> None:
    for version in (1, 9):
        whole = frame(version=version)
        for end in range(len(whole)):
            with pytest.raises(CloseConnection):
                connection().received(whole[:end])


@given(st.binary(max_size=64))
def test_random_frames_are_requests_or_close_the_connection(data: bytes) -> None:
    conn = connection()
    try:
        request = conn.received(memoryview(data))
    except CloseConnection:
        assert conn.in_flight == 0
    else:
        assert len(request.body) < len(data)


def test_a_refused_frame_leaves_the_responses_before_it_in_place() -> None:
    conn = connection()
    slot = conn.received(frame()).slot
    with pytest.raises(CloseConnection):
        conn.received(memoryview(b"\0\0"))
    assert conn.answered(slot, [b"x"]) == [struct.pack(">i", 1), b"x"]


def test_reading_pauses_at_the_bound_of_requests_and_resumes_at_half() -> None:
    conn = connection(max_in_flight=4)
    slots = [conn.received(frame()).slot for _ in range(3)]
    assert not conn.wants_pause
    slots.append(conn.received(frame()).slot)
    assert conn.wants_pause
    conn.answered(slots[0], [])
    assert not conn.wants_pause
    assert not conn.may_resume
    conn.answered(slots[1], None)
    assert conn.may_resume


def test_reading_pauses_at_the_bound_of_bytes_and_waiting_responses_count() -> None:
    conn = connection(max_in_flight_bytes=1000)
    first, second = conn.received(frame()).slot, conn.received(frame(body=bytes(300))).slot
    assert not conn.wants_pause
    assert conn.answered(second, [bytes(700)]) == []
    assert conn.wants_pause
    conn.answered(first, [b""])
    assert conn.may_resume
