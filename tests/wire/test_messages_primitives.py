"""Primitive encodings: known bytes, round trips, and what is refused."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import primitives
from gateway.wire.errors import Malformed, Unencodable

READERS: list[Callable[[memoryview, int], object]] = [
    primitives.read_int16,
    primitives.read_int32,
    primitives.read_uvarint,
    primitives.read_string,
    primitives.read_nullable_string,
    primitives.read_compact_string,
    primitives.read_compact_nullable_string,
    primitives.read_nullable_bytes,
    primitives.read_compact_nullable_bytes,
    primitives.read_uuid,
    primitives.skip_tagged_fields,
]


@pytest.mark.parametrize(
    ("value", "raw"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")],
)
def test_unsigned_varints_are_the_known_bytes(value: int, raw: str) -> None:
    assert primitives.encode_uvarint(value) == bytes.fromhex(raw)
    assert primitives.read_uvarint(memoryview(bytes.fromhex(raw)), 0) == (value, len(raw) // 2)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_varints_read_back_from_any_position(value: int, before: bytes) -> None:
    view = memoryview(before + primitives.encode_uvarint(value))
    assert primitives.read_uvarint(view, len(before)) == (value, len(view))


@given(st.one_of(st.none(), st.text(max_size=200)))
def test_strings_read_back(text: str | None) -> None:
    plain, compact = primitives.encode_string(text), primitives.encode_compact_string(text)
    assert primitives.read_nullable_string(memoryview(plain), 0) == (text, len(plain))
    assert primitives.read_compact_nullable_string(memoryview(compact), 0) == (text, len(compact))


@pytest.mark.parametrize(
    "raw", ["ffffffff1f", "ffffffff7f", "808080808001", "808080808000", "80", "", "ffffffffff"]
)
def test_an_unsigned_varint_above_32_bits_or_cut_off_is_malformed(raw: str) -> None:
    with pytest.raises(Malformed):
        primitives.read_uvarint(memoryview(bytes.fromhex(raw)), 0)


def test_null_where_a_string_is_required_is_malformed() -> None:
    with pytest.raises(Malformed):
        primitives.read_string(memoryview(b"\xff\xff"), 0)
    with pytest.raises(Malformed):
        primitives.read_compact_string(memoryview(b"\x00"), 0)


def test_a_tagged_field_that_claims_more_than_is_left_is_malformed() -> None:
    assert primitives.skip_tagged_fields(memoryview(b"\x01\x05\x02\xaa\xbb"), 0) == 5
    with pytest.raises(Malformed):
        primitives.skip_tagged_fields(memoryview(b"\x01\x05\x02\xaa"), 0)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_a_number_beyond_its_width_is_unencodable(value: int) -> None:
    with pytest.raises(Unencodable):
        primitives.encode_uvarint(value)


@given(st.binary(max_size=24), st.integers(0, 26))
def test_no_reader_goes_past_the_end_or_raises_anything_but_malformed(raw: bytes, pos: int) -> None:
    for read in READERS:
        try:
            made = read(memoryview(raw), pos)
        except Malformed:
            continue
        after = made[1] if isinstance(made, tuple) else made
        assert isinstance(after, int) and pos < after <= len(raw)
