"""Requests about the cluster as a whole, and their results."""

from dataclasses import dataclass
from typing import ClassVar

from ledger.cluster.records import MAX_ADDRESS_CHARS, MAX_HOST_CHARS, MAX_STORE_CHARS
from ledger.requests import SMALL, UTF8


@dataclass(frozen=True, slots=True)
class Description:
    """A gateway that becomes the owner, for those that it replaces; longer fields are cut off."""

    host: str = ""
    address: str = ""
    """What clients connect to."""
    store: str = ""
    """Identity of the metadata store, which another copy of it does not have; empty if it has none."""
    right_until_ms: int | None = None
    """Entry times up to this are known to be right, by a clock that is not the gateway's own or by an
    operator's word. None: all are, as only one host ever writes this journal."""


@dataclass(frozen=True, slots=True)
class BecomeOwner:
    """Begin a new epoch; `cluster_id` is taken only by a journal that is still empty."""

    gateway: int
    incarnation: bytes
    cluster_id: str
    feature_level: int = 0
    """Raise the journal's level to this one. 0: a new journal gets the newest, another keeps its own."""
    described: Description | None = None
    weight: ClassVar[int] = 5 * SMALL + UTF8 * (MAX_HOST_CHARS + MAX_ADDRESS_CHARS + MAX_STORE_CHARS)
    work: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class HoldTime:
    """Entry time has jumped ahead by `jump_ms`, and is in doubt until `until_ms`; 0: it is right. Below
    feature level 2 nothing is written, and a restart forgets it. Result: `Done`."""

    until_ms: int
    jump_ms: int = 0
    weight: ClassVar[int] = SMALL
    work: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class ShowLife:
    """Write an entry, which holds nothing if no other request comes with it. Result: `Done`."""

    weight: ClassVar[int] = 0
    work: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Owner:
    epoch: int
