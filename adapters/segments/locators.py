"""Locators of WAL objects, `wal/{shard}/{uuidv7}` with the store's own ending; and of files of a local log
that are read as objects, `log/{shard}/{uuidv7}.log`."""

from collections.abc import Callable

from ledger.keys import created_ms, log_file_id, uuid7

RANDOM_BYTES = 10
WAL_PREFIX = "wal/"


class WalLocators:
    """Names new objects of one shard by the newest time seen, so that a slow clock never goes back."""

    def __init__(self, shard: int, random: Callable[[int], bytes], ending: str = "") -> None:
        self._shard = shard
        self._random = random
        self._ending = ending
        self.newest_ms = 0

    def see(self, now_ms: int) -> None:
        self.newest_ms = max(self.newest_ms, now_ms)

    def new(self) -> str:
        """A locator that carries the newest time seen."""
        name = uuid7(self.newest_ms, self._random(RANDOM_BYTES))
        return f"{WAL_PREFIX}{self._shard}/{name}{self._ending}"


def wal_created_ms(locator: str, ending: str = "") -> int | None:
    """Creation time of the WAL object with this locator; None if it is none of ours."""
    parts = locator.split("/")
    if len(parts) != 3 or parts[0] != "wal" or not parts[1].isdecimal() or not parts[2].endswith(ending):
        return None
    try:
        return created_ms(locator)
    except ValueError:
        return None


def log_created_ms(locator: str) -> int | None:
    """The same of a file of a local log."""
    return created_ms(locator) if log_file_id(locator) is not None else None
