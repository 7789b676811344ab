"""Runs inside of journal entries: which are there, how they get into objects, and what that leaves."""

import random
from collections.abc import Sequence

import pytest

from ledger.errors import StoreDamaged
from ledger.image import all_rows
from ledger.inline import plan
from ledger.inline.plan import (
    MAX_LOOKED_AT,
    MAX_RANGE_RUNS,
    InlineRange,
    inline_ranges,
    look_from,
    moved,
    readable_end,
    requests_of,
    without,
)
from ledger.inline.requests import MoveInline
from ledger.journal import apply_entry, decode_entry
from ledger.keys import inline_locator
from ledger.objects.requests import RaiseFloor
from ledger.objects.uploads import ObjectKind
from ledger.partitions.requests import (
    CommitFile,
    CommitPlaced,
    Committed,
    DeleteRecords,
    DrainRuns,
    FileCommit,
    StaleObject,
)
from ledger.partitions.runs import Run, without_timestamp
from ledger.records import LEVEL_WITH_PLACED, LEVEL_WITH_TRANSACTIONS
from ledger.requests import Done, Refused
from ledger.rows import digest
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.transactions.requests import MarkersWritten, TopicPartition, WriteMarkers
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id

TOPIC = topic_id(1)
SIZE = 100


def ledger_with(partitions: int = 2, level: int = 5) -> JournalledLedger:
    ledger = JournalledLedger(level)
    ledger.submit(CreateTopic("t", TOPIC, partitions, {}))
    return ledger


def inline_commit(ledger: JournalledLedger, partitions: Sequence[int], *, stamp: int = 7) -> CommitPlaced:
    """Of a draft that goes with the next entry, one batch for each partition."""
    name = inline_locator(0, ledger.state.applied, ledger.state.applied)
    batches = [
        commit_batch(TOPIC, partition, 50 + at * SIZE, max_timestamp=stamp)
        for at, partition in enumerate(partitions)
    ]
    return CommitPlaced(name, 50 + SIZE * len(partitions), batches)


def commit_inline(ledger: JournalledLedger, *partitions: int, stamp: int = 7) -> int:
    """The number of the entry that has them."""
    (result,) = ledger.submit(inline_commit(ledger, partitions, stamp=stamp))
    assert isinstance(result, FileCommit) and all(isinstance(each, Committed) for each in result.results)
    return ledger.state.applied - 1


def commit_wal(ledger: JournalledLedger, number: int, partition: int = 0) -> None:
    batch = commit_batch(TOPIC, partition, 0, max_timestamp=7)
    ledger.submit(CommitFile(locator(number, 1_000_000), SIZE, [batch]))


def ranges(ledger: JournalledLedger) -> list[InlineRange]:
    state = ledger.state
    logs = [state.logs[number] for number in state.objects.inline_runs if number in state.logs]
    return [found for log in logs for found in inline_ranges(state, log)]


def moves_to(key: str, found: Sequence[InlineRange]) -> list[MoveInline]:
    at, moves = 1_000, []
    for each in found:
        starts = []
        for run in each.runs:
            starts.append(at)
            at += run.size
        moves.append(moved(each, starts))
    return list(requests_of(key, at + 4, moves))


def move_all(ledger: JournalledLedger, number: int = 900) -> int:
    return move_some(ledger, ranges(ledger), number)


def move_some(ledger: JournalledLedger, found: Sequence[InlineRange], number: int = 900) -> int:
    results = [ledger.submit(request)[0] for request in moves_to(locator(number, 1_000_000), found)]
    assert all(isinstance(result, Done) for result in results)
    return sum(result.count for result in results if isinstance(result, Done))


def runs_of(ledger: JournalledLedger, partition: int = 0) -> list[tuple[int, int, int]]:
    """(base, last, kind of the object) of all live runs."""
    state = ledger.state
    log = state.topics.by_id[TOPIC].partitions[partition]
    return [(run.base, run.last, state.objects.by_number[run.object_number].kind) for run in log.runs_from(0)]


