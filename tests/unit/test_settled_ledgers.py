"""Which settled ledger of a partition is the newest, what becomes of the others, and what is refused."""

from dataclasses import replace

import pytest

from ledger.errors import ErrorName, StoreDamaged
from ledger.image import all_rows, restore
from ledger.journal import apply_entry, decode_entry
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.objects.rows import OBJECT
from ledger.partitions.decide import HIGH_WATERMARK
from ledger.partitions.requests import CommitFile, DeleteRecords, DrainRuns
from ledger.partitions.state import PartitionLog
from ledger.requests import Refused
from ledger.rows import digest
from ledger.settled.requests import Named, NameSettled, SettledFiles
from ledger.settled.rows import SETTLED
from ledger.settled.state import SettledLedgers
from ledger.swaps.requests import ReleasePin, TakePin
from ledger.swaps.state import Pins
from ledger.topics.requests import CreateTopic, DeleteTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id
from tests.support.settling import JOB, naming_of

TOPIC = topic_id(1)
OTHER = b"o" * 16
GRACE_MS = 1_000


@pytest.fixture
def ledger() -> JournalledLedger:
    return with_topic(JournalledLedger())


def with_topic(ledger: JournalledLedger) -> JournalledLedger:
    ledger.submit(CreateTopic("t", TOPIC, 2, {}))
    append(ledger, 1)
    ledger.submit(TakePin(JOB))
    return ledger


def append(ledger: JournalledLedger, number: int, partition: int = 0) -> None:
    ledger.submit(CommitFile(locator(number, ledger.now_ms), 100, [commit_batch(TOPIC, partition, 0)]))


def log_of(ledger: JournalledLedger, partition: int = 0) -> PartitionLog:
    return ledger.state.topics.by_id[TOPIC].partitions[partition]


def naming(
    ledger: JournalledLedger, *, attempt: int = 0, partition: int = 0, job: bytes = JOB
) -> NameSettled:
    return naming_of(ledger.state, log_of(ledger, partition), ledger.now_ms, attempt=attempt, job=job)


def newest(ledger: JournalledLedger, partition: int = 0) -> str | None:
    known = ledger.state.part(SettledLedgers).get(log_of(ledger, partition).number)
    return None if known is None else ledger.state.objects.locator(known.object_number)


def due(ledger: JournalledLedger) -> list[str]:
    return [stored.locator for stored in ledger.state.objects.due_garbage(ledger.now_ms, GRACE_MS)]


def check_rows(ledger: JournalledLedger) -> None:
    """Image, journal and snapshot give the same state."""
    ledger.write_image()
    now = digest(all_rows(ledger.state))
    for state in (ledger.from_journal(), ledger.from_image(), ledger.from_snapshot()):
        assert digest(all_rows(state)) == now
        assert state.part(SettledLedgers) == ledger.state.part(SettledLedgers)


def refusal(ledger: JournalledLedger, request: NameSettled) -> ErrorName:
    entries = len(ledger.entries)
    (result,) = ledger.submit(request)
    assert isinstance(result, Refused) and len(ledger.entries) == entries
    return result.error


def test_the_newest_settled_ledger_of_a_partition_is_named(ledger: JournalledLedger) -> None:
    request = naming(ledger)
    assert ledger.submit(request) == [Named()]
    assert newest(ledger) == request.files.locator and newest(ledger, 1) is None
    known = ledger.state.part(SettledLedgers)[log_of(ledger).number]
    assert (known.log_bytes, known.index_bytes, known.meta_bytes) == (500, 50, 300)
    assert (known.entry, known.high_watermark, known.job) == (request.entry, 1, JOB)
    check_rows(ledger)


def test_the_one_before_is_garbage_and_is_deleted_after_the_grace(ledger: JournalledLedger) -> None:
    first = naming(ledger)
    ledger.submit(first)
    ledger.now_ms += 10
    append(ledger, 2)
    second = naming(ledger)
    ledger.submit(second)
    ledger.submit(ReleasePin(JOB))
    assert newest(ledger) == second.files.locator
    ledger.submit(RaiseFloor(ledger.now_ms))
    assert due(ledger) == []
    ledger.now_ms += GRACE_MS
    assert due(ledger) == [first.files.locator]
    check_rows(ledger)
    ledger.submit(ForgetObjects([ledger.state.objects.by_locator[first.files.locator].number]))
    assert first.files.locator not in ledger.state.objects.by_locator
    check_rows(ledger)


