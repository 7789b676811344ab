"""The codecs of record batches, decompressing never more than a bound.

gzip and zstd are their own formats (a zstd frame may lack the content size), lz4 is the lz4 frame
format, snappy is framed as the Java library snappy-java does it: `8 bytes magic | i32 version | i32
compatible version`, then blocks of `i32 size | raw snappy`; some clients send one raw block instead.
"""

import struct
from collections.abc import Callable
from typing import Final

import cramjam

from ledger.batch.header import BatchError, Codec
from ledger.errors import ErrorName
from ledger.types import Buffer

XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEAD: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_FEW_BLOCKS: Final = 256
_AVERAGE_BLOCK_BYTES: Final = 128
"""Clients make blocks of 32 KiB, of which not less than 1.5 KiB are left. A block takes microseconds however
small it is, and all are unpacked at once."""
_FIRST_OUTPUT_BYTES: Final = 64 * 1024
_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3
_SIZE = struct.Struct(">i")
# How the codec library says that the output buffer is full; it has no error type of its own for it.
_OUTPUT_FULL: Final = "failed to write whole buffer"

_DECOMPRESSORS: Final[dict[Codec, Callable[[Buffer, bytearray], int]]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def compress(codec: Codec, data: Buffer) -> bytes:
    """The records of a batch as they follow its header."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, _GZIP_LEVEL))
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL))
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data))


def decompress(codec: Codec, data: memoryview, max_bytes: int) -> memoryview:
    """The records of a batch, read-only, at most `max_bytes`.

    Raises BatchError: MESSAGE_TOO_LARGE beyond the bound, CORRUPT_MESSAGE for what the codec cannot
    read. What is held grows with what really comes out, never with a size that the data claims.
    """
    if codec is Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return data.toreadonly()
    if codec is Codec.SNAPPY:
        return memoryview(_decompress_snappy(data, max_bytes)).toreadonly()
    decompress_into = _DECOMPRESSORS[codec]
    capacity = min(max_bytes, max(_FIRST_OUTPUT_BYTES, 4 * len(data)))
    while True:
        output = bytearray(capacity)
        try:
            size = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise _broken(codec, error) from error
        else:
            return memoryview(output)[:size].toreadonly()
        if capacity >= max_bytes:
            raise _too_large(max_bytes)
        capacity = min(max_bytes, 4 * capacity)


def _compress_lz4(data: Buffer) -> bytes:
    # Kafka and Java clients refuse frames whose blocks depend on each other.
    compressor = cramjam.lz4.Compressor(block_linked=False)
    # This one alone takes bytes and no other buffer.
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEAD]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += [_SIZE.pack(len(block)), block]
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_bytes: int) -> bytearray:
    output = bytearray()
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        _append_raw_snappy(output, data, max_bytes)
        return output
    position = len(_XERIAL_HEAD)
    if len(data) < position:
        raise _broken(Codec.SNAPPY, "the stream header is cut off")
    blocks_left = _FEW_BLOCKS + len(data) // _AVERAGE_BLOCK_BYTES
    while position < len(data):
        blocks_left -= 1
        if blocks_left < 0:
            raise _broken(Codec.SNAPPY, f"more than a block for each {_AVERAGE_BLOCK_BYTES} bytes")
        if len(data) - position < _SIZE.size:
            raise _broken(Codec.SNAPPY, "a block size is cut off")
        (size,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        if not 0 <= size <= len(data) - position:
            raise _broken(Codec.SNAPPY, f"a block of {size} bytes, {len(data) - position} are left")
        _append_raw_snappy(output, data[position : position + size], max_bytes)
        position += size
    return output


def _append_raw_snappy(output: bytearray, block: memoryview, max_bytes: int) -> None:
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if len(output) + claimed > max_bytes:
            raise _too_large(max_bytes)
        # No raw snappy makes more than 64 bytes out of one element of two: a larger claim is false,
        # and memory is not given to it.
        if claimed > 32 * len(block):
            raise _broken(Codec.SNAPPY, f"{claimed} bytes claimed for a block of {len(block)}")
        block_output = bytearray(claimed)
        size = cramjam.snappy.decompress_raw_into(block, block_output) if claimed else 0
    except cramjam.DecompressionError as error:
        raise _broken(Codec.SNAPPY, error) from error
    if size != claimed:
        raise _broken(Codec.SNAPPY, f"{size} bytes came out of a block that claims {claimed}")
    output += block_output


def _too_large(max_bytes: int) -> BatchError:
    return BatchError(ErrorName.MESSAGE_TOO_LARGE, f"more than {max_bytes} bytes when decompressed")


def _broken(codec: Codec, reason: object) -> BatchError:
    return BatchError(ErrorName.CORRUPT_MESSAGE, f"{codec.name.lower()}: {reason}")