def assert_restored(ledger: JournalledLedger) -> None:
    """From journal, image and snapshot alike."""
    ledger.write_image()
    expected = digest(all_rows(ledger.state))
    for restored in (ledger.from_journal(), ledger.from_image(), ledger.from_snapshot()):
        assert digest(all_rows(restored)) == expected
        assert restored.objects.first_inline_entry() == ledger.state.objects.first_inline_entry()
        assert list(restored.objects.inline) == list(ledger.state.objects.inline)
        assert restored.objects.inline_bytes == ledger.state.objects.inline_bytes
        assert restored.objects.inline_runs == ledger.state.objects.inline_runs


def test_the_lowest_entry_with_a_live_run_is_known() -> None:
    ledger = ledger_with()
    assert ledger.state.objects.first_inline_entry() is None
    first = commit_inline(ledger, 0)
    second = commit_inline(ledger, 0, 1)
    assert ledger.state.objects.first_inline_entry() == first
    ledger.submit(DeleteRecords(TOPIC, 0, 1))
    assert ledger.state.objects.first_inline_entry() == first
    assert_restored(ledger)
    ledger.submit(DrainRuns(10))
    assert ledger.state.objects.first_inline_entry() == second
    assert_restored(ledger)
    ledger.submit(DeleteTopic(TOPIC))
    while ledger.state.draining:
        ledger.submit(DrainRuns(1))
    assert ledger.state.objects.first_inline_entry() is None and not ledger.state.objects.inline_runs
    assert_restored(ledger)


def test_a_look_is_at_few_runs_and_the_next_goes_on_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = ledger_with()
    for number in range(10):
        commit_inline(ledger, 0)
        if number in (2, 3, 7):
            commit_wal(ledger, number)
    log = ledger.state.topics.by_id[TOPIC].partitions[0]
    whole = [run.base for found in inline_ranges(ledger.state, log) for run in found.runs]
    monkeypatch.setattr(plan, "MAX_LOOKED_AT", 4)
    offset: int | None = 0
    bases: list[int] = []
    looked: list[int] = []
    while offset is not None:
        look = look_from(ledger.state, log, offset)
        looked.append(look.runs)
        bases += [run.base for found in look.ranges for run in found.runs]
        offset = look.next_offset
    assert bases == whole and len(bases) == 10
    assert looked == [4, 4, 4, 1]
    assert [run.base for found in inline_ranges(ledger.state, log) for run in found.runs] == whole


def test_an_object_inside_of_an_entry_is_never_garbage() -> None:
    ledger = ledger_with()
    commit_inline(ledger, 0)
    ledger.submit(DeleteRecords(TOPIC, 0, 1))
    ledger.submit(DrainRuns(10))
    objects = ledger.state.objects
    assert not objects.garbage and not objects.by_number and not objects.by_locator
    ledger.submit(RaiseFloor(2_000_000))
    assert list(objects.due_garbage(10**9, 0)) == []


def test_moved_runs_have_the_same_offsets_in_one_object() -> None:
    ledger = ledger_with()
    for _ in range(5):
        commit_inline(ledger, 0, 1)
    before = ledger.state.topics.by_id[TOPIC].partitions[0]
    size = before.size_bytes
    assert move_all(ledger) == 2
    log = ledger.state.topics.by_id[TOPIC].partitions[0]
    assert runs_of(ledger) == [(0, 4, ObjectKind.WAL)] and runs_of(ledger, 1) == [(0, 4, ObjectKind.WAL)]
    (run,) = log.runs_from(0)
    assert run == Run(0, 4, run.object_number, 1_000, 5 * SIZE, 7)
    assert (log.size_bytes, log.high_watermark) == (size, 5)
    (stored,) = ledger.state.objects.by_number.values()
    assert (stored.live_runs, stored.kind, stored.created_ms) == (2, ObjectKind.WAL, 1_000_000)
    assert ledger.state.objects.first_inline_entry() is None and not ledger.state.objects.inline_runs
    assert_restored(ledger)


