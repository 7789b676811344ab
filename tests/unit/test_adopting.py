"""An adoption reads everything before it enters anything, and one that ended at any call is finished by the
next."""

import asyncio
import io
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from adapters.open import open_kafscale, open_segments
from adapters.segments.adopted import AdoptedSegments
from ledger.adoption.requests import Adopted, Adopting, AdoptRuns, AdoptTopic
from ledger.adoption.state import Adoptions
from ledger.batch.records import Record, build_batch
from ledger.errors import StoreUnavailable
from ledger.formats.kafscale import KafScalePartition, segment_keys
from ledger.formats.segment import SegmentBatch, encode_segment
from ledger.image import all_rows
from ledger.keys import adopted_locator, segment_locator
from ledger.merging.found import FoundRun, RunPage
from ledger.merging.plan import MergePolicy, PartitionPlanner
from ledger.objects.uploads import ObjectKind
from ledger.ports import Blobs
from ledger.requests import Refused, Request
from ledger.rows import digest
from ledger.topics.requests import DeleteTopic
from ledger.types import Buffer, Position, TopicId
from pipeline import adopting
from pipeline.adopting import Adoption, AdoptTotals, BucketPlan, Source, Spool
from pipeline.peer import PeerUnavailable
from pipeline.rounds import JobError
from tests.support.journalled import JournalledLedger

ID = bytes(range(16))


def segment(topic: str, partition: int, *bases: int) -> dict[str, bytes]:
    """With two records at each of these offsets."""
    batches = [
        SegmentBatch(base, build_batch([Record(0, 0, None, b"v"), Record(1, 1, None, b"w")]))
        for base in bases
    ]
    encoded = encode_segment(batches, bases[0], 5)
    key, index_key = segment_keys(KafScalePartition("default", topic, partition), bases[0])
    return {key: b"".join(encoded.buffers), index_key: encoded.index}


BUCKET = {
    **segment("a", 0, 10, 12),
    **segment("a", 0, 20),
    **segment("a", 0, 30),
    **segment("a", 11, 0),
    **segment("b", 2, 5),
    "__health/x": b"",
}


class LedgerAdopter:
    """A gateway as far as an adoption needs it. From call number `fails_at` on there is no answer; the call
    itself arrives if `arrives`."""

    def __init__(self, ledger: JournalledLedger) -> None:
        self.ledger = ledger
        self.calls = 0
        self.fails_at = 10**9
        self.arrives = False

    def adopt_topic(self, adopt: AdoptTopic) -> Adopting | Refused:
        result = self._submit(adopt)
        assert isinstance(result, Adopting | Refused)
        return result

    def adopt_runs(self, adopt: AdoptRuns) -> Adopted | Refused:
        result = self._submit(adopt)
        assert isinstance(result, Adopted | Refused)
        return result

    def _submit(self, request: Request) -> object:
        self.calls += 1
        if self.calls > self.fails_at:
            if self.arrives:
                self.ledger.submit(request)
            raise PeerUnavailable("gone")
        (result,) = self.ledger.submit(request)
        return result


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@pytest.fixture
def adopt(
    tmp_path: Path, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AdoptTotals]:
    monkeypatch.setattr(adopting, "CHUNK_SEGMENTS", 2)

    ids = iter(range(1, 100))

    def run(objects: Mapping[str, bytes], adopter: LedgerAdopter, *topics: str) -> AdoptTotals:
        for key, data in objects.items():
            path = tmp_path / "old" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        totals = AdoptTotals()
        source = Source(open_kafscale(f"file:{tmp_path / 'old'}"), runner, totals)
        plan, spool = BucketPlan(source, totals), Spool(io.BytesIO())
        try:
            plan.read("default", topics, spool)
        finally:
            source.close()
        Adoption(adopter, "s3://old", totals, lambda: bytes([next(ids)]) * 16).enter(plan.topics, spool)
        return totals

    return run


