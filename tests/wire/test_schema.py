"""The compiled codec's rules, on bytes written by hand from KIP-482, KIP-893 and Kafka's protocol page."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.wire.decoder_source import compile_decoder
from gateway.wire.encoder_source import compile_encoder
from gateway.wire.errors import Malformed, Unencodable, UnsupportedVersion
from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class Leaf:
    number: int = -1


@dataclass(slots=True)
class Ids:
    ids: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Root:
    name: str | None = ""
    flag: bool = False
    ids: list[int] = field(default_factory=list)
    leaves: list[Leaf] | None = field(default_factory=list)
    leaf: Leaf | None = None
    topic_id: bytes = ZERO_UUID
    raw: bytes | None = b""
    late: int = 7
    extra: str | None = None
    deep: Leaf = field(default_factory=Leaf)


# Version 0 is plain, 1 flexible; the name may be null from 1 on.
SCHEMA = Schema(
    Root,
    (0, 2),
    1,
    {
        Leaf: (Field("number", "int16", (0, 2), default=-1),),
        Root: (
            Field("name", "string", (0, 2), nullable=(1, 2)),
            Field("flag", "bool", (0, 2)),
            Field("ids", "int32", (0, 2), array=True),
            Field("leaves", Leaf, (0, 2), array=True, nullable=(0, 2)),
            Field("leaf", Leaf, (0, 2), nullable=(0, 2), default=None),
            Field("topic_id", "uuid", (2, 2)),
            Field("raw", "bytes", (2, 2), nullable=(2, 2)),
            Field("late", "int32", (2, 2), default=7),
            Field("extra", "string", (1, 2), nullable=(1, 2), default=None, tag=0, tagged=(1, 2)),
            Field("deep", Leaf, (1, 2), tag=3, tagged=(1, 2)),
        ),
    },
)
PLAIN = bytes.fromhex("0002 c3a9 01 00000002 00000001 ffffffff 00000001 0005 ff")
FLEXIBLE = bytes.fromhex("03 c3a9 01 03 00000001 ffffffff 02 0005 00 ff 00")
MESSAGE = Root("é", True, [1, -1], [Leaf(5)])


def decode(version: int, raw: bytes) -> Any:
    return compile_decoder(SCHEMA, version)(memoryview(raw))[0]


def encode(version: int, message: Root) -> bytes:
    return compile_encoder(SCHEMA, version)(message)


@pytest.mark.parametrize(("version", "raw"), [(0, PLAIN), (1, FLEXIBLE)])
def test_plain_and_flexible_versions_are_laid_out_as_kafka_lays_them_out(version: int, raw: bytes) -> None:
    assert encode(version, MESSAGE) == raw
    assert decode(version, raw) == MESSAGE
    assert compile_decoder(SCHEMA, version)(memoryview(raw + b"rest"))[1] == len(raw)


def test_a_field_that_the_version_lacks_is_left_out_and_reads_as_its_default() -> None:
    raw = encode(1, Root("é", True, [1, -1], [Leaf(5)], late=99, raw=b"lost"))
    assert raw == FLEXIBLE
    assert decode(1, raw).late == 7


def test_null_is_minus_one_in_plain_versions_and_zero_in_compact_ones() -> None:
    assert encode(0, Root(leaves=None)) == bytes.fromhex("0000 00 00000000 ffffffff ff")
    assert encode(1, Root(None, leaves=None)) == bytes.fromhex("00 00 01 00 ff 00")
    assert decode(1, bytes.fromhex("00 00 01 00 ff 00")) == Root(None, leaves=None)


def test_any_negative_length_is_null_as_kafka_reads_it() -> None:
    assert decode(0, bytes.fromhex("0000 00 00000000 fffffffe fe")) == Root(leaves=None)


def test_a_nullable_struct_that_is_there_has_a_one_before_it() -> None:
    assert encode(0, Root(leaf=Leaf(6))) == bytes.fromhex("0000 00 00000000 00000000 01 0006")
    assert decode(0, bytes.fromhex("0000 00 00000000 00000000 01 0006")) == Root(leaf=Leaf(6))


def test_any_byte_but_zero_is_true_as_kafka_reads_it() -> None:
    assert decode(0, PLAIN.replace(b"\xa9\x01", b"\xa9\x02")) == MESSAGE


def test_tagged_fields_are_written_in_tag_order_and_only_when_they_differ_from_their_default() -> None:
    assert encode(1, Root(extra="", deep=Leaf(2))) == bytes.fromhex(
        "01 00 01 01 ff 02 00 01 01 03 03 0002 00"
    )
    assert encode(1, Root(extra=None, deep=Leaf(-1))) == bytes.fromhex("01 00 01 01 ff 00")


def test_unknown_tags_are_skipped_wherever_they_stand() -> None:
    raw = bytes.fromhex("01 00 01 02 0005 01 09 02 aabb ff 03 03 03 0002 00 00 01 01 09 00")
    assert decode(1, raw) == Root("", leaves=[Leaf(5)], deep=Leaf(2), extra="")


def test_a_long_text_takes_a_varint_of_two_bytes() -> None:
    raw = encode(1, Root("x" * 127))
    assert raw[:3] == b"\x80\x01x"
    assert decode(1, raw).name == "x" * 127


def test_bytes_that_are_not_utf_8_become_replacement_characters_as_in_kafka() -> None:
    raw = bytes.fromhex("0003 61c3ff 00 00000000 00000000 ff")
    assert decode(0, raw).name == "a\ufffd\ufffd"


@pytest.mark.parametrize(
    ("version", "raw", "why"),
    [
        (0, "ffff 00 00000000 00000000 ff", "null where version 0 has none"),
        (1, "01 00 00 01 ff 00", "null array that cannot be null"),
        (0, "7fff 61", "string longer than the frame"),
        (0, "0000 00 7fffffff 00000000 ff", "array longer than the frame"),
        (1, "ffffffff7f 00", "varint above 32 bits"),
        (1, "8080808080 01", "varint of six bytes"),
        (1, "01 00 01 01 ff 01 09 05 aa", "tagged field beyond the end"),
        (1, "01 00 01 01 ff 01 03 02 0002 00", "known tag with another size"),
        (1, "818002 " + "61" * 32768 + "00 01 01 ff 00", "text above 32,767 bytes"),
        (0, "", "nothing at all"),
    ],
)
def test_bytes_that_are_no_message_are_malformed(version: int, raw: str, why: str) -> None:
    with pytest.raises(Malformed):
        decode(version, bytes.fromhex(raw))


@pytest.mark.parametrize(
    "message",
    [
        Root(name=None),
        Root(ids=None),  # type: ignore[arg-type]
        Root(ids=[1 << 31]),
        Root(leaves=[Leaf(1 << 15)]),
        Root(leaves=[None]),  # type: ignore[list-item]
        Root(name="x" * 32768),
        Root(name="\ud800"),
    ],
)
def test_a_value_that_the_version_cannot_carry_is_unencodable(message: Root) -> None:
    with pytest.raises(Unencodable):
        encode(0, message)


def test_a_version_outside_the_range_has_no_codec() -> None:
    for version in (-1, 3):
        with pytest.raises(UnsupportedVersion):
            compile_decoder(SCHEMA, version)
        with pytest.raises(UnsupportedVersion):
            compile_encoder(SCHEMA, version)


def test_an_array_count_is_refused_before_any_element_is_made() -> None:
    schema = Schema(Ids, (0, 0), 1, {Ids: (Field("ids", "uuid", (0, 0), array=True),)})
    decode_ids = compile_decoder(schema, 0)
    assert decode_ids(memoryview(bytes.fromhex("00000001") + bytes(16)))[0].ids == [ZERO_UUID]
    for count in (2, 100_000):
        with pytest.raises(Malformed, match="counts more than there is"):
            decode_ids(memoryview(count.to_bytes(4, "big") + bytes(31)))


def test_elements_without_a_byte_of_their_own_cannot_be_claimed_without_bound() -> None:
    schema = Schema(Root, (0, 0), 1, {Leaf: (), Root: (Field("leaves", Leaf, (0, 0), array=True),)})
    assert schema.least_item_bytes(schema.structs[Root][0], 0) == 1


def test_decoded_messages_do_not_share_their_mutable_defaults() -> None:
    first, second = decode(1, FLEXIBLE), decode(1, FLEXIBLE)
    first.deep.number = 9
    assert second.deep == Leaf(-1)