def test_runs_of_objects_between_stay_where_they_are() -> None:
    ledger = ledger_with()
    commit_inline(ledger, 0)
    commit_wal(ledger, 1)
    commit_inline(ledger, 0)
    commit_inline(ledger, 0)
    assert move_all(ledger) == 2
    wal = ObjectKind.WAL
    assert runs_of(ledger) == [(0, 0, wal), (1, 1, wal), (2, 3, wal)]
    commit_inline(ledger, 0)
    assert runs_of(ledger)[-1] == (4, 4, ObjectKind.INLINE)
    assert_restored(ledger)
    assert move_all(ledger, 901) == 1
    # Plans of jobs have no such runs: one that goes on need not begin again.
    assert ledger.state.topics.by_id[TOPIC].partitions[0].layout_version == 1
    assert_restored(ledger)


def test_for_jobs_a_partition_ends_before_the_first_run_inside_of_an_entry() -> None:
    ledger = ledger_with()
    log = ledger.state.topics.by_id[TOPIC].partitions[0]
    ends = [readable_end(ledger.state, log)]
    for number, is_inline in enumerate([False, True, False, True]):
        commit_inline(ledger, 0) if is_inline else commit_wal(ledger, number)
        ends.append(readable_end(ledger.state, log))
    assert ends == [0, 1, 1, 1, 1]
    move_all(ledger)
    assert readable_end(ledger.state, log) == 4
    commit_wal(ledger, 8)
    commit_inline(ledger, 0)
    assert readable_end(ledger.state, log) == 5
    ledger.restart("snapshot")
    assert readable_end(ledger.state, ledger.state.topics.by_id[TOPIC].partitions[0]) == 5


def test_a_partition_goes_on_for_jobs_although_it_had_a_run_inside_of_an_entry_long_ago() -> None:
    ledger, many = ledger_with(), 2 * MAX_LOOKED_AT + 200
    log = ledger.state.topics.by_id[TOPIC].partitions[0]
    commit_inline(ledger, 0)
    for number in range(many):
        commit_wal(ledger, number)
    # Another partition has one at all times.
    commit_inline(ledger, 1)
    commit_inline(ledger, 1)
    first, other = ranges(ledger)
    assert move_some(ledger, [first, other._replace(runs=other.runs[:1])]) == 2
    assert readable_end(ledger.state, log) == log.high_watermark == many + 1
    # Nor does one that came after the move hide what is before it.
    for number in range(many):
        commit_wal(ledger, number + many)
    commit_inline(ledger, 0)
    commit_wal(ledger, 2 * many)
    assert readable_end(ledger.state, log) == log.high_watermark - 2 == 2 * many + 1
    look = look_from(ledger.state, log, 0)
    assert [run.base for found in look.ranges for run in found.runs] == [2 * many + 1]
    assert (look.runs, look.next_offset) == (2, None)
    assert_restored(ledger)


def test_what_is_deleted_and_not_drained_yet_ends_no_partition_for_jobs() -> None:
    ledger = ledger_with()
    log = ledger.state.topics.by_id[TOPIC].partitions[0]
    commit_inline(ledger, 0)
    commit_wal(ledger, 1)
    ledger.submit(DeleteRecords(TOPIC, 0, 1))
    assert readable_end(ledger.state, log) == log.high_watermark == 2
    assert not look_from(ledger.state, log, 0).ranges


def test_a_move_that_is_repeated_changes_nothing() -> None:
    ledger = ledger_with()
    commit_inline(ledger, 0, 1)
    requests = moves_to(locator(900, 1_000_000), ranges(ledger))
    for expected in (2, 0, 0):
        assert ledger.submit(*requests) == [Done(expected)]
    assert_restored(ledger)


def test_what_was_deleted_meanwhile_is_not_moved() -> None:
    ledger = ledger_with()
    for _ in range(3):
        commit_inline(ledger, 0, 1)
    requests = moves_to(locator(900, 1_000_000), ranges(ledger))
    ledger.submit(DeleteRecords(TOPIC, 0, 2))
    ledger.submit(DrainRuns(10))
    assert ledger.submit(*requests) == [Done(1)]
    assert runs_of(ledger) == [(2, 2, ObjectKind.INLINE)]
    assert runs_of(ledger, 1) == [(0, 2, ObjectKind.WAL)]
    assert move_all(ledger, 901) == 1
    ledger.submit(DeleteTopic(TOPIC))
    assert ledger.submit(*requests) == [Done(0)]
    assert_restored(ledger)


