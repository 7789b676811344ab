"""Object keys that carry their creation time."""

import uuid

import pytest

from adapters.names import check_key
from ledger.keys import (
    SegmentName,
    created_ms,
    index_locator,
    is_log,
    is_segment,
    log_file_id,
    log_locator,
    segment_locator,
    segment_name,
    segment_of_index,
    uuid7,
)
from ledger.types import TopicId

NOISE = bytes(range(0xF6, 0x100))


def test_a_key_is_a_uuid_of_version_7_and_of_the_rfc_variant() -> None:
    key = uuid7(0x0123_4567_89AB, NOISE)
    assert (key.version, key.variant) == (7, uuid.RFC_4122)
    assert str(key) == "01234567-89ab-7bdf-b8f9-fafbfcfdfeff"
    assert uuid7(0, bytes(10)) == uuid.UUID("00000000-0000-7000-8000-000000000000")
    assert uuid7((1 << 48) - 1, b"\xff" * 10) == uuid.UUID("ffffffff-ffff-7fff-bfff-ffffffffffff")


@pytest.mark.parametrize("ms", [0, 1, 1_700_000_000_000, (1 << 48) - 1])
def test_a_locator_carries_its_creation_time(ms: int) -> None:
    key = uuid7(ms, NOISE)
    assert created_ms(f"wal/0/{key}") == created_ms(f"wal/0/{key}.wal") == created_ms(str(key)) == ms
    assert created_ms(f"prefix/namespace/t/0/segment-00000000000000000007-{key}.kfs") == ms


def test_keys_sort_by_creation_time_whatever_their_noise() -> None:
    keys = [str(uuid7(ms, noise)) for ms, noise in [(1, b"\xff" * 10), (2, bytes(10)), (300, bytes(10))]]
    assert keys == sorted(keys)


def test_every_bit_of_the_noise_but_the_six_fixed_ones_counts() -> None:
    plain = uuid7(5, bytes(10)).int
    seen = {uuid7(5, (1 << bit).to_bytes(10, "big")).int ^ plain for bit in range(80)} - {0}
    assert len(seen) == 74 and all(bits.bit_count() == 1 for bits in seen)


VERSION_4 = uuid.UUID("3c424ed0-7fa6-4946-86de-4f64ae396c4e")


@pytest.mark.parametrize("locator", ["", "wal/0/x", f"wal/0/{uuid.UUID(int=0)}", f"wal/0/{VERSION_4}"])
def test_a_locator_without_a_time_is_refused(locator: str) -> None:
    with pytest.raises(ValueError):
        created_ms(locator)


TOPIC = TopicId(bytes(range(16)))


@pytest.mark.parametrize("base", [0, 7, 2**63 - 1])
@pytest.mark.parametrize("partition", [0, 10, 2**31 - 1])
def test_the_key_of_a_segment_says_where_it_belongs(base: int, partition: int) -> None:
    locator = segment_locator(TOPIC, partition, base, 1_700_000_000_000, NOISE)
    index = index_locator(locator)
    assert check_key(locator) == locator and check_key(index) == index
    assert segment_name(locator) == SegmentName(TOPIC, partition, base, 1_700_000_000_000)
    assert created_ms(locator) == created_ms(index) == 1_700_000_000_000
    assert segment_of_index(index) == locator
    assert segment_of_index(locator) is None and segment_name(index) is None
    assert is_segment(locator) and is_segment(index) and not is_segment("wal/0/x")


def test_an_index_sorts_right_before_its_segment() -> None:
    locators = [segment_locator(TOPIC, 0, base, 5, NOISE) for base in (0, 9, 10, 10**18)]
    keys = sorted(key for locator in locators for key in (locator, index_locator(locator)))
    assert keys == [key for locator in locators for key in (index_locator(locator), locator)]


def test_no_other_key_is_taken_for_that_of_a_segment() -> None:
    right = segment_locator(TOPIC, 0, 5, 1_700_000_000_000, NOISE)
    wrong = [
        right.replace("/0/", "/00/"),
        right.replace("/0/", "/-1/"),
        right.replace("/0/", "/../"),
        right.upper(),
        right + "x",
        right.replace("0005-", "5-"),
        right.replace(".kfs", ""),
        right.replace("-7", "-4"),
        "x" + right,
        "",
    ]
    for locator in wrong:
        assert segment_name(locator) is None, locator
        assert segment_of_index(locator.replace(".kfs", ".index")) is None, locator


@pytest.mark.parametrize("shard", [0, 17])
def test_the_key_of_a_log_file_has_its_id_and_its_creation_time(shard: int) -> None:
    file_id = uuid7(1_700_000_000_000, NOISE).bytes
    locator = log_locator(shard, file_id)
    assert check_key(locator) == f"log/{shard}/{uuid.UUID(bytes=file_id)}.log"
    assert is_log(locator) and log_file_id(locator) == file_id
    assert created_ms(locator) == 1_700_000_000_000


@pytest.mark.parametrize(
    "key",
    [
        f"wal/0/{uuid7(1, NOISE)}.wal",
        f"log/0/{uuid7(1, NOISE)}.spare",
        f"log/0/{uuid7(1, NOISE)}.log.log",
        f"log/00/{uuid7(1, NOISE)}.log",
        f"log/0/x{uuid7(1, NOISE)}.log",
        f"log/0/{str(uuid7(1, NOISE)).upper()}.log",
        f"log/0/{uuid.UUID(int=7, version=4)}.log",
        "log/0/start",
    ],
)
def test_no_other_key_is_taken_for_that_of_a_log_file(key: str) -> None:
    assert log_file_id(key) is None
