"""Frees large lists in slices. Python frees a tree of objects at once, when its last reference is deleted:
for half a million elements that takes 50 to 100 ms.

Code that makes a long list for a heavy request also *keeps* it (`Slices.keep`), each list for itself, also
those within elements. When the request has ended nothing else refers to these lists, and they are emptied
part by part. A list to which something outside of the request still refers is left as it is.
"""

import gc
import sys
from collections.abc import Generator
from typing import Any, Final

PART: Final = 256
"""Elements that are freed at once."""
OWN_REFERENCES: Final = 2
"""References that CPython counts for an object of one local variable: the variable, and the call's
argument."""

Kept = list[list[Any] | dict[Any, Any]]


def freeing(kept: Kept) -> Generator[int, None, None]:
    """Frees what is kept. Yields the units of weight that were freed."""
    waiting = list({id(held): held for held in kept}.values())
    kept.clear()
    before = len(waiting) + 1
    while len(waiting) < before:
        before = len(waiting)
        waiting = yield from _emptying(waiting)
    # Freeing has lowered the collector's count of containers, which hides those that were made meanwhile.
    gc.collect(0)


def _emptying(waiting: Kept) -> Generator[int, None, Kept]:
    """Returns the lists to which others of them, or something else, may still refer."""
    shared: Kept = []
    weight = 0
    while waiting:
        held = waiting.pop()
        if sys.getrefcount(held) > OWN_REFERENCES:
            shared.append(held)
        while len(held) > PART and sys.getrefcount(held) <= OWN_REFERENCES:
            _free_part(held)
            yield PART
        weight += 1 if len(held) > PART else len(held)
        del held
        if weight >= PART:
            yield weight
            weight = 0
    return shared


def _free_part(held: list[Any] | dict[Any, Any]) -> None:
    if isinstance(held, dict):
        for _ in range(PART):
            held.popitem()
    else:
        del held[-PART:]
