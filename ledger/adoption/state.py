"""Which topics were adopted, and from where."""

from typing import NamedTuple

from ledger.types import TopicId


class Adoption(NamedTuple):
    """`place`: the URL of the bucket. `digest`: of what it had of the topic when the adoption began. While it
    is open, producers do not write to the topic: their records would take offsets that segments have."""

    place: str
    digest: bytes
    is_open: bool


class Adoptions(dict[TopicId, Adoption]):
    """Of live topics. Part of the state of a shard (`LedgerState.part`)."""


class AdoptionsOfEntry:
    """What was decided for the entry that is being filled (`Overlay.part`)."""

    def __init__(self) -> None:
        self.opened: set[TopicId] = set()
