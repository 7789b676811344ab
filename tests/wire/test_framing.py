"""Cutting a connection's bytes into frames."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.framing import MAX_BLOCK_BYTES, START_BYTES, FrameAssembler, FrameRefused

MAX_FRAME_BYTES = 1 << 20


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def body(size: int, seed: int = 1) -> bytes:
    return bytes((seed + i * 31 + (i >> 8)) & 0xFF for i in range(size))


def feed(assembler: FrameAssembler, data: bytes, receive_bytes: int = 1 << 30) -> list[memoryview]:
    """What a socket does: fills as much of each buffer as it has, at most `receive_bytes` at a time."""
    frames, position = list[memoryview](), 0
    while position < len(data):
        buffer = assembler.get_buffer(-1)
        assert len(buffer) > 0
        count = min(len(buffer), len(data) - position, receive_bytes)
        buffer[:count] = data[position : position + count]
        position += count
        frames += assembler.buffer_updated(count)
    return frames


@given(
    sizes=st.lists(st.one_of(st.integers(8, 300), st.integers(3000, 20000)), max_size=12),
    receive_bytes=st.integers(1, 9000),
    start_bytes=st.sampled_from([16, 64, START_BYTES]),
)
def test_frames_come_out_as_sent_however_the_bytes_are_cut(
    sizes: list[int], receive_bytes: int, start_bytes: int
) -> None:
    bodies = [body(size, seed) for seed, size in enumerate(sizes)]
    assembler = FrameAssembler(MAX_FRAME_BYTES, start_bytes=start_bytes)
    frames = feed(assembler, framed(*bodies), receive_bytes)
    assert [bytes(frame) for frame in frames] == bodies
    assert not assembler.is_mid_frame


def test_frames_stay_as_they_were_while_others_arrive() -> None:
    assembler = FrameAssembler(MAX_FRAME_BYTES)
    bodies = [body(size, seed) for seed, size in enumerate([100, 5000, 4092, 4093, 70000] * 20)]
    held = [frame for one in bodies for frame in feed(assembler, framed(one))]
    assert [bytes(frame) for frame in held] == bodies
    assert all(frame.readonly for frame in held)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_a_size_out_of_bounds_is_refused_and_nothing_is_allocated_for_it(size: int) -> None:
    assembler = FrameAssembler(MAX_FRAME_BYTES)
    with pytest.raises(FrameRefused, match=str(size)):
        feed(assembler, struct.pack(">i", size))
    assert assembler.held_bytes == START_BYTES
    with pytest.raises(FrameRefused):
        assembler.buffer_updated(1)


def test_the_smallest_and_the_largest_frame_pass() -> None:
    assembler = FrameAssembler(MAX_FRAME_BYTES)
    bodies = [body(8), body(MAX_FRAME_BYTES)]
    assert [bytes(frame) for frame in feed(assembler, framed(*bodies))] == bodies


def test_whole_frames_before_a_refused_one_are_handed_over_with_the_refusal() -> None:
    assembler = FrameAssembler(MAX_FRAME_BYTES)
    with pytest.raises(FrameRefused) as refused:
        feed(assembler, framed(b"produce1", b"produce2") + struct.pack(">i", -1))
    assert [bytes(frame) for frame in refused.value.frames] == [b"produce1", b"produce2"]


def test_responses_may_be_as_small_as_a_correlation_id() -> None:
    assembler = FrameAssembler(MAX_FRAME_BYTES, min_frame_bytes=4)
    assert [bytes(frame) for frame in feed(assembler, framed(b"\0\0\0\1"))] == [b"\0\0\0\1"]


def test_memory_follows_the_bytes_that_came_and_not_the_size_that_was_claimed() -> None:
    assembler = FrameAssembler(100 << 20)
    feed(assembler, struct.pack(">i", 100 << 20))
    assert assembler.held_bytes <= START_BYTES + 2 * START_BYTES
    received = 0
    for _ in range(300):
        received += len(feed_some(assembler, 1000))
        assert assembler.held_bytes <= START_BYTES + 2 * max(received, START_BYTES)


def feed_some(assembler: FrameAssembler, count: int) -> bytes:
    sent = body(min(count, len(assembler.get_buffer(-1))))
    assert feed(assembler, sent) == []
    return sent


def test_a_connection_that_has_sent_a_large_frame_gets_memory_for_the_next_at_once() -> None:
    assembler = FrameAssembler(MAX_FRAME_BYTES)
    large = body(200_000)
    feed(assembler, framed(large))
    feed(assembler, framed(large)[:START_BYTES])
    assert len(assembler.get_buffer(-1)) == len(large) - (START_BYTES - 4)


def test_a_large_body_is_received_straight_into_the_frame_that_is_handed_out() -> None:
    assembler = FrameAssembler(MAX_FRAME_BYTES)
    large = body(200_000)
    feed(assembler, framed(large))
    feed(assembler, framed(large)[:START_BYTES])
    buffer = assembler.get_buffer(-1)
    rest = framed(large)[START_BYTES:]
    buffer[:] = rest
    (frame,) = assembler.buffer_updated(len(rest))
    assert bytes(frame) == large
    assert frame.obj is buffer.obj


def test_the_block_grows_while_small_frames_come_in_crowds_and_shrinks_afterwards() -> None:
    assembler = FrameAssembler(MAX_FRAME_BYTES)
    feed(assembler, framed(*[body(100)] * 5000))
    assert 4 * START_BYTES < assembler.held_bytes <= MAX_BLOCK_BYTES
    for _ in range(10):
        feed(assembler, framed(body(100)))
    assert assembler.held_bytes == START_BYTES


def test_settling_returns_an_idle_connection_to_its_first_size() -> None:
    assembler = FrameAssembler(MAX_FRAME_BYTES)
    feed(assembler, framed(*[body(100)] * 5000))
    feed(assembler, framed(body(200_000)))
    assembler.release_memory()
    assert assembler.held_bytes == START_BYTES
    feed(assembler, framed(body(200_000))[:START_BYTES])
    assert assembler.held_bytes <= START_BYTES + 2 * START_BYTES


def test_settling_in_the_middle_of_a_frame_loses_no_byte() -> None:
    assembler = FrameAssembler(MAX_FRAME_BYTES)
    for size in (100, 200_000):
        feed(assembler, framed(*[body(100)] * 5000))
        assert assembler.held_bytes > START_BYTES
        sent = framed(body(size))
        feed(assembler, sent[:50])
        assembler.release_memory()
        assert [bytes(frame) for frame in feed(assembler, sent[50:])] == [body(size)]


@given(st.binary(max_size=300))
def test_random_bytes_are_frames_or_refused(data: bytes) -> None:
    assembler = FrameAssembler(200)
    try:
        frames = feed(assembler, data)
    except FrameRefused:
        return
    assert sum(len(frame) + 4 for frame in frames) <= len(data)
