"""A shard's journal in a metadata store: append exactly once, read in order.

An append has three outcomes in the store and two here: it is in the journal, or it certainly is not. An
unknown outcome is resolved by reading the entry back; its nonce shows which gateway wrote it.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

import structlog
from crc32c import crc32c

from gateway.host import RandomBytes, random_bytes
from ledger.errors import OutcomeUnknown, StoreDamaged, StoreUnavailable
from ledger.journal import NONCE_BYTES, REMEDY, entry_key, entry_prefix, nonce_of, start_key
from ledger.ports import SCAN_BYTES, Lost, MetadataStore, Unknown, Versioned, Won

log = structlog.get_logger(__name__)

FIRST_RETRY_S = 0.01
LONGEST_RETRY_S = 1.0
SCAN_ENTRIES = 64
RAISE_ATTEMPTS = 8
_NUMBER = re.compile(r"[0-9]{20}", re.ASCII)
_START = re.compile(rb"(?P<text>(?P<number>[0-9]{1,20}) [0-9a-f]{32})( (?P<crc>[0-9a-f]{8}))?")


class OwnershipLost(Exception):
    """Another gateway wrote the next entry, or pruned past it: this one owns the shard no longer.
    `certain`: the entry that was to be appended is not in the journal."""

    def __init__(self, reason: str, certain: bool = True) -> None:
        super().__init__(reason)
        self.certain = certain


class PrunedMeanwhile(StoreUnavailable):
    """Another gateway pruned entries while they were read: what was read of them does not count."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    number: int
    key: str
    data: bytes


