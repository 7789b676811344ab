"""What the ledger knows of its owners: the newest epochs, the metadata store, and jumps of time that nothing
has confirmed."""

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

    @property
    def is_of_job(self) -> bool:
        """Whether the owner served a job alone: it described itself, and no client could connect to it."""
        return bool(self.host) and not self.address

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.host, self.address) if part)
        return f"gateway {self.gateway}" + (f" ({where})" if where else "")


HOLD_MS: Final = 24 * 60 * 60 * 1000
"""For how long a jump of entry time is in doubt, in entry time."""
COUNTED_MS: Final = HOLD_MS // 2
"""A later jump counts for at most so much of that: there is half a day at least to notice a clock that was
set ahead, and a gateway that is stopped each night has a jump in doubt for little more than a day."""


class Jump(NamedTuple):
    """Entry time has jumped ahead by `size_ms`, and is in doubt until `until_ms`."""

    until_ms: int
    size_ms: int


class Owners:
    """Part of the state of a shard (`LedgerState.part`)."""

    __slots__ = ("epochs", "held_until_ms", "jumps", "newest_gateway", "store")

    def __init__(self) -> None:
        self.epochs: tuple[Epoch, ...] = ()
        """The newest KEPT_EPOCHS whose owners described themselves, the oldest first."""
        self.newest_gateway = 0
        """Of the entry that is being applied."""
        self.store = ""
        """Identity of the metadata store; empty if the newest owner has not named it."""
        self.held_until_ms = 0
        """Until this entry time nothing is deleted for its age: entry time has jumped ahead, nobody knows by
        how much, and nothing says that it is right. 0: no such jump."""
        self.jumps: tuple[Jump, ...] = ()
        """The oldest first: those that were in doubt when the last one came, and that. Each is of more than
        an hour, so that there are 25 at most."""

    @property
    def has_jumped(self) -> bool:
        return bool(self.held_until_ms or self.jumps)

    @property
    def doubted_until_ms(self) -> int:
        """When the newest jump is in doubt no longer; 0: there was none."""
        return max(self.held_until_ms, self.jumps[-1].until_ms if self.jumps else 0)

    def doubted_ms(self, now_ms: int) -> int:
        """By how much what is at `now_ms` may be younger than entry times say."""
        return sum(jump.size_ms for jump in self.jumps if now_ms < jump.until_ms)

    def jump(self, jump: Jump, before_ms: int) -> None:
        """One more, from the entry time `before_ms`. Those that were over then are forgotten."""
        more_ms = max(0, jump.size_ms - COUNTED_MS)
        doubted = [one for one in self.jumps if before_ms < one.until_ms]
        self.jumps = (*(Jump(one.until_ms + more_ms, one.size_ms) for one in doubted), jump)
