"""The orphan floor over many objects: each rise touches only those that fall below it."""

from ledger.objects.state import Objects, ObjectState
from tests.support.journalled import locator


def test_the_floor_drops_the_results_of_each_object_once_in_whatever_order_they_were_made() -> None:
    objects = Objects()
    made = [50, 10, 40, 20, 30]
    for number, created_ms in enumerate(made):
        objects.register(locator(number, created_ms)).remember(0, number)
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
    objects.by_number[1].remember(0, 7)
    assert [state.number for state in objects.raise_floor(30)] == [1]


def dropped(objects: Objects, floor_ms: int) -> list[ObjectState]:
    below = objects.raise_floor(floor_ms)
    for state in below:
        state.forget_results()
    return below


def test_a_rise_of_the_floor_does_not_look_at_objects_above_it() -> None:
    objects = Objects()
    for number in range(1000):
        objects.register(locator(number, 1000 + number))
    seen = _Counting(objects.by_number)
    objects.by_number = seen  # type: ignore[assignment]
    objects.raise_floor(1003)
    assert seen.looked == 3


class _Counting(dict[int, object]):
    looked = 0

    def get(self, key, default=None):  # type: ignore[no-untyped-def]
        self.looked += 1
        return super().get(key, default)
