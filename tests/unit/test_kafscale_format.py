"""KafScale's bucket: names both ways, segments read where they are, and no damage taken for data."""

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.batch.records import Record, build_batch
from ledger.errors import StoreDamaged, StoreError
from ledger.formats import kafscale
from ledger.formats.kafscale import (
    KafScalePartition,
    KafScaleSegment,
    adopted_runs,
    export_groups,
    found_segments,
    segment_keys,
)
from ledger.formats.segment import SegmentBatch, encode_segment, verify
from ledger.merging.found import FoundRun
from ledger.merging.merge import merge
from ledger.merging.plan import MergeTask
from ledger.objects.uploads import ObjectKind
from ledger.partitions.runs import without_timestamp
from ledger.types import TopicId

NOW_MS = 1_700_000_000_000
TOPIC = TopicId(bytes(16))
PARTITION = KafScalePartition("default", "orders", 3)


def test_names_are_kafscales() -> None:
    assert segment_keys(PARTITION, 42) == (
        "default/orders/3/segment-00000000000000000042.kfs",
        "default/orders/3/segment-00000000000000000042.index",
    )
    key, _ = segment_keys(PARTITION, 42, "/some/prefix/")
    assert key == "some/prefix/default/orders/3/segment-00000000000000000042.kfs"


@pytest.mark.parametrize("name", ["", "a/b", ".", ".."])
def test_names_that_are_no_part_of_a_key_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="KafScale's layout"):
        segment_keys(PARTITION._replace(topic=name), 0)


def test_a_listing_shows_segments_with_and_without_their_index() -> None:
    first, second = segment_keys(PARTITION, 0, "p"), segment_keys(PARTITION, 42, "p")
    listing = sorted(
        [(first[0], 100), (first[1], 28), (second[0], 200), ("p/__health/x", 1), ("p/readme", 2)]
    )
    assert list(found_segments(listing, "p")) == [
        KafScaleSegment(PARTITION, 0, first[0], 100, first[1]),
        KafScaleSegment(PARTITION, 42, second[0], 200, None),
    ]


NAME = st.text(
    st.characters(codec="ascii", categories=["L", "N"], include_characters="._-"), min_size=1
).filter(lambda name: name not in (".", ".."))


@given(NAME, NAME, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.sampled_from(["", "p", "a/b"]))
def test_every_name_is_read_as_it_was_written(
    namespace: str, topic: str, number: int, base: int, prefix: str
) -> None:
    partition = KafScalePartition(namespace, topic, number)
    key, index = segment_keys(partition, base, prefix)
    assert list(found_segments([(index, 1), (key, 2)], prefix)) == [
        KafScaleSegment(partition, base, key, 2, index)
    ]


@pytest.mark.parametrize(
    "key",
    [
        "default/orders/3/segment-42.kfs",
        "default/orders/03/segment-00000000000000000042.kfs",
        "default/orders/x/segment-00000000000000000042.kfs",
        "default/orders/3/segment-99999999999999999999.kfs",
        "default/orders/3/segment-00000000000000000042.kfs.tmp",
        "default/orders/segment-00000000000000000042.kfs",
        "default/orders/3/00000000000000000042.kfs",
        "default/orders/²/segment-00000000000000000042.kfs",
    ],
)
def test_other_keys_are_no_segments(key: str) -> None:
    assert list(found_segments([(key, 1)])) == []


def batch_of(records: int, stamp: int = 7) -> bytes:
    return build_batch([Record(at, 0, None, b"v" * at) for at in range(records)], base_timestamp=stamp)


def stored(*batches: tuple[int, int, int]) -> tuple[KafScaleSegment, bytes, bytes]:
    """A segment of batches of (base offset, records, timestamp)."""
    encoded = encode_segment(
        [SegmentBatch(base, batch_of(records, stamp)) for base, records, stamp in batches],
        batches[0][0],
        NOW_MS,
        2,
    )
    key, index_key = segment_keys(PARTITION, batches[0][0])
    return (
        KafScaleSegment(PARTITION, batches[0][0], key, encoded.size, index_key),
        b"".join(encoded.buffers),
        encoded.index,
    )


