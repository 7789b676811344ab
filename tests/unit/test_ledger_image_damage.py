"""Rows of an image that do not read back as written: nothing of them is ever believed."""

import random
from collections.abc import Callable, Sequence
from functools import cache

import pytest

from ledger.errors import StoreDamaged
from ledger.groups.requests import CommitOffsets, StoreGroup
from ledger.groups.state import Group, Member, OffsetRow
from ledger.image import all_rows, restore
from ledger.objects.requests import RaiseFloor
from ledger.objects.rows import OBJECT
from ledger.objects.uploads import Upload, Uploader
from ledger.partitions import state as ledger_partitions
from ledger.partitions.requests import CommitFile, DeleteRecords, DrainRuns
from ledger.partitions.rows import CHUNK, PARTITION, PRODUCER
from ledger.rows import META, Row
from ledger.settings.configs import ConfigChange, ConfigOp
from ledger.settings.requests import QuotaChange, SetClientQuotas, SetResourceConfigs
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.topics.rows import TOPIC
from tests.support.image_rows import body, flipped, of_version, resealed, with_any_bit_flipped
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id

FLIPS = 20_000
SEED = 20_261_122
PARTITIONS, OBJECTS, BATCHES = 3, 20, 12


@pytest.fixture(params=[1, 2], ids=["level 1", "level 2"])
def rows(request: pytest.FixtureRequest) -> list[Row]:
    return list(rows_of_level(request.param))


@cache
def rows_of_level(level: int) -> tuple[Row, ...]:
    """Three partitions, twenty objects of twelve batches each, and something of everything else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_partitions, "CHUNK_RUNS", 8)
        return _rows(level)


def _rows(level: int) -> tuple[Row, ...]:
    ledger = JournalledLedger(level)
    ledger.submit(CreateTopic("t", topic_id(1), PARTITIONS, {"retention.ms": "7"}))
    ledger.submit(CreateTopic("gone", topic_id(2), 1, {}))
    for number in range(OBJECTS):
        upload = Upload(Uploader(1, bytes(16)), number + 1, max(number - 3, 0))
        ledger.submit(CommitFile(locator(number, 1_000_000 + number), 1200, batches(number), upload=upload))
    ledger.submit(
        CommitFile(locator(99, 1_000_000), 200, [commit_batch(topic_id(2), 0, n * 100) for n in (0, 1)])
    )
    ledger.submit(DeleteRecords(topic_id(1), 0, 50), DeleteTopic(topic_id(2)))
    ledger.submit(DrainRuns(2), RaiseFloor(999_000))
    member = Member("m", "i", "c", "/h", 6, 5, (("range", b"s"),), b"a")
    ledger.submit(
        StoreGroup(Group("g", "consumer", 7, "range", "m", (member,), True)),
        CommitOffsets("g", [OffsetRow(topic_id(1), 0, 5, 0, -1, "meta")]),
        SetClientQuotas([QuotaChange((("user", None),), {"producer_byte_rate": 1.5})]),
        SetResourceConfigs("group", "g", [ConfigChange(ConfigOp.SET, "a", "1")]),
    )
    return tuple(all_rows(ledger.state))


def batches(number: int) -> list:  # type: ignore[type-arg]
    """Of one object, for the partitions round-robin, each from the producer of its partition."""
    return [
        commit_batch(
            topic_id(1),
            at % PARTITIONS,
            at * 100,
            records=2,
            producer=(at % PARTITIONS, 0, 2 * (4 * number + at // PARTITIONS)),
        )
        for at in range(BATCHES)
    ]


def test_of_20_000_flipped_bits_none_is_believed_and_none_is_anything_but_damage(rows: list[Row]) -> None:
    """Damage is what a start gets over without a word of an operator: it reads the journal instead."""
    dice = random.Random(SEED)
    for _ in range(FLIPS):
        damaged = with_any_bit_flipped(rows, dice)
        with pytest.raises(StoreDamaged):
            restore(damaged)


def test_every_flipped_bit_of_the_first_row_is_damage(rows: list[Row]) -> None:
    """Also of the format version: neither an older one, without checksums, nor a newer one is believed."""
    meta, *others = rows
    assert meta.section == META and meta.value is not None
    for bit in range(8 * len(meta.value)):
        with pytest.raises(StoreDamaged):
            restore([flipped(meta, bit), *others])


def test_a_row_that_says_what_another_one_said_is_damage(rows: list[Row]) -> None:
    """A page of the file that was written to another place."""
    for section in (PARTITION, CHUNK, PRODUCER, OBJECT):
        first, second = [row for row in rows if row.section == section][:2]
        for changed in (first._replace(value=second.value), first._replace(section=section + 1)):
            with pytest.raises(StoreDamaged):
                restore([changed if row == first else row for row in rows])


def test_a_row_of_a_section_that_does_not_exist_is_damage(rows: list[Row]) -> None:
    with pytest.raises(StoreDamaged, match="no section 99"):
        restore([*rows, Row(99, b"", b"")])


@pytest.mark.parametrize("section", [META, TOPIC, PARTITION, CHUNK, OBJECT])
@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_row_that_is_missing_is_noticed(section: int, version: int) -> None:
    rows = rows_of_level(1 if version < 4 else 2)
    known = rows if version >= 3 else of_version(rows, version)
    restore(known)
    for gone in [row for row in known if row.section == section]:
        with pytest.raises(StoreDamaged):
            restore([row for row in known if row != gone])


def _high_watermark(data: bytes) -> bytes:
    """Byte 35, as in the case that was found."""
    return data[:35] + bytes([data[35] ^ 0x40]) + data[36:]


def _log_start(data: bytes) -> bytes:
    return data[:20] + (10_000).to_bytes(8, "big") + data[28:]


def _live_runs(data: bytes) -> bytes:
    return data[:15] + bytes([data[15] ^ 1]) + data[16:]


def _producer_base(data: bytes) -> bytes:
    return data[:-8] + (10_000).to_bytes(8, "big")


def _next_partition(data: bytes) -> bytes:
    return data[:26] + bytes(8) + data[34:]


def _next_object(data: bytes) -> bytes:
    return data[:42] + bytes(8) + data[50:]


@pytest.mark.parametrize(
    ("section", "change"),
    [
        (PARTITION, _high_watermark),
        (PARTITION, _log_start),
        (OBJECT, _live_runs),
        (PRODUCER, _producer_base),
        (META, _next_partition),
        (META, _next_object),
    ],
)
@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_contradict_one_another_are_damage_whatever_their_checksums_say(
    rows: list[Row], section: int, change: Callable[[bytes], bytes], version: int
) -> None:
    changed = [resealed(row, change) if row.section == section else row for row in rows]
    assert [body(row) for row in changed] != [body(row) for row in rows]
    restored: Sequence[Row] = changed if version == 3 else of_version(changed, version)
    with pytest.raises(StoreDamaged):
        restore(restored)
