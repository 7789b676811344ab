"""Cuts the bytes of one connection into frames: `i32 size | size bytes` (Kafka protocol guide).

Sans-I/O, in the shape that `asyncio.BufferedProtocol` needs. Two kinds of memory:

- The *block*, resident per connection: 4 KiB, more while many small frames arrive together. A frame
  that fits into it is copied out, which costs less than a block each.
- A frame larger than the block gets memory of its own, into which the socket writes directly, so
  that a large body is copied at most once, with its first part. That memory follows the bytes that
  have come and never the size that was claimed: it doubles until the connection has once sent a
  frame as large, which earns it the whole size at once.

The frames handed out own their memory. Later receives never touch it.
"""

import struct
from typing import Final

START_BYTES: Final = 4096
MAX_BLOCK_BYTES: Final = 64 * 1024
SMALLEST_FRAME_BYTES: Final = 8
"""API key, API version and correlation id: what Kafka cannot parse, it closes the connection for."""

_SIZE = struct.Struct(">i")
_SIZE_BYTES = _SIZE.size


_HTTP: Final = frozenset(_SIZE.unpack(begin)[0] for begin in (b"GET ", b"HEAD", b"POST", b"PUT ", b"PRI "))
_TLS_HANDSHAKE: Final = 0x1603
"""A handshake record of TLS 1.x; the third byte is the minor version."""


def spoken(size: int) -> str:
    """Which other protocol begins with what was read as the size of a frame; empty if none is known."""
    if size >> 16 == _TLS_HANDSHAKE:
        return "TLS"
    return "HTTP" if size in _HTTP else ""


