"""Pages of long lists: filtered and sorted in slices, so that 100,000 rows never hold the event loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from gateway.scheduling.slices import Slices

CHUNK_ROWS: Final = 1_000
"""Rows that are filtered or sorted at once: about a millisecond."""
MAX_PAGE_ROWS: Final = 200
DEFAULT_PAGE_ROWS: Final = 50


Row = TypeVar("Row")
SortKey = Callable[[Row], Any]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """`page` counts from 0. `search`: a part of the name, in any letter case."""

    search: str = ""
    sort: str = "name"
    is_descending: bool = False
    page: int = 0
    rows: int = DEFAULT_PAGE_ROWS


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    rows: Sequence[Row]
    matching: int
    """Rows that match the search, on all pages."""
    total: int


async def page_of(rows: Sequence[Row], request: PageRequest, key: SortKey[Row], slices: Slices) -> Page[Row]:
    """The rows of one page. Rows that are equal by `key` stay in their order."""
    matching = await _matching(rows, request.search.lower(), slices)
    first = request.page * request.rows
    if first >= len(matching):
        return Page((), len(matching), len(rows))
    last = first + request.rows
    found = await in_order(matching, key, slices, is_descending=request.is_descending, count=last)
    return Page(found[first:], len(matching), len(rows))


async def in_order(
    rows: Sequence[Row],
    key: SortKey[Row],
    slices: Slices,
    *,
    is_descending: bool = False,
    count: int | None = None,
) -> list[Row]:
    """The first `count` of them by `key`; all without `count`. Rows that are equal stay in their order."""
    parts: list[list[Row]] = []
    for part in _chunks(rows):
        parts.append(sorted(part, key=key, reverse=is_descending))
        if slices.is_due(2 * len(part)):
            await slices.next_slice()
    found: list[Row] = []
    for row in islice(merge(*parts, key=key, reverse=is_descending), count):
        found.append(row)
        if slices.is_due():
            await slices.next_slice()
    return found


async def _matching(rows: Sequence[Row], search: str, slices: Slices) -> Sequence[Row]:
    if not search:
        return rows
    matching: list[Row] = []
    name_of = attrgetter("name")
    for part in _chunks(rows):
        matching += [row for row in part if search in name_of(row).lower()]
        if slices.is_due(len(part)):
            await slices.next_slice()
    return matching


def _chunks(rows: Sequence[Row]) -> list[Sequence[Row]]:
    return [rows[at : at + CHUNK_ROWS] for at in range(0, len(rows), CHUNK_ROWS)]
