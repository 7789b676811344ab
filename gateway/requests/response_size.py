"""A bound on the size of a response that repeats a description each time that its request names it.

A name takes a few bytes, and its description may take a megabyte: a small request must not make a response
that fills the memory. Kafka has no such bound. A description is made once, and each repeat refers to the same
objects: it takes only the bytes of its encoded form.
"""

from typing import Final

ITEM_BYTES: Final = 200
"""Memory of the Python objects of an element."""


class ResponseTooLarge(Exception):
    """An addition does not fit."""


class ResponseSize:
    """The size of one response."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self.is_exceeded = False
        """An addition did not fit."""

    def take(self, items: int = 0, encoded_bytes: int = 0) -> None:
        """Charge `items` new elements, and `encoded_bytes` of the response. Raises ResponseTooLarge if that
        does not fit; then nothing is charged."""
        size = items * ITEM_BYTES + encoded_bytes
        if size > self._left:
            self.is_exceeded = True
            raise ResponseTooLarge
        self._left -= size
