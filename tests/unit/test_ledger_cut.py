"""A cut holds entries up for a few steps only, however many offsets, groups, producers or runs there are."""

from collections.abc import Callable

import pytest

from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.cut import KEYS_AT_ONCE, StateCut, take_dirty_rows
from ledger.groups.requests import CommitOffsets, RemoveGroup, RemoveOffsets, StoreGroup
from ledger.groups.state import Group, OffsetRow
from ledger.image import all_rows, everything, restore
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.objects.rows import OBJECT
from ledger.objects.uploads import Upload, Uploader
from ledger.partitions.isolation_rows import OPEN_TRANSACTION
from ledger.partitions.producers import SILENT_MS
from ledger.partitions.requests import (
    CommitBatch,
    CommitFile,
    DeleteRecords,
    DrainRuns,
    ForgetProducers,
    ProducerTransaction,
)
from ledger.rows import META, Row, digest
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.transactions.requests import InitTransactionalId, ProducerEpoch
from tests.support.image_rows import of_version
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id

MANY = 3_000
FEW = 50
"""Steps in which everything else is made that a small ledger has."""
TOPIC, GONE = topic_id(1), topic_id(2)


@pytest.fixture
def ledger() -> JournalledLedger:
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", TOPIC, MANY, {}))
    return ledger


def commit(ledger: JournalledLedger, group: str, partitions: range, offset: int = 1) -> None:
    ledger.submit(CommitOffsets(group, [OffsetRow(TOPIC, index, offset) for index in partitions]))


def store(ledger: JournalledLedger, group: str, generation: int = 1) -> None:
    ledger.submit(StoreGroup(Group(group, "consumer", generation, None, None, (), True)))


def begun(cut: StateCut) -> int:
    """How many steps no entry may be applied for."""
    return sum(1 for _ in cut.begin())


def ended(cut: StateCut) -> list[Row]:
    for _ in cut.rest():
        pass
    return sorted(cut.rows())


def test_entries_are_applied_while_the_rows_of_many_offsets_and_groups_are_made(
    ledger: JournalledLedger,
) -> None:
    commit(ledger, "g", range(MANY))
    for number in range(2 * FEW):
        store(ledger, f"g{number}")
    assert begun(StateCut(ledger.state)) < FEW


def test_entries_wait_only_until_the_keys_of_all_offsets_are_known_when_all_rows_are_made(
    ledger: JournalledLedger,
) -> None:
    commit(ledger, "g", range(MANY))
    assert begun(StateCut(ledger.state, whole=True)) < MANY / KEYS_AT_ONCE + FEW


def test_requests_look_at_blank_partitions_while_the_keys_of_many_open_transactions_are_found(
    ledger: JournalledLedger,
) -> None:
    open_in = range(KEYS_AT_ONCE + 1)
    (producer,) = ledger.submit(InitTransactionalId("a", 60_000))
    assert isinstance(producer, ProducerEpoch)
    flags, claimed = TRANSACTIONAL_BIT, ProducerTransaction("a", adds=True, is_abortable=True)
    batches = [
        CommitBatch(TOPIC, index, 100 * index, 100, 1, 0, flags, *producer[:2], 0) for index in open_in
    ]
    transactions = {batch.start: claimed for batch in batches}
    ledger.submit(CommitFile(locator(1, 0), 100 * len(batches), batches, transactions=transactions))
    cut = StateCut(ledger.state, whole=True)
    for step, _ in enumerate(cut.begin()):
        # A request that looks at a blank partition makes its log.
        assert not ledger.state.topics.by_id[TOPIC].partitions[MANY - 1 - step].high_watermark
    found = [row for row in ended(cut) if row.section == OPEN_TRANSACTION]
    assert len(found) == len(open_in)


@pytest.mark.parametrize("whole", [False, True], ids=["changes", "whole"])
@pytest.mark.parametrize("steps", [0, 1, 7, 30])
def test_rows_of_groups_and_offsets_are_those_of_the_entry_of_the_cut(
    ledger: JournalledLedger, steps: int, whole: bool
) -> None:
    commit(ledger, "g", range(20))
    commit(ledger, "gone", range(3))
    store(ledger, "g")
    store(ledger, "gone")
    state = ledger.state
    if not whole:
        state.dirty = everything(state)
    expected = sorted(all_rows(state))
    cut = StateCut(state, whole=whole)
    begun(cut)
    rest = cut.rest()
    for _ in range(steps):
        next(rest, None)
    commit(ledger, "g", range(10, 30), offset=2)
    commit(ledger, "new", range(2))
    store(ledger, "g", generation=2)
    store(ledger, "new")
    ledger.submit(RemoveOffsets("g", [(TOPIC, index) for index in (1, 15, 25)]))
    ledger.submit(RemoveGroup("gone"))
    for _ in rest:
        pass
    assert sorted(cut.rows()) == expected
    # The next one has what came meanwhile.
    image = {(row.section, row.key): row.value for row in [*expected, *take_dirty_rows(state)]}
    left = [Row(section, key, value) for (section, key), value in image.items() if value is not None]
    assert sorted(left) == sorted(all_rows(state))


