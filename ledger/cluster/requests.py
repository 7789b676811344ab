"""Requests about the cluster as a whole, and their results."""

from dataclasses import dataclass
from typing import ClassVar

from ledger.requests import SMALL


@dataclass(frozen=True, slots=True)
class BecomeOwner:
    """Begin a new epoch; `cluster_id` is taken only by a journal that is still empty."""

    gateway: int
    incarnation: bytes
    cluster_id: str
    feature_level: int = 0
    """Raise the journal's level to this one. 0: a new journal gets the newest, another keeps its own."""
    weight: int = 3 * SMALL
    work: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Owner:
    epoch: int
