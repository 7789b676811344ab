"""A mapping by number that may have millions, and is gone through in small steps while it changes."""

from collections.abc import Iterator, MutableMapping
from typing import Final, TypeVar

BLOCK_BITS: Final = 12

Value = TypeVar("Value")


class ByNumber(MutableMapping[int, Value]):
    """As a dict with numbers as keys; near numbers are in one block.

    It may change while it is iterated over, and no step of that takes long, which a copy of millions of keys
    does. A number that comes meanwhile may be left out, one that goes may still appear.
    """

    __slots__ = ("_blocks", "_count")

    def __init__(self) -> None:
        self._blocks: dict[int, dict[int, Value]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number in self._blocks.get(number >> BLOCK_BITS, ())

    def __getitem__(self, number: int) -> Value:
        return self._blocks[number >> BLOCK_BITS][number]

    def __setitem__(self, number: int, value: Value) -> None:
        block = self._blocks.setdefault(number >> BLOCK_BITS, {})
        self._count += number not in block
        block[number] = value

    def __delitem__(self, number: int) -> None:
        block = self._blocks[number >> BLOCK_BITS]
        del block[number]
        self._count -= 1
        if not block:
            del self._blocks[number >> BLOCK_BITS]

    def __iter__(self) -> Iterator[int]:
        for block in tuple(self._blocks):
            yield from tuple(self._blocks.get(block, ()))
