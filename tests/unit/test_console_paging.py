"""Pages of long lists: the rows of a list that is sorted at once, and no long hold of the event loop."""

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.console.paging import CHUNK_ROWS, PageRequest, page_of
from gateway.scheduling.slices import Owner, Slices, SliceScheduler
from tests.support.loop_time import longest_turn


class Line(NamedTuple):
    name: str
    size: int


def slices() -> Slices:
    return Slices(SliceScheduler(), Owner(-2, "127.0.0.1"))


def by_size(row: Line) -> int:
    return row.size


LINES = st.lists(st.builds(Line, st.text("abAB", max_size=3), st.integers(0, 9)), max_size=60)


@settings(max_examples=60, deadline=None)
@given(LINES, st.text("ab", max_size=2), st.booleans(), st.integers(0, 4), st.integers(1, 20))
def test_a_page_is_a_part_of_the_sorted_list(
    rows: list[Line], search: str, is_descending: bool, page: int, size: int
) -> None:
    request = PageRequest(search, "size", is_descending, page, size)
    found = asyncio.run(page_of(rows, request, by_size, slices()))
    matching = [row for row in rows if search in row.name.lower()]
    ordered = sorted(matching, key=by_size, reverse=is_descending)
    assert list(found.rows) == ordered[page * size : (page + 1) * size]
    assert (found.matching, found.total) == (len(matching), len(rows))


@pytest.mark.parametrize("is_descending", [False, True])
async def test_lists_of_several_chunks_are_sorted_as_one(is_descending: bool) -> None:
    rows = [Line(f"n{i}", i * 7919 % 3001) for i in range(3 * CHUNK_ROWS + 17)]
    request = PageRequest("", "size", is_descending, page=11, rows=200)
    found = await page_of(rows, request, by_size, slices())
    assert list(found.rows) == sorted(rows, key=by_size, reverse=is_descending)[2200:2400]


@pytest.mark.serial
async def test_a_long_list_leaves_the_event_loop_to_others() -> None:
    rows = [Line(f"topic-{i * 7919 % 200_003}", i * 31 % 977) for i in range(200_000)]
    request = PageRequest("9", "size", True, 3, 200)
    held = [await longest_turn(page_of(rows, request, by_size, slices())) for _ in range(3)]
    # The least: the first touches memory that the others find.
    assert min(held) < 0.012, held
