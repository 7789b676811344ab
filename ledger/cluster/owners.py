"""What the ledger knows of its owners: the newest epochs, the metadata store, and a jump of time that is not
confirmed."""

from typing import Final, NamedTuple

KEPT_EPOCHS: Final = 8
NO_GATEWAY: Final = -1
"""The owner of an epoch that a command begins: a restore, or a move to other stores."""


class Epoch(NamedTuple):
    number: int
    gateway: int
    began_ms: int
    host: str = ""
    address: str = ""

    @property
    def who(self) -> tuple[int, str, str]:
        """The same for all epochs of one gateway, however often that is started."""
        return self.gateway, self.host, self.address

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.host, self.address) if part)
        return f"gateway {self.gateway}" + (f" ({where})" if where else "")


class Owners:
    """Part of the state of a shard (`LedgerState.part`)."""

    __slots__ = ("epochs", "held_until_ms", "newest_gateway", "store")

    def __init__(self) -> None:
        self.epochs: tuple[Epoch, ...] = ()
        """The newest KEPT_EPOCHS whose owners described themselves, the oldest first."""
        self.newest_gateway = 0
        """Of the entry that is being applied."""
        self.store = ""
        """Identity of the metadata store; empty if the newest owner has not named it."""
        self.held_until_ms = 0
        """Until this entry time nothing is deleted for its age: entry time has jumped ahead, and nothing says
        that it is right. 0: no such jump."""
