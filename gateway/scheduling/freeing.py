"""Lets go of large lists in slices. Python frees a tree of objects at once, when its last reference goes: for
half a million elements that takes 50 to 100 ms.

What makes the lists of a heavy request *keeps* them as well (`Slices.keep`), flat: each list that is long,
also within elements. When the request has ended nothing else refers to them, and they are emptied part by
part. One that something outside of the request still refers to is left as it is.
"""

import gc
import sys
from collections.abc import Generator
from typing import Any, Final

PART: Final = 256
"""Elements that are let go at once."""
OWN_REFERENCES: Final = 2
"""That CPython counts to what a local variable alone refers to: this, and the argument of the call."""

Kept = list[list[Any] | dict[Any, Any]]


def freeing(kept: Kept) -> Generator[int, None, None]:
    """Lets go of what is kept: yields the units of weight worked off."""
    waiting = list({id(held): held for held in kept}.values())
    kept.clear()
    before = len(waiting) + 1
    while len(waiting) < before:
        before = len(waiting)
        waiting = yield from _emptying(waiting)
    # What was freed has made up, in the count of the collector, for what was made meanwhile.
    gc.collect(0)


def _emptying(waiting: Kept) -> Generator[int, None, Kept]:
    """Returns those that others of them may refer to, or something else."""
    shared: Kept = []
    weight = 0
    while waiting:
        held = waiting.pop()
        if sys.getrefcount(held) > OWN_REFERENCES:
            shared.append(held)
        while len(held) > PART and sys.getrefcount(held) <= OWN_REFERENCES:
            _let_go(held)
            yield PART
        weight += 1 if len(held) > PART else len(held)
        del held
        if weight >= PART:
            yield weight
            weight = 0
    return shared


def _let_go(held: list[Any] | dict[Any, Any]) -> None:
    """Of one part."""
    if isinstance(held, dict):
        for _ in range(PART):
            held.popitem()
    else:
        del held[-PART:]