def test_a_segment_is_named_by_runs_where_it_is() -> None:
    found, data, index = stored((10, 3, 5), (20, 1, 9))
    (run,) = adopted_runs(found, data, index)
    assert (run.start, run.size, run.base, run.last, run.max_timestamp) == (32, len(data) - 48, 10, 20, 9)
    assert adopted_runs(found, data, None) == [run]


def test_runs_are_bounded_and_without_timestamps_as_old_as_the_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafscale, "MAX_RUN_BYTES", 2 * len(batch_of(2)))
    found, data, index = stored((0, 2, -1), (2, 2, -1), (4, 2, -1))
    runs = adopted_runs(found, data, index)
    assert [(run.base, run.last) for run in runs] == [(0, 3), (4, 5)]
    assert {run.max_timestamp for run in runs} == {without_timestamp(NOW_MS)}


@settings(deadline=None)
@given(st.data())
def test_a_flipped_bit_is_never_adopted(data: st.DataObject) -> None:
    found, whole, index = stored((10, 3, 5), (20, 1, 9))
    runs = adopted_runs(found, whole, index)
    damaged = bytearray(whole)
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    # Message count and creation time are in no CRC, and the runs do not come from them.
    if 16 <= at < 28 and damaged[16] < 0x80:
        assert adopted_runs(found, damaged, index) == runs
        return
    with pytest.raises(StoreError):
        adopted_runs(found, damaged, index)


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (32 + 61, "the batch at byte 32 does not match its CRC"),
        (32 + 7, "of the batch at byte 32 do not asc"),
    ],
)
def test_batches_that_lie_in_a_segment_with_a_right_crc_are_damage(at: int, reason: str) -> None:
    found, data, index = stored((10, 3, 5), (20, 1, 9))
    damaged = bytearray(data)
    damaged[at] ^= 2
    damaged[-16:-12] = crc32c(damaged[32:-16]).to_bytes(4, "big")
    with pytest.raises(StoreDamaged, match=reason):
        adopted_runs(found, damaged, index)


def test_a_segment_under_the_name_of_another_is_damage() -> None:
    found, data, index = stored((10, 3, 5))
    with pytest.raises(StoreDamaged, match="base offset"):
        adopted_runs(found._replace(base=9), data, index)


def test_an_index_that_names_no_batch_is_damage() -> None:
    found, data, _ = stored((10, 3, 5), (20, 1, 9))
    _, _, other = stored((10, 2, 5), (12, 1, 9))
    with pytest.raises(StoreDamaged, match=r"the index of .* is damaged: no batch of offset 12"):
        adopted_runs(found, data, other)


def test_a_segment_of_another_size_than_listed_is_damage() -> None:
    found, data, index = stored((10, 3, 5))
    with pytest.raises(StoreDamaged, match="size"):
        adopted_runs(found._replace(size=found.size + 1), data, index)


def test_what_is_exported_is_what_kafscale_reads() -> None:
    batches = [batch_of(records) for records in (3, 1, 2, 4)]
    runs, base = [], 5
    for number, batch in enumerate(batches):
        last = base + (3, 1, 2, 4)[number] - 1
        runs.append(FoundRun(f"wal/{number}", ObjectKind.WAL, 0, len(batch), base, last, 7))
        base = last + 1
    data = {run.locator: batch for run, batch in zip(runs, batches, strict=True)}
    groups = list(export_groups(runs, len(batches[0]) + len(batches[1])))
    assert [[run.base for run in group] for group in groups] == [[5, 8], [9], [11]]
    adopted = []
    for group in groups:
        task = MergeTask(TOPIC, 3, 0, group)
        merged = merge(task, [data[run.locator] for run in group], NOW_MS)
        whole = b"".join(merged.buffers)
        verify(whole, merged.index, "it")
        key, index_key = segment_keys(PARTITION, task.first)
        found = KafScaleSegment(PARTITION, task.first, key, merged.size, index_key)
        adopted += adopted_runs(found, whole, merged.index)
    assert [(run.base, run.last) for run in adopted] == [(5, 8), (9, 10), (11, 14)]
