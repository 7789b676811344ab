"""A journal over any metadata store: an entry is a value, created under a key of its own.

Entry N of a shard has the key `journal/<shard>/<N:020d>`; `ledger/journal.py` has its bytes, and
`ledger/formats/inline.py` those of one with batches inside. `start` is the value of `journal-start/<shard>`.
No other module makes these keys.
"""

import asyncio
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog
from crc32c import crc32c

from adapters.journals.inline import InlineFrames, InlineRule, NoInline
from ledger.errors import OutcomeUnknown, StoreDamaged, StoreError, StoreUnavailable
from ledger.formats.inline import crc_of_frame, decode_value, encode_value
from ledger.formats.wal import VERSION as FRAME_VERSION
from ledger.formats.wal import EncodedFrame, encode_frame
from ledger.journal import GROUP_COMMIT_BATCHES, HEAD_BYTES, NONCE_BYTES, REMEDY, nonce_of
from ledger.keys import inline_locator, inline_name
from ledger.ports import (
    SCAN_BYTES,
    Appended,
    AppendOutcome,
    EntryPage,
    Lost,
    MetadataStore,
    PutOutcome,
    StoredEntry,
    Unknown,
    Versioned,
    Won,
)
from ledger.read_back import PAGE_ENTRIES, ReadBack
from ledger.types import DraftBatch, Placement

log = structlog.get_logger(__name__)

FIRST_RETRY_S = 0.01
LONGEST_RETRY_S = 1.0
QUIET_S = 60.0
"""A store that fails makes the outcome of one entry after the other unknown, mostly for a moment."""
LONG_UNKNOWN_S = 5.0
SCAN_ENTRIES = PAGE_ENTRIES
"""Of a store where each is an object of its own, they are read side by side."""
RAISE_ATTEMPTS = 8
COUNTS, TO_BE_FOUND_OUT = Appended(counts=True), Appended(counts=False)
_NUMBER = re.compile(r"[0-9]{20}", re.ASCII)
_START = re.compile(rb"(?P<text>(?P<number>[0-9]{1,20}) [0-9a-f]{32})( (?P<crc>[0-9a-f]{8}))?")


def entry_key(shard: int, number: int) -> str:
    return f"journal/{shard}/{number:020d}"


def entry_prefix(shard: int) -> str:
    return f"journal/{shard}/"


def start_key(shard: int) -> str:
    """Kept outside the prefix of the entries, so that a scan of entries never meets it."""
    return f"journal-start/{shard}"


