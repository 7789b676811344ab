"""The journal over a local log (`ledger.ports.Journal`): an entry and the batches that it numbers are durable
with one write."""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import structlog

from adapters.disk import explain
from adapters.local_log.files import LARGE_FRAME_BYTES
from adapters.local_log.writer import MAX_FRAME_BYTES, LogWriter, Spot, WriteFailed
from adapters.threads import Overdue, Threads
from ledger.errors import StoreError, StoreUnavailable
from ledger.formats.local_log import FRAME_HEAD_BYTES, HEADER_BYTES, batches_at
from ledger.formats.wal import VERSION, frame_layout
from ledger.journal import GROUP_COMMIT_BATCHES
from ledger.keys import log_locator
from ledger.ports import Appended, AppendOutcome, EntryPage, Lost, Unknown
from ledger.read_back import ReadBack
from ledger.types import DraftBatch, Placement

log = structlog.get_logger(__name__)

COUNTS: Final = Appended(counts=True)
FIRST_RETRY_S: Final = 0.01
LONGEST_RETRY_S: Final = 1.0
DRAFT_SHARE: Final = 4
"""A draft has at most this part of a file: a larger one goes to a file of its own."""
TABLE_BYTES: Final = 64
"""Of a batch, besides its own bytes, at most."""


class _Placed(NamedTuple):
    number: int
    batches: Sequence[DraftBatch]
    spot: Spot


