"""A bound on the size of a response that repeats what is known for each time that its request names it.

A name takes a few bytes, and its description may take a megabyte: a small request must not make a response
that fills the memory. Kafka has no such bound. A description is made once, and for each repeat the same
objects are in the response again: a repeat takes only the bytes that it is encoded to.
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
        self.is_exceeded = False
        """Something did not fit."""

    def take(self, items: int = 0, encoded_bytes: int = 0) -> None:
        """Charge `items` new elements, and the bytes that they or known ones are encoded to. Raises
        ResponseTooLarge if that does not fit; then nothing is charged."""
        size = items * ITEM_BYTES + encoded_bytes
        if size > self._left:
            self.is_exceeded = True
            raise ResponseTooLarge
        self._left -= size