class Journal:
    """Entries of one shard."""

    def __init__(self, store: MetadataStore, shard: int, random: RandomBytes = random_bytes) -> None:
        """Nonces are from `random`."""
        self.store = store
        self._random = random
        self.shard = shard
        self.unknown_key = ""
        """The entry whose durability is unknown at the moment; empty if there is none."""

    async def append(self, number: int, data: bytes) -> None:
        """Make entry `number` durable. StoreUnavailable: it certainly is not there and will not be.
        OwnershipLost: another gateway's entry is. Waits while the outcome is unknown."""
        key = entry_key(self.shard, number)
        outcome = await self._put(key, data, None)
        wait_s = FIRST_RETRY_S
        while not isinstance(outcome, Won):
            # Lost may be the result of our own put, after a retry by the client library: the nonce decides.
            found = await self._read(key)
            if found is not None:
                if nonce_of(found) != nonce_of(data):
                    raise OwnershipLost(f"journal entry {key} was written by another gateway")
                break
            # Absent, but the put may still take effect: repeat it with the same bytes, never with others.
            self.unknown_key = key
            log.warning("journal.outcome_unknown", key=key, retry_s=wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_RETRY_S)
            outcome = await self._put_again(key, data)
        self.unknown_key = ""
        await self._check_start(number)

    async def _put(self, key: str, data: bytes, expect: str | None) -> Won | Lost | Unknown:
        try:
            return await self.store.put(key, data, expect)
        except OutcomeUnknown as error:
            return Unknown(str(error))

    async def _put_again(self, key: str, data: bytes) -> Won | Lost | Unknown:
        try:
            return await self._put(key, data, None)
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
        """An append counts only if no other gateway has pruned past it meanwhile."""
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
        """The lowest entry number that is certainly present."""
        found = await self.store.get(start_key(self.shard))
        return decode_start(found.value, start_key(self.shard)) if found is not None else 0

    async def raise_start(self, number: int) -> None:
        """Make `start` at least `number`, durably. It never goes back, however many raise it and however late
        a put takes effect. OutcomeUnknown: it may or may not have been raised."""
        key, outcome = start_key(self.shard), "not attempted"
        for _ in range(RAISE_ATTEMPTS):
            found = await self.store.get(key)
            if found is not None and decode_start(found.value, key) >= number:
                return
            value = encode_start(number, self._random(NONCE_BYTES))
            put = await self._put(key, value, found.version if found is not None else None)
            if isinstance(put, Won):
                return
            # Lost: another gateway has raised it, maybe less far. Unknown: this put may still take effect,
            # but only in the place of the lower number that was read, never in that of a later one.
            outcome = str(put)
        raise OutcomeUnknown(f"the start of the journal could not be raised to {number}: {outcome}")

    async def is_absent(self, number: int) -> bool:
        return await self.store.get(entry_key(self.shard, number)) is None

    async def check_first(self) -> None:
        """StoreDamaged unless the first key is that of an entry: a damaged key may sort before all others."""
        for key, _ in await self.store.scan(entry_prefix(self.shard), "", 1):
            self._number_of(key)

    async def entries(self, first: int) -> AsyncIterator[StoredEntry]:
        """Entries from `first` on, in order, up to the end at that moment. May have gaps below `start`: the
        caller checks the numbers. StoreDamaged names a key that is not that of an entry."""
        last = -1
        async for page in self._pages(first):
            for stored in self._in_order(page, last):
                yield stored
                last = stored.number

    async def entries_that_count(self, first: int) -> AsyncIterator[StoredEntry]:
        """The same for entries from `start` on, while other gateways may prune: an entry counts only if
        `start`, read afterwards, is not above it. PrunedMeanwhile if it is, even after the last entry. So a
        gap in these entries is at or above `start`: it is damage."""
        last = first - 1
        async for page in self._pages(first):
            if not self.store.exclusive and await self.start() > last + 1:
                raise PrunedMeanwhile(f"the journal was pruned past entry {last + 1} while it was read")
            for stored in self._in_order(page, last):
                yield stored
                last = stored.number

    def check_next(self, stored: StoredEntry, number: int) -> None:
        """StoreDamaged if entry `number` is missing before this one."""
        if stored.number != number:
            raise StoreDamaged(
                f"journal entry {entry_key(self.shard, number)} is missing, although entry "
                f"{stored.key} is there: restore the metadata store"
            )

    async def _pages(self, first: int) -> AsyncIterator[Sequence[tuple[str, Versioned]]]:
        """Up to SCAN_ENTRIES or SCAN_BYTES at a time; the last page may be empty."""
        start = entry_key(self.shard, first)
        while True:
            page = await self.store.scan(entry_prefix(self.shard), start, SCAN_ENTRIES)
            yield page
            if len(page) < SCAN_ENTRIES and sum(len(found.value) for _, found in page) < SCAN_BYTES:
                return
            start = page[-1][0] + "\0"

    def _in_order(self, page: Sequence[tuple[str, Versioned]], last: int) -> Iterator[StoredEntry]:
        for key, found in page:
            number = self._number_of(key)
            if number <= last:
                raise StoreDamaged(f"the journal has {key!r} after entry {last}: {REMEDY}")
            last = number
            yield StoredEntry(number, key, found.value)

    def _number_of(self, key: str) -> int:
        digits = key[len(entry_prefix(self.shard)) :]
        if not _NUMBER.fullmatch(digits):
            raise StoreDamaged(f"the journal has a key {key!r}, which is not that of an entry: {REMEDY}")
        return int(digits)


def encode_start(number: int, nonce: bytes) -> bytes:
    """Value of the start key: `number nonce CRC-32C`, the first decimal, the others hexadecimal; the checksum
    is over number and nonce. The nonce is there as versions may be content hashes."""
    text = f"{number} {nonce.hex()}".encode()
    return text + f" {crc32c(text):08x}".encode()


def decode_start(value: bytes, where: str) -> int:
    """StoreDamaged, with the key `where`, if it is none. Older builds wrote no checksum."""
    found = _START.fullmatch(value)
    if found is None or (found["crc"] and int(found["crc"], 16) != crc32c(found["text"])):
        raise StoreDamaged(f"the value of the key {where!r} is damaged: {REMEDY}")
    return int(found["number"])
