"""Results for repeats of commits: kept until their uploader has declared them settled, and no longer."""

import random

import pytest

from ledger.errors import ErrorName
from ledger.image import all_rows, restore
from ledger.objects.requests import RaiseFloor
from ledger.objects.rows import UPLOADER
from ledger.objects.state import Origin
from ledger.objects.uploads import ObjectKind, Upload, Uploader
from ledger.partitions.requests import CommitFile, Committed, FileCommit, StaleObject
from ledger.requests import LedgerResult, Refused
from ledger.rows import digest
from ledger.topics.requests import CreateTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id

ME = Uploader(1, b"a" * 16)
OTHER = Uploader(2, b"b" * 16)
TOPIC = topic_id(1)
NOW_MS = 1_000_000


@pytest.fixture
def ledger() -> JournalledLedger:
    return with_topic(JournalledLedger())


def with_topic(ledger: JournalledLedger) -> JournalledLedger:
    ledger.submit(CreateTopic("t", TOPIC, 4, {}))
    return ledger


def draft(number: int, settled: int, uploader: Uploader = ME, batches: int = 2) -> CommitFile:
    """An object of its own for each draft of each uploader."""
    starts = [commit_batch(TOPIC, at % 4, at * 100) for at in range(batches)]
    where = locator(1000 * uploader.gateway + number, NOW_MS)
    return CommitFile(where, 100 * batches, starts, upload=Upload(uploader, number, settled))


def bases(result: LedgerResult) -> list[object]:
    assert isinstance(result, FileCommit), result
    return [
        each.base_offset if isinstance(each, Committed) else each.error
        for each in result.results
        if isinstance(each, Committed | Refused)
    ]


def ends(ledger: JournalledLedger) -> list[int]:
    return [log.high_watermark for log in ledger.state.topics.by_id[TOPIC].partitions]


def kept(ledger: JournalledLedger) -> int:
    return sum(len(stored.starts) for stored in ledger.state.objects.by_number.values())


def test_a_repeat_gets_its_first_result_until_its_draft_is_settled(ledger: JournalledLedger) -> None:
    first, second = draft(1, 0), draft(2, 0)
    assert [bases(result) for result in ledger.submit(first, second)] == [[0, 0], [1, 1]]
    assert [bases(result) for result in ledger.submit(first, second)] == [[0, 0], [1, 1]]
    assert kept(ledger) == 4
    assert bases(*ledger.submit(draft(3, 1))) == [2, 2]
    assert kept(ledger) == 4
    assert bases(*ledger.submit(second)) == [1, 1]
    entries = len(ledger.entries)
    assert bases(*ledger.submit(first)) == [ErrorName.REQUEST_TIMED_OUT] * 2
    # Never counted as if it came for the first time, and nothing is journaled of it.
    assert len(ledger.entries) == entries
    assert ends(ledger) == [3, 3, 0, 0]


def test_a_settled_draft_that_was_never_committed_is_refused(ledger: JournalledLedger) -> None:
    """Its request was late in the queue when its uploader gave it up."""
    ledger.submit(draft(2, 1))
    assert bases(*ledger.submit(draft(1, 0))) == [ErrorName.REQUEST_TIMED_OUT] * 2
    assert ends(ledger) == [1, 1, 0, 0]


def test_a_draft_that_a_commit_of_its_own_entry_settles_is_refused(ledger: JournalledLedger) -> None:
    later, never_committed = ledger.submit(draft(2, 1), draft(1, 0))
    assert bases(later) == [0, 0]
    assert bases(never_committed) == [ErrorName.REQUEST_TIMED_OUT] * 2
    assert ends(ledger) == [1, 1, 0, 0]


def test_a_settled_draft_with_a_newer_key_than_those_after_it_stays_refused_when_the_floor_rises(
    ledger: JournalledLedger,
) -> None:
    """It was stored again, with a key of that time, and then given up."""
    again = CommitFile(locator(50, NOW_MS + 100), 100, [commit_batch(TOPIC, 0, 0)], upload=Upload(ME, 2, 1))
    ledger.submit(draft(1, 0))
    ledger.now_ms = NOW_MS + 110
    ledger.submit(draft(3, 2))
    assert bases(*ledger.submit(again)) == [ErrorName.REQUEST_TIMED_OUT]
    ledger.submit(RaiseFloor(NOW_MS + 50))
    assert bases(*ledger.submit(again)) == [ErrorName.REQUEST_TIMED_OUT]


def test_objects_of_one_uploader_share_its_name(ledger: JournalledLedger) -> None:
    for number in range(1, 9):
        ledger.submit(draft(number, number - 1))
    names = {id(stored.uploader) for stored in ledger.state.objects.by_number.values()}
    assert len(names) <= 2


def test_a_draft_that_declares_itself_settled_is_refused(ledger: JournalledLedger) -> None:
    assert bases(*ledger.submit(draft(1, 1))) == [ErrorName.REQUEST_TIMED_OUT] * 2


def test_what_one_uploader_has_settled_says_nothing_of_another(ledger: JournalledLedger) -> None:
    theirs = draft(1, 0, OTHER)
    ledger.submit(theirs)
    ledger.submit(draft(1, 0), draft(2, 1), draft(3, 2))
    assert bases(*ledger.submit(theirs)) == [0, 0]
    assert kept(ledger) == 4