def test_topics_have_the_offsets_and_partitions_of_the_bucket(adopt: Callable[..., AdoptTotals]) -> None:
    ledger = JournalledLedger()
    totals = adopt(BUCKET, LedgerAdopter(ledger))
    found = {
        (name, log.index): (log.log_start, log.high_watermark, log.run_count)
        for name, topic in ledger.state.topics.by_name.items()
        for log in topic.partitions
        if log.high_watermark
    }
    assert found == {("a", 0): (10, 32, 3), ("a", 11): (0, 2, 1), ("b", 2): (5, 7, 1)}
    assert len(ledger.state.topics.by_name["a"].partitions) == 12
    assert (totals.topics, totals.segments, totals.runs, totals.verified) == (2, 5, 5, 5)


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("call", range(10))
def test_an_adoption_that_ended_at_any_call_is_finished_by_the_next(
    adopt: Callable[..., AdoptTotals], call: int, arrives: bool
) -> None:
    whole = JournalledLedger()
    once = LedgerAdopter(whole)
    adopt(BUCKET, once)
    assert once.calls == 10
    ledger = JournalledLedger()
    adopter = LedgerAdopter(ledger)
    adopter.fails_at, adopter.arrives = call, arrives
    with pytest.raises(PeerUnavailable):
        adopt(BUCKET, adopter)
    adopter.fails_at = 10**9
    adopt(BUCKET, adopter)

    def content(of: JournalledLedger) -> object:
        return {
            (name, log.index): (log.log_start, log.high_watermark, [run[3:] for run in log.runs()])
            for name, topic in of.state.topics.by_name.items()
            for log in topic.partitions
        }

    assert content(ledger) == content(whole)
    assert len(ledger.state.objects.by_number) == 5
    assert digest(all_rows(ledger.from_journal())) == digest(all_rows(ledger.state))


@pytest.mark.parametrize(
    ("objects", "topics", "reason"),
    [
        ({**BUCKET, **segment("c", 0, 0, 2), **segment("c", 0, 3)}, (), "has offset 3, which .* has already"),
        (BUCKET, ("a", "x"), "no segment of x"),
        ({"other/a/0/x": b""}, (), "no segment in namespace default"),
    ],
)
def test_what_cannot_be_adopted_changes_nothing(
    adopt: Callable[..., AdoptTotals], objects: Mapping[str, bytes], topics: tuple[str, ...], reason: str
) -> None:
    adopter = LedgerAdopter(JournalledLedger())
    with pytest.raises(JobError, match=reason):
        adopt(objects, adopter, *topics)
    assert adopter.calls == 0


def test_one_topic_that_is_refused_keeps_the_others_from_beginning(
    adopt: Callable[..., AdoptTotals],
) -> None:
    ledger = JournalledLedger()
    adopter = LedgerAdopter(ledger)
    adopt(segment("b", 0, 0), adopter)
    entries = len(ledger.entries)
    # Of the topics, b is adopted from elsewhere by now.
    adoptions = ledger.state.part(Adoptions)
    adoptions.update({topic: kept._replace(place="s3://x") for topic, kept in adoptions.items()})
    with pytest.raises(JobError, match="was adopted from s3://x"):
        adopt(BUCKET, adopter)
    assert len(ledger.entries) == entries


async def test_a_bucket_that_is_out_of_reach_is_missing_to_a_gateway_and_an_error_to_a_job(
    tmp_path: Path,
) -> None:
    (key, data), *_ = segment("a", 0, 10).items()
    path = tmp_path / "there" / key
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    here, away = f"file:{tmp_path / 'there'}", "s3://away"

    def opened(place: str) -> object:
        if place == away:
            raise StoreUnavailable("no route")
        return open_kafscale(place)

    positions = [Position(adopted_locator(TopicId(ID), place, key), 0, 8) for place in (away, here)]
    failing: dict[str, str] = {}
    lenient = AdoptedSegments(opened, failing, is_lenient=True)  # type: ignore[arg-type]
    assert await lenient.read(positions) == [None, data[:8]]
    assert failing == {away: "no route"}
    await lenient.close()
    strict = AdoptedSegments(opened)  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable, match="adopted from s3://away: no route"):
        await strict.read(positions)
    await strict.close()


async def test_a_bucket_that_hangs_while_it_is_opened_holds_up_no_other(tmp_path: Path) -> None:
    (key, data), *_ = segment("a", 0, 10).items()
    for name in ("before", "beside", "hangs"):
        path = tmp_path / name / key
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    may_open, opened = threading.Event(), list[str]()

    def open_place(place: str) -> Blobs:
        opened.append(place)
        if place.endswith("/hangs"):
            assert may_open.wait(60.0)
        return open_kafscale(place)

    adopted = AdoptedSegments(open_place)

    async def read(name: str) -> list[Buffer | None]:
        locator = adopted_locator(TopicId(ID), f"file:{tmp_path / name}", key)
        return await adopted.read([Position(locator, 0, 8)])

    await read("before")
    waiting = [asyncio.ensure_future(read("hangs")) for _ in range(2)]
    try:
        async with asyncio.timeout(30.0):
            assert [await read("before"), await read("beside")] == [[data[:8]]] * 2
        assert not any(task.done() for task in waiting)
    finally:
        may_open.set()
    assert await asyncio.gather(*waiting) == [[data[:8]]] * 2
    assert len(opened) == 3
    await adopted.close()