class LocalLogJournal:
    """A Journal. The log is closed by its opener."""

    exclusive = True
    entry_batches = GROUP_COMMIT_BATCHES

    def __init__(self, writer: LogWriter, writing: Threads, reading: Threads, filling: Threads) -> None:
        self._writer = writer
        self._writing = writing
        self._reading = reading
        self._filling = filling
        self._fill_task: asyncio.Task[None] | None = None
        self._unknown_entry = ""
        self._placed: _Placed | None = None
        self._is_closed = False
        self.read_back = ReadBack()

    @property
    def shard(self) -> int:
        return self._writer.directory.shard

    @property
    def unknown_entry(self) -> str:
        return self._unknown_entry

    @property
    def appends_at_once(self) -> bool:
        return self._is_alone and self._writer.is_quick and not self._is_closed

    def takes(self, batches: int, size: int) -> bool:
        most = self._writer.roll_bytes // DRAFT_SHARE
        return not self._unknown_entry and size + batches * TABLE_BYTES <= most

    def holds(self, locator: str) -> bool:
        return self._writer.entries.holds(locator)

    def place(self, number: int, batches: Sequence[DraftBatch]) -> Placement | None:
        tail = self._writer.tail
        size = sum([len(batch.data) for batch in batches])
        if not batches or number != tail.number or not self.takes(len(batches), size):
            return None
        layout = frame_layout(batches, VERSION)
        # How long the entry becomes is not known yet.
        if tail.file_id is not None and self._writer.has_space(tail, layout.size + MAX_FRAME_BYTES):
            spot = Spot(tail.file_id, tail.position, layout)
        else:
            spot = Spot(self._writer.new_file_id(), HEADER_BYTES, layout)
        self._placed = _Placed(number, batches, spot)
        first = batches_at(spot.position)
        starts = [first + start for start in layout.starts]
        return Placement(log_locator(self.shard, spot.file_id), starts, first + layout.size)

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        spot = self._spot(number, batches) if batches else None
        if number != self._writer.tail.number:
            return await self._already(number, entry)
        try:
            if self._may_write_on_loop(entry, spot):
                self._writer.append(number, entry, batches, spot, is_on_loop=True)
            else:
                await self._writing.run(self._writer.append, number, entry, batches, spot)
        except (WriteFailed, Overdue) as error:
            return await self._resolve(number, str(error))
        self._fill_ahead(entry, spot)
        return COUNTS

    def _may_write_on_loop(self, entry: bytes, spot: Spot | None) -> bool:
        return self._is_alone and self._writer.may_append_on_loop(entry, spot)

    @property
    def _is_alone(self) -> bool:
        """Whether nothing else is being written: neither by the log's thread, nor zeros ahead, with which a
        write would be slow. Those may hang for longer than anybody waits for them."""
        return self._fill_task is None and self._writing.is_idle and self._filling.is_idle

    def _spot(self, number: int, batches: Sequence[DraftBatch]) -> Spot:
        placed = self._placed
        if placed is None or placed.number != number or placed.batches is not batches:
            raise ValueError(f"batches that were not placed with entry {number}")
        return placed.spot

    async def _already(self, number: int, entry: bytes) -> AppendOutcome:
        """An earlier owner in this process, which did not wait for the outcome, has appended it."""
        if number > self._writer.tail.number:
            raise ValueError(f"entry {number} does not follow the last one")
        found = await self.get(number)
        if found is None:
            return Unknown(f"the journal was pruned past entry {number}")
        return COUNTS if found == entry else Lost()

    async def _resolve(self, number: int, reason: str) -> AppendOutcome:
        """The outcome of an append that may have had its effect: nothing is said of it before either the
        entry is durable, or a file in which it counts no longer."""
        self._unknown_entry = f"entry {number} of the local log in {self._writer.directory.path}"
        log.warning("journal.outcome_unknown", key=self._unknown_entry, error=reason)
        wait_s = FIRST_RETRY_S
        try:
            while True:
                try:
                    is_there = await self._writing.run(self._writer.resolve, number)
                    break
                except StoreError as error:
                    if self._is_closed:
                        return Unknown(str(error))
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, LONGEST_RETRY_S)
            log.info("journal.outcome_known", key=self._unknown_entry)
        finally:
            self._unknown_entry = ""
        if is_there:
            return COUNTS
        raise StoreUnavailable(reason)

    def _fill_ahead(self, entry: bytes, spot: Spot | None) -> None:
        size = FRAME_HEAD_BYTES + len(entry) + (spot.layout.size if spot is not None else 0)
        if size < LARGE_FRAME_BYTES and self._fill_task is None and self._writer.wants_zeros:
            self._fill_task = asyncio.create_task(self._fill(), name="local-log-fill")

    async def filled(self) -> None:
        """Until no zeros are being written ahead."""
        if self._fill_task is not None:
            await asyncio.gather(self._fill_task, return_exceptions=True)

    async def _fill(self) -> None:
        try:
            await self._filling.run(self._writer.fill)
        except StoreError as error:
            # Frames go into allocated blocks then.
            log.debug("local_log.not_filled", error=str(error))
        finally:
            self._fill_task = None

    async def get(self, number: int) -> bytes | None:
        return await self._reading.read(self._get, number)

    def _get(self, number: int) -> bytes | None:
        try:
            return self._writer.entries.get(number)
        except OSError as error:
            raise explain(error, "read the local log in", self._writer.directory.path) from error

    async def read(self, first: int, max_bytes: int) -> EntryPage:
        loop_time = asyncio.get_running_loop().time
        began = loop_time()
        page = await self._reading.read(self._read, first, max_bytes)
        if page.entries:
            self.read_back.observe(len(page.entries), loop_time() - began)
        return page

    def _read(self, first: int, max_bytes: int) -> EntryPage:
        try:
            return self._writer.entries.read(first, max_bytes)
        except OSError as error:
            raise explain(error, "read the local log in", self._writer.directory.path) from error

    async def start(self) -> int:
        return self._writer.entries.pruned.start

    async def raise_start(self, number: int) -> None:
        await self._writing.run(self._writer.raise_start, number)

    async def delete(self, numbers: Sequence[int]) -> None:
        await self._writing.run(self._writer.delete, numbers)

    async def begin(self, number: int, entry: bytes, before: bytes | None) -> None:
        wanted = {number: entry} if before is None else {number - 1: before, number: entry}
        first = min(wanted)
        await self._writing.run(self._writer.begin_with, first, [wanted[at] for at in sorted(wanted)])
        for at, data in wanted.items():
            if await self.get(at) != data:
                raise StoreError(self._in_the_place(f"entry {at}"))
        if await self.start() not in (0, first):
            raise StoreError(self._in_the_place("another start"))
        await self.raise_start(first)

    def _in_the_place(self, what: str) -> str:
        path = self._writer.directory.path
        return f"{what} is in the local log in {path} already: remove that directory, try again"

    async def discard(self, number: int) -> None:
        await self._writing.run(self._writer.discard)

    async def close(self) -> None:
        """Nothing is written ahead any more."""
        self._is_closed = True
        await self.filled()
