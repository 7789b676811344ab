"""A journal that takes batches, in memory: those of an entry go into a log file with it, as in the local log.

The entries are in a metadata store, as those of `MetadataJournal` are. The bytes of a draft are in the file
before its entry is there, and nothing but its entry names them. Gone with the process; for tests and for
trying things out.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adapters.journals.metadata import MetadataJournal
from ledger.formats.local_log import HEADER_BYTES, LogHeader, batches_at, encode_frame, encode_header
from ledger.formats.wal import VERSION, EncodedFrame
from ledger.formats.wal import encode_frame as encode_wal_frame
from ledger.keys import RANDOM_BYTES, created_ms, log_locator, uuid7
from ledger.ports import AppendOutcome, MetadataStore
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject

ROLL_BYTES = 64 * 1024 * 1024
CLUSTER_ID_BYTES = 16


@dataclass(slots=True)
class MemoryLogFile:
    header: LogHeader
    data: bytearray
    entries: list[int] = field(default_factory=list)
    """Ascending; the last one may be of an append that failed."""


class MemoryLogFiles:
    """The files of all journals over one store: each process begins files of its own."""

    def __init__(self) -> None:
        self._files: dict[str, MemoryLogFile] = {}

    def add(self, locator: str, header: LogHeader) -> MemoryLogFile:
        new = self._files[locator] = MemoryLogFile(header, bytearray(encode_header(header)))
        return new

    def get(self, locator: str) -> MemoryLogFile | None:
        return self._files.get(locator)

    # As files of a local log (`adapters/segments/wal_and_segments.py`)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return [self._read_one(position) for position in positions]

    async def abandon(self, locator: str) -> None:
        """Nothing to do: only the journal writes them."""

    async def delete(self, locators: Sequence[str]) -> None:
        for locator in locators:
            self._files.pop(locator, None)

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        names = sorted(name for name in self._files if name > after)[: max(limit, 0)]
        return [StoredObject(name, created_ms(name), len(self._files[name].data)) for name in names]

    async def close(self) -> None:
        return None

    def _read_one(self, position: Position) -> Buffer | None:
        held = self._files.get(position.locator)
        end = position.start + position.size
        if held is None or not 0 <= position.start <= end <= len(held.data):
            return None
        # A copy: where no entry names what is there, other bytes may come to be in its place.
        return bytes(held.data[position.start : end])


@dataclass(frozen=True, slots=True)
class _Placed:
    """What `place` was called with last: it is appended next, or never."""

    number: int
    batches: Sequence[DraftBatch]
    locator: str
    header: LogHeader
    position: int
    frame: EncodedFrame


class MemoryLog(MetadataJournal):
    """A Journal."""

    def __init__(
        self,
        store: MetadataStore,
        shard: int,
        files: MemoryLogFiles,
        clock: Callable[[], int],
        *,
        roll_bytes: int = ROLL_BYTES,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`clock` gives unix ms. A file is followed by the next before it would have more than `roll_bytes`,
        unless one draft has."""
        super().__init__(store, shard, random=random)
        self._files = files
        self._clock = clock
        self._roll_bytes = roll_bytes
        self._active: _Placed | None = None
        """The last that was appended, or was to be."""
        self._end = 0
        """Where the next frame begins in its file."""
        self._seal = 0
        self._to_append: _Placed | None = None
        self._start_known = 0

    @property
    def appends_at_once(self) -> bool:
        return True

    def takes(self, batches: int, size: int) -> bool:
        return True

    def roll(self) -> None:
        """The next draft begins a new file."""
        self._active = None

    def holds(self, locator: str) -> bool:
        held = self._files.get(locator)
        if held is None:
            return False
        is_active = self._active is not None and self._active.locator == locator
        return is_active or held.entries[-1] >= self._start_known

    def place(self, number: int, batches: Sequence[DraftBatch]) -> Placement | None:
        frame = encode_wal_frame(batches, VERSION)
        if self._active is not None and self._end + frame.size <= self._roll_bytes:
            placed = _Placed(number, batches, self._active.locator, self._active.header, self._end, frame)
        else:
            file_id = uuid7(self._clock(), self._random(RANDOM_BYTES)).bytes
            cluster_id, nonce = bytes(CLUSTER_ID_BYTES), bytes(16)
            header = LogHeader(cluster_id, file_id, self.shard, number, number, 0, nonce, self._clock())
            locator = log_locator(self.shard, file_id)
            placed = _Placed(number, batches, locator, header, HEADER_BYTES, frame)
        self._to_append = placed
        begin = batches_at(placed.position)
        return Placement(placed.locator, [begin + start for start in frame.starts], begin + frame.size)

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        placed, self._to_append = self._to_append, None
        if not batches:
            return await self._append(number, entry)
        if placed is None or placed.number != number or placed.batches is not batches:
            raise ValueError("these batches were not placed with this entry")
        end, seal = self._write(placed, entry)
        outcome = await self._append(number, entry)
        # After StoreUnavailable the next draft gets this place: nothing names what is there.
        self._end, self._seal = end, seal
        return outcome

    def _write(self, placed: _Placed, entry: bytes) -> tuple[int, int]:
        """Returns where the next frame begins, and what it goes on after."""
        held = self._files.get(placed.locator) or self._files.add(placed.locator, placed.header)
        if placed.position == HEADER_BYTES:
            self._active, self._end, self._seal = placed, HEADER_BYTES, placed.header.previous_seal
        frame = encode_frame(placed.header, placed.number, self._seal, entry, placed.frame)
        held.data[placed.position :] = b"".join(frame.buffers)
        if not held.entries or held.entries[-1] != placed.number:
            held.entries.append(placed.number)
        return placed.position + frame.size, frame.seal

    async def raise_start(self, number: int) -> None:
        await super().raise_start(number)
        self._start_known = max(self._start_known, number)
