"""The frames of one file of a local log: which entries it has and where, found by going from head to head.
Plain blocking calls, from several threads."""

import os
import threading
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from adapters.disk import read_at
from ledger.errors import StoreDamaged
from ledger.formats.local_log import (
    FRAME_HEAD_BYTES,
    HEADER_BYTES,
    ID_BYTES,
    NO_BOOT,
    SEAL_BYTES,
    SEARCH_BYTES,
    LogFrameHead,
    LogHeader,
    Torn,
    aligned,
    batches_fault,
    check_seal,
    later_frame,
    read_frame_extent,
    read_head,
)
from ledger.formats.local_log_chain import NO_END, LogBeginning
from ledger.journal import MAX_ENTRY_BYTES, REMEDY, nonce_of
from ledger.types import Buffer

WINDOW_BYTES: Final = 64 * 1024
ID_AT: Final = 24
"""Of the file id in a header."""


class FrameAt(NamedTuple):
    """A frame whose head and seal are right; of its batches only their CRC was read."""

    head: LogFrameHead
    entry: memoryview
    seal: int


class LogWindow:
    """An open file, read through a window: heads of small frames are close to each other."""

    def __init__(self, path: Path) -> None:
        """OSError if it cannot be opened."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._at = 0
        self._bytes = memoryview(b"")

    def __enter__(self) -> "LogWindow":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def get(self, start: int, size: int) -> memoryview:
        """The bytes from `start` on; fewer only where the file ends."""
        if not self._at <= start or start + size > self._at + len(self._bytes):
            self._bytes = memoryview(read_at(self._fd, start, max(size, WINDOW_BYTES)))
            self._at = start
        return self._bytes[start - self._at : start - self._at + size]

    def frame(self, header: LogHeader, position: int, number: int, seal: int) -> FrameAt | Torn:
        head = read_head(header, self.get(position, FRAME_HEAD_BYTES), position, number, seal)
        if isinstance(head, Torn):
            return head
        if head.entry_bytes > MAX_ENTRY_BYTES:
            return Torn(position, f"an entry of {head.entry_bytes} bytes", is_damage=True)
        sealed = self.get(head.sealed_at, head.end - head.sealed_at)
        found = check_seal(head, sealed)
        if found is None:
            return Torn(position, "the frame does not match its CRC")
        return FrameAt(head, sealed[head.entry_at - head.sealed_at : -SEAL_BYTES], found)

    def is_of(self, file_id: bytes) -> bool:
        """Whether the file still is the one of this id: to be looked at after its bytes were read."""
        return file_has_id(self._fd, file_id)

    def whole(self, head: LogFrameHead) -> Buffer:
        """All bytes of a frame."""
        return read_at(self._fd, head.position, head.end - head.position)

    def after(self, header: LogHeader, torn: Torn) -> int:
        """From where on another frame may be. A frame whose head is right says where it ends: within it are
        records, which may have any bytes."""
        extent = read_frame_extent(header, self.get(torn.position, FRAME_HEAD_BYTES), torn.position)
        return torn.position + 1 if isinstance(extent, Torn) else extent.end

    def later_frame(self, file_id: bytes, position: int, number: int) -> int | None:
        """The entry of a frame of this file behind `position`; None if there is none."""
        while len(piece := read_at(self._fd, position, SEARCH_BYTES + FRAME_HEAD_BYTES)):
            if (found := later_frame(file_id, memoryview(piece), number)) is not None:
                return found
            position += SEARCH_BYTES
        return None


def file_has_id(fd: int, file_id: bytes) -> bool:
    """Whether the header of an open file has this id. OSError."""
    return os.pread(fd, ID_BYTES, ID_AT) == file_id


class LogPartFile:
    """The entries of one file that count: `header.first_entry` up to `end`, as far as they are known."""

    def __init__(self, header: LogHeader, path: Path, locator: str, end: int = NO_END) -> None:
        self.header = header
        self.path = path
        self.locator = locator
        self.end = end
        self.next_seal: int | None = None
        """Of the header of the next file, which goes on after the last of these entries."""
        self.has_batches = False
        """Of the entries that were found so far."""
        self._positions = array("q")
        self._tail_at = HEADER_BYTES
        self._seal = header.previous_seal
        self._lock = threading.Lock()

    @property
    def first(self) -> int:
        return self.header.first_entry

    @property
    def known_end(self) -> int:
        """One past the last entry that was found so far."""
        return self.first + len(self._positions)

    @property
    def tail_at(self) -> int:
        """Where the frame after the last one that was found begins."""
        return self._tail_at

    @property
    def seal(self) -> int:
        """Of the last entry that was found: the next file has to go on after it."""
        return self._seal

    def add(self, position: int, end: int, seal: int, has_batches: bool) -> None:
        """The next frame of the file was written."""
        self._positions.append(position)
        self._tail_at, self._seal = end, seal
        self.has_batches |= has_batches

    def position_of(self, number: int) -> int:
        """Where the frame of an entry that was found begins."""
        return self._positions[number - self.first]

    def take_back(self) -> int:
        """The last frame that was found is none. Returns where it begins. OSError."""
        position = self._positions.pop()
        with LogWindow(self.path) as window:
            self._seal = seal_before(window.get(position, FRAME_HEAD_BYTES))
        self._tail_at = position
        return position

    def scan(self, until: int = NO_END) -> Torn | None:
        """Find the entries below `until`. Returns where the frames end, if that is before. OSError."""
        until = min(until, self.end)
        if self.known_end >= until:
            return None
        with self._lock, LogWindow(self.path) as window:
            torn: Torn | None = None
            while self.known_end < until and torn is None:
                found = window.frame(self.header, self._tail_at, self.known_end, self._seal)
                if isinstance(found, Torn):
                    torn = found
                else:
                    head = found.head
                    end = aligned(head.end, self.header.alignment)
                    self.add(head.position, end, found.seal, bool(head.wal_bytes))
            return torn if window.is_of(self.header.file_id) else None

    def entries(self, first: int, until: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """(number, bytes) of entries that `scan` has found, up to the one with which they reach `max_bytes`.
        None of a file that was used again or is gone. OSError; StoreDamaged for a frame that has changed."""
        found: list[tuple[int, bytes]] = []
        size = 0
        try:
            with LogWindow(self.path) as window:
                for number in range(first, until):
                    entry = self._entry(window, number)
                    found.append((number, entry))
                    size += len(entry)
                    if size >= max_bytes:
                        break
                return found if window.is_of(self.header.file_id) else []
        except FileNotFoundError:
            return []

    def _entry(self, window: LogWindow, number: int) -> bytes:
        position = self._positions[number - self.first]
        view = window.get(position, FRAME_HEAD_BYTES)
        head = read_head(self.header, view, position, number, seal_before(view))
        sealed = b"" if isinstance(head, Torn) else window.get(head.sealed_at, head.end - head.sealed_at)
        if isinstance(head, Torn) or check_seal(head, sealed) is None:
            if not window.is_of(self.header.file_id):
                raise FileNotFoundError(str(self.path))
            raise StoreDamaged(f"the frame of entry {number} in log file {self.locator} is damaged; {REMEDY}")
        return bytes(sealed[head.entry_at - head.sealed_at : -SEAL_BYTES])


def seal_before(head: Buffer) -> int:
    """The seal of the frame before, as a head has it."""
    return int.from_bytes(memoryview(head)[32:36], "big")


class LastFrame(NamedTuple):
    """The last frame of a file, whole."""

    position: int
    data: Buffer
    nonce: bytes


def last_frame(part: LogPartFile, boot: bytes = NO_BOOT) -> LastFrame | None:
    """Of the newest file that an earlier process has left; None if it has no frame. OSError. StoreDamaged if
    its frames do not end as a crash leaves them.

    `boot`: the present start of the host. A frame is written from its first byte to its last, so one whose
    end is there was written whole, unless the host has lost power since: its batches, if they are wrong, were
    damaged later. It stays, and readers of the batches find that out. Otherwise it may be torn in the middle.
    """
    torn = part.scan() or Torn(part.tail_at, "the file ends")
    was_written_whole = boot != NO_BOOT and part.header.boot == boot
    with LogWindow(part.path) as window:
        last, fault = _last(part, window)
        if fault and not was_written_whole:
            # The one before was durable when this one was begun, so it is not looked at in the same way.
            torn = Torn(part.take_back(), fault)
            last, _ = _last(part, window)
        later = window.later_frame(part.header.file_id, window.after(part.header, torn), part.known_end)
    if torn.is_damage or later is not None:
        reason = torn.reason if later is None else f"{torn.reason}, and entry {later} follows"
        raise StoreDamaged(
            f"log file {part.locator} is damaged at {torn.position}, where entry {part.known_end} belongs: "
            f"{reason}; {REMEDY}"
        )
    return last


def _last(part: LogPartFile, window: LogWindow) -> tuple[LastFrame | None, str]:
    """The last frame that was found, and what is wrong with its batches."""
    if part.known_end == part.first:
        return None, ""
    number = part.known_end - 1
    position = part.position_of(number)
    view = window.get(position, FRAME_HEAD_BYTES)
    head = read_head(part.header, view, position, number, seal_before(view))
    if isinstance(head, Torn):
        raise StoreDamaged(f"log file {part.locator} reads otherwise at {position} than before; {REMEDY}")
    data = memoryview(window.whole(head))
    entry_at = head.entry_at - position
    fault = batches_fault(data[FRAME_HEAD_BYTES:entry_at]) if head.wal_bytes else ""
    return LastFrame(position, data, nonce_of(data[entry_at:-SEAL_BYTES])), fault


def verify_beginning(headers: Sequence[LogHeader], after: LogBeginning | None) -> None:
    """StoreDamaged if the log begins where entries elsewhere end, and goes on after other ones."""
    first = min(headers, key=lambda header: header.sequence)
    if after is None or first.first_entry != after.number:
        return
    # Zeros: it was not known when the log began, or is not now.
    is_known = any(first.cluster_id) and any(after.cluster_id)
    is_other = is_known and first.cluster_id != after.cluster_id
    if first.previous_nonce != after.nonce or is_other:
        raise StoreDamaged(
            f"the local log begins with entry {after.number}, after other entries than those that are there; "
            f"{REMEDY}"
        )
