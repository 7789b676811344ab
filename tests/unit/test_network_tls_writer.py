"""What a TLS connection writes: pieces of a bounded size, full records, and large buffers without a copy."""

import asyncio
import os
from collections.abc import Sequence

import pytest

from gateway.network.tls_writer import PIECE_BYTES, RECORD_BYTES, PacedWriter
from ledger.types import Buffer


class Written(asyncio.Transport):
    """A transport that keeps what is written, and has enough after `most` writes."""

    def __init__(self, most: int = 1_000_000) -> None:
        super().__init__()
        self.pieces: list[Buffer] = []
        self.writer: PacedWriter | None = None
        self.most = most

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False

    def write(self, data: Buffer) -> None:
        self.pieces.append(data)
        if len(self.pieces) % self.most == 0 and self.writer is not None:
            self.writer.pause()


def written(buffers: Sequence[Buffer]) -> list[Buffer]:
    transport = Written()
    PacedWriter(transport).writelines(buffers)
    return transport.pieces


@pytest.mark.parametrize(
    "sizes",
    [
        (5,),
        (4, 5, 60, 8, 100_000, 8, 100_000, 8, 700_000, 3),
        (RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, 0, 7),
        (8, 300) * 3_000,
        (PIECE_BYTES, 1, PIECE_BYTES + 1, 2 * PIECE_BYTES, 9),
    ],
    ids=["one", "batches", "about-a-record", "many-small", "about-a-piece"],
)
def test_all_is_written_in_order_in_bounded_pieces(sizes: tuple[int, ...]) -> None:
    buffers = [os.urandom(size) for size in sizes]
    pieces = written(buffers)
    assert b"".join(pieces) == b"".join(buffers)
    assert max(map(len, pieces)) <= PIECE_BYTES
    # But for ends of large buffers and the last one, no piece leaves a record unfilled.
    unfilled = [piece for piece in pieces if len(piece) % RECORD_BYTES]
    assert len(unfilled) <= 1 + sum(size >= RECORD_BYTES for size in sizes)


def test_large_buffers_are_not_copied() -> None:
    body = os.urandom(3 * PIECE_BYTES)
    pieces = written([b"head", memoryview(body)])
    copied = [piece for piece in pieces if not isinstance(piece, memoryview)]
    assert sum(map(len, copied)) <= RECORD_BYTES
    assert all(piece.obj is body for piece in pieces if isinstance(piece, memoryview))


def test_what_waits_is_counted_and_goes_on_when_the_socket_takes_more() -> None:
    transport = Written(most=1)
    transport.writer = writer = PacedWriter(transport)
    buffers = [os.urandom(size) for size in (10, 2 * PIECE_BYTES, 10)]
    writer.writelines(buffers)
    total = sum(map(len, buffers))
    while writer.waiting_bytes:
        assert writer.waiting_bytes == total - sum(map(len, transport.pieces))
        before = len(transport.pieces)
        writer.resume()
        assert len(transport.pieces) == before + 1
    assert b"".join(transport.pieces) == b"".join(buffers)
