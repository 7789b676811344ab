"""The bytes of journal entries: fixed for ever, checked to the last bit."""

import struct

import pytest
from crc32c import crc32c

from adapters.journals.metadata import entry_key, entry_prefix, start_key
from ledger.adoption.records import RunsAdopted, TopicAdoption
from ledger.adoption.requests import AdoptedSegment
from ledger.cluster.records import (
    ClusterCreated,
    FeatureLevelRaised,
    LedgerRestored,
    OwnerChanged,
    OwnerDescribed,
    TimeHeld,
    TimeJumped,
)
from ledger.errors import StoreDamaged, StoreTooNew
from ledger.groups.records import GroupRemoved, GroupStored, OffsetsCommitted, OffsetsRemoved
from ledger.groups.state import Group, Member, OffsetRow
from ledger.inline.records import InlineMoved, MovedRange
from ledger.inline.requests import MovedRun
from ledger.journal import HEAD_BYTES, decode_entry, encode_entry, nonce_of
from ledger.objects.records import FloorRaised, ObjectsForgotten
from ledger.objects.state import Origin
from ledger.objects.uploads import ObjectKind, Upload, Uploader
from ledger.partitions.records import (
    FileCommitted,
    ProducerIdsReserved,
    ProducersExpired,
    RecordsDeleted,
    RunsDropped,
)
from ledger.records import RESERVED, MetadataRecord, RecordFormat
from ledger.registry import REGISTRY, decode_records, encode_record
from ledger.settings.records import ClientQuotasSet, ResourceConfigsSet
from ledger.settled.records import SettledNamed
from ledger.settled.requests import SettledFiles
from ledger.swaps.records import PinReleased, PinTaken, SegmentsSwapped
from ledger.swaps.requests import SegmentFile, SegmentRun
from ledger.topics.records import PartitionsAdded, TopicConfigsSet, TopicCreated, TopicDeleted
from ledger.transactions.records import (
    AddedToTransaction,
    OffsetsPended,
    PartitionsMarked,
    TransactionalIdsExpired,
    TransactionEnded,
    TransactionStored,
)
from ledger.transactions.state import Status, Transaction
from ledger.types import TopicId

TOPIC = TopicId(bytes(range(16)))
NONCE = bytes(range(16, 32))

