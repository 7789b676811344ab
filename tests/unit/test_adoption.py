"""Adoption: runs of another's segments become those of a topic, once, in order, and nothing comes between."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ledger.adoption.requests import Adopted, AdoptedSegment, Adopting, AdoptRuns, AdoptStep, AdoptTopic
from ledger.adoption.state import Adoption, Adoptions
from ledger.errors import ErrorName
from ledger.image import all_rows
from ledger.keys import adopted_locator, adopted_place, created_ms, is_adopted
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.objects.state import ADOPTED_STORE, Origin
from ledger.objects.uploads import ObjectKind
from ledger.partitions.requests import CommitFile, Committed, DeleteRecords, DrainRuns, FileCommit
from ledger.partitions.state import PartitionLog
from ledger.requests import Refused
from ledger.rows import digest
from ledger.swaps.requests import ReleasePin, SegmentRun, Swapped, TakePin
from ledger.topics.requests import AddPartitions, CreateTopic, DeleteTopic
from ledger.types import TopicId
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id
from tests.support.swapping import JOB, swap_of

TOPIC = topic_id(1)
PLACE = "s3://old/bucket?endpoint=http://127.0.0.1:9000"
ORIGIN = Origin(ObjectKind.WAL, ADOPTED_STORE, 10**6, None)
DIGEST = bytes(range(16))
BEGIN = AdoptTopic("t", TOPIC, 2, PLACE, DIGEST)
END = AdoptTopic("t", topic_id(9), 2, PLACE, DIGEST, AdoptStep.END)


def segment(base: int) -> AdoptedSegment:
    return AdoptedSegment(f"default/t/0/segment-{base:020d}.kfs", 32 + 200 + 16, 500)


def adopt(*bases: int, partition: int = 0, topic: TopicId = TOPIC) -> AdoptRuns:
    """A segment with two runs of five offsets and 100 bytes at each of these offsets."""
    runs = [
        SegmentRun(at, 32 + 100 * half, 100, base + 5 * half, base + 5 * half + 4, 7)
        for at, base in enumerate(bases)
        for half in (0, 1)
    ]
    return AdoptRuns(topic, partition, PLACE, [segment(base) for base in bases], runs)


@pytest.fixture
def ledger() -> JournalledLedger:
    return JournalledLedger(4)


def log_of(ledger: JournalledLedger, partition: int = 0) -> PartitionLog:
    return ledger.state.topics.by_id[TOPIC].partitions[partition]


def same_everywhere(ledger: JournalledLedger) -> None:
    now = digest(all_rows(ledger.state))
    states = [ledger.from_journal(), ledger.from_snapshot()]
    if ledger.image:
        states.append(ledger.from_image())
    assert [digest(all_rows(state)) for state in states] == [now] * len(states)


def produce(ledger: JournalledLedger, number: int = 1) -> Committed | Refused:
    request = CommitFile(locator(number, ledger.now_ms), 100, [commit_batch(TOPIC, 0, 0, records=5)])
    (result,) = ledger.submit(request)
    assert isinstance(result, FileCommit)
    (of_batch,) = result.results
    return of_batch


def refused(ledger: JournalledLedger, *requests: object) -> Refused:
    *_, result = ledger.submit(*requests)  # type: ignore[arg-type]
    assert isinstance(result, Refused)
    return result


def spans(log: PartitionLog) -> Sequence[tuple[int, int, bool]]:
    return [(run.base, run.last, run.dense) for run in log.runs()]


def adopted(ledger: JournalledLedger) -> JournalledLedger:
    ledger.submit(BEGIN)
    ledger.submit(adopt(100, 110))
    ledger.submit(adopt(130))
    ledger.submit(END)
    return ledger


def test_a_topic_is_made_of_segments_at_their_offsets(ledger: JournalledLedger) -> None:
    ledger.submit(BEGIN)
    ledger.write_image()
    assert ledger.submit(adopt(100, 110)) == [Adopted(120)]
    assert ledger.submit(adopt(130)) == [Adopted(140)]
    log = log_of(ledger)
    assert (log.log_start, log.high_watermark, log.run_count, log.size_bytes) == (100, 140, 6, 600)
    assert spans(log)[3:] == [(115, 119, False), (130, 134, False), (135, 139, False)]
    # In the gap the next run is found.
    assert log.find(121, 1)[0].base == 130
    assert log_of(ledger, 1).high_watermark == 0
    same_everywhere(ledger)
    ledger.write_image()
    assert ledger.submit(END) == [Adopting(TOPIC, is_open=False, has_ended=True)]
    same_everywhere(ledger)
    stored = next(iter(ledger.state.objects.by_number.values()))
    assert (stored.kind, stored.store, stored.created_ms) == (ObjectKind.SEGMENT, ADOPTED_STORE, 500)
    assert adopted_place(stored.locator) == (PLACE, segment(100).key)
    assert is_adopted(stored.locator)
    with pytest.raises(ValueError, match="no creation time"):
        created_ms(stored.locator)


def test_producers_wait_until_the_adoption_has_ended_and_go_on_behind_it(ledger: JournalledLedger) -> None:
    ledger.submit(BEGIN)
    result = produce(ledger)
    assert isinstance(result, Refused) and result.error is ErrorName.KAFKA_STORAGE_ERROR
    ledger.submit(adopt(100, 110))
    assert isinstance(produce(ledger, 2), Refused)
    ledger.submit(END)
    assert produce(ledger, 3) == Committed(120, 100)
    assert spans(log_of(ledger))[-1] == (120, 124, True)
    same_everywhere(ledger)


def test_nothing_is_produced_in_the_entry_that_begins_to_adopt_an_empty_topic(
    ledger: JournalledLedger,
) -> None:
    ledger.submit(CreateTopic("t", TOPIC, 2, {}))
    commit = CommitFile(locator(1, ledger.now_ms), 100, [commit_batch(TOPIC, 0, 0, records=5)])
    _, result = ledger.submit(BEGIN, commit)
    assert isinstance(result, FileCommit) and isinstance(result.results[0], Refused)
    assert log_of(ledger).high_watermark == 0


def test_an_empty_topic_keeps_its_id_and_configs(ledger: JournalledLedger) -> None:
    other = topic_id(5)
    ledger.submit(CreateTopic("t", other, 3, {"retention.ms": "5"}))
    assert ledger.submit(BEGIN) == [Adopting(other, is_open=True)]
    assert ledger.state.topics.by_name["t"].configs == {"retention.ms": "5"}
    assert ledger.submit(adopt(100, topic=other)) == [Adopted(110)]


def test_a_topic_that_is_created_keeps_old_records(ledger: JournalledLedger) -> None:
    ledger.submit(BEGIN)
    assert ledger.state.topics.by_name["t"].configs == {"retention.ms": "-1"}


def test_repeats_change_nothing(ledger: JournalledLedger) -> None:
    ledger.submit(BEGIN)
    ledger.submit(adopt(100, 110))
    before = digest(all_rows(ledger.state))
    assert ledger.submit(BEGIN) == [Adopting(TOPIC, is_open=True)]
    assert ledger.submit(adopt(100)) == [Adopted(120, duplicate=True)]
    assert ledger.submit(adopt(100, 110)) == [Adopted(120, duplicate=True)]
    assert digest(all_rows(ledger.state)) == before
    assert ledger.submit(adopt(120), adopt(120)) == [Adopted(130), Adopted(130, duplicate=True)]
    ledger.submit(END)
    assert ledger.submit(BEGIN) == [Adopting(TOPIC, is_open=False, has_ended=True)]
    assert ledger.submit(END) == [Adopting(TOPIC, is_open=False, has_ended=True)]
    assert ledger.submit(adopt(100, 110)) == [Adopted(130, duplicate=True)]


def test_a_topic_with_records_is_not_adopted(ledger: JournalledLedger) -> None:
    ledger.submit(CreateTopic("t", TOPIC, 2, {}))
    produce(ledger)
    assert "has records of its own" in refused(ledger, BEGIN).message
    # Nor one whose records are all deleted: its offsets are given.
    ledger.submit(DeleteRecords(TOPIC, 0, 5))
    ledger.submit(DrainRuns(10))
    assert refused(ledger, BEGIN).error is ErrorName.TOPIC_ALREADY_EXISTS


def test_what_cannot_be_adopted_is_refused_in_words(ledger: JournalledLedger) -> None:
    ledger.submit(CreateTopic("t", TOPIC, 1, {}))
    few = refused(ledger, BEGIN)
    assert few.error is ErrorName.INVALID_PARTITIONS and "with 1 partitions, and 2" in few.message
    ledger.submit(AddPartitions(TOPIC, 2))
    assert "not being adopted" in refused(ledger, adopt(100)).message
    ledger.submit(BEGIN)
    elsewhere = AdoptTopic("t", TOPIC, 2, "s3://other", DIGEST)
    assert f"was adopted from {PLACE}" in refused(ledger, elsewhere).message
    ledger.submit(adopt(100, 110))
    assert "below the high watermark 120" in refused(ledger, adopt(115)).message
    assert refused(ledger, adopt(200, partition=2)).error is ErrorName.UNKNOWN_TOPIC_OR_PARTITION
    ledger.submit(END)
    assert "not being adopted" in refused(ledger, adopt(200)).message
    absent = AdoptTopic("absent", topic_id(7), 1, PLACE, DIGEST, AdoptStep.END)
    assert refused(ledger, absent).error is ErrorName.UNKNOWN_TOPIC_OR_PARTITION
    assert (
        refused(ledger, AdoptTopic("a/b", topic_id(7), 1, PLACE, DIGEST)).error
        is ErrorName.INVALID_TOPIC_EXCEPTION
    )
    assert refused(ledger, AdoptTopic("u", topic_id(7), 0, PLACE, DIGEST)).error is ErrorName.INVALID_REQUEST
    assert refused(ledger, AdoptTopic("u", topic_id(7), 1, "", DIGEST)).error is ErrorName.INVALID_REQUEST
    assert (
        "of Kafka's own"
        in refused(ledger, AdoptTopic("__consumer_offsets", topic_id(7), 1, PLACE, DIGEST)).message
    )
    ledger.submit(CreateTopic("a.b", topic_id(6), 1, {}))
    assert "in '.' and '_' alone" in refused(ledger, AdoptTopic("a_b", topic_id(7), 1, PLACE, DIGEST)).message


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("runs", [], "1 to 2,000 runs"),
        ("segments", [segment(100), segment(100)], "named twice"),
        ("segments", [segment(100)._replace(key="a|b.kfs")], "no segment has"),
        ("segments", [segment(100)._replace(object_bytes=48)], "48 bytes"),
        ("segments", [segment(100)._replace(created_ms=-1)], "no time of creation"),
        ("runs", [SegmentRun(0, 32, 201, 100, 104, 7)], "leaves the segment"),
        ("runs", [SegmentRun(0, 31, 100, 100, 104, 7)], "is no run"),
        ("runs", [SegmentRun(0, 32, 100, 100, 99, 7)], "not after those"),
        ("runs", [SegmentRun(1, 32, 100, 100, 104, 7)], "not in the order"),
    ],
)
def test_runs_that_no_segment_has_are_refused(
    ledger: JournalledLedger, field: str, value: object, reason: str
) -> None:
    ledger.submit(BEGIN)
    whole = adopt(100)
    parts = {"segments": whole.segments, "runs": whole.runs, field: value}
    if field == "segments" and len(parts["segments"]) > 1:  # type: ignore[arg-type]
        parts["runs"] = adopt(100, 110).runs
    wrong = AdoptRuns(TOPIC, 0, PLACE, parts["segments"], parts["runs"])  # type: ignore[arg-type]
    assert reason in refused(ledger, wrong).message


def test_a_segment_is_entered_once(ledger: JournalledLedger) -> None:
    ledger.submit(BEGIN)
    ledger.submit(adopt(100))
    later = replace(adopt(120), segments=[segment(100)])
    assert "was entered before" in refused(ledger, later).message
    # Also after it has lost all of its runs.
    ledger.submit(DeleteRecords(TOPIC, 0, 110))
    ledger.submit(DrainRuns(100))
    assert "was entered before" in refused(ledger, later).message
    same_everywhere(ledger)
    again = replace(adopt(140), segments=[segment(120)])
    assert "was entered before" in refused(ledger, adopt(120), again).message
    same_everywhere(ledger)


def test_keys_for_which_an_entry_has_no_room_are_refused(ledger: JournalledLedger) -> None:
    ledger.submit(BEGIN)
    many = adopt(*range(0, 10_000, 10))
    long = [found._replace(key=f"{'x' * 550}/{at}.kfs") for at, found in enumerate(many.segments)]
    assert "an entry has room for" in refused(ledger, replace(many, segments=long)).message
    assert ledger.submit(many) == [Adopted(10_000)]


def test_a_lower_feature_level_is_refused_with_the_remedy() -> None:
    ledger = JournalledLedger(3)
    assert "ledger.feature_level = 4" in refused(ledger, BEGIN).message
    assert refused(ledger, adopt(100)).error is ErrorName.UNSUPPORTED_VERSION


def test_a_commit_cannot_name_an_adopted_object(ledger: JournalledLedger) -> None:
    adopted(ledger)
    named = adopted_locator(TOPIC, PLACE, segment(100).key)
    (result,) = ledger.submit(CommitFile(named, 400, [commit_batch(TOPIC, 0, 300)], origin=ORIGIN))
    assert not isinstance(result, FileCommit)


def test_deleted_records_and_merged_runs_make_garbage_of_adopted_objects(ledger: JournalledLedger) -> None:
    adopted(ledger)
    produce(ledger)
    ledger.submit(DeleteRecords(TOPIC, 0, 110))
    ledger.submit(DrainRuns(10))
    log = log_of(ledger)
    assert (log.log_start, spans(log)[0]) == (110, (110, 114, False))
    assert [stored.closed for stored in ledger.state.objects.by_number.values()] == [
        True,
        False,
        False,
        False,
    ]
    ledger.submit(TakePin(JOB))
    (result,) = ledger.submit(swap_of(log, list(log.runs())[:4], ledger.now_ms))
    assert isinstance(result, Swapped)
    assert len(ledger.state.objects.garbage) == 3
    same_everywhere(ledger)
    ledger.submit(ReleasePin(JOB))
    ledger.now_ms += 10_000_000
    ledger.submit(RaiseFloor(ledger.now_ms))
    dead = [stored.number for stored in ledger.state.objects.due_garbage(ledger.now_ms + 10**9, 1_000)]
    assert len(dead) == 3
    ledger.submit(ForgetObjects(dead))
    assert not [stored for stored in ledger.state.objects.by_number.values() if stored.store == ADOPTED_STORE]


def test_a_topic_that_is_deleted_may_be_adopted_again_at_once(ledger: JournalledLedger) -> None:
    adopted(ledger)
    ledger.write_image()
    ledger.submit(DeleteTopic(TOPIC))
    assert not ledger.state.part(Adoptions)
    again = topic_id(2)
    ledger.submit(AdoptTopic("t", again, 2, PLACE, DIGEST))
    ledger.submit(adopt(100, 110, topic=again))
    assert ledger.state.part(Adoptions) == {again: Adoption(PLACE, DIGEST, is_open=True)}
    ledger.submit(DrainRuns(100))
    live = [stored for stored in ledger.state.objects.by_number.values() if not stored.closed]
    assert len(live) == 2 and len(ledger.state.objects.garbage) == 3
    same_everywhere(ledger)


def test_an_image_that_is_being_written_has_the_ledger_as_it_was(ledger: JournalledLedger) -> None:
    ledger.submit(BEGIN)
    ledger.submit(adopt(100))
    ledger.begin_image()
    ledger.submit(adopt(110))
    ledger.submit(END)
    ledger.end_image(fails=False)
    same_everywhere(ledger)


def test_a_check_says_what_a_beginning_would_and_changes_nothing(ledger: JournalledLedger) -> None:
    check = AdoptTopic("t", TOPIC, 2, PLACE, DIGEST, AdoptStep.CHECK)
    entries = len(ledger.entries)
    assert ledger.submit(check) == [Adopting(TOPIC, is_open=False)]
    assert len(ledger.entries) == entries
    ledger.submit(BEGIN)
    assert ledger.submit(check) == [Adopting(TOPIC, is_open=True)]
    ledger.submit(END)
    assert ledger.submit(check) == [Adopting(TOPIC, is_open=False, has_ended=True)]
    other = topic_id(3)
    ledger.submit(CreateTopic("u", other, 2, {}))
    entries = len(ledger.entries)
    (result,) = ledger.submit(AdoptTopic("u", TOPIC, 2, PLACE, DIGEST, AdoptStep.CHECK))
    assert result == Adopting(other, is_open=False) and len(ledger.entries) == entries