class MetadataJournal:
    """A Journal. The store stays open when it is not used any more."""

    def __init__(
        self, store: MetadataStore, shard: int, *, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        self.store = store
        self._shard = shard
        self._random = random
        self._unknown_entry = ""
        self._unknown_since = 0.0
        self._logged_at = -math.inf
        """When an unknown outcome was logged last, as loop time."""
        self._is_logged = False
        """Whether that of the present entry is."""
        self.read_back = ReadBack()
        self.rule: InlineRule = NoInline()
        """Which drafts travel in entries. What is in them already is read in any case."""
        self.frames = InlineFrames(store, shard)
        self._placed: _Placed | None = None
        """What `place` was called with last: its result is mostly appended next."""

    @property
    def shard(self) -> int:
        return self._shard

    @property
    def exclusive(self) -> bool:
        return self.store.exclusive

    @property
    def entry_batches(self) -> int:
        batches: int = getattr(self.store, "entry_batches", GROUP_COMMIT_BATCHES)
        return batches

    @property
    def unknown_entry(self) -> str:
        return self._unknown_entry

    @property
    def appends_at_once(self) -> bool:
        return False

    def takes(self, batches: int, size: int) -> bool:
        return self.rule.takes(batches, size)

    def holds(self, locator: str) -> bool:
        # Only pruning deletes an entry.
        return inline_name(locator) is not None

    def place(self, number: int, batches: Sequence[DraftBatch]) -> Placement | None:
        if not self.rule.takes(len(batches), sum([len(batch.data) for batch in batches])):
            return None
        placed = self._placed = self._encoded(number, batches)
        return Placement(placed.locator, placed.frame.starts, placed.frame.size)

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        if not batches:
            return await self._append(number, entry)
        placed, self._placed = self._placed, None
        if placed is None or placed.number != number or placed.batches is not batches:
            if not self.rule.takes(len(batches), sum([len(batch.data) for batch in batches])):
                raise ValueError("this journal takes no batches, or not these")
            placed = self._encoded(number, batches)
        outcome = await self._append(number, encode_value(entry, placed.frame.buffers))
        if isinstance(outcome, Appended):
            self.rule.appended(placed.frame.size)
            self.frames.keep(placed.locator, b"".join(placed.frame.buffers))
        return outcome

    def _encoded(self, number: int, batches: Sequence[DraftBatch]) -> "_Placed":
        frame = encode_frame(batches, FRAME_VERSION)
        locator = inline_locator(self._shard, number, crc_of_frame(frame))
        return _Placed(number, batches, locator, frame)

    async def _append(self, number: int, entry: bytes) -> AppendOutcome:
        """`entry`: the value that it has in the store."""
        key = entry_key(self._shard, number)
        outcome = await self._put_entry(key, entry)
        wait_s = FIRST_RETRY_S
        while not isinstance(outcome, Won):
            # Lost may be the result of our own put, after a retry by the client library: the nonce decides.
            found = await self._read_back(key)
            if found is not None:
                if nonce_of(found) != nonce_of(entry):
                    return await self._lost(number)
                break
            # Absent, but the put may still take effect: repeat it with the same bytes, never with others.
            self._is_unknown(key, outcome.reason if isinstance(outcome, Unknown) else "")
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_RETRY_S)
            outcome = await self._put_again(key, entry)
        self._is_known()
        return COUNTS if self.store.exclusive else TO_BE_FOUND_OUT

    async def _lost(self, number: int) -> Lost | Unknown:
        """Another gateway's entry has the number. This one may have had it before, if it was pruned
        meanwhile."""
        self._is_known()
        if self.store.exclusive:
            return Lost()
        try:
            start = await self.start()
        except (StoreUnavailable, OutcomeUnknown) as error:
            return Unknown(str(error))
        return Lost() if start <= number else Unknown(f"the journal was pruned past entry {number}")

    def _is_unknown(self, key: str, reason: str) -> None:
        """One line in the log, however often it is tried to find out, and however many entries in a row are
        concerned while a store fails; but each that stays unknown has its line."""
        now = asyncio.get_running_loop().time()
        if not self._unknown_entry:
            self._unknown_since = now
        self._unknown_entry = key
        is_due = now - self._logged_at >= QUIET_S or now - self._unknown_since >= LONG_UNKNOWN_S
        if is_due and not self._is_logged:
            self._is_logged, self._logged_at = True, now
            log.warning("journal.outcome_unknown", key=key, error=reason)

    def _is_known(self) -> None:
        if self._is_logged:
            log.info("journal.outcome_known", key=self._unknown_entry)
        self._unknown_entry, self._is_logged = "", False

    async def _put_entry(self, key: str, value: bytes) -> PutOutcome:
        return await self._put(key, value, None)

    async def _put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        try:
            return await self.store.put(key, value, expect)
        except OutcomeUnknown as error:
            return Unknown(str(error))

    async def _put_again(self, key: str, value: bytes) -> PutOutcome:
        try:
            return await self._put_entry(key, value)
        except StoreUnavailable as error:
            # This call had no effect, but the one before it still may.
            return Unknown(str(error))

    async def _read_back(self, key: str) -> bytes | None:
        wait_s = FIRST_RETRY_S
        while True:
            try:
                found = await self.store.get(key)
                return found.value if found is not None else None
            except (StoreUnavailable, OutcomeUnknown) as error:
                self._is_unknown(key, str(error))
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, LONGEST_RETRY_S)

    async def get(self, number: int) -> bytes | None:
        key = entry_key(self._shard, number)
        found = await self.store.get(key)
        return decode_value(found.value, key).entry if found is not None else None

    async def read(self, first: int, max_bytes: int) -> EntryPage:
        loop_time = asyncio.get_running_loop().time
        began = loop_time()
        limit = min(SCAN_ENTRIES, max_bytes // HEAD_BYTES + 1)
        pairs = await self.store.scan(entry_prefix(self._shard), self._scan_start(first), limit)
        size = sum(len(found.value) for _, found in pairs)
        more = len(pairs) == limit or size >= SCAN_BYTES
        entries = self._entries(pairs, first)
        kept = _within(entries, max_bytes)
        pruned = not self.store.exclusive and await self.start() > first
        if entries:
            self.read_back.observe(len(entries), loop_time() - began)
        return EntryPage(first, kept, _gap(kept, first), more or len(kept) < len(entries), pruned)

    def _scan_start(self, first: int) -> str:
        """Behind the key before: a damaged key may be between the two, or before all others."""
        return entry_key(self._shard, first - 1) + "\0" if first > 0 else ""

    def _entries(self, pairs: Sequence[tuple[str, Versioned]], first: int) -> list[StoredEntry]:
        entries: list[StoredEntry] = []
        last = first - 1
        for key, found in pairs:
            number = self._number_of(key)
            if number <= last:
                raise StoreDamaged(f"the journal has {key!r} after entry {last}: {REMEDY}")
            last = number
            entry, batches = decode_value(found.value, key)
            entries.append(StoredEntry(number, entry, key, batches))
        return entries

    def _number_of(self, key: str) -> int:
        digits = key[len(entry_prefix(self._shard)) :]
        if not _NUMBER.fullmatch(digits):
            raise StoreDamaged(f"the journal has a key {key!r}, which is not that of an entry: {REMEDY}")
        return int(digits)

    async def start(self) -> int:
        key = start_key(self._shard)
        found = await self.store.get(key)
        return decode_start(found.value, key) if found is not None else 0

    async def raise_start(self, number: int) -> None:
        key, outcome = start_key(self._shard), "not attempted"
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

    async def delete(self, numbers: Sequence[int]) -> None:
        await self.store.delete([entry_key(self._shard, number) for number in numbers])

    async def begin(self, number: int, entry: bytes, before: bytes | None) -> None:
        # In this order a gateway refuses what a process that was killed in between has left, or finds all.
        await self._create(entry_key(self._shard, number), entry)
        if before is not None:
            await self._create(entry_key(self._shard, number - 1), before)
        start = number if before is None else number - 1
        key = start_key(self._shard)
        await self._create(
            key,
            encode_start(start, self._random(NONCE_BYTES)),
            lambda found: decode_start(found, key) == start,
        )

    async def _create(self, key: str, value: bytes, is_same: Callable[[bytes], bool] | None = None) -> None:
        """What is there already may be of an earlier call, if `is_same`: by default the same bytes."""
        outcome = await self.store.put(key, value, None)
        if isinstance(outcome, Won):
            return
        found = await self.store.get(key) if isinstance(outcome, Lost) else None
        if found is None or not (is_same(found.value) if is_same is not None else found.value == value):
            raise StoreError(
                f"{key} could not be written ({outcome}): remove the new metadata store, try again"
            )

    async def discard(self, number: int) -> None:
        entries = [entry_key(self._shard, number), entry_key(self._shard, number - 1)]
        await self.store.delete([start_key(self._shard), *entries])


class _Placed(NamedTuple):
    """A draft on its way into an entry."""

    number: int
    batches: Sequence[DraftBatch]
    locator: str
    frame: EncodedFrame


def _within(entries: Sequence[StoredEntry], max_bytes: int) -> Sequence[StoredEntry]:
    """Up to the entry with which they reach `max_bytes`."""
    size = 0
    for count, stored in enumerate(entries, 1):
        size += len(stored.data) + len(stored.batches)
        if size >= max_bytes:
            return entries[:count]
    return entries


def _gap(entries: Sequence[StoredEntry], first: int) -> int | None:
    if not entries or entries[-1].number == first + len(entries) - 1:
        return None
    return next(number for number, stored in enumerate(entries, first) if stored.number != number)


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