def test_drafts_of_one_growing_object_are_settled_one_by_one(ledger: JournalledLedger) -> None:
    where = locator(1, NOW_MS)
    commits = [
        CommitFile(
            where, 200 * n, [commit_batch(TOPIC, 0, 200 * n - 200 + at) for at in (0, 100)], upload=upload
        )
        for n in range(1, 6)
        for upload in [Upload(ME, n, max(n - 2, 0))]
    ]
    for commit in commits:
        ledger.submit(commit)
    stored = ledger.state.objects.by_locator[where]
    assert list(stored.starts) == [600, 700, 800, 900]
    assert list(stored.bases) == [6, 7, 8, 9]
    assert [bases(*ledger.submit(commit)) for commit in commits[3:]] == [[6, 7], [8, 9]]
    assert bases(*ledger.submit(commits[2])) == [ErrorName.REQUEST_TIMED_OUT] * 2


def test_without_an_uploader_results_are_kept_until_the_floor_passes(ledger: JournalledLedger) -> None:
    for number in range(1, 5):
        commit = draft(number, number - 1)
        ledger.submit(CommitFile(commit.locator, commit.object_bytes, commit.batches))
    assert kept(ledger) == 8
    ledger.now_ms = NOW_MS + 2
    ledger.submit(RaiseFloor(NOW_MS + 1))
    assert kept(ledger) == 0


def test_at_level_1_results_are_kept_and_nothing_is_journaled_of_uploaders() -> None:
    ledger = with_topic(JournalledLedger(1))
    commits = [draft(number, number - 1) for number in range(1, 5)]
    for commit in commits:
        ledger.submit(commit)
    assert kept(ledger) == 8
    assert bases(*ledger.submit(commits[0])) == [0, 0]
    assert not ledger.state.objects.uploaders
    assert all(stored.uploader is None for stored in ledger.state.objects.by_number.values())


def test_an_uploader_goes_when_the_floor_has_passed_its_newest_object(ledger: JournalledLedger) -> None:
    ledger.submit(draft(1, 0), draft(1, 0, OTHER))
    late = CommitFile(locator(7, NOW_MS + 500), 100, [commit_batch(TOPIC, 0, 0)], upload=Upload(OTHER, 2, 1))
    ledger.submit(late)
    ledger.write_image()
    ledger.now_ms = NOW_MS + 1000
    ledger.submit(RaiseFloor(NOW_MS + 1))
    assert set(ledger.state.objects.uploaders) == {OTHER}
    assert ledger.submit(draft(1, 0)) == [StaleObject()]
    ledger.write_image()
    assert {key for section, key in ledger.image if section == UPLOADER} == {b"\0\0\0\2" + b"b" * 16}
    assert bases(*ledger.submit(late)) == [2]


def test_an_object_without_a_time_in_its_key_has_that_of_its_origin(ledger: JournalledLedger) -> None:
    origin = Origin(ObjectKind.SEGMENT, 0, NOW_MS, None)
    foreign = CommitFile("orders/0/segment-00042.kfs", 100, [commit_batch(TOPIC, 0, 0)], origin=origin)
    assert bases(*ledger.submit(foreign)) == [0]
    (stored,) = ledger.state.objects.by_number.values()
    assert (stored.kind, stored.created_ms, stored.uploader) == (ObjectKind.SEGMENT, NOW_MS, None)
    ledger.now_ms = NOW_MS + 10
    ledger.submit(RaiseFloor(NOW_MS + 5))
    below = CommitFile("orders/0/segment-00043.kfs", 100, [commit_batch(TOPIC, 0, 0)], origin=origin)
    assert ledger.submit(below) == [StaleObject()]


def test_uploaders_and_their_pending_drafts_come_back_from_the_image(ledger: JournalledLedger) -> None:
    for number in range(1, 9):
        ledger.submit(draft(number, max(number - 3, 0)), draft(number, 0, OTHER))
        if number % 3 == 0:
            ledger.write_image()
    restored = restore(all_rows(ledger.state))
    assert digest(all_rows(restored)) == digest(all_rows(ledger.state))
    assert restored.objects.uploaders.keys() == {ME, OTHER}
    for uploader, known in ledger.state.objects.uploaders.items():
        again = restored.objects.uploaders[uploader]
        assert (again.settled, again.newest_ms, again.pending) == (
            known.settled,
            known.newest_ms,
            known.pending,
        )
    ledger.write_image()


def test_objects_from_an_image_and_later_ones_of_an_uploader_share_its_name(ledger: JournalledLedger) -> None:
    for number in range(1, 3):
        ledger.submit(draft(number, 0), draft(number, 0, OTHER))
    ledger.write_image()
    ledger.restart("image")
    for number in range(3, 5):
        ledger.submit(draft(number, 0), draft(number, 0, OTHER))
    names = [stored.uploader for stored in ledger.state.objects.by_number.values()]
    assert len(names) == 8 and len({id(name) for name in names}) == 2


IN_FLIGHT = 4


def test_an_hour_of_commits_keeps_the_results_of_the_drafts_in_flight(ledger: JournalledLedger) -> None:
    """200 drafts a second of 280 batches are 56,000 batches a second; here a few batches stand for them."""
    dice = random.Random(1)
    waiting = list[int]()
    holding = list[int]()
    objects = ledger.state.objects.by_number
    for number in range(1, 20_001):
        waiting.append(number)
        commit = draft(number, waiting[0] - 1, batches=3)
        ledger.submit(commit)
        ledger.now_ms += 5
        while len(waiting) >= IN_FLIGHT or (waiting and dice.random() < 0.5):
            waiting.pop(0)
        if dice.random() < 0.05:
            assert all(isinstance(base, int) for base in bases(*ledger.submit(commit)))
        # Of all objects only those that had results may have some; to look at all each time takes too long.
        newest = next(reversed(objects))
        holding = [one for one in [*holding, newest] if objects[one].starts]
        held = sum(len(objects[one].starts) for one in holding)
        assert held <= 3 * (IN_FLIGHT + 1)
        assert number % 500 or held == kept(ledger)
    (known,) = ledger.state.objects.uploaders.values()
    assert len(known.pending) <= IN_FLIGHT
