"""How far retention moves the log start: by age, also of records without a timestamp, and by size."""

import pytest

from ledger.image import all_rows, restore
from ledger.partitions.requests import CommitFile
from ledger.partitions.retention import UNLIMITED, retention_offset
from ledger.partitions.runs import committed_ms, without_timestamp
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState
from ledger.topics.requests import CreateTopic
from ledger.types import NO_TIMESTAMP
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id

RETENTION_MS = 2_000
HOUR_MS = 3_600_000
LONG = 1_000


def written(*ages_ms: int | None) -> JournalledLedger:
    """Runs of one record each, with these ages; None: without a timestamp."""
    ledger = JournalledLedger()
    ledger.now_ms = 2 * HOUR_MS
    ledger.submit(CreateTopic("t", topic_id(1), 1, {}))
    for number, age in enumerate(ages_ms):
        stamp = NO_TIMESTAMP if age is None else ledger.now_ms - age
        batch = commit_batch(topic_id(1), 0, 0, max_timestamp=stamp)
        ledger.submit(CommitFile(locator(number, ledger.now_ms), 100, [batch]))
    return ledger


def start_after(state: LedgerState, now_ms: int, retention_ms: int = RETENTION_MS) -> int:
    log = state.topics.by_name["t"].partitions[0]
    created = {number: stored.created_ms for number, stored in state.objects.by_number.items()}
    return retention_offset(log, retention_ms, UNLIMITED, now_ms, LONG, created.__getitem__).offset


@pytest.mark.parametrize("ages_ms", [(None,), (None, HOUR_MS), (HOUR_MS, None), (None, None)])
def test_records_without_a_timestamp_are_as_old_as_their_commit(ages_ms: tuple[int | None, ...]) -> None:
    ledger = written(*ages_ms)
    older = len(ages_ms) - 1 if None in ages_ms[1:] and ages_ms[0] is not None else 0
    for state in (ledger.state, restore(list(all_rows(ledger.state)))):
        assert start_after(state, ledger.now_ms + RETENTION_MS) == older
        assert start_after(state, ledger.now_ms + RETENTION_MS + 1) == len(ages_ms)
        assert start_after(state, ledger.now_ms + HOUR_MS, UNLIMITED) == 0


def test_a_journal_that_did_not_keep_the_time_of_commit_has_that_of_the_object() -> None:
    log = PartitionLog(0, topic_id(1), 0)
    log.append(7, 0, 100, 0, 4, NO_TIMESTAMP)
    created = {7: HOUR_MS}
    starts = [
        retention_offset(log, RETENTION_MS, UNLIMITED, HOUR_MS + late, LONG, created.__getitem__).offset
        for late in (RETENTION_MS, RETENTION_MS + 1)
    ]
    assert starts == [0, 5]


def test_what_was_committed_before_the_journal_got_ahead_stays_as_old_as_it_is() -> None:
    log, now_ms, ahead_ms = PartitionLog(0, topic_id(1), 0), 1_000 * HOUR_MS, 10 * HOUR_MS
    log.append(0, 0, 100, 0, 0, without_timestamp(now_ms - 3 * HOUR_MS))
    log.append(1, 0, 100, 1, 1, without_timestamp(now_ms + ahead_ms - 2 * HOUR_MS))
    created: dict[int, int] = {}
    starts = [
        retention_offset(log, hours * HOUR_MS, UNLIMITED, now_ms, LONG, created.__getitem__, ahead_ms).offset
        for hours in (4, 3, 2, 1)
    ]
    assert starts == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("ages_ms", "start"), [((HOUR_MS, -HOUR_MS), 1), ((0,), 1), ((-HOUR_MS, HOUR_MS, None), 0)]
)
def test_a_timestamp_counts_where_there_is_one(ages_ms: tuple[int | None, ...], start: int) -> None:
    ledger = written(*ages_ms)
    assert start_after(ledger.state, ledger.now_ms + 6_000) == start


def test_a_run_that_continues_is_as_old_as_its_last_records() -> None:
    ledger = written()
    where = locator(1, ledger.now_ms)
    stamps = []
    for number, stamp in enumerate((NO_TIMESTAMP, NO_TIMESTAMP, 17, NO_TIMESTAMP)):
        ledger.now_ms += 1_000
        batch = commit_batch(topic_id(1), 0, 100 * number, max_timestamp=stamp)
        ledger.submit(CommitFile(where, 100 * (number + 1), [batch]))
        (run,) = ledger.state.topics.by_name["t"].partitions[0].runs()
        stamps.append(run.max_timestamp)
    begun = ledger.now_ms - 4_000
    assert [committed_ms(stamp) for stamp in stamps[:2]] == [begun + 1_000, begun + 2_000]
    assert stamps[2:] == [17, 17]