def test_a_range_with_a_run_of_an_object_is_not_moved() -> None:
    ledger = ledger_with()
    commit_inline(ledger, 0)
    commit_wal(ledger, 1)
    log = ledger.state.topics.by_id[TOPIC].partitions[0]
    all_runs = InlineRange(log, list(log.runs_from(0)))
    (request,) = moves_to(locator(900, 1_000_000), [all_runs])
    assert ledger.submit(request) == [Done(0)]


def test_the_last_run_is_moved_in_the_entry_of_a_commit_that_follows_it() -> None:
    ledger = ledger_with()
    commit_inline(ledger, 0)
    commit_inline(ledger, 1)
    (request,) = moves_to(locator(900, 1_000_000), ranges(ledger))
    results = ledger.submit(inline_commit(ledger, [0]), request)
    assert results[1] == Done(2)
    assert runs_of(ledger) == [(0, 0, ObjectKind.WAL), (1, 1, ObjectKind.INLINE)]
    assert runs_of(ledger, 1) == [(0, 0, ObjectKind.WAL)]
    assert_restored(ledger)


def test_an_object_below_the_floor_or_closed_takes_nothing() -> None:
    ledger = ledger_with()
    commit_inline(ledger, 0)
    commit_inline(ledger, 1)
    first, second = ranges(ledger)
    key = locator(900, 1_000_000)
    ledger.submit(*moves_to(key, [first]))
    ledger.submit(DeleteRecords(TOPIC, 0, 1))
    ledger.submit(DrainRuns(10))
    assert ledger.state.objects.by_locator[key].closed
    assert ledger.submit(*moves_to(key, [second])) == [StaleObject()]
    ledger.now_ms = 2_000_000
    ledger.submit(RaiseFloor(1_500_000))
    assert ledger.submit(*moves_to(locator(901, 1_000_000), [second])) == [StaleObject()]


@pytest.mark.parametrize("flaw", ["key", "gap", "range", "object", "many"])
def test_a_request_that_contradicts_itself_is_refused(flaw: str) -> None:
    ledger = ledger_with()
    commit_inline(ledger, 0)
    commit_inline(ledger, 0)
    (found,) = ranges(ledger)
    (request,) = moves_to(locator(900, 1_000_000), [found])
    (move,) = request.moves
    (run,) = move.runs
    flaws = {
        "key": MoveInline("journal/0/1", request.object_bytes, request.moves),
        "gap": MoveInline(
            request.locator,
            10_000,
            [move._replace(runs=[run._replace(last=0, size=SIZE), run._replace(base=2, last=1)])],
        ),
        "range": MoveInline(request.locator, request.object_bytes, [move._replace(first=1)]),
        "object": MoveInline(request.locator, run.start + run.size - 1, request.moves),
        "many": MoveInline(request.locator, request.object_bytes, [move] * 101),
    }
    (result,) = ledger.submit(flaws[flaw])
    assert isinstance(result, Refused) and result.error == "INVALID_REQUEST"


def test_below_its_feature_level_nothing_is_moved() -> None:
    ledger = ledger_with(level=4)
    (result,) = ledger.submit(MoveInline(locator(1, 1_000_000), 100, []))
    assert isinstance(result, Refused) and result.error == "UNSUPPORTED_VERSION"


def test_an_entry_that_is_applied_twice_is_damage() -> None:
    ledger = ledger_with()
    commit_inline(ledger, 0)
    move_all(ledger)
    with pytest.raises(StoreDamaged, match="no such runs"):
        apply_entry(ledger.state, decode_entry(ledger.entries[-1], "entry"))


def test_runs_of_different_ages_are_not_joined() -> None:
    ledger = ledger_with()
    stamps = [
        without_timestamp(10_000_000),
        5_000,
        without_timestamp(10_000_001),
        without_timestamp(10_000_002),
    ]
    for stamp in stamps:
        commit_inline(ledger, 0, stamp=stamp)
    log = ledger.state.topics.by_id[TOPIC].partitions[0]
    runs = [run._replace(max_timestamp=stamp) for run, stamp in zip(log.runs_from(0), stamps, strict=True)]
    move = moved(InlineRange(log, runs), [0, 100, 200, 300])
    assert [(run.base, run.last) for run in move.runs] == [(0, 0), (1, 1), (2, 3)]
    # Nor those that are not adjacent in the object.
    move = moved(InlineRange(log, [run._replace(max_timestamp=9) for run in runs]), [0, 100, 300, 400])
    assert [(run.base, run.last) for run in move.runs] == [(0, 1), (2, 3)]


