"""What the requests that an owner decides have in common, and the results that several of them share.

Each feature has its requests and results in a module `requests` of its own. Refusals are values. Error names
are Kafka's (`TOPIC_ALREADY_EXISTS`), so that the ledger need not know the wire.
"""

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from ledger.errors import ErrorName

SMALL: Final = 64
"""Journal bytes that a record of fixed length needs at most, with its frame."""
UTF8: Final = 4
"""Bytes that a character may need."""


def text_bytes(text: str) -> int:
    """What the characters of a text take in memory, at most: Python has one, two or four bytes for each."""
    return len(text) if text.isascii() else UTF8 * len(text)


class Request(Protocol):
    """A request that a machine of the registry decides."""

    @property
    def weight(self) -> int:
        """An upper bound of the journal bytes that the request may need; the driver fills an entry by it."""
        ...

    @property
    def work(self) -> int:
        """What applying its records costs at most, in batches: so that no entry of many requests keeps the
        event loop for long, whatever its bytes (`GROUP_COMMIT_BATCHES`)."""
        ...


LedgerResult: TypeAlias = object
"""A result of one of the features, or `Done` or `Refused`."""


@dataclass(frozen=True, slots=True)
class Refused:
    """No record was written. `error` is the name of Kafka's error code."""

    error: ErrorName
    message: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """`count` things were done; 0 means that nothing was left to do."""

    count: int