# What a released version has written must be read by every later one: these never change.
GOLDEN: list[tuple[MetadataRecord, str]] = [
    (ClusterCreated("Zürich"), "01 00 00000007 5ac3bc72696368"),
    (OwnerChanged(7, 3, NONCE), "02 00 00000018 00000007 00000003 101112131415161718191a1b1c1d1e1f"),
    (
        TopicCreated(TOPIC, "t", 9, 2, {"b": "", "a": "1é"}),
        "03 00 0000002e 000102030405060708090a0b0c0d0e0f 00000009 00000002 0001 0002 74"
        "0001 00000003 61 31c3a9  0001 00000000 62",
    ),
    (TopicDeleted(TOPIC), "04 00 00000010 000102030405060708090a0b0c0d0e0f"),
    (
        FileCommitted(
            "wal/0/x", 4096, [(9, 100, 250, 1 << 40, (1 << 40) + 4, -1, 2)], [(150, 3, -1, -1, -1, -1, 0)]
        ),
        "05 00 00000061 0007 0000000000001000 00000001 00000001 77616c2f302f78"
        "00000009 00000064 000000fa 0000010000000000 0000010000000004 ffffffffffffffff 00000002"
        "00000096 00000003 ffffffffffffffff ffffffffffffffff ffff ffffffff 0000",
    ),
    (
        FileCommitted("w", 1, [], [(61, 1, 1_700_000_000_000, 5, 2, 0x7FFFFFFF, 0x18)]),
        "05 00 00000033 0001 0000000000000001 00000000 00000001 77"
        "0000003d 00000001 0000018bcfe56800 0000000000000005 0002 7fffffff 0018",
    ),
    (RecordsDeleted(9, 5), "06 00 0000000c 00000009 0000000000000005"),
    (RunsDropped(9, 2000), "07 00 00000008 00000009 000007d0"),
    (ProducerIdsReserved(1000), "08 00 00000008 00000000000003e8"),
    (
        ProducersExpired([(9, 1), (10, 2)]),
        "09 00 00000018 00000009 0000000000000001 0000000a 0000000000000002",
    ),
    (ObjectsForgotten([1, 258]), "0a 00 00000008 00000001 00000102"),
    (PartitionsAdded(TOPIC, 11, 3), "0c 00 00000018 000102030405060708090a0b0c0d0e0f 0000000b 00000003"),
    (
        TopicConfigsSet(TOPIC, {"b": "", "a": "1"}),
        "0d 00 00000021 000102030405060708090a0b0c0d0e0f 0002 0001 00000001 61 31 0001 00000000 62",
    ),
    (FloorRaised(1_700_000_000_000), "0b 00 00000008 0000018bcfe56800"),
    (
        LedgerRestored(258, 1_700_000_000_000, 1_700_000_000_001),
        "0e 00 00000018 0000000000000102 0000018bcfe56800 0000018bcfe56801",
    ),
]
MEMBER = Member("m", None, "c", "/h", 6, 5, (("range", b"s"),), b"a")
GOLDEN += [
    (
        GroupStored(Group("g", "consumer", 7, "range", None, (MEMBER,), True)),
        "0f 00 0000005b 00 01 00000007 00000001 00000001 67 00000008 636f6e73756d6572 00000005 72616e6765"
        "ffffffff 00000006 00000005 00000001 00000001 6d ffffffff 00000001 63 00000002 2f68 00000001 61"
        "00000005 72616e6765 00000001 73",
    ),
    (
        OffsetsCommitted("g", [OffsetRow(TOPIC, 3, 258, 4, -1, "é"), OffsetRow(TOPIC, 4, 0, -1, 5, "")]),
        "10 00 0000004f 00000001 67 000102030405060708090a0b0c0d0e0f 00000002"
        "00000003 0000000000000102 00000004 ffffffffffffffff 0002 c3a9"
        "00000004 0000000000000000 ffffffff 0000000000000005 0000",
    ),
    (
        OffsetsRemoved("g", [(TOPIC, 3)]),
        "11 00 00000019 00000001 67 000102030405060708090a0b0c0d0e0f 00000003",
    ),
    (GroupRemoved("gé"), "12 00 00000003 67c3a9"),
    (
        ClientQuotasSet((("client-id", "c"), ("user", None)), {"producer_byte_rate": 1.5}),
        "13 00 00000044 00000002 00000009 636c69656e742d6964 00000001 63 00000004 75736572 ffffffff"
        "00000001 00000012 70726f64756365725f627974655f72617465 3ff8000000000000",
    ),
    (
        ResourceConfigsSet("group", "g", {"b": "", "a": "1"}),
        "14 00 00000021 00000005 67726f7570 00000001 67 00000002 0001 00000001 61 31 0001 00000000 62",
    ),
]
GOLDEN.append((FeatureLevelRaised(2), "15 00 00000002 0002"))
RECORDS = [record for record, _ in GOLDEN]

UPLOADER = Uploader(3, NONCE)
ORIGIN = Origin(ObjectKind.WAL, 0, 1_700_000_000_000, UPLOADER)
GOLDEN_OF_LEVEL_2: list[tuple[MetadataRecord, str]] = [
    (
        FileCommitted("w", 1, [], [(61, 1, 7, 5, 2, 0x7FFFFFFF, 0x18)], ORIGIN, Upload(UPLOADER, 9, 8)),
        "05 01 00000061 0001 0000000000000001 00000000 00000001"
        "01 00 0000018bcfe56800 00000003 101112131415161718191a1b1c1d1e1f"
        "0000000000000009 0000000000000008 77"
        "0000003d 00000001 0000000000000007 0000000000000005 0002 7fffffff 0018",
    ),
    (
        FileCommitted("w", 1, [], [], Origin(ObjectKind.SEGMENT, 1, 5, None)),
        "05 01 00000041 0001 0000000000000001 00000000 00000000"
        f"02 01 0000000000000005 ffffffff {'00' * 32} 77",
    ),
    (
        OwnerDescribed("hé", "PLAINTEXT://a:1", "etcd 2a"),
        "16 00 00000025 00000003 68c3a9 0000000f 504c41494e544558543a2f2f613a31 00000007 65746364203261",
    ),
    (TimeHeld(1_700_000_000_000), "17 00 00000008 0000018bcfe56800"),
    (ObjectsForgotten([1, 1 << 40]), "0a 01 00000010 0000000000000001 0000010000000000"),
]

