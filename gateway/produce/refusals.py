"""A refusal of one partition of a produce request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MOST_TOLD: Final = 1000
"""Records of one batch that a refusal names; Kafka names all, whatever that takes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Kafka's error name, a readable reason, and (index, reason) of single records (KIP-467). `in_log`:
    the producer is told where the log begins."""

    error: str
    message: str
    records: Sequence[tuple[int, str]] = ()
    in_log: bool = False