class FrameRefused(Exception):
    """A size that no frame may have. The connection must be closed: nothing after it can be read."""

    def __init__(self, reason: str, frames: list[memoryview], speaks: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.speaks = speaks
        """Which other protocol the bytes look like; empty if none."""
        self.frames = frames
        """Whole frames that arrived before the refused one, in the same receive."""


class FrameAssembler:
    """Frames out of one connection's bytes.

    `max_frame_bytes` bounds what a size may claim (`socket.request.max.bytes`), `start_bytes` is
    what an idle connection holds, `min_frame_bytes` is 8 for requests and 4 for responses.
    """

    __slots__ = (
        "_block",
        "_filled",
        "_large",
        "_large_filled",
        "_large_size",
        "_max_frame_bytes",
        "_min_frame_bytes",
        "_refused",
        "_speaks",
        "_start_bytes",
        "_trusted_bytes",
    )

    def __init__(
        self,
        max_frame_bytes: int,
        start_bytes: int = START_BYTES,
        min_frame_bytes: int = SMALLEST_FRAME_BYTES,
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._min_frame_bytes = min_frame_bytes
        self._start_bytes = max(start_bytes, 2 * _SIZE_BYTES)
        self._block = memoryview(bytearray(self._start_bytes))
        self._filled = 0
        self._large: memoryview | None = None
        self._large_filled = 0
        self._large_size = 0
        self._trusted_bytes = 0
        self._refused: str | None = None
        self._speaks = ""

    @property
    def held_bytes(self) -> int:
        """Memory that this connection holds now, without the frames that were handed out."""
        return len(self._block) + (0 if self._large is None else len(self._large))

    @property
    def trusted_bytes(self) -> int:
        """The largest frame of late; as much is claimed at once for the next."""
        return self._trusted_bytes

    @property
    def is_mid_frame(self) -> bool:
        """Whether part of a frame has arrived and its rest has not."""
        return self._large is not None or self._filled > 0

    @property
    def next_growth(self) -> int:
        """Bytes that `get_buffer` is about to claim for the frame that is arriving, in addition to those that
        it has until they are copied. Mostly 0."""
        large = self._large
        if large is None or self._large_filled < len(large):
            return 0
        return self._capacity(self._large_size, self._large_filled)

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Where the next bytes go. Never empty, and valid until the next call of `buffer_updated`."""
        large = self._large
        if large is None:
            return self._block[self._filled :] if self._filled else self._block
        if self._large_filled == len(large):
            large = self._large = self._grown(large)
        return large[self._large_filled :]

    def buffer_updated(self, count: int) -> list[memoryview]:
        """`count` bytes were written to the last buffer; the frames that are whole now, without sizes.

        Raises FrameRefused for a size that is negative, too small or too large, and ever after.
        """
        if self._refused is not None:
            raise FrameRefused(self._refused, [], self._speaks)
        if self._large is not None:
            return self._large_updated(self._large, count)
        filled = self._filled + count
        if filled == count >= _SIZE_BYTES and count < len(self._block) == self._start_bytes:
            # By far the most come whole, and alone.
            (size,) = _SIZE.unpack_from(self._block)
            if size == count - _SIZE_BYTES and self._min_frame_bytes <= size <= self._max_frame_bytes:
                return [memoryview(bytes(self._block[_SIZE_BYTES:count]))]
        was_full = filled == len(self._block)
        frames, position = self._cut(filled)
        if self._large is None:
            self._keep_rest(position, filled)
            self._fit_block(was_full, len(frames), filled)
        return frames

    def release_memory(self) -> None:
        """Release memory that a busy time has claimed. To be called by the driver after a quiet time."""
        self._trusted_bytes = 0
        if self._filled == 0 and len(self._block) > self._start_bytes:
            self._block = memoryview(bytearray(self._start_bytes))

    def drop(self) -> None:
        """Give everything back: no further bytes come."""
        self._large = None
        self._filled = 0
        self._block = memoryview(bytearray(self._start_bytes))

    def _cut(self, filled: int) -> tuple[list[memoryview], int]:
        """The whole frames of the block, and where the first that is not whole begins."""
        block, frames, position = self._block, list[memoryview](), 0
        while filled - position >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(block, position)
            if not self._min_frame_bytes <= size <= self._max_frame_bytes:
                self._refuse(size, frames)
            start = position + _SIZE_BYTES
            end = start + size
            if end <= filled:
                frames.append(memoryview(bytes(block[start:end])))
                position = end
                continue
            if size + _SIZE_BYTES > len(block):
                self._begin_large(size, block[start:filled])
                position = filled
            break
        return frames, position

    def _begin_large(self, size: int, head: memoryview) -> None:
        have = len(head)
        self._large = memoryview(bytearray(self._capacity(size, have)))
        self._large[:have] = head
        self._large_filled = have
        self._large_size = size
        self._filled = 0

    def _capacity(self, size: int, have: int) -> int:
        if size <= self._trusted_bytes:
            return size
        return min(size, max(2 * have, 2 * self._start_bytes))

    def _grown(self, large: memoryview) -> memoryview:
        have = self._large_filled
        grown = memoryview(bytearray(self._capacity(self._large_size, have)))
        grown[:have] = large
        return grown

    def _large_updated(self, large: memoryview, count: int) -> list[memoryview]:
        self._large_filled += count
        size = self._large_size
        if self._large_filled < size:
            return []
        if size > self._trusted_bytes:
            self._trusted_bytes = size
        self._large = None
        return [large.toreadonly()]

    def _keep_rest(self, position: int, filled: int) -> None:
        rest = filled - position
        if rest and position:
            self._block[:rest] = bytes(self._block[position:filled])
        self._filled = rest

    def _fit_block(self, was_full: bool, frame_count: int, filled: int) -> None:
        """Grow the block while small frames come in crowds, and halve it when they no longer do."""
        block_bytes = len(self._block)
        if was_full and frame_count > 1 and block_bytes < MAX_BLOCK_BYTES:
            grown = memoryview(bytearray(min(2 * block_bytes, MAX_BLOCK_BYTES)))
            grown[: self._filled] = self._block[: self._filled]
            self._block = grown
        elif block_bytes > self._start_bytes and not self._filled and 4 * filled < block_bytes:
            self._block = memoryview(bytearray(max(block_bytes // 2, self._start_bytes)))

    def _refuse(self, size: int, frames: list[memoryview]) -> None:
        self._speaks = spoken(size)
        self._refused = (
            f"the beginning of {self._speaks}, not of a Kafka request"
            if self._speaks
            else f"a frame of {size} bytes; allowed are {self._min_frame_bytes} to {self._max_frame_bytes}"
        )
        raise FrameRefused(self._refused, frames, self._speaks)
