"""The codecs of batches, and the bound on what comes out of them."""

import struct
import tracemalloc
from contextlib import suppress

import cramjam
import pytest
from aiokafka import codec as aiokafka
from hypothesis import given
from hypothesis import strategies as st

from ledger.batch.compression import XERIAL_MAGIC, compress, decompress
from ledger.batch.header import BatchError, Codec

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
DATA = b"".join(b"record %d " % i for i in range(20000))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", DATA], ids=["empty", "one byte", "200 KB"])
def test_what_was_compressed_comes_out_again_up_to_the_bound(codec: Codec, data: bytes) -> None:
    packed = memoryview(compress(codec, data))
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, packed, 1 << 30) == data
    if data:
        with pytest.raises(BatchError, match="MESSAGE_TOO_LARGE"):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_an_independent_client_reads_and_writes_the_same(codec: Codec) -> None:
    name = codec.name.lower()
    decode, encode = getattr(aiokafka, f"{name}_decode"), getattr(aiokafka, f"{name}_encode")
    assert bytes(decode(compress(codec, DATA))) == DATA
    assert decompress(codec, memoryview(bytes(encode(DATA))), len(DATA)) == DATA


def test_lz4_blocks_stand_alone_as_java_clients_need_them() -> None:
    independent = 0b10_0000
    assert compress(Codec.LZ4, DATA)[4] & independent


def test_a_single_raw_snappy_block_is_read_too() -> None:
    raw = memoryview(bytes(cramjam.snappy.compress_raw(DATA)))
    assert decompress(Codec.SNAPPY, raw, len(DATA)) == DATA


def test_a_zstd_frame_without_its_content_size_is_read() -> None:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(DATA)
    assert decompress(Codec.ZSTD, memoryview(bytes(compressor.finish())), len(DATA)) == DATA


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_never_unpacked_beyond_the_bound(codec: Codec) -> None:
    bomb = memoryview(compress(codec, bytes(64 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(BatchError, match="MESSAGE_TOO_LARGE"):
            decompress(codec, bomb, 100_000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("claimed", [1 << 19, (1 << 32) - 1])
def test_a_snappy_block_that_claims_more_than_it_can_hold_gets_no_memory(claimed: int) -> None:
    lie = bytearray()
    while claimed >= 0x80:
        lie.append(claimed & 0x7F | 0x80)
        claimed >>= 7
    lie.append(claimed)
    for data in (lie, XERIAL_MAGIC + struct.pack(">iii", 1, 1, len(lie)) + lie):
        tracemalloc.start()
        try:
            with pytest.raises(BatchError):
                decompress(Codec.SNAPPY, memoryview(data), 1 << 20)
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_data_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, DATA[:2000])
    xerial_head_alone = {16} if codec is Codec.SNAPPY else set()  # a stream of no blocks
    for end in set(range(1, len(packed))) - xerial_head_alone:
        with pytest.raises(BatchError, match="CORRUPT_MESSAGE"):
            decompress(codec, memoryview(packed[:end]), 1 << 20)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(noise=st.binary(max_size=60))
def test_random_bytes_raise_only_batch_errors(codec: Codec, noise: bytes) -> None:
    for data in (noise, compress(codec, b"hello")[:20] + noise, XERIAL_MAGIC + noise):
        with suppress(BatchError):
            assert len(decompress(codec, memoryview(data), 1 << 20)) <= 1 << 20


@pytest.mark.parametrize("codec", list(Codec))
def test_a_view_of_records_is_compressed_as_well_as_bytes(codec: Codec) -> None:
    data = b"records " * 100
    packed = compress(codec, memoryview(data))
    assert packed == compress(codec, data)
    assert bytes(decompress(codec, memoryview(packed), len(data))) == data


def test_snappy_of_tiny_blocks_is_refused_before_they_are_unpacked() -> None:
    head = compress(Codec.SNAPPY, b"")[: len(XERIAL_MAGIC) + 8]
    empty = head + struct.pack(">i", 0) * 200
    assert not decompress(Codec.SNAPPY, memoryview(empty), 100)
    one = bytes(cramjam.snappy.compress_raw(b"x"))
    for block in (b"", one):
        many = head + (struct.pack(">i", len(block)) + block) * 100_000
        with pytest.raises(BatchError, match="more than a block for each 128 bytes"):
            decompress(Codec.SNAPPY, memoryview(many), 1 << 30)


def test_snappy_of_blocks_of_a_kilobyte_is_read() -> None:
    """Of clients with small buffers."""
    blocks = [bytes(cramjam.snappy.compress_raw(DATA[at : at + 1024])) for at in range(0, len(DATA), 1024)]
    packed = compress(Codec.SNAPPY, b"")[: len(XERIAL_MAGIC) + 8]
    packed += b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    assert decompress(Codec.SNAPPY, memoryview(packed), len(DATA)) == DATA