def test_a_live_one_keeps_no_object_that_it_names(ledger: JournalledLedger) -> None:
    """It must not make garbage immortal."""
    ledger.submit(naming(ledger))
    ledger.submit(ReleasePin(JOB))
    ledger.submit(DeleteRecords(TOPIC, 0, HIGH_WATERMARK))
    ledger.submit(DrainRuns(100))
    ledger.now_ms += GRACE_MS
    ledger.submit(RaiseFloor(ledger.now_ms))
    assert due(ledger) == [locator(1, 1_000_000)]
    assert newest(ledger) is not None


def test_a_repeat_gets_the_first_result(ledger: JournalledLedger) -> None:
    request = naming(ledger)
    ledger.submit(request)
    for source in ("journal", "snapshot", "image"):
        check_rows(ledger)
        ledger.restart(source)
        entries = len(ledger.entries)
        assert ledger.submit(request) == [Named(duplicate=True)]
        assert len(ledger.entries) == entries
    # Another attempt with the same key is a bug of the job.
    assert refusal(ledger, replace(request, attempt=1)) is ErrorName.INVALID_REQUEST


def test_an_older_one_is_refused_and_the_newer_one_stays(ledger: JournalledLedger) -> None:
    old = naming(ledger)
    append(ledger, 2)
    new = naming(ledger)
    ledger.submit(new)
    assert refusal(ledger, old) is ErrorName.INVALID_UPDATE_VERSION
    assert newest(ledger) == new.files.locator
    ledger.submit(TakePin(OTHER))
    later = naming(ledger, job=OTHER)
    ledger.submit(later)
    # To the same end, but of a job that began earlier.
    assert refusal(ledger, naming(ledger)) is ErrorName.INVALID_UPDATE_VERSION
    # A repeat of what was replaced meanwhile is older, too.
    append(ledger, 3)
    ledger.submit(naming(ledger))
    assert refusal(ledger, later) is ErrorName.INVALID_UPDATE_VERSION


def test_of_two_in_one_entry_the_second_is_sent_again(ledger: JournalledLedger) -> None:
    first, second = naming(ledger), naming(ledger, attempt=1)
    named, refused = ledger.submit(first, second)
    assert named == Named()
    assert isinstance(refused, Refused) and refused.error is ErrorName.COORDINATOR_NOT_AVAILABLE
    assert ledger.submit(second) == [Named()]
    assert newest(ledger) == second.files.locator
    check_rows(ledger)


def test_partitions_have_one_each_also_in_the_same_entry(ledger: JournalledLedger) -> None:
    append(ledger, 2, partition=1)
    both = [naming(ledger), naming(ledger, partition=1)]
    assert ledger.submit(*both) == [Named()] * 2
    assert [newest(ledger, partition) for partition in (0, 1)] == [each.files.locator for each in both]
    check_rows(ledger)


@pytest.mark.parametrize("together", [False, True])
def test_the_deletion_of_a_topic_releases_its_settled_ledgers(
    ledger: JournalledLedger, together: bool
) -> None:
    request = naming(ledger)
    for requests in [(request, DeleteTopic(TOPIC))] if together else [(request,), (DeleteTopic(TOPIC),)]:
        ledger.submit(*requests)
    assert not ledger.state.part(SettledLedgers)
    assert ledger.state.objects.by_locator[request.files.locator].closed
    check_rows(ledger)


@pytest.mark.parametrize("change", ["newer", "deleted", "first"])
def test_an_image_that_is_being_made_says_what_was_so_when_it_began(
    ledger: JournalledLedger, change: str
) -> None:
    if change != "first":
        ledger.submit(naming(ledger))
    append(ledger, 2)
    ledger.begin_image()
    ledger.submit(DeleteTopic(TOPIC) if change == "deleted" else naming(ledger))
    # It compares the image with the state at its beginning.
    ledger.end_image(fails=False)
    check_rows(ledger)


def test_none_is_named_for_a_topic_that_is_deleted(ledger: JournalledLedger) -> None:
    request = naming(ledger)
    _, refused = ledger.submit(DeleteTopic(TOPIC), request)
    assert isinstance(refused, Refused) and refused.error is ErrorName.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(ledger, request) is ErrorName.UNKNOWN_TOPIC_OR_PARTITION


