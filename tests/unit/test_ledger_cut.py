"""A cut holds entries up for a few steps only, however many offsets, groups, producers or runs there are."""

import pytest

from ledger.cut import KEYS_AT_ONCE, StateCut, take_dirty_rows
from ledger.groups.requests import CommitOffsets, RemoveGroup, RemoveOffsets, StoreGroup
from ledger.groups.state import Group, OffsetRow
from ledger.image import all_rows, everything, restore
from ledger.partitions.requests import CommitFile
from ledger.rows import META, Row
from ledger.topics.requests import CreateTopic
from tests.support.image_rows import of_version
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id

MANY = 3_000
FEW = 50
"""Steps in which everything else is made that a small ledger has."""
TOPIC = topic_id(1)


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
