"""How much an answer may hold that repeats what is known as often as the request names it.

A name takes a few bytes, and what is known of it may take a megabyte: a small request must not make an answer
that fills the memory. Kafka has no such bound.
"""

from typing import Final

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
ITEM_BYTES: Final = 64
"""Of numbers and lengths, for each item."""


class AnswerTooLarge(Exception):
    """There is no room left in the answer."""


class AnswerRoom:
    """Of one answer."""

    def __init__(self, room_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._left = room_bytes

    def take(self, *texts: str | bytes) -> None:
        """Make room for an item with these. Raises AnswerTooLarge."""
        self._left -= ITEM_BYTES + sum(map(len, texts))
        if self._left < 0:
            raise AnswerTooLarge