def test_below_feature_level_4_it_is_refused_with_the_remedy() -> None:
    ledger = with_topic(JournalledLedger(3))
    (refused,) = ledger.submit(naming(ledger))
    assert ledger.state.part(Pins)
    assert isinstance(refused, Refused) and refused.error is ErrorName.UNSUPPORTED_VERSION
    assert "start the gateway once with ledger.feature_level = 4" in refused.message
    assert all(row.section != SETTLED for row in all_rows(ledger.state))


def test_keys_older_than_the_pin_of_the_job_are_refused(ledger: JournalledLedger) -> None:
    ledger.now_ms -= 1
    request = naming(ledger)
    assert refusal(ledger, request) is ErrorName.KAFKA_STORAGE_ERROR
    assert newest(ledger) is None


def test_a_pin_keeps_the_keys_of_its_job_above_the_floor(ledger: JournalledLedger) -> None:
    request = naming(ledger)
    ledger.now_ms += 10_000
    ledger.submit(RaiseFloor(ledger.now_ms))
    assert ledger.submit(request) == [Named()]


def test_a_job_whose_pin_has_ended_names_nothing(ledger: JournalledLedger) -> None:
    """After a restore its offsets may have other records."""
    request = naming(ledger)
    ledger.submit(ReleasePin(JOB))
    assert refusal(ledger, request) is ErrorName.UNKNOWN_MEMBER_ID
    ledger.submit(TakePin(JOB))
    assert refusal(ledger, request) is ErrorName.UNKNOWN_MEMBER_ID
    assert ledger.submit(naming(ledger)) == [Named()]


def test_a_repeat_gets_its_result_also_without_the_pin(ledger: JournalledLedger) -> None:
    request = naming(ledger)
    ledger.submit(request)
    ledger.submit(ReleasePin(JOB))
    assert ledger.submit(request) == [Named(duplicate=True)]


KEY = "settled/" + TOPIC.hex() + "/0/018bcfe5-687b-7000-8000-000000000000.log"
FILES = SettledFiles(KEY, 500, 50, 300)
WRONG: list[dict[str, object]] = [
    {"job": b"short"},
    {"attempt": 2**31},
    {"files": FILES._replace(locator="settled/x")},
    {"files": FILES._replace(locator=KEY.replace(".log", ".index"))},
    {"files": FILES._replace(locator=KEY.replace("/0/", "/1/"))},
    {"files": FILES._replace(locator="wal/0/018bcfe5-687b-7000-8000-000000000000")},
    {"files": FILES._replace(log_bytes=75)},
    {"files": FILES._replace(index_bytes=23)},
    {"files": FILES._replace(meta_bytes=0)},
    {"high_watermark": -1},
    {"high_watermark": 0},
    {"layout_version": -1},
    {"high_watermark": 2},
    {"entry": -1},
]


@pytest.mark.parametrize("change", WRONG, ids=str)
def test_what_no_job_sends_is_refused(ledger: JournalledLedger, change: dict[str, object]) -> None:
    request: NameSettled = replace(naming(ledger), **change)  # type: ignore[arg-type]
    assert refusal(ledger, request) is ErrorName.INVALID_REQUEST


def test_no_commit_puts_batches_into_one(ledger: JournalledLedger) -> None:
    request = naming(ledger)
    ledger.submit(CommitFile(request.files.locator, 100, [commit_batch(TOPIC, 0, 0)]))
    assert request.files.locator not in ledger.state.objects.by_locator


def test_an_entry_that_is_applied_to_another_state_is_damage(ledger: JournalledLedger) -> None:
    ledger.submit(naming(ledger))
    state = ledger.from_journal()
    state.applied -= 1
    with pytest.raises(StoreDamaged, match="no new settled ledger"):
        apply_entry(state, decode_entry(ledger.entries[-1], "entry"))


def test_rows_that_contradict_one_another_are_damage(ledger: JournalledLedger) -> None:
    ledger.submit(naming(ledger))
    append(ledger, 2)
    ledger.submit(naming(ledger))
    rows = list(all_rows(ledger.state))
    restore(rows)
    (row,) = (row for row in rows if row.section == SETTLED)
    with pytest.raises(StoreDamaged):
        restore([each for each in rows if each != row])
    for gone in [each for each in rows if each.section == OBJECT]:
        remaining = [each for each in rows if each != gone]
        if gone.key != _key_of_superseded(ledger):
            with pytest.raises(StoreDamaged):
                restore(remaining)


def _key_of_superseded(ledger: JournalledLedger) -> bytes:
    (number,) = ledger.state.objects.garbage
    return number.to_bytes(4, "big")
