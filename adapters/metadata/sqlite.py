"""Metadata in one SQLite file, reached through one thread of its own."""

import os
from collections.abc import Sequence
from pathlib import Path

from adapters.metadata.sqlite_file import SqliteFile
from adapters.names import check_key
from adapters.threads import DEADLINE_S, NewThreads, Overdue, StoreThreads
from ledger.ports import PutOutcome, Unknown, Versioned


class SqliteMetadata:
    """A MetadataStore in one file. No other process can open the file until this one closes it."""

    exclusive = True
    unique_versions = True
    durable_ack = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        deadline_s: float = DEADLINE_S,
        *,
        thorough: bool = False,
        may_be_continued: bool = False,
        threads: NewThreads = StoreThreads,
    ) -> None:
        """Open or create `path`, whose directory must exist. StoreUnavailable, StoreDamaged, StoreTooNew
        or StoreLocked with one sentence for the operator. `thorough`: after a check of its structure.
        `may_be_continued`: also one that `mark_continued` was called for."""
        self._file = SqliteFile(Path(path), may_be_continued=may_be_continued)
        self._threads = threads(f"the metadata store {os.fspath(path)}", 1, deadline_s)
        try:
            self._threads.run_now(self._file.open, thorough=thorough)
        except BaseException:
            self._threads.shut()
            raise

    async def get(self, key: str) -> Versioned | None:
        return await self._threads.read(self._file.get, check_key(key))

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        return await self._threads.read(self._file.scan, prefix, start, limit)

    async def last(self, prefix: str) -> tuple[str, Versioned] | None:
        """The last key with this prefix, which ends with a slash."""
        return await self._threads.read(self._file.last, prefix)

    async def mark_continued(self) -> None:
        """Durably: from now on the store is refused, except by what opens it as one that may be continued."""
        await self._threads.run(self._file.mark_continued)

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        try:
            return await self._threads.run(self._file.put, check_key(key), value, expect)
        except Overdue as error:
            return Unknown(str(error))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._threads.run(self._file.delete, [check_key(key) for key in keys])

    async def close(self) -> None:
        await self._threads.close(self._file.close)