# Objects


def object_of(ledger: JournalledLedger, number: int, offset: int = 0, created_ms: int = 0) -> str:
    """The n-th draft of an uploader, in an object of its own. Its results stay until three more have come."""
    upload = Upload(Uploader(1, b"u" * 16), number + 1, max(number - 2, 0))
    batch = commit_batch(TOPIC, number % FEW, offset)
    where = locator(number, created_ms or ledger.now_ms)
    ledger.submit(CommitFile(where, offset + 100, [batch], upload=upload))
    return where


def test_entries_are_applied_while_the_rows_of_many_objects_are_made(ledger: JournalledLedger) -> None:
    for number in range(4 * FEW):
        object_of(ledger, number)
    assert begun(StateCut(ledger.state)) < FEW
    ledger.state.cut = None
    assert begun(StateCut(ledger.state, whole=True)) < FEW


def committed_again(ledger: JournalledLedger) -> None:
    """Into an object that is known, past what it had."""
    batch = commit_batch(TOPIC, 9, 100)
    ledger.submit(CommitFile(locator(9, 909_000), 200, [batch]))


def settled(ledger: JournalledLedger) -> None:
    """Later drafts, with which the uploader lets go of the results of those before."""
    for number in range(10, 14):
        object_of(ledger, number, created_ms=900_000 + 1_000 * number)


def drained(ledger: JournalledLedger) -> None:
    for partition in range(5):
        ledger.submit(DeleteRecords(TOPIC, partition, -1))
    ledger.submit(DrainRuns(100))


def forgotten(ledger: JournalledLedger) -> None:
    ledger.submit(ForgetObjects([5, 6]))


def below_the_floor(ledger: JournalledLedger) -> None:
    ledger.submit(RaiseFloor(909_500))


@pytest.mark.parametrize("change", [committed_again, settled, drained, forgotten, below_the_floor])
@pytest.mark.parametrize("whole", [False, True], ids=["changes", "whole"])
@pytest.mark.parametrize("steps", [0, 40, 55])
def test_rows_of_objects_are_those_of_the_entry_of_the_cut(
    ledger: JournalledLedger, change: Callable[[JournalledLedger], None], steps: int, whole: bool
) -> None:
    for number in range(10):
        object_of(ledger, number, created_ms=900_000 + 1_000 * number)
    for partition in (5, 6):
        ledger.submit(DeleteRecords(TOPIC, partition, -1))
    ledger.submit(DrainRuns(100))
    ledger.submit(RaiseFloor(907_500))
    state = ledger.state
    if not whole:
        state.dirty = everything(state)
    expected = sorted(all_rows(state))
    cut = StateCut(state, whole=whole)
    begun(cut)
    rest = cut.rest()
    for _ in range(steps):
        next(rest, None)
    change(ledger)
    assert [row for row in all_rows(state) if row.section == OBJECT] != [
        row for row in expected if row.section == OBJECT
    ]
    for _ in rest:
        pass
    assert sorted(cut.rows()) == expected
    image = {(row.section, row.key): row.value for row in [*expected, *take_dirty_rows(state)]}
    left = [Row(section, key, value) for (section, key), value in image.items() if value is not None]
    assert sorted(left) == sorted(all_rows(state))


@pytest.mark.parametrize("steps", [0, 1, 7, 30])
def test_rows_of_offsets_that_could_not_be_written_are_dirty_again(
    ledger: JournalledLedger, steps: int
) -> None:
    commit(ledger, "g", range(20))
    store(ledger, "g")
    state = ledger.state
    given_up = StateCut(state)
    begun(given_up)
    rest = given_up.rest()
    for _ in range(steps):
        next(rest, None)
    commit(ledger, "g", range(10, 30), offset=2)
    given_up.give_up()
    assert sorted(take_dirty_rows(state)) == sorted(all_rows(state))
    assert [row.section for row in take_dirty_rows(state)] == [META]


