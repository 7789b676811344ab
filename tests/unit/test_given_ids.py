"""Member ids that were given out: which are there, when the first ends, and what they take."""

import heapq
import math
import random

import pytest

from gateway.groups.classic.given_ids import FEW, ID_BYTES, GivenIds
from ledger.requests import UTF8, text_bytes


@pytest.mark.parametrize("seed", range(5))
def test_they_are_as_a_look_at_all_of_them_says(seed: int) -> None:
    dice = random.Random(seed)
    ids, expected = GivenIds(), dict[str, float]()
    now = 0.0
    for number in range(3_000):
        now += dice.random()
        choice = dice.random()
        name = f"m{dice.randrange(200)}" if choice < 0.2 else f"n{number}"
        if choice < 0.6:
            until = now + dice.choice([1.0, 5.0, 200.0 * dice.random()])
            ids.give(name, until)
            expected[name] = until
        elif choice < 0.8:
            name = dice.choice([*expected, "unknown"])
            assert ids.take(name) == (expected.pop(name, None) is not None)
        else:
            ended = [each for each, until in expected.items() if until <= now]
            assert ids.take_expired(now) == bool(ended)
            for each in ended:
                del expected[each]
        assert ids.next_end == min(expected.values(), default=math.inf)
        assert len(ids) == len(expected) and all(each in ids for each in expected)
        assert ids.bytes == sum(ID_BYTES + len(each) for each in expected)
        assert len(ids._ends) <= 2 * len(ids) + FEW + 1  # noqa: SLF001 - what it keeps
    ids.clear()
    assert (len(ids), ids.bytes, ids.next_end) == (0, 0, math.inf)


def test_a_look_for_those_that_have_ended_does_not_look_at_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids, popped = GivenIds(), []
    for number in range(10_000):
        ids.give(f"m{number}", float(number))

    def counted(heap: list[tuple[float, str]]) -> tuple[float, str]:
        popped.append(1)
        return heapq.heappop(heap)

    monkeypatch.setattr("gateway.groups.classic.given_ids.heappop", counted)
    for now in range(100):
        assert ids.take_expired(now)
        assert ids.next_end == now + 1
    assert len(popped) == 100


def test_characters_count_as_what_they_take_in_memory() -> None:
    assert text_bytes("plain") == 5
    assert text_bytes("\U0001f600" * 10) == 10 * UTF8
