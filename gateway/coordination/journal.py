"""A shard's journal in a metadata store: append exactly once, read in order.

An append has three outcomes in the store and two here: it is in the journal, or it certainly is not.
What lies between is resolved by reading the entry back; the nonce tells whose it is.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import structlog

from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.journal import entry_key, entry_prefix, nonce_of, start_key
from ledger.ports import Lost, MetadataStore, Unknown, Won

log = structlog.get_logger(__name__)

FIRST_RETRY_S = 0.01
LONGEST_RETRY_S = 1.0
SCAN_ENTRIES = 64


class OwnershipLost(Exception):
    """Another gateway wrote the next entry, or pruned past it: this one owns the shard no longer.
    `certain`: the entry that was to be appended is not in the journal."""

    def __init__(self, reason: str, certain: bool = True) -> None:
        super().__init__(reason)
        self.certain = certain


@dataclass(frozen=True, slots=True)
class StoredEntry:
    number: int
    key: str
    data: bytes


class Journal:
    """Entries of one shard."""

    def __init__(self, store: MetadataStore, shard: int) -> None:
        self.store = store
        self.shard = shard
        self.unknown_key = ""
        """The entry of which it is not known whether it is durable, while that is so."""

    async def append(self, number: int, data: bytes) -> None:
        """Make entry `number` durable. StoreUnavailable: it certainly is not there and will not be.
        OwnershipLost: somebody else's is. Waits as long as the outcome is unknown."""
        key = entry_key(self.shard, number)
        outcome = await self._put(key, data)
        wait_s = FIRST_RETRY_S
        while not isinstance(outcome, Won):
            # A Lost may be our own put, reported after the client library's retry: only the nonce tells.
            found = await self._read(key)
            if found is not None:
                if nonce_of(found) != nonce_of(data):
                    raise OwnershipLost(f"journal entry {key} was written by another gateway")
                break
            # Absent, and yet it may still arrive late: the same bytes again, never others.
            self.unknown_key = key
            log.warning("journal.outcome_unknown", key=key, retry_s=wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_RETRY_S)
            outcome = await self._put_again(key, data)
        self.unknown_key = ""
        await self._check_start(number)

    async def _put(self, key: str, data: bytes) -> Won | Lost | Unknown:
        try:
            return await self.store.put(key, data, None)
        except OutcomeUnknown as error:
            return Unknown(str(error))

    async def _put_again(self, key: str, data: bytes) -> Won | Lost | Unknown:
        try:
            return await self._put(key, data)
        except StoreUnavailable as error:
            # This call had no effect, but the one before it still may.
            return Unknown(str(error))

    async def _read(self, key: str) -> bytes | None:
        wait_s = FIRST_RETRY_S
        while True:
            try:
                found = await self.store.get(key)
                return found.value if found is not None else None
            except (StoreUnavailable, OutcomeUnknown) as error:
                self.unknown_key = key
                log.warning("journal.read_back_failed", key=key, error=str(error), retry_s=wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, LONGEST_RETRY_S)

    async def _check_start(self, number: int) -> None:
        """An append counts only if nobody pruned past it meanwhile."""
        if self.store.exclusive:
            return
        try:
            start = await self.start()
        except (StoreUnavailable, OutcomeUnknown) as error:
            raise OwnershipLost(
                f"whether entry {number} counts is unknown: {error}", certain=False
            ) from error
        if number < start:
            raise OwnershipLost(f"the journal was pruned past entry {number}", certain=False)

    async def start(self) -> int:
        """The lowest entry number that is sure to be there."""
        found = await self.store.get(start_key(self.shard))
        return decode_start(found.value) if found is not None else 0

    async def is_absent(self, number: int) -> bool:
        return await self.store.get(entry_key(self.shard, number)) is None

    async def entries(self, first: int) -> AsyncIterator[StoredEntry]:
        """Entries from `first` on, in order, to the end as it is when reached. May have gaps below
        `start`: the caller checks the numbers."""
        prefix = entry_prefix(self.shard)
        start = entry_key(self.shard, first)
        while True:
            page = await self.store.scan(prefix, start, SCAN_ENTRIES)
            for key, found in page:
                yield StoredEntry(int(key[len(prefix) :]), key, found.value)
            if len(page) < SCAN_ENTRIES:
                return
            start = page[-1][0] + "\0"


def encode_start(number: int, nonce: bytes) -> bytes:
    """Value of the start key: the number, and a nonce, as versions may be content hashes."""
    return f"{number} {nonce.hex()}".encode()


def decode_start(value: bytes) -> int:
    return int(value.split(b" ", 1)[0])