@pytest.mark.parametrize("keys", [1, 1_000])
def test_no_request_has_more_than_a_journal_entry_has_room_for(
    adopt: Callable[..., AdoptTotals], monkeypatch: pytest.MonkeyPatch, keys: int
) -> None:
    monkeypatch.setattr(adopting, "CHUNK_SEGMENTS", 500)
    monkeypatch.setattr(adopting, "CHUNK_KEY_BYTES", keys)
    ledger = JournalledLedger()
    adopter = LedgerAdopter(ledger)
    adopt({key: data for base in range(0, 60, 2) for key, data in segment("a", 0, base).items()}, adopter)
    assert ledger.state.topics.by_name["a"].partitions[0].high_watermark == 60
    # Besides check, begin and end: each key has 44 bytes.
    assert adopter.calls == 3 + (30 if keys == 1 else 2)


async def test_a_store_reads_adopted_segments_and_never_deletes_or_lists_them(tmp_path: Path) -> None:
    (key, data), *_ = segment("a", 0, 10).items()
    path = tmp_path / "old" / key
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    locator = adopted_locator(TopicId(ID), f"file:{tmp_path / 'old'}", key)
    (tmp_path / "own").mkdir()
    store = open_segments(f"file:{tmp_path / 'own'}")
    await store.delete([locator])
    assert path.read_bytes() == data
    missing = Position(segment_locator(TopicId(ID), 0, 0, 5, bytes(10)), 0, 4)
    assert await store.read([missing, Position(locator, 4, 8), missing]) == [None, data[4:12], None]
    assert await store.objects() == []
    await store.close()


def test_adopted_runs_are_merged_at_once_whatever_their_size_and_number() -> None:
    planner = PartitionPlanner(TopicId(ID), 0, MergePolicy(), 1_700_000_000_000)
    locator = adopted_locator(TopicId(ID), "s3://old", "default/a/0/segment-00000000000000000010.kfs")
    runs = [
        FoundRun(locator, ObjectKind.SEGMENT, 32 + at * 4_000_000, 4_000_000, 10 * at, 10 * at + 5, -1)
        for at in range(3)
    ]
    own = FoundRun(segment_locator(TopicId(ID), 0, 30, 5, bytes(10)), *runs[0][1:4], 30, 35, -1)
    (task,) = planner.feed(RunPage(1, 0, 36, [*runs, own]))
    assert task.runs == runs


@pytest.mark.parametrize("later", [segment("a", 0, 40), segment("a", 0, 25)], ids=["after", "between"])
def test_a_bucket_that_has_changed_since_an_adoption_began_is_refused(
    adopt: Callable[..., AdoptTotals], later: dict[str, bytes]
) -> None:
    adopter = LedgerAdopter(JournalledLedger())
    adopter.fails_at = 4  # checks of both topics, the beginning of the first, and its first runs
    with pytest.raises(PeerUnavailable):
        adopt(BUCKET, adopter)
    adopter.fails_at = 10**9
    entries = len(adopter.ledger.entries)
    with pytest.raises(JobError, match=r"other segments of the topic a than .* delete the topic, and adopt"):
        adopt(later, adopter)
    assert len(adopter.ledger.entries) == entries
    adopter.ledger.submit(DeleteTopic(adopter.ledger.state.topics.by_name["a"].topic_id))
    adopt(BUCKET, adopter)
    log = adopter.ledger.state.topics.by_name["a"].partitions[0]
    bases = [run.base for run in log.runs()]
    assert bases == sorted(bases) and len(bases) == 4


def test_a_bucket_that_has_changed_since_an_adoption_ended_is_refused_unless_left_out(
    adopt: Callable[..., AdoptTotals],
) -> None:
    adopter = LedgerAdopter(JournalledLedger())
    adopt(BUCKET, adopter)
    with pytest.raises(JobError, match=r"topic a than .*, and that has ended: leave the topic out"):
        adopt(segment("a", 0, 40), adopter)
    assert adopt(segment("c", 0, 1), adopter, "b", "c").ended == 1
