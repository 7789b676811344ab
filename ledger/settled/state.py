"""Which settled ledger of each partition is the newest."""

from typing import NamedTuple


class SettledLedger(NamedTuple):
    """The newest one of a partition. Its locator is that of the object."""

    object_number: int
    log_bytes: int
    index_bytes: int
    meta_bytes: int
    entry: int
    high_watermark: int
    layout_version: int
    job: bytes
    attempt: int

    @property
    def age(self) -> tuple[int, int]:
        """The newer of two has the greater one."""
        return self.high_watermark, self.entry


class SettledLedgers(dict[int, SettledLedger]):
    """By partition number. Part of the state of a shard (`LedgerState.part`)."""


class SettledOfEntry:
    """What was decided for the entry that is being filled (`Overlay.part`)."""

    def __init__(self) -> None:
        self.partitions: set[int] = set()
        """Numbers of those that get a settled ledger in it."""
