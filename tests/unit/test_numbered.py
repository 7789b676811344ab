"""A mapping by number is as a dict, and may change while it is gone through."""

import random

from ledger.numbered import BLOCK_BITS, ByNumber

BLOCK = 1 << BLOCK_BITS


def test_it_is_as_a_dict_whatever_is_done_to_it() -> None:
    choose = random.Random(7)
    kept, expected = ByNumber[int](), dict[int, int]()
    for _ in range(3_000):
        number = choose.choice([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2**47]) + choose.randrange(3)
        match choose.randrange(4):
            case 0 | 1:
                kept[number] = expected[number] = choose.randrange(100)
            case 2:
                assert kept.pop(number, None) == expected.pop(number, None)
            case _:
                assert (kept.get(number), number in kept) == (expected.get(number), number in expected)
        assert (dict(kept), len(kept), bool(kept)) == (expected, len(expected), bool(expected))
        assert sorted(kept.values()) == sorted(expected.values())


def test_it_may_change_while_it_is_gone_through() -> None:
    kept = ByNumber[str]()
    for number in range(0, 3 * BLOCK, 2):
        kept[number] = ""
    seen = list[int]()
    for number in kept:
        seen.append(number)
        if number < BLOCK:
            kept.pop(number + 2 * BLOCK)
            kept[number + 1] = ""
            del kept[number]
    assert seen == list(range(0, 2 * BLOCK, 2))
    assert len(kept) == BLOCK
