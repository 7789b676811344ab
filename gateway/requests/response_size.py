"""How long a response may get that repeats what is known as often as its request names it.

A name takes a few bytes, and what is known of it may take a megabyte: a small request must not make a
response that fills the memory. Kafka has no such bound. What is named again is worked out once, and the same
objects stand in the response again: a repeat takes what it is encoded to.
"""

from typing import Final

ITEM_BYTES: Final = 200
"""Of Python objects, for each element that is made."""


class ResponseTooLarge(Exception):
    """What was to be added does not fit."""


class ResponseSize:
    """Of one response."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes

    def take(self, items: int = 0, encoded_bytes: int = 0) -> None:
        """Charges so many new elements, and what they or known ones are encoded to. ResponseTooLarge if that
        does not fit; then nothing is charged."""
        size = items * ITEM_BYTES + encoded_bytes
        if size > self._left:
            raise ResponseTooLarge
        self._left -= size