def of_many_producers(level: int) -> JournalledLedger:
    ledger = JournalledLedger(level)
    ledger.submit(CreateTopic("t", TOPIC, FEW, {}))
    batches = [commit_batch(TOPIC, at % FEW, at * 100, producer=(at, 0, 0)) for at in range(2 * KEYS_AT_ONCE)]
    ledger.submit(CommitFile(locator(1, ledger.now_ms), 100 * len(batches), batches))
    return ledger


def test_the_first_image_after_a_start_without_one_holds_entries_up_for_few_steps() -> None:
    state = restore(list(all_rows(of_many_producers(2).state)))
    state.dirty = everything(state)
    cut = StateCut(state)
    assert begun(cut) < FEW
    assert ended(cut) == sorted(all_rows(state))


def test_the_first_image_after_one_of_an_older_format_holds_entries_up_for_few_steps() -> None:
    state = restore(of_version(list(all_rows(of_many_producers(1).state)), 2))
    cut = StateCut(state)
    assert begun(cut) < FEW
    assert ended(cut) == sorted(all_rows(state))


def change_some(ledger: JournalledLedger) -> None:
    """Runs and producers come and go, and a topic with its partitions."""
    batches = [commit_batch(TOPIC, at, at * 100, producer=(at, 0, 1)) for at in range(3)]
    fresh = commit_batch(TOPIC, 4, 400, producer=(9_999, 0, 0))
    ledger.submit(CommitFile(locator(2, ledger.now_ms), 500, [*batches, fresh]))
    ledger.submit(DeleteRecords(TOPIC, 1, 2))
    ledger.submit(DrainRuns(100))
    forget(ledger, 5)
    ledger.submit(DeleteTopic(GONE))
    ledger.submit(DrainRuns(100))


def forget(ledger: JournalledLedger, number: int) -> None:
    """Two producers of a partition."""
    before = ledger.state.producer_count
    ledger.now_ms += SILENT_MS + 1
    ledger.submit(ForgetProducers([(number, number), (number, number + FEW)]))
    assert ledger.state.producer_count == before - 2


@pytest.mark.parametrize("applies", [False, True], ids=["at rest", "while entries are applied"])
@pytest.mark.parametrize("steps", [0, 1, 500, 10 * KEYS_AT_ONCE])
def test_after_an_image_that_could_not_be_written_the_next_one_holds_entries_up_for_few_steps(
    steps: int, applies: bool
) -> None:
    ledger = of_many_producers(2)
    ledger.submit(CreateTopic("gone", GONE, 2, {}))
    batches = [commit_batch(GONE, at % 2, at * 100, producer=(at, 0, 0)) for at in range(9)]
    ledger.submit(CommitFile(locator(3, ledger.now_ms), 900, batches))
    state = ledger.state
    state.dirty = everything(state)
    for _ in range(2):
        given_up = StateCut(state)
        begun(given_up)
        rest = given_up.rest()
        for _ in range(steps):
            next(rest, None)
        given_up.give_up()
    if applies:
        change_some(ledger)
    cut = StateCut(state)
    assert begun(cut) < FEW
    assert [row for row in ended(cut) if row.value is not None] == sorted(all_rows(state))


@pytest.mark.parametrize("steps", [0, 1, 500, 10 * KEYS_AT_ONCE])
def test_what_changes_before_and_while_an_image_is_given_up_is_in_the_next_one(steps: int) -> None:
    ledger = of_many_producers(2)
    ledger.submit(CreateTopic("gone", GONE, 2, {}))
    batches = [commit_batch(GONE, at % 2, at * 100, producer=(at, 0, 0)) for at in range(9)]
    ledger.submit(CommitFile(locator(3, ledger.now_ms), 900, batches))
    ledger.write_image()
    state = ledger.state
    state.dirty = everything(state)
    given_up = StateCut(state)
    begun(given_up)
    rest = given_up.rest()
    for _ in range(steps):
        next(rest, None)
    forget(ledger, 6)
    ledger.submit(DeleteRecords(TOPIC, 4, 3))
    ledger.submit(DrainRuns(100))
    giving_up = given_up.giving_up()
    for _ in range(steps // 2):
        next(giving_up, None)
    change_some(ledger)
    for _ in giving_up:
        pass
    # It removes from the image, too, what has gone.
    ledger.write_image()
    assert digest(all_rows(ledger.from_image())) == digest(all_rows(state))
    assert [row.section for row in take_dirty_rows(state)] == [META]
