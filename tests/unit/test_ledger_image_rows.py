"""The state as rows, and rows in snapshots: canonical, complete, checked."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator

import cramjam
import pytest
from crc32c import crc32c

from ledger.cut import StateCut, take_dirty_rows
from ledger.errors import StoreDamaged, StoreTooNew
from ledger.formats.snapshot import (
    Snapshot,
    SnapshotWriter,
    decode_archive,
    decode_snapshot,
    encode_archive,
    encode_snapshot,
)
from ledger.groups.requests import CommitOffsets, RemoveGroup, StoreGroup
from ledger.groups.rows import GROUP, OFFSET
from ledger.groups.state import Group, Member, OffsetRow
from ledger.image import all_rows, everything, restore
from ledger.journal import apply_entry, decode_entry
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.objects.rows import OBJECT, UPLOADER
from ledger.objects.uploads import Upload, Uploader
from ledger.partitions import state as ledger_partitions
from ledger.partitions.requests import CommitFile, DeleteRecords, DrainRuns, ReserveProducerIds
from ledger.partitions.rows import CHUNK, PARTITION, PRODUCER
from ledger.requests import Request
from ledger.rows import META, Row, digest, pack_rows, unpack_rows
from ledger.settings.configs import ConfigChange, ConfigOp
from ledger.settings.requests import QuotaChange, SetClientQuotas, SetResourceConfigs
from ledger.settings.rows import QUOTA, RESOURCE_CONFIG
from ledger.state import Dirty
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.topics.rows import TOPIC
from tests.support.image_rows import of_version, resealed
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id

SECTIONS = [META, TOPIC, PARTITION, CHUNK, PRODUCER, OBJECT, GROUP, OFFSET, QUOTA, RESOURCE_CONFIG]
NONCE = bytes(range(16))


@pytest.fixture(params=[1, 2], ids=["level 1", "level 2"])
def ledger(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> JournalledLedger:
    """Something of everything: trimmed chunks, a topic half drained, a closed object."""
    monkeypatch.setattr(ledger_partitions, "CHUNK_RUNS", 3)
    return something_of_everything(request.param)


def something_of_everything(level: int) -> JournalledLedger:
    ledger = JournalledLedger(level)
    ledger.submit(
        CreateTopic("t", topic_id(1), 2, {"retention.ms": "7", "cleanup.policy": "delete"}),
        CreateTopic("gone", topic_id(2), 1, {}),
        ReserveProducerIds(5),
    )
    ledger.submit(*[commit_of(number, 1) for number in range(8)])
    ledger.submit(*[commit_of(number, 2) for number in range(4)])
    ledger.submit(DeleteRecords(topic_id(1), 0, 2), DeleteTopic(topic_id(2)))
    ledger.submit(DrainRuns(4), RaiseFloor(999_000))
    ledger.submit(*settings_and_groups())
    assert ledger.state.draining and ledger.state.objects.garbage
    return ledger


def settings_and_groups() -> list[Request]:
    member = Member("m", "i", "c", "/h", 6, 5, (("range", b"s"),), b"a")
    group = Group("g", "consumer", 7, "range", "m", (member,), True)
    return [
        StoreGroup(group),
        CommitOffsets("g", [OffsetRow(topic_id(1), 0, 5, 0, -1, "meta")]),
        SetClientQuotas([QuotaChange((("user", None),), {"producer_byte_rate": 1.5})]),
        SetResourceConfigs("group", "g", [ConfigChange(ConfigOp.SET, "a", "1")]),
    ]


def without_settings_and_groups() -> list[Request]:
    return [
        StoreGroup(Group("g", "consumer", 8, None, None, (), True)),
        RemoveGroup("g"),
        SetClientQuotas([QuotaChange((("user", None),), {"producer_byte_rate": None})]),
        SetResourceConfigs("group", "g", [], replace=True),
    ]


def commit_of(number: int, topic: int) -> CommitFile:
    """The n-th batch of the only producer of a topic."""
    batch = commit_batch(topic_id(topic), 0, 0, records=2, producer=(3, 1, 2 * number), max_timestamp=5)
    upload = Upload(Uploader(topic, b"u" * 16), number + 1, max(number - 2, 0))
    return CommitFile(locator(100 * topic + number, 1_000_000), 100, [batch], upload=upload)


def rows_of(ledger: JournalledLedger) -> list[Row]:
    return list(all_rows(ledger.state))


def test_rows_restore_the_state_that_they_were_made_of(ledger: JournalledLedger) -> None:
    rows = rows_of(ledger)
    later = {UPLOADER} if ledger.state.feature_level > 1 else set()
    assert {row.section for row in rows} == {*SECTIONS, *later}
    restored = restore(rows)
    assert sorted(all_rows(restored)) == sorted(rows)
    assert set(restored.draining) == set(ledger.state.draining)
    assert set(restored.objects.garbage) == set(ledger.state.objects.garbage)
    assert restored.topics.by_name["t"].configs == {"retention.ms": "7", "cleanup.policy": "delete"}
    assert [log.find(0, 1 << 20) for log in restored.logs.values()] == [
        log.find(0, 1 << 20) for log in ledger.state.logs.values()
    ]


def test_rows_restore_in_whatever_order_they_come(ledger: JournalledLedger) -> None:
    rows = rows_of(ledger)
    assert digest(all_rows(restore(rows[::-1]))) == digest(rows)


def test_gateways_that_applied_the_same_entries_have_the_same_digest(ledger: JournalledLedger) -> None:
    assert digest(all_rows(ledger.from_journal())) == digest(all_rows(ledger.state))


def test_a_digest_differs_if_any_byte_of_any_row_does(ledger: JournalledLedger) -> None:
    rows = rows_of(ledger)
    right = digest(rows)
    assert digest(rows[::-1]) == right
    assert digest(rows[1:]) != right
    for at, (section, key, value) in enumerate(rows):
        assert value is not None
        for changed in (
            Row(section + 1, key, value),
            Row(section, key + b"\0", value),
            Row(section, key, value[:-1]),
            Row(section, key, value[:-1] + bytes([value[-1] ^ 1])),
        ):
            assert digest([*rows[:at], changed, *rows[at + 1 :]]) != right


def test_only_what_changed_is_written_and_only_once(ledger: JournalledLedger) -> None:
    take_dirty_rows(ledger.state)
    assert [row.section for row in take_dirty_rows(ledger.state)] == [META]
    ledger.submit(commit_of(8, 1))
    changed = [row.section for row in take_dirty_rows(ledger.state)]
    # At level 2 an earlier draft is settled by this one, and its results go.
    more = [OBJECT, UPLOADER] if ledger.state.feature_level > 1 else []
    assert changed == [META, PARTITION, CHUNK, PRODUCER, OBJECT, *more]


def test_what_was_taken_says_what_was_so_whatever_happens_before_it_is_encoded(
    ledger: JournalledLedger,
) -> None:
    ledger.submit(commit_of(8, 1))
    state = ledger.from_journal()
    expected = sorted(all_rows(state))
    rest = begun(cut := StateCut(state))
    lengthening = commit_batch(topic_id(1), 0, 100, records=5, producer=(3, 1, 18), max_timestamp=9)
    before = len(ledger.entries)
    ledger.submit(CommitFile(locator(108, 1_000_000), 200, [lengthening]))
    ledger.submit(commit_of(30, 3), *[commit_of(number, 1) for number in (11, 12, 13)])
    ledger.submit(DeleteRecords(topic_id(1), 0, 15), DrainRuns(100))
    ledger.submit(DeleteTopic(topic_id(1)), DrainRuns(100))
    for data in ledger.entries[before:]:
        apply_entry(state, decode_entry(data, "entry"))
        next(rest)
    assert ended(cut, rest) == expected


@pytest.mark.parametrize("steps", range(12))
def test_all_rows_are_of_one_entry_whatever_is_applied_meanwhile(
    ledger: JournalledLedger, steps: int
) -> None:
    ledger.submit(CreateTopic("blank", topic_id(3), 3, {}))
    state = ledger.from_journal()
    expected = sorted(all_rows(state))
    before = len(ledger.entries)
    ledger.submit(commit_of(30, 3), *[commit_of(number, 1) for number in (11, 12, 13)])
    ledger.submit(DeleteTopic(topic_id(1)), DeleteTopic(topic_id(3)), DrainRuns(100))
    rest = begun(cut := StateCut(state, whole=True))
    for _ in range(steps):
        next(rest)
    for data in ledger.entries[before:]:
        apply_entry(state, decode_entry(data, "entry"))
    assert ended(cut, rest) == expected


def begun(cut: StateCut) -> Iterator[None]:
    for _ in cut.begin():
        pass
    return cut.rest()


def ended(cut: StateCut, rest: Iterator[None]) -> list[Row]:
    for _ in rest:
        pass
    return sorted(row for row in cut.rows() if row.value is not None)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_what_could_not_be_written_in_the_end_is_dirty_again(ledger: JournalledLedger, steps: int) -> None:
    state = ledger.from_journal()
    expected = sorted(all_rows(state))
    rest = begun(given_up := StateCut(state))
    for _ in range(steps):
        next(rest)
    given_up.give_up()
    rest = begun(cut := StateCut(state))
    assert ended(cut, rest) == expected
    assert [row.section for row in take_dirty_rows(state)] == [META]


def test_a_row_of_something_that_is_gone_says_so(ledger: JournalledLedger) -> None:
    before = {(row.section, row.key) for row in rows_of(ledger)}
    take_dirty_rows(ledger.state)
    ledger.submit(*without_settings_and_groups(), DeleteTopic(topic_id(1)), DrainRuns(100))
    ledger.submit(DrainRuns(100))
    ledger.now_ms += 10
    ledger.submit(RaiseFloor(ledger.now_ms))
    ledger.submit(ForgetObjects(list(ledger.state.objects.garbage)))
    gone = {(row.section, row.key) for row in take_dirty_rows(ledger.state) if row.value is None}
    assert gone == before - {(META, b"")}
    assert [row.section for row in rows_of(ledger)] == [META]


def test_rows_that_could_not_be_written_are_written_the_next_time(ledger: JournalledLedger) -> None:
    take_dirty_rows(ledger.state)
    ledger.submit(commit_of(8, 1), *settings_and_groups())
    ledger.submit(DeleteTopic(topic_id(1)), CreateTopic("v", topic_id(9), 1, {}))
    cut = StateCut(ledger.state)
    for _ in begun(cut):
        pass
    rows = cut.rows()
    cut.give_up()
    assert sorted(take_dirty_rows(ledger.state), key=lambda row: row[:2]) == sorted(
        rows, key=lambda row: row[:2]
    )
    ledger.state.dirty = everything(ledger.state)
    assert sorted(take_dirty_rows(ledger.state)) == sorted(all_rows(ledger.state))


@pytest.mark.parametrize("version", [1, 2])
def test_rows_of_an_older_format_restore_and_are_all_dirty(version: int) -> None:
    rows = rows_of(something_of_everything(1))
    assert rows[0].value[:2] == b"\0\3"  # type: ignore[index]
    restored = restore(of_version(rows, version))
    assert restored.dirty == everything(restored)
    assert sorted(all_rows(restored)) == sorted(rows)
    assert sorted(take_dirty_rows(restored)) == sorted(rows)
    assert restore(rows).dirty == Dirty()


def without(section: int) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [row for row in rows if row.section != section]


def resized(section: int, by: int) -> Callable[[list[Row]], list[Row]]:
    def value(row: Row) -> bytes:
        assert row.value is not None
        return row.value[:by] if by < 0 else row.value + bytes(by)

    return lambda rows: [row._replace(value=value(row)) if row.section == section else row for row in rows]


DAMAGE = {"no meta": without(META), "no partitions": without(PARTITION)} | {
    f"section {section} by {by}": resized(section, by) for section in SECTIONS for by in (-1, -8, 8)
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_rows_that_do_not_fit_together_are_damage(
    ledger: JournalledLedger, damage: Callable[[list[Row]], list[Row]]
) -> None:
    with pytest.raises(StoreDamaged):
        restore(damage(rows_of(ledger)))


def test_rows_of_a_later_format_are_refused_as_too_new(ledger: JournalledLedger) -> None:
    meta, *others = rows_of(ledger)
    later = resealed(meta, lambda body: b"\0\5" + body[2:])
    with pytest.raises(StoreTooNew, match="format version 5"):
        restore([later, *others])
    assert meta.value is not None
    # Damaged, as its checksum shows: only this build wrote it.
    with pytest.raises(StoreDamaged, match="does not match its CRC-32C"):
        restore([meta._replace(value=b"\0\5" + meta.value[2:]), *others])


def test_packed_rows_read_back_and_every_cut_is_found(ledger: JournalledLedger) -> None:
    rows = rows_of(ledger)
    packed = pack_rows(rows)
    assert list(unpack_rows(memoryview(packed))) == rows
    ends = {len(pack_rows(rows[:count])) for count in range(len(rows))}
    for size in set(range(len(packed))) - ends:
        with pytest.raises(StoreDamaged):
            list(unpack_rows(memoryview(packed)[:size]))


def snapshot_at(level: int) -> Snapshot:
    ledger = something_of_everything(level)
    return Snapshot(ledger.state.applied, NONCE, rows_of(ledger))


@pytest.fixture
def older() -> Snapshot:
    return snapshot_at(1)


@pytest.fixture
def newer() -> Snapshot:
    return snapshot_at(2)


@pytest.fixture(params=[1, 2], ids=["level 1", "level 2"])
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    return snapshot_at(request.param)


def test_a_snapshot_reads_back_as_it_was_written(newer: Snapshot) -> None:
    data = encode_snapshot(newer)
    read = decode_snapshot(data, "s")
    assert (read.applied, read.nonce) == (newer.applied, NONCE)
    # As often as it is iterated.
    assert list(read.rows) == list(read.rows) == list(newer.rows)
    packed = pack_rows(newer.rows)
    assert (data[:6], data[6:14]) == (b"DSN1\0\2", newer.applied.to_bytes(8, "big"))
    assert (data[14:30], data[30:62]) == (NONCE, hashlib.sha256(packed).digest())
    assert int.from_bytes(data[62:70], "big") == len(packed)
    assert int.from_bytes(data[74:78], "big") == len(data) - 78
    assert bytes(cramjam.zstd.decompress(data[78:])) == packed


def test_a_snapshot_is_written_and_read_piece_by_piece(
    newer: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, at_once = list(newer.rows), 0
    monkeypatch.setattr("ledger.formats.snapshot.PIECE_BYTES", len(pack_rows(rows)) // 5)
    writer = SnapshotWriter(newer.applied, NONCE)
    for row in reversed(rows):
        writer.add([row])
        if writer.is_full:
            writer.compress()
            at_once += 1
    writer.compress()
    read = decode_snapshot(b"".join(writer.parts()), "s")
    assert list(read.rows) == rows[::-1] and at_once >= 4
    unpacked: list[int] = []
    decompress = cramjam.zstd.decompress

    def counted(data: bytes) -> bytes:
        unpacked.append(len(data))
        return bytes(decompress(data))

    monkeypatch.setattr(cramjam.zstd, "decompress", counted)
    assert next(iter(read.rows)) == rows[-1]
    assert len(unpacked) == 1


def test_a_ledger_of_feature_level_1_has_snapshots_that_older_builds_read(older: Snapshot) -> None:
    data = encode_snapshot(older)
    assert decode_snapshot(data, "s") == older
    assert (data[:6], data[6:14]) == (b"DSN1\0\1", older.applied.to_bytes(8, "big"))
    assert (data[14:30], data[30:62]) == (NONCE, digest(older.rows))
    assert int.from_bytes(data[62:70], "big") == len(pack_rows(older.rows))
    assert bytes(cramjam.zstd.decompress(data[74:])) == pack_rows(older.rows)


def test_an_archive_reads_back_as_it_was_written() -> None:
    entries = [b"one", b"", b"three" * 1000]
    data = encode_archive(17, entries)
    assert decode_archive(data, "a") == (17, entries)
    assert (data[:6], data[6:14], data[14:18]) == (b"DAR1\0\1", (17).to_bytes(8, "big"), bytes([0, 0, 0, 3]))
    assert decode_archive(encode_archive(0, []), "a") == (0, [])


def test_every_flipped_byte_of_a_snapshot_is_found(snapshot: Snapshot) -> None:
    data = encode_snapshot(snapshot)
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
        with pytest.raises((StoreDamaged, StoreTooNew), match="snapshot/0/7"):
            decode_snapshot(damaged, "snapshot/0/7")


def test_every_flipped_byte_of_an_archive_is_found(ledger: JournalledLedger) -> None:
    data = encode_archive(3, ledger.entries)
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
        with pytest.raises((StoreDamaged, StoreTooNew), match="archive/0/7"):
            decode_archive(damaged, "archive/0/7")


def test_every_cut_of_a_snapshot_or_an_archive_is_found(snapshot: Snapshot) -> None:
    for size in range(len(data := encode_snapshot(snapshot))):
        with pytest.raises(StoreDamaged):
            decode_snapshot(data[:size], "s")
    for size in range(len(data := encode_archive(3, [b"entry", b"another"]))):
        with pytest.raises(StoreDamaged):
            decode_archive(data[:size], "a")


def test_a_snapshot_of_level_1_whose_rows_are_not_those_of_its_digest_is_damaged(
    older: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = dataclasses.replace(older, rows=list(older.rows)[:-1])
    monkeypatch.setattr("ledger.formats.snapshot.digest", lambda _: digest(older.rows))
    data = encode_snapshot(other)
    monkeypatch.undo()
    with pytest.raises(StoreDamaged, match="its digest does not match"):
        decode_snapshot(data, "s")


@pytest.mark.parametrize(
    ("at", "length"),
    [pytest.param(30, 32, id="digest"), pytest.param(62, 8, id="length")],
)
def test_a_snapshot_whose_rows_are_not_those_of_its_head_is_damaged(
    newer: Snapshot, at: int, length: int
) -> None:
    data = bytearray(encode_snapshot(newer))
    data[at + length - 1] ^= 1
    data[70:74] = crc32c(bytes(data[74:]), crc32c(bytes(data[:70]))).to_bytes(4, "big")
    read = decode_snapshot(bytes(data), "snapshot/0/7")
    with pytest.raises(StoreDamaged, match="snapshot/0/7 is damaged: its digest does not match"):
        restore(read.rows)


def test_a_piece_that_is_cut_short_is_damage(newer: Snapshot) -> None:
    data = bytearray(encode_snapshot(newer)[:-1])
    data[70:74] = crc32c(bytes(data[74:]), crc32c(bytes(data[:70]))).to_bytes(4, "big")
    with pytest.raises(StoreDamaged, match="a piece of it is cut short"):
        restore(decode_snapshot(bytes(data), "s").rows)


def test_snapshots_and_archives_of_a_later_format_are_refused_as_too_new(snapshot: Snapshot) -> None:
    data = encode_snapshot(snapshot)
    with pytest.raises(StoreTooNew, match="format version 3"):
        decode_snapshot(data[:4] + b"\0\3" + data[6:], "s")
    data = encode_archive(0, [])
    with pytest.raises(StoreTooNew, match="format version 2"):
        decode_archive(data[:4] + b"\0\2" + data[6:], "a")
