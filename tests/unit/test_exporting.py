"""An export: every readable record, once, from where it ended before, and never into segments of others."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.open import Access, open_kafscale
from ledger.batch.header import walk
from ledger.batch.records import Producer
from ledger.errors import StoreDamaged, StoreUnavailable
from ledger.formats.kafscale import adopted_runs, found_segments
from ledger.formats.segment import HEAD_BYTES, TRAILER_BYTES, read_index
from ledger.merging.plan import MergePolicy
from ledger.merging.reads import NEAR
from ledger.objects.uploads import ObjectKind
from ledger.types import Buffer, TopicId
from pipeline.exporting import Export, ExportTotals, Target
from pipeline.messages import FoundRuns
from pipeline.pins import Pin
from pipeline.planning import Place
from pipeline.rounds import JobError, Round
from pipeline.segments import Engine, Host, MergeJob
from tests.support.merge_peer import MergePeer

T = TopicId(bytes([1] * 16))
PLACE = Place(T, "t", 0)
FIRST = "default/t/0/segment-00000000000000000000"


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


class ToTarget:
    """An export into a directory, as often as it is run."""

    def __init__(self, directory: Path, runner: asyncio.Runner) -> None:
        self.directory = directory
        self.runner = runner
        self.fails_at = 10**9
        """The put that fails, and all after it."""

    def run(
        self, peer: MergePeer, place: Place = PLACE, segment_bytes: int = 1, *, committed: bool = True
    ) -> ExportTotals:
        totals = ExportTotals()
        blobs = open_kafscale(f"file:{self.directory}", Access.SHARED)
        target = FailingTarget(blobs, self.runner, totals, self.fails_at)
        pin = Pin(peer, os.urandom, peer.elapsed_s)
        try:
            export = Export(
                peer,
                peer,
                target,
                pin,
                totals,
                namespace="default",
                rule=NEAR,
                committed=committed,
                segment_bytes=segment_bytes,
            )
            export.partition(place)
        finally:
            pin.release()
            target.close()
        return totals

    def records(self) -> list[tuple[int, bytes]]:
        """Offset of each batch and its bytes after the patched head, as of all complete segments."""
        found: list[tuple[int, bytes]] = []
        keys = sorted(str(path.relative_to(self.directory)) for path in self.directory.rglob("*.*"))
        sizes = [(key, (self.directory / key).stat().st_size) for key in keys]
        for segment in found_segments(sizes):
            data = (self.directory / segment.key).read_bytes()
            assert segment.index_key is not None
            index = (self.directory / segment.index_key).read_bytes()
            assert adopted_runs(segment, data, index)
            body = memoryview(data)[HEAD_BYTES:-TRAILER_BYTES]
            found += [
                (each.base_offset, bytes(body[each.position + 16 : each.position + each.size_bytes]))
                for each in walk(body)
            ]
        return found


class FailingTarget(Target):
    """Whose puts fail from one on, as when the store goes away."""

    def __init__(self, blobs: object, runner: asyncio.Runner, totals: ExportTotals, fails_at: int) -> None:
        super().__init__(blobs, runner, totals)  # type: ignore[arg-type]
        self._left = fails_at

    def put(self, key: str, buffers: list[Buffer]) -> None:
        self._left -= 1
        if self._left < 0:
            raise StoreUnavailable("the target is gone")
        super().put(key, buffers)


@pytest.fixture
def to_target(tmp_path: Path, runner: asyncio.Runner) -> ToTarget:
    return ToTarget(tmp_path / "bucket", runner)


def test_all_records_of_runs_and_segments_are_exported_at_their_offsets(to_target: ToTarget) -> None:
    peer = MergePeer(page=30)
    peer.fill(100)
    engine = Engine(Round(peer, os.urandom))
    MergeJob(peer, engine, Host(peer.elapsed_s, os.urandom), MergePolicy(due_runs=10, task_bytes=4_096)).run()
    peer.fill(100)
    before = peer.records_of(T, 0)
    totals = to_target.run(peer, segment_bytes=5_000)
    assert to_target.records() == before
    assert totals.batches == len(before) and 2 < totals.segments < 20
    assert not peer.pins


def test_a_repeat_writes_what_came_since_and_nothing_twice(to_target: ToTarget) -> None:
    peer = MergePeer()
    peer.fill(5)
    to_target.run(peer)
    again = to_target.run(peer)
    assert (again.segments, again.writes, again.present) == (0, 0, 5)
    peer.fill(3)
    assert to_target.run(peer).segments == 3
    assert to_target.records() == peer.records_of(T, 0)


@pytest.mark.parametrize("puts", range(9))
def test_an_export_that_ended_at_any_put_goes_on(to_target: ToTarget, puts: int) -> None:
    peer = MergePeer()
    peer.fill(4)
    to_target.fails_at = puts
    with pytest.raises(StoreUnavailable):
        to_target.run(peer)
    to_target.fails_at = 10**9
    # The next one takes other runs together.
    to_target.run(peer, segment_bytes=10**6)
    assert to_target.records() == peer.records_of(T, 0)


def test_an_index_that_was_never_written_is_made_of_the_segment(to_target: ToTarget) -> None:
    peer = MergePeer()
    peer.flush([(T, 0, 2_000), (T, 0, 3)])
    to_target.run(peer, segment_bytes=10**6)
    path = to_target.directory / f"{FIRST}.index"
    index = path.read_bytes()
    assert len(read_index(index, "it").entries) == 2
    path.unlink()
    to_target.run(peer)
    assert path.read_bytes() == index


def test_deleted_records_are_not_exported(to_target: ToTarget) -> None:
    peer = MergePeer()
    in_one_run(peer, 2, 2, 2)
    peer.parts[T, 0].log_start = 2
    to_target.run(peer, segment_bytes=10**6)
    assert to_target.records() == peer.records_of(T, 0)
    assert [offset for offset, _ in to_target.records()] == [2, 4]


def with_transactions(peer: MergePeer) -> MergePeer:
    """Committed 0-1 and 4-5, aborted 2-3, 9-10 and 11-12, without a transaction 13-14, open from 16 on."""
    peer.send(1)  # 0, 1
    peer.send(2)  # 2, 3
    peer.send(1)  # 4, 5
    peer.end(1, commit=True)  # 6
    peer.end(2, commit=False)  # 7
    peer.flush([(T, 0, 1)])  # 8
    peer.send(1)  # 9, 10
    peer.send(1)  # 11, 12
    peer.fill(1)  # 13, 14
    peer.end(1, commit=False)  # 15
    peer.send(3)  # 16, 17
    peer.fill(1)  # 18, 19
    return peer


def merge(peer: MergePeer) -> None:
    engine, host = Engine(Round(peer, os.urandom)), Host(peer.elapsed_s, os.urandom)
    MergeJob(peer, engine, host, MergePolicy(due_runs=3)).run()


@pytest.mark.parametrize("page", [1, 2, 300])
@pytest.mark.parametrize("segment_bytes", [1, 300, 10**6])
def test_an_export_has_what_consumers_of_committed_records_see(
    to_target: ToTarget, page: int, segment_bytes: int
) -> None:
    peer = with_transactions(MergePeer(page=page))
    totals = to_target.run(peer, segment_bytes=segment_bytes)
    readable = [0, 4, 8, 13]
    assert [offset for offset, _ in to_target.records()] == readable
    assert to_target.records() == [each for each in peer.records_of(T, 0) if each[0] in readable]
    assert (totals.batches, totals.left_out) == (4, 3)
    # What was open goes on, and is committed and aborted.
    peer.send(3)  # 20, 21
    peer.end(3, commit=True)  # 22
    peer.send(2)  # 23, 24
    peer.end(2, commit=False)  # 25
    to_target.run(peer, segment_bytes=segment_bytes)
    assert [offset for offset, _ in to_target.records()] == [*readable, 16, 18, 20]


class MergedWhileFound(MergePeer):
    """All that can be merged is, once the first page of runs was found."""

    is_merged = False

    def find_isolated(self, topic_id: TopicId, partition: int, offset: int) -> FoundRuns:
        found = super().find_isolated(topic_id, partition, offset)
        if not self.is_merged:
            self.is_merged = True
            merge(self)
            assert self.parts[T, 0].runs[0].last > found.runs[-1].last
        return found


@pytest.mark.parametrize("segment_bytes", [1, 300, 10**6])
def test_what_is_merged_between_two_pages_is_exported_once(to_target: ToTarget, segment_bytes: int) -> None:
    peer = MergedWhileFound(page=2)
    peer.fill(8)
    totals = to_target.run(peer, segment_bytes=segment_bytes)
    assert to_target.records() == peer.records_of(T, 0)
    assert totals.batches == 8
    again = to_target.run(peer, segment_bytes=segment_bytes)
    assert again.segments == 0


@pytest.mark.parametrize("page", range(1, 8))
@pytest.mark.parametrize("segment_bytes", [1, 300, 10**6])
def test_transactions_that_are_merged_between_two_pages_are_exported_once(
    to_target: ToTarget, page: int, segment_bytes: int
) -> None:
    peer = with_transactions(MergedWhileFound(page=page))
    totals = to_target.run(peer, segment_bytes=segment_bytes)
    assert [offset for offset, _ in to_target.records()] == [0, 4, 8, 13]
    assert (totals.batches, totals.left_out) == (4, 3)


@pytest.mark.parametrize("page", [1, 300])
def test_an_export_of_merged_transactions_is_what_it_would_be_before(to_target: ToTarget, page: int) -> None:
    peer = with_transactions(MergePeer(page=page))
    before = peer.records_of(T, 0)
    merge(peer)
    assert peer.parts[T, 0].runs[0].kind is ObjectKind.SEGMENT
    assert peer.records_of(T, 0) == before
    assert not any(run.kind is ObjectKind.MARKER for run in peer.parts[T, 0].runs)
    assert to_target.run(peer).left_out == 3
    assert [offset for offset, _ in to_target.records()] == [0, 4, 8, 13]


def test_records_without_a_transaction_are_exported_whichever_producer_sent_them(to_target: ToTarget) -> None:
    peer = MergePeer()
    peer.send(1)
    peer.flush([(T, 0, 1)], producer=Producer(1, 0, 2), flags=0)
    peer.end(1, commit=False)
    to_target.run(peer)
    assert [offset for offset, _ in to_target.records()] == [2]


def test_an_export_of_uncommitted_records_has_all_but_the_ends_of_transactions(to_target: ToTarget) -> None:
    peer = with_transactions(MergePeer())
    totals = to_target.run(peer, committed=False)
    assert [offset for offset, _ in to_target.records()] == [0, 2, 4, 8, 9, 11, 13, 16, 18]
    assert (totals.batches, totals.left_out) == (9, 0)


@pytest.mark.parametrize("committed", [True, False])
def test_exports_of_both_isolation_levels_are_not_mixed(to_target: ToTarget, committed: bool) -> None:
    peer = with_transactions(MergePeer())
    to_target.run(peer, committed=committed)
    with pytest.raises(JobError, match="other isolation level"):
        to_target.run(peer, committed=not committed)


def test_a_gateway_that_does_not_say_what_was_aborted_is_refused(to_target: ToTarget) -> None:
    class Older(MergePeer):
        def find_isolated(self, topic_id: TopicId, partition: int, offset: int) -> FoundRuns:
            return self.find_batches(topic_id, partition, offset)

    peer = Older()
    peer.fill(1)
    with pytest.raises(JobError, match="older than this command"):
        to_target.run(peer)


def in_one_run(peer: MergePeer, *records: int) -> None:
    """Batches of so many records each, which the ledger has as one run."""
    peer.flush([(T, 0, count) for count in records])
    part = peer.parts[T, 0]
    whole = part.runs[-len(records) :]
    size = sum(run.size for run in whole)
    part.runs[-len(records) :] = [whole[0]._replace(size=size, last=whole[-1].last)]


def test_an_export_goes_on_within_a_run_that_has_grown(to_target: ToTarget) -> None:
    peer, grown = MergePeer(), MergePeer()
    in_one_run(peer, 2, 3)
    to_target.run(peer)
    in_one_run(grown, 2, 3, 1)
    assert to_target.run(grown).batches == 1
    assert to_target.records() == grown.records_of(T, 0)


def test_segments_of_a_topic_that_was_made_again_are_not_mixed_with_the_first(to_target: ToTarget) -> None:
    peer = MergePeer(("t", "u"))
    peer.fill(5)
    to_target.run(peer)
    other = TopicId(bytes([2] * 16))
    with pytest.raises(JobError, match="another topic under the name t"):
        to_target.run(peer, Place(other, "t", 0))


def test_a_bucket_of_kafscale_is_not_written_to(to_target: ToTarget) -> None:
    peer = MergePeer()
    peer.fill(1)
    to_target.run(peer)
    (to_target.directory / "__dragoman" / "default" / "t").unlink()
    with pytest.raises(JobError, match="no export has written"):
        to_target.run(peer)


def test_a_ledger_that_ends_before_the_target_does_is_refused(to_target: ToTarget) -> None:
    peer, earlier = MergePeer(), MergePeer()
    peer.fill(5)
    earlier.fill(4)
    to_target.run(peer)
    with pytest.raises(JobError, match="up to 9, and the ledger ends at 8"):
        to_target.run(earlier)


def test_a_damaged_record_ends_the_export(to_target: ToTarget) -> None:
    peer = MergePeer()
    peer.fill(3)
    key = peer.parts[T, 0].runs[1].object_key
    damaged = bytearray(peer.objects[key])
    damaged[-1] ^= 1
    peer.objects[key] = bytes(damaged)
    with pytest.raises(JobError, match="is damaged"):
        to_target.run(peer)
    assert [offset for offset, _ in to_target.records()] == [0]


def test_an_export_that_misses_runs_names_the_partition_and_all_of_their_offsets(
    to_target: ToTarget,
) -> None:
    peer = MergePeer()
    peer.fill(30)
    keys = list(peer.objects)
    for lost in (3, 4, 5, 20, 29):
        del peer.objects[keys[lost]]
    with pytest.raises(JobError) as raised:
        to_target.run(peer, segment_bytes=10**6)
    assert str(raised.value) == (
        f"t-0: offsets 6 to 11, 40 to 41, 58 to 59 are missing, the first of them from {keys[3]} at byte 4; "
        "dragoman audit names all damages"
    )
    for lost in range(1, 30, 2):
        peer.objects.pop(keys[lost], None)
    with pytest.raises(JobError, match=r"offsets 2 to 3, 6 to 11, .*, 46 to 47, and 3 more, are missing"):
        to_target.run(peer, segment_bytes=10**6)


def test_a_damaged_segment_in_the_target_is_not_given_an_index(to_target: ToTarget) -> None:
    peer = MergePeer()
    peer.fill(1)
    to_target.run(peer)
    (to_target.directory / f"{FIRST}.index").unlink()
    path = to_target.directory / f"{FIRST}.kfs"
    damaged = bytearray(path.read_bytes())
    damaged[40] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(StoreDamaged, match=FIRST):
        to_target.run(peer)


def test_a_topic_that_is_gone_is_named(to_target: ToTarget) -> None:
    peer = MergePeer()
    totals = to_target.run(peer, Place(TopicId(bytes([9] * 16)), "gone", 0))
    assert totals.gone == ["gone"]