JOB = bytes(range(32, 48))
GOLDEN_OF_LEVEL_3: list[tuple[MetadataRecord, str]] = [
    (
        SegmentsSwapped(
            7, JOB, 2, 100, 299, 4, 200, [SegmentFile("s", 5_000_000)], [SegmentRun(0, 32, 61, 100, 299, -1)]
        ),
        "1e 00 0000006b 00000007 202122232425262728292a2b2c2d2e2f 00000002"
        "0000000000000064 000000000000012b 0000000000000004 000000c8 00000001 00000001"
        "00000000004c4b40 0001 73"
        "00000000 00000020 0000003d 0000000000000064 000000000000012b ffffffffffffffff",
    ),
    (TimeJumped(1_700_000_000_000, 3_600_001), "18 00 00000010 0000018bcfe56800 000000000036ee81"),
    (PinTaken(JOB), "22 00 00000010 202122232425262728292a2b2c2d2e2f"),
    (PinReleased(JOB), "23 00 00000010 202122232425262728292a2b2c2d2e2f"),
]

GOLDEN_OF_LEVEL_4: list[tuple[MetadataRecord, str]] = [
    (
        TopicAdoption(TopicId(JOB), "s", JOB, True),
        "26 00 00000022 202122232425262728292a2b2c2d2e2f 202122232425262728292a2b2c2d2e2f 01 73",
    ),
    (
        RunsAdopted(
            *(7, TopicId(JOB), "s"),
            [AdoptedSegment("k", 256, 999)],
            [SegmentRun(0, 32, 61, 100, 299, -1)],
        ),
        "27 00 00000056 00000007 0001 00000001 00000001 202122232425262728292a2b2c2d2e2f 73"
        "0000000000000100 00000000000003e7 0001 6b"
        "00000000 00000020 0000003d 0000000000000064 000000000000012b ffffffffffffffff",
    ),
    (
        SettledNamed(7, JOB, 2, SettledFiles("s", 256, 48, 5), 42, 20, 9),
        "24 00 00000049 00000007 202122232425262728292a2b2c2d2e2f 00000002"
        "0000000000000100 0000000000000030 0000000000000005 000000000000002a 0000000000000014"
        "0000000000000009 73",
    ),
]
GOLDEN_OF_LEVEL_5: list[tuple[MetadataRecord, str]] = [
    (
        InlineMoved("w", 999, [MovedRange(7, 100, 299, 5, [MovedRun(40, 61, 100, 299, -1)])]),
        "3e 00 0000004b 0001 00000000000003e7 00000001 77"
        "00000007 0000000000000064 000000000000012b 00000005 00000001"
        "00000028 0000003d 0000000000000064 000000000000012b ffffffffffffffff",
    ),
]

OPEN = Transaction("tx", 7, 3, 2, -1, 60_000, Status.ONGOING, 1_700_000_000_000, 1_700_000_000_001)
GOLDEN_OF_LEVEL_6: list[tuple[MetadataRecord, str]] = [
    (
        TransactionStored(OPEN),
        "28 00 0000002f"
        "000000000000000700030002ffffffffffffffff0000ea60010000018bcfe568000000018bcfe568"
        "01000000027478",
    ),
    (
        AddedToTransaction(7, [1, 258], ["g"]),
        "29 00 0000001900000000000000070000000200000001000001020000000167",
    ),
    (
        OffsetsPended(7, OffsetsCommitted("g", [OffsetRow(TopicId(JOB), 1, 42, 5, -1, "m")])),
        "2a 00 0000003c"
        "00000000000000070000000167202122232425262728292a2b2c2d2e2f0000000100000001000000"
        "000000002a00000005ffffffffffffffff00016d",
    ),
    (
        TransactionEnded(7, 4, True, OPEN._replace(status=Status.COMMITTED, epoch=4)),
        "2b 00 0000003a"
        "0000000000000007000401000000000000000700040002ffffffffffffffff0000ea60020000018b"
        "cfe568000000018bcfe56801000000027478",
    ),
    (
        TransactionalIdsExpired(["a", "bc"]),
        "2c 00 0000000b0000000161000000026263",
    ),
    (
        PartitionsMarked(7, 4, False, [9, 1]),
        "2d 00 0000001300000000000000070004000000000900000001",
    ),
]


@pytest.fixture
def entry() -> bytes:
    return encode_entry(5, 1_700_000_000_000, NONCE, [encode_record(record) for record in RECORDS])


@pytest.mark.parametrize(("record", "text"), GOLDEN, ids=[type(record).__name__ for record in RECORDS])
def test_the_bytes_of_a_metadata_record_never_change(record: MetadataRecord, text: str) -> None:
    assert encode_record(record).hex() == text.replace(" ", "")
    assert list(decode_records(bytes.fromhex(text), 1)) == [record]


