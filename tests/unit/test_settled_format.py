"""The settled ledger: what is written is found again for every offset, and no damage is taken for data."""

from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import StoreDamaged, StoreError, StoreTooNew
from ledger.formats.settled import HEAD_BYTES, SettledBytes, SettledPartition, SettledRun, encode_settled
from ledger.formats.settled_meta import SettledMeta, decode_meta, encode_meta
from ledger.formats.settled_reader import (
    find_run,
    read_block,
    read_head,
    read_index,
    read_table,
    translate,
    verify_settled,
)
from ledger.keys import created_ms, settled_keys, settled_prefix
from ledger.objects.uploads import ObjectKind
from ledger.types import TopicId

TOPIC = TopicId(bytes(range(16)))
NOW_MS = 1_700_000_000_123
RUNS = [
    SettledRun("wal/0/a", ObjectKind.WAL, 300, 70, 5, 5),
    SettledRun("seg/b", ObjectKind.SEGMENT, 32, 4_000_000, 6, 999),
    SettledRun("wal/0/a", ObjectKind.WAL, 100, 200, 2_000, 2_001),
]
LOG = bytes.fromhex(
    "44534554 0002 0000"  # DSET, version, flags
    "000102030405060708090a0b0c0d0e0f"  # topic id
    "00000003"  # partition
    "0000018bcfe5687b"  # created
    "00000000000007d2"  # high watermark 2002
    "00000002 00000010 e5623f46"  # objects, bytes of the table and their CRC
    "978fa8fe"  # CRC of the header
    "01 07 77616c2f302f61"  # WAL, wal/0/a
    "02 05 7365672f62"  # segment, seg/b
    "44534350 0000000000000005 00000002 0000000f 0502d8b8"  # checkpoint
    "00 00 00 ac02 46"
    "00 e107 01 20 8092f401"
    "44534350 00000000000007d0 00000001 00000006 9add1931"
    "00 01 00 64 c801"
    "00000002 0000000000000003 ebccdc2a"  # blocks, runs, CRC of checkpoints
)
INDEX = bytes.fromhex(
    "44534958 0002 0000 00000002"  # DSIX, version, flags, entries
    "00000000000000a1 055491fb"  # bytes of the log, CRC
    "0000000000000005 000000000000004c"
    "00000000000007d0 0000000000000073"
)


def about(high_watermark: int = 2_002) -> SettledPartition:
    return SettledPartition(TOPIC, 3, NOW_MS, high_watermark)


def whole(written: SettledBytes) -> bytes:
    data = b"".join(written.log)
    assert len(data) == written.log_bytes
    return data


def both(runs: list[SettledRun], block_runs: int = 2) -> tuple[bytes, bytes]:
    written = encode_settled(about(max([2_002, *(run.last + 1 for run in runs)])), runs, block_runs)
    return whole(written), written.index


def test_both_files_byte_for_byte() -> None:
    log, index = both(RUNS)
    assert log == LOG
    assert index == INDEX


def test_a_partition_without_records_has_no_blocks() -> None:
    log, index = both([])
    assert list(verify_settled(log, index, "it")) == []
    assert translate(log, index, 0, "it") is None


ROW = st.tuples(
    st.sampled_from(["wal/0/a", "wal/0/b", "seg/c"]),
    st.integers(0, 2**32 - 1),
    st.integers(1, 2**32 - 1),
    st.one_of(st.just(0), st.integers(0, 2**40)),
    st.one_of(st.integers(0, 3), st.integers(0, 2**31)),
)


def ascending(rows: list[tuple[str, int, int, int, int]]) -> list[SettledRun]:
    """Of rows (locator, start, size, gap, records - 1)."""
    runs, following = [], 0
    for locator, start, size, gap, more in rows:
        kind = ObjectKind.SEGMENT if locator.startswith("seg") else ObjectKind.WAL
        base = following + gap
        runs.append(SettledRun(locator, kind, start, size, base, base + more))
        following = base + more + 1
    return runs


@settings(deadline=None)
@given(st.lists(ROW, max_size=30), st.integers(1, 31))
def test_every_offset_is_translated_to_its_run_and_gaps_to_nothing(
    rows: list[tuple[str, int, int, int, int]], block_runs: int
) -> None:
    runs = ascending(rows)
    log, index = both(runs, block_runs)
    assert list(verify_settled(log, index, "it")) == runs
    for run in runs:
        for offset in (run.base, run.last, (run.base + run.last) // 2):
            assert translate(log, index, offset, "it") == run
    held = {offset for run in runs for offset in (run.base, run.last)}
    for run in runs:
        for offset in (run.base - 1, run.last + 1):
            if offset not in held:
                inside = [each for each in runs if each.base <= offset <= each.last]
                assert translate(log, index, offset, "it") == (inside[0] if inside else None)


@settings(deadline=None)
@given(st.lists(ROW, min_size=1, max_size=30), st.data())
def test_one_offset_needs_header_table_index_and_one_block(
    rows: list[tuple[str, int, int, int, int]], data: st.DataObject
) -> None:
    runs = ascending(rows)
    log, index = both(runs, 4)
    head = read_head(log[:HEAD_BYTES], "it")
    table = read_table(log[HEAD_BYTES : head.blocks_at], head, "it")
    run = data.draw(st.sampled_from(runs))
    place = read_index(index, "it").block_of(run.base)
    assert place is not None
    start, size = place
    block = read_block(log[start : start + size], table, "it")
    assert len(block) <= 4
    assert find_run(block, run.base) == run


@settings(deadline=None)
@given(st.data())
def test_a_flipped_bit_is_never_taken_for_data(data: st.DataObject) -> None:
    log, index = bytearray(LOG), bytearray(INDEX)
    damaged = log if data.draw(st.booleans()) else index
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(StoreError):
        list(verify_settled(log, index, "it"))
    for offset in (5, 6, 999, 2_000):
        try:
            found = translate(log, index, offset, "it")
        except StoreError:
            continue
        # The damage is in another block, or in the trailer.
        assert found == next(run for run in RUNS if run.base <= offset <= run.last)


@settings(deadline=None)
@given(st.integers(0, len(LOG) + len(INDEX) - 1))
def test_files_that_are_cut_short_are_damaged(size: int) -> None:
    log, index = LOG[:size], INDEX[: max(size - len(LOG), 0)] if size >= len(LOG) else INDEX
    with pytest.raises(StoreDamaged, match=r"^(the index of )?it is damaged: "):
        list(verify_settled(log, index, "it"))


@settings(deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=100))
def test_bytes_of_anything_are_damaged_not_a_crash(log: bytes, index: bytes) -> None:
    for one, other in ((log, index), (LOG, index), (log, INDEX)):
        with pytest.raises(StoreError):
            list(verify_settled(one, other, "it"))