def test_a_long_range_is_cut_and_moved_in_several_entries() -> None:
    ledger = ledger_with()
    for _ in range(2 * MAX_RANGE_RUNS + 1):
        commit_inline(ledger, 0, 1)
    found = ranges(ledger)
    assert [len(each.runs) for each in found] == [MAX_RANGE_RUNS, MAX_RANGE_RUNS, 1] * 2
    assert move_all(ledger) == 6
    assert [kind for *_, kind in runs_of(ledger)] == [ObjectKind.WAL] * 3
    assert_restored(ledger)


def test_what_cannot_be_read_stays() -> None:
    ledger = ledger_with()
    for _ in range(5):
        commit_inline(ledger, 0)
    (found,) = ranges(ledger)
    parts = without(found, [found.runs[0], found.runs[2]])
    assert [[run.base for run in part.runs] for part in parts] == [[1], [3, 4]]
    assert without(found, found.runs) == []
    for request in moves_to(locator(900, 1_000_000), parts):
        ledger.submit(request)
    inline, wal = ObjectKind.INLINE, ObjectKind.WAL
    assert runs_of(ledger) == [(0, 0, inline), (1, 1, wal), (2, 2, inline), (3, 4, wal)]
    # And is found the next time.
    assert [[run.base for run in each.runs] for each in ranges(ledger)] == [[0], [2]]
    assert_restored(ledger)


def take_step(ledger: JournalledLedger, rng: random.Random, step: int) -> None:
    match rng.randrange(9 if ledger.state.feature_level >= LEVEL_WITH_TRANSACTIONS else 8):
        case 0 | 1 | 2:
            commit_inline(ledger, *rng.sample(range(3), rng.randint(1, 3)))
        case 3:
            commit_wal(ledger, step, rng.randrange(3))
        case 4:
            log = ledger.state.topics.by_id[TOPIC].partitions[rng.randrange(3)]
            offset = rng.randint(log.log_start, log.high_watermark)
            ledger.submit(DeleteRecords(TOPIC, log.index, offset))
        case 5:
            ledger.submit(DrainRuns(rng.randint(1, 5)))
        case 6:
            ledger.begin_image()
            ledger.continue_image(rng.randrange(4))
        case 7:
            some = [each for each in ranges(ledger) if rng.random() < 0.7]
            for request in moves_to(locator(1_000 + step, 1_000_000), some):
                ledger.submit(request)
        case 8:
            places = [TopicPartition(TOPIC, index) for index in rng.sample(range(3), rng.randint(1, 3))]
            (result,) = ledger.submit(WriteMarkers(1, step, True, places))
            assert result == MarkersWritten([None] * len(places))


@pytest.mark.parametrize("level", [LEVEL_WITH_PLACED, LEVEL_WITH_TRANSACTIONS])
@pytest.mark.parametrize("seed", range(8))
def test_any_history_leaves_every_offset_once_and_what_is_restored_is_the_same(seed: int, level: int) -> None:
    rng, ledger = random.Random(seed), ledger_with(3, level)
    for step in range(1, 200):
        take_step(ledger, rng, step)
        for log in ledger.state.topics.by_id[TOPIC].partitions:
            runs = list(log.runs_from(log.log_start))
            assert [run.base for run in runs[1:]] == [run.last + 1 for run in runs[:-1]]
            assert not runs or (runs[0].base <= log.log_start and runs[-1].last + 1 == log.high_watermark)
        live = [name for name in ledger.state.objects.by_locator if name.startswith("journal/")]
        lowest = min((int(name[10:30]) for name in live), default=None)
        assert ledger.state.objects.first_inline_entry() == lowest
        sizes = [stored.size for stored in ledger.state.objects.inline.values()]
        assert ledger.state.objects.inline_bytes == sum(sizes)
        if step % 40 == 0:
            assert_restored(ledger)
