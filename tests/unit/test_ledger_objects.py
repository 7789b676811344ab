"""The orphan floor over many objects: each rise touches only those with results that fall below it."""

import gc
import time
from typing import Final

import pytest

from ledger.image import all_rows, restore
from ledger.objects.apply import floor_raised
from ledger.objects.records import FloorRaised
from ledger.objects.state import Objects, ObjectState
from ledger.state import LedgerState
from tests.support.journalled import locator
from tests.support.quiet import as_if_quiet

MANY: Final = 150_000
BEGUN_MS: Final = 1_000_000
STEP_MS: Final = 10
END_MS: Final = BEGUN_MS + STEP_MS * MANY
MAX_S: Final = 0.010


def with_result(objects: Objects, number: int, created_ms: int) -> ObjectState:
    state = objects.register(locator(number, created_ms))
    objects.remember(state, [0], [number])
    return state


def test_the_floor_drops_the_results_of_each_object_once_in_whatever_order_they_were_made() -> None:
    objects = Objects()
    made = [50, 10, 40, 20, 30]
    for number, created_ms in enumerate(made):
        with_result(objects, number, created_ms)
    objects.forget([3])
    assert [state.created_ms for state in dropped(objects, 30)] == [10]
    assert dropped(objects, 20) == dropped(objects, 30) == []
    assert sorted(state.created_ms for state in dropped(objects, 50)) == [30, 40]
    assert {made[n]: state.base_offset_at(0) for n, state in objects.by_number.items()} == {
        50: 0,
        10: None,
        40: None,
        30: None,
    }


def test_a_rise_of_the_floor_does_not_concern_objects_without_results() -> None:
    objects = Objects()
    for number in range(2):
        objects.register(locator(number, 10))
    objects.remember(objects.by_number[1], [0], [7])
    assert [state.number for state in objects.raise_floor(30)] == [1]


def dropped(objects: Objects, floor_ms: int) -> list[ObjectState]:
    below = objects.raise_floor(floor_ms)
    for state in below:
        state.forget_results()
    return below


def test_a_rise_of_the_floor_does_not_look_at_objects_above_it() -> None:
    objects = Objects()
    for number in range(1000):
        with_result(objects, number, 1000 + number)
    seen = _Counting(objects.by_number)
    objects.by_number = seen  # type: ignore[assignment]
    objects.raise_floor(1003)
    assert seen.looked == 3


class _Counting(dict[int, object]):
    looked = 0

    def __getitem__(self, key: int) -> object:
        self.looked += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("created_ms", [30, 29_999, 30_000, 30_001, 95_000])
def test_a_floor_passes_an_object_without_results_once_and_to_the_millisecond(created_ms: int) -> None:
    objects = Objects()
    objects.register(locator(0, created_ms))
    objects.register(locator(1, 200_000))
    assert not objects.passes(created_ms) and objects.passes(created_ms + 1)
    objects.raise_floor(created_ms)
    assert not objects.passes(created_ms) and objects.passes(created_ms + 1)
    objects.raise_floor(created_ms + 1)
    assert not objects.passes(200_000) and objects.passes(200_001)


def many_closed() -> LedgerState:
    """Closed objects, all above the floor, one of which has a result."""
    state = LedgerState()
    for number in range(MANY):
        stored = state.objects.register(locator(number, BEGUN_MS + STEP_MS * number))
        state.objects.close_if_empty(stored, END_MS)
    state.objects.remember(state.objects.by_number[MANY // 2], [0], [7])
    return state


@pytest.mark.serial
@pytest.mark.parametrize("is_restored", [False, True])
def test_a_floor_that_passes_very_many_objects_without_results_looks_at_none_of_them(
    is_restored: bool,
) -> None:
    state = many_closed()
    if is_restored:
        state = restore(all_rows(state))
    objects, took = state.objects, list[float]()
    gc.disable()
    for floor_ms in (END_MS - 12_345, END_MS):
        began = time.thread_time()
        assert objects.passes(floor_ms)
        floor_raised(state, FloorRaised(floor_ms))
        assert not objects.passes(floor_ms)
        took.append(as_if_quiet(time.thread_time() - began))
    gc.enable()
    assert max(took) < MAX_S, took
    assert objects.by_number[MANY // 2].base_offset_at(0) is None
    assert sum(1 for _ in objects.due_garbage(END_MS, 0)) == MANY


def test_a_restored_ledger_drops_the_results_that_the_one_before_it_would_have_dropped() -> None:
    state = LedgerState()
    for number, created_ms in enumerate([50, 10, 40]):
        state.objects.close_if_empty(with_result(state.objects, number, created_ms), 60)
    state.objects.close_if_empty(state.objects.register(locator(9, 20)), 60)
    for floor_ms in (15, 45):
        again = restore(all_rows(state))
        for at_ms in range(60):
            assert again.objects.passes(at_ms) == state.objects.passes(at_ms)
        for each in (state, again):
            floor_raised(each, FloorRaised(floor_ms))
        assert sorted(all_rows(again)) == sorted(all_rows(state))
    assert [one.number for one in state.objects.by_number.values() if one.starts] == [0]
