"""Pins: while one lives no floor passes it, and what was live when it was taken keeps its bytes."""

import pytest

from ledger.errors import ErrorName
from ledger.image import all_rows
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.objects.state import NEVER_MS
from ledger.partitions.decide import HIGH_WATERMARK
from ledger.partitions.requests import CommitFile, DeleteRecords, DrainRuns
from ledger.requests import Done, Refused
from ledger.rows import digest
from ledger.swaps.requests import Pinned, ReleasePin, Swapped, TakePin
from ledger.swaps.state import MAX_PINS
from ledger.topics.requests import CreateTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id
from tests.support.swapping import JOB, swap_of

TOPIC = topic_id(1)
OTHER = b"k" * 16
GRACE_MS = 1_000


@pytest.fixture
def ledger() -> JournalledLedger:
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", TOPIC, 1, {}))
    return ledger


def append(ledger: JournalledLedger, number: int) -> None:
    ledger.submit(CommitFile(locator(number, ledger.now_ms), 100, [commit_batch(TOPIC, 0, 0)]))


def drained(ledger: JournalledLedger) -> None:
    ledger.submit(DeleteRecords(TOPIC, 0, HIGH_WATERMARK))
    ledger.submit(DrainRuns(100))


def due(ledger: JournalledLedger) -> list[str]:
    return [stored.locator for stored in ledger.state.objects.due_garbage(ledger.now_ms, GRACE_MS)]


def test_a_pin_is_taken_once_and_has_the_entry_and_its_time(ledger: JournalledLedger) -> None:
    number, now_ms = ledger.state.applied, ledger.now_ms
    assert ledger.submit(TakePin(JOB), TakePin(JOB)) == [Pinned(number, now_ms)] * 2
    entries = len(ledger.entries)
    ledger.now_ms += 5
    for source in ("journal", "snapshot", "image"):
        ledger.write_image()
        ledger.restart(source)
        assert ledger.submit(TakePin(JOB)) == [Pinned(number, now_ms)]
        assert ledger.state.objects.pinned_ms == now_ms
    assert len(ledger.entries) == entries


def test_a_pin_is_released_once(ledger: JournalledLedger) -> None:
    ledger.submit(TakePin(JOB))
    assert ledger.submit(ReleasePin(JOB), ReleasePin(JOB), ReleasePin(OTHER)) == [Done(1), Done(0), Done(0)]
    assert ledger.state.objects.pinned_ms == NEVER_MS
    assert digest(all_rows(ledger.from_journal())) == digest(all_rows(ledger.state))


def test_a_pin_that_is_released_and_taken_in_one_entry_is_another(ledger: JournalledLedger) -> None:
    ledger.submit(TakePin(JOB))
    ledger.now_ms += 5
    number = ledger.state.applied
    assert ledger.submit(ReleasePin(JOB), TakePin(JOB))[1] == Pinned(number, ledger.now_ms)
    assert ledger.state.objects.pinned_ms == ledger.now_ms


def test_the_floor_does_not_pass_the_oldest_pin(ledger: JournalledLedger) -> None:
    ledger.submit(TakePin(JOB))
    pinned_ms = ledger.now_ms
    ledger.now_ms += 10
    ledger.submit(TakePin(OTHER))
    ledger.now_ms += 10
    assert ledger.submit(RaiseFloor(ledger.now_ms)) == [Done(1)]
    assert ledger.state.objects.floor_ms == pinned_ms
    assert ledger.submit(RaiseFloor(ledger.now_ms)) == [Done(0)]
    ledger.submit(ReleasePin(JOB))
    ledger.submit(RaiseFloor(ledger.now_ms))
    assert ledger.state.objects.floor_ms == pinned_ms + 10
    ledger.submit(ReleasePin(OTHER))
    ledger.submit(RaiseFloor(ledger.now_ms))
    assert ledger.state.objects.floor_ms == ledger.now_ms


def test_garbage_that_was_live_when_the_pin_was_taken_keeps_its_bytes(ledger: JournalledLedger) -> None:
    append(ledger, 1)
    drained(ledger)
    append(ledger, 2)
    ledger.now_ms += 5
    ledger.submit(TakePin(JOB))
    drained(ledger)
    ledger.now_ms += 2 * GRACE_MS
    ledger.submit(RaiseFloor(ledger.now_ms))
    assert due(ledger) == [locator(1, 1_000_000)]
    # A later pin of another job changes nothing, nor does a restart.
    ledger.submit(TakePin(OTHER))
    ledger.restart("snapshot")
    assert due(ledger) == [locator(1, 1_000_000)]
    ledger.submit(ForgetObjects([0]))
    ledger.submit(ReleasePin(JOB))
    assert due(ledger) == [locator(2, 1_000_000)]


def test_the_results_of_a_job_are_kept_until_its_pin_ends(ledger: JournalledLedger) -> None:
    for number in range(4):
        append(ledger, number)
    ledger.submit(TakePin(JOB))
    log = ledger.state.topics.by_id[TOPIC].partitions[0]
    ledger.now_ms += 10
    planned = swap_of(log, list(log.runs()), ledger.now_ms)
    ledger.submit(planned)
    ledger.now_ms += 10
    ledger.submit(RaiseFloor(ledger.now_ms))
    ledger.restart("image")
    assert ledger.submit(planned) == [Swapped(1, 0, duplicate=True)]
    ledger.submit(ReleasePin(JOB))
    (again,) = ledger.submit(planned)
    assert isinstance(again, Refused) and again.error == ErrorName.UNKNOWN_MEMBER_ID


def test_there_are_not_very_many_pins(ledger: JournalledLedger) -> None:
    jobs = [number.to_bytes(16, "big") for number in range(MAX_PINS)]
    *_, last = ledger.submit(*map(TakePin, jobs), TakePin(JOB))
    assert isinstance(last, Refused) and last.error == ErrorName.POLICY_VIOLATION
    (last,) = ledger.submit(TakePin(JOB))
    assert isinstance(last, Refused)
    assert isinstance(ledger.submit(ReleasePin(jobs[0]), TakePin(JOB))[1], Pinned)


def test_a_job_has_an_id_of_sixteen_bytes(ledger: JournalledLedger) -> None:
    (result,) = ledger.submit(TakePin(b"short"))
    assert isinstance(result, Refused) and result.error == ErrorName.INVALID_REQUEST
    assert ledger.submit(ReleasePin(b"short")) == [Done(0)]


def test_below_level_3_pins_are_refused() -> None:
    (result,) = JournalledLedger(2).submit(TakePin(JOB))
    assert isinstance(result, Refused) and result.error == ErrorName.UNSUPPORTED_VERSION
