"""A refusal of one partition of a produce request."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Kafka's error name, a readable reason, and (index, reason) of single records (KIP-467)."""

    error: str
    message: str
    records: Sequence[tuple[int, str]] = ()