@settings(deadline=None)
@given(st.binary(max_size=40), st.integers(0, 5))
def test_blocks_and_tables_that_lie_with_a_right_crc_are_damaged(body: bytes, count: int) -> None:
    checkpoint = b"DSCP" + (7).to_bytes(8, "big") + count.to_bytes(4, "big") + len(body).to_bytes(4, "big")
    block = checkpoint + crc32c(checkpoint + body).to_bytes(4, "big") + body
    table = read_table(LOG[HEAD_BYTES:76], read_head(LOG, "it"), "it")
    with suppress(StoreDamaged):
        assert len(read_block(block, table, "it")) == count
    head = read_head(LOG, "it")._replace(objects=count, table_bytes=len(body), table_crc=crc32c(body))
    with suppress(StoreDamaged):
        assert len(read_table(body, head, "it")) == count


def test_an_index_of_another_log_is_damage() -> None:
    _, index = both(RUNS[:2])
    with pytest.raises(StoreDamaged, match="its index says"):
        list(verify_settled(LOG, index, "it"))


def test_an_index_that_names_other_offsets_is_damage() -> None:
    runs = [run._replace(base=run.base + 1, last=run.last + 1) for run in RUNS[2:]]
    _, index = both([*RUNS[:2], *(run._replace(last=run.last - 1) for run in runs)])
    with pytest.raises(StoreDamaged, match="not the one of its index entry"):
        list(verify_settled(LOG, index, "it"))


@pytest.mark.parametrize("which", ["log", "index"])
def test_a_newer_version_is_named(which: str) -> None:
    log, index = bytearray(LOG), bytearray(INDEX)
    (log if which == "log" else index)[5] = 3
    with pytest.raises(StoreTooNew, match="it has format version 3"):
        list(verify_settled(log, index, "it"))


@pytest.mark.parametrize(
    "wrong",
    [
        [RUNS[1], RUNS[0]],
        [RUNS[0]._replace(last=4)],
        [RUNS[0]._replace(last=2_002)],
        [RUNS[0]._replace(size=0)],
        [RUNS[0]._replace(start=-1)],
    ],
)
def test_runs_that_no_partition_has_are_refused(wrong: list[SettledRun]) -> None:
    with pytest.raises(ValueError, match=r"offsets|a run of"):
        encode_settled(about(), wrong)


def test_a_run_costs_few_bytes() -> None:
    runs = [SettledRun("wal/0/a", 1, at * 1_100, 1_000, at * 10, at * 10 + 9) for at in range(10_000)]
    log, index = both(runs, 256)
    assert len(log) + len(index) < 10 * len(runs)


META = SettledMeta(
    "c", TOPIC.hex(), "käse", 3, 17, NOW_MS, 4, 5, 2_002, NOW_MS, "l.log", 159, "l.index", 56, 3, 2
)


def test_the_description_is_read_as_written() -> None:
    assert decode_meta(encode_meta(META), "it") == META


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"{", b"[", "it is no JSON"),
        (b"dragoman settled", b"another", "describes no settled ledger"),
        (b'"version": 2', b'"version": 1', "version 1 is not written here"),
        (b'"runs": 3', b'"runs": "3"', "its runs is '3'"),
        (b'"runs": 3', b'"runs": true', "its runs is True"),
        (b'"runs": 3', b'"other": 3', "its runs is None"),
    ],
)
def test_a_description_that_is_damaged_says_why(old: bytes, new: bytes, reason: str) -> None:
    data = encode_meta(META)
    assert old in data
    with pytest.raises(StoreDamaged, match=reason):
        decode_meta(data.replace(old, new, 1), "it")


def test_a_newer_description_is_named() -> None:
    with pytest.raises(StoreTooNew, match="version 3"):
        decode_meta(encode_meta(META).replace(b'"version": 2', b'"version": 3'), "it")


def test_keys_of_a_partition_sort_by_age() -> None:
    old, new = (settled_keys(TOPIC, 3, at, bytes(10)) for at in (NOW_MS, NOW_MS + 1))
    assert old.meta_key < new.meta_key
    assert old.log_key == f"settled/{TOPIC.hex()}/3/018bcfe5-687b-7000-8000-000000000000.log"
    assert all(key.startswith(settled_prefix(TOPIC, 3)) and created_ms(key) == NOW_MS for key in old)