@pytest.mark.parametrize(("record", "text"), GOLDEN_OF_LEVEL_2)
def test_the_bytes_of_a_metadata_record_of_level_2_never_change(record: MetadataRecord, text: str) -> None:
    assert encode_record(record, 2).hex() == text.replace(" ", "")
    assert list(decode_records(bytes.fromhex(text), 1)) == [record]


@pytest.mark.parametrize(("record", "text"), GOLDEN_OF_LEVEL_3)
def test_the_bytes_of_a_metadata_record_of_level_3_never_change(record: MetadataRecord, text: str) -> None:
    assert encode_record(record, 3).hex() == text.replace(" ", "")
    assert list(decode_records(bytes.fromhex(text), 1)) == [record]
    with pytest.raises(ValueError, match="is not written at feature level 2"):
        encode_record(record, 2)


@pytest.mark.parametrize(("record", "text"), GOLDEN_OF_LEVEL_4)
def test_the_bytes_of_a_metadata_record_of_level_4_never_change(record: MetadataRecord, text: str) -> None:
    assert encode_record(record, 4).hex() == text.replace(" ", "")
    assert list(decode_records(bytes.fromhex(text), 1)) == [record]
    with pytest.raises(ValueError, match="is not written at feature level 3"):
        encode_record(record, 3)


@pytest.mark.parametrize(("record", "text"), GOLDEN_OF_LEVEL_5)
def test_the_bytes_of_a_metadata_record_of_level_5_never_change(record: MetadataRecord, text: str) -> None:
    assert encode_record(record, 5).hex() == text.replace(" ", "")
    assert list(decode_records(bytes.fromhex(text), 1)) == [record]
    with pytest.raises(ValueError, match="is not written at feature level 4"):
        encode_record(record, 4)


@pytest.mark.parametrize(("record", "text"), GOLDEN_OF_LEVEL_6)
def test_the_bytes_of_a_metadata_record_of_level_6_never_change(record: MetadataRecord, text: str) -> None:
    assert encode_record(record, 6).hex() == text.replace(" ", "")
    assert list(decode_records(bytes.fromhex(text), 1)) == [record]
    with pytest.raises(ValueError, match="is not written at feature level 5"):
        encode_record(record, 5)


@pytest.mark.parametrize(("record", "text"), GOLDEN_OF_LEVEL_2)
def test_level_3_leaves_the_records_of_level_2_as_they_are(record: MetadataRecord, text: str) -> None:
    assert encode_record(record, 3).hex() == text.replace(" ", "")


def test_records_that_level_2_leaves_as_they_are_have_the_same_bytes() -> None:
    of_level_2 = {type(record) for record, _ in GOLDEN_OF_LEVEL_2}
    for record in RECORDS:
        if type(record) not in of_level_2:
            assert encode_record(record, 2) == encode_record(record)


def test_a_record_that_a_level_does_not_allow_is_not_written() -> None:
    only_later = RecordFormat(200, Uploader, lambda _: b"", lambda _: None, level=2)
    assert only_later.framed(Uploader(1, b""), 2)
    with pytest.raises(ValueError, match="record type 200 is not written at feature level 1"):
        only_later.framed(Uploader(1, b""), 1)


@pytest.mark.parametrize("number", [number for numbers in RESERVED for number in (numbers[0], numbers[-1])])
def test_a_record_of_what_later_versions_bring_is_refused_with_its_purpose(number: int) -> None:
    with pytest.raises(StoreTooNew, match=rf"type {number} \([a-zA-Z ]+\) version 0"):
        list(decode_records(struct.pack(">BBI", number, 0, 0), 1))


def test_a_later_feature_level_is_refused_in_words() -> None:
    with pytest.raises(StoreTooNew, match="feature level 7, and this build knows levels up to 6"):
        list(decode_records(bytes.fromhex("15 00 00000002 0007"), 1))


def test_every_kind_of_metadata_record_has_its_golden_bytes() -> None:
    later = {
        type(record)
        for record, _ in GOLDEN_OF_LEVEL_2
        + GOLDEN_OF_LEVEL_3
        + GOLDEN_OF_LEVEL_4
        + GOLDEN_OF_LEVEL_5
        + GOLDEN_OF_LEVEL_6
    }
    assert {type(record) for record in RECORDS} | later == {
        known.kind for machine in REGISTRY.machines for known in machine.formats
    }


def test_the_bytes_of_an_entry_never_change() -> None:
    data = encode_entry(5, 1_700_000_000_000, NONCE, [encode_record(RunsDropped(9, 2000))])
    head = "444a4531 0001 0001 00000005 0000018bcfe56800 101112131415161718191a1b1c1d1e1f"
    body = "07 00 00000008 00000009 000007d0"
    crc = crc32c(bytes.fromhex(head + body))
    assert data.hex() == f"{head}{crc:08x}{body}".replace(" ", "")
    assert crc == 0x6FBD1968


def test_an_entry_reads_back_as_it_was_written(entry: bytes) -> None:
    decoded = decode_entry(entry, "here")
    assert (decoded.epoch, decoded.time_ms, decoded.nonce) == (5, 1_700_000_000_000, NONCE)
    assert list(decoded.records) == RECORDS
    assert decode_entry(bytearray(entry), "here") == decode_entry(memoryview(entry), "here") == decoded
    assert nonce_of(entry) == NONCE


def test_every_flipped_bit_of_an_entry_is_found(entry: bytes) -> None:
    for at in range(len(entry) * 8):
        damaged = bytearray(entry)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises((StoreDamaged, StoreTooNew), match="journal/0/7"):
            decode_entry(damaged, "journal/0/7")


def test_every_cut_of_an_entry_is_found(entry: bytes) -> None:
    for size in range(len(entry)):
        with pytest.raises(StoreDamaged, match="journal/0/7"):
            decode_entry(entry[:size], "journal/0/7")
    with pytest.raises(StoreDamaged):
        decode_entry(entry + b"\0", "journal/0/7")


def test_an_entry_of_a_later_format_is_refused_as_too_new_and_not_as_damaged(entry: bytes) -> None:
    later = bytearray(entry)
    later[4:6] = b"\0\2"
    with pytest.raises(StoreTooNew, match="journal/0/7 has format version 2"):
        decode_entry(later, "journal/0/7")


@pytest.mark.parametrize("frame", [(5, 2), (10, 2), (0, 0), (254, 0), (255, 255)])
def test_a_metadata_record_of_a_later_type_or_version_is_refused_as_too_new(frame: tuple[int, int]) -> None:
    data = encode_entry(0, 0, NONCE, [struct.pack(">BBI", *frame, 0)])
    with pytest.raises(StoreTooNew, match=f"type {frame[0]} version {frame[1]}"):
        decode_entry(data, "here")


def wrong_length_of_file() -> bytes:
    body = encode_record(FileCommitted("w", 1, [(1, 0, 1, 0, 0, 0, 1)], [(1, 1, 0, -1, -1, -1, 0)]))
    return body[:2] + struct.pack(">I", len(body) - 6 - 1) + body[6:-1]


@pytest.mark.parametrize(
    ("records", "count"),
    [
        (encode_record(RunsDropped(1, 1)), 2),
        (encode_record(RunsDropped(1, 1)) * 2, 1),
        (encode_record(RunsDropped(1, 1)), 0),
        (struct.pack(">BBI", 7, 0, 9) + bytes(9), 1),
        (struct.pack(">BBI", 7, 0, 0xFFFFFFFF) + bytes(9), 1),
        (struct.pack(">BBI", 1, 0, 1) + b"\xff", 1),
        (wrong_length_of_file(), 1),
    ],
    ids=["one too few", "one too many", "none", "long body", "huge length", "not UTF-8", "short file"],
)
def test_records_that_do_not_fill_their_entry_exactly_are_damage(records: bytes, count: int) -> None:
    with pytest.raises(StoreDamaged):
        list(decode_records(records, count))


def test_keys_of_entries_sort_by_number_and_none_of_another_shard_is_among_them() -> None:
    numbers = [0, 9, 10, 99, 1 << 40]
    keys = [entry_key(1, number) for number in numbers]
    assert keys == sorted(keys)
    assert keys[1] == "journal/1/00000000000000000009"
    assert all(key.startswith(entry_prefix(1)) for key in keys)
    assert not entry_key(11, 0).startswith(entry_prefix(1))
    assert not start_key(1).startswith(entry_prefix(1))
    assert start_key(1) == "journal-start/1"


def test_what_is_too_short_for_an_entry_has_no_nonce() -> None:
    assert nonce_of(bytes(HEAD_BYTES - 1)) == b""
