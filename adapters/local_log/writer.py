"""The one thread that writes a local log: frames, new files, files used again, and what is pruned. Plain
blocking calls."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from adapters.disk import explain, write_synced
from adapters.local_log.chain import chained
from adapters.local_log.entries import LogEntries
from adapters.local_log.files import (
    PRUNED,
    ActiveFile,
    LogDirectory,
    begin_file,
    header_of,
    is_full,
    read_pruned,
    roll_bytes_of,
)
from adapters.local_log.loop_writes import LoopWrites
from adapters.local_log.parts import LogPartFile, LogWindow, last_frame, verify_beginning
from adapters.local_log.pruning import Numbers
from ledger.errors import OutcomeUnknown, StoreDamaged, StoreError, StoreUnavailable
from ledger.formats.local_log import (
    FRAME_HEAD_BYTES,
    HEADER_BYTES,
    NO_SEAL,
    SEAL_BYTES,
    LogHeader,
    encode_frame,
    encode_header,
)
from ledger.formats.local_log_chain import LogBeginning, parts_of
from ledger.formats.local_log_pruned import Pruned, encode_pruned
from ledger.formats.wal import FrameLayout, encode_laid_out
from ledger.journal import MAX_ENTRY_BYTES, NONCE_BYTES, REMEDY, nonce_of
from ledger.keys import created_ms, log_file_id, uuid7
from ledger.types import Buffer, DraftBatch

RANDOM_BYTES: Final = 10
ID_BYTES: Final = 16
MAX_KEPT_OF_FILE: Final = 100
"""A file with more entries that are not deleted is not yet settled: these are still to be deleted."""
FRAME_BYTES: Final = FRAME_HEAD_BYTES + SEAL_BYTES
MAX_FRAME_BYTES: Final = FRAME_BYTES + MAX_ENTRY_BYTES
"""Without batches."""


class WriteFailed(StoreError):
    """It is unknown whether the frame is there: `LogWriter.resolve` has to follow."""


class Tail(NamedTuple):
    """Where the log goes on: the number of the next entry, what it follows, and the file and the position of
    its frame, if that has space there. Without a file (None) the next frame begins one."""

    number: int
    seal: int
    nonce: bytes
    file_id: bytes | None
    position: int


class Spot(NamedTuple):
    """Where a frame is to be, and the layout of its batches."""

    file_id: bytes
    position: int
    layout: FrameLayout


class LogWriter:
    """Call `open` first. `tail`, `roll_bytes` and `entries` may be read by other threads."""

    def __init__(
        self,
        directory: LogDirectory,
        roll_bytes: int | None,
        clock: Callable[[], int],
        random: Callable[[int], bytes],
        boot: bytes,
        loop_writes: LoopWrites,
    ) -> None:
        """`boot`: which start of the host this is; NO_BOOT if that is not known."""
        self.directory = directory
        self.entries = LogEntries()
        self.tail = Tail(0, NO_SEAL, bytes(NONCE_BYTES), None, HEADER_BYTES)
        self.roll_bytes = roll_bytes or 0
        self._clock = clock
        self._random = random
        self._boot = boot
        self._cluster_id = bytes(ID_BYTES)
        self._sequence = 0
        self._newest_ms = 0
        self._file: ActiveFile | None = None
        self._loop_writes = loop_writes
        self._start_floor = 0
        """An attempt to raise `start` to it may have had its effect."""

    # Opening

    def open(self, after: LogBeginning | None) -> None:
        """Recover what earlier processes have left: after this, what can be read is durable. StoreError."""
        self.directory.open()
        try:
            self.roll_bytes = self.roll_bytes or roll_bytes_of(self.directory.root)
            self._recover(after)
        except OSError as error:
            self.directory.close()
            raise explain(error, "open the local log in", self.directory.path) from error
        except BaseException:
            self.directory.close()
            raise

    def _recover(self, after: LogBeginning | None) -> None:
        found = {file_id: self._header_of(file_id) for file_id in self.directory.file_ids()}
        headers = [header for file_id, header in found.items() if header and header.file_id == file_id]
        self._newest_ms = max((created_ms(self.directory.locator(file_id)) for file_id in found), default=0)
        self.entries.pruned = read_pruned(self.directory.path / PRUNED)
        settled = self.entries.pruned.settled
        self.entries.deleted.add_range(0, settled)
        self._start_floor = self.entries.pruned.start
        self._verify_names(found, headers)
        parts = chained(self.directory, headers)
        if headers:
            verify_beginning(headers, after)
            self._cluster_id = headers[0].cluster_id
            self._sequence = max(header.sequence for header in headers)
            self._recover_tail(parts[-1])
        elif after is not None and not self.entries.pruned.start:
            self._cluster_id = after.cluster_id
            self.tail = self.tail._replace(number=after.number, nonce=after.nonce)
        else:
            self._cluster_id = self._random(ID_BYTES)
        if self.entries.pruned.start > self.tail.number:
            start = self.entries.pruned.start
            raise StoreDamaged(
                f"files of the local log in {self.directory.path} are gone or older than {PRUNED!r}: it ends "
                f"before entry {self.tail.number}, and entries from {start} on were there; {REMEDY}"
            )
        self.entries.parts = [part for part in parts if part.end > settled]
        self.entries.end = self.tail.number
        # Never begun, or all of its entries are in a later file.
        unused = found.keys() - {part.header.file_id for part in parts}
        if unused:
            self.directory.put_aside(sorted(unused), self.roll_bytes)

    def _header_of(self, file_id: bytes) -> LogHeader | None:
        """None for a file that was never begun; that of another name for one that was to be used again.
        StoreDamaged if it was begun, and the header cannot be read."""
        path = self.directory.path_of(file_id)
        header = header_of(path)
        locator = self.directory.locator(file_id)
        if header is None or header.file_id != file_id:
            with LogWindow(path) as window:
                entry = window.later_frame(file_id, HEADER_BYTES, -1)
            if entry is not None:
                raise StoreDamaged(
                    f"the header of log file {locator} is damaged, and it has entry {entry}; {REMEDY}"
                )
        elif header.shard != self.directory.shard:
            raise StoreDamaged(f"log file {locator} is of shard {header.shard}; {REMEDY}")
        return header

    def _verify_names(self, found: Mapping[bytes, LogHeader | None], headers: Sequence[LogHeader]) -> None:
        """StoreDamaged for a file under a name of another one whose entries are needed. One that is used
        again has such a header until its own is written, and none of its entries is."""
        for file_id, header in found.items():
            if header is None or header.file_id == file_id or header.file_id in found:
                continue
            ends = {part.header.file_id: part.end for part in parts_of([*headers, header])}
            if ends.get(header.file_id, 0) > self.entries.pruned.settled:
                raise StoreDamaged(
                    f"log file {self.directory.locator(file_id)} has entries from {header.first_entry} on "
                    f"that are needed, and was {self.directory.locator(header.file_id)}: give it that name "
                    "again"
                )

    def _recover_tail(self, part: LogPartFile) -> None:
        last = last_frame(part, self._boot)
        nonce = last.nonce if last is not None else part.header.previous_nonce
        self.tail = Tail(part.known_end, part.seal, nonce, None, HEADER_BYTES)
        # What can be read need not be durable: the process before may have died in the middle of a write.
        fd = os.open(part.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            write_synced(fd, [encode_header(part.header)], 0)
            if last is not None:
                write_synced(fd, [last.data], last.position)
        finally:
            os.close(fd)

    # Writing

    def new_file_id(self) -> bytes:
        """Of a file to be begun. From any thread."""
        return uuid7(max(self._clock(), self._newest_ms), self._random(RANDOM_BYTES)).bytes

    def has_space(self, tail: Tail, size: int) -> bool:
        """Whether a frame of this size goes into the same file as the one before."""
        return tail.file_id is not None and tail.position + size <= self.roll_bytes

    @property
    def is_quick(self) -> bool:
        """Whether the thread of the event loop may write a frame, going by the disk alone."""
        return self._loop_writes.may_write(0)

    def may_append_on_loop(self, entry: bytes, spot: Spot | None) -> bool:
        """Whether an append may be made by the thread of the event loop, while the log's own thread is idle:
        it will most likely be quick, and has nothing to do but to write a frame into space that is there."""
        file, size = self._file, frame_bytes(entry, spot)
        if file is None or not self._loop_writes.may_write(size):
            return False
        is_here = spot is None or spot.file_id == file.header.file_id
        return is_here and size <= file.ahead_bytes and self.has_space(self.tail, size)

    def append(
        self,
        number: int,
        entry: bytes,
        batches: Sequence[DraftBatch] = (),
        spot: Spot | None = None,
        is_on_loop: bool = False,
    ) -> None:
        """Make the frame of the next entry durable, at `spot` if that is given. StoreUnavailable: it
        certainly is not there. WriteFailed: `resolve` has to follow. `is_on_loop`: it is the event loop's
        thread that makes this call."""
        tail = self.tail
        if number != tail.number:
            raise StoreUnavailable(f"the local log goes on with entry {tail.number}, and not with {number}")
        file = self._file_for(frame_bytes(entry, spot), spot)
        encoded_batches = encode_laid_out(batches, spot.layout) if spot is not None else None
        frame = encode_frame(file.header, number, tail.seal, entry, encoded_batches)
        try:
            file.reserve(frame.size, self.roll_bytes)
        except OSError as error:
            raise explain(error, "append to a log file in", self.directory.path) from error
        position = file.position
        try:
            write = partial(file.write, frame.buffers, frame.size)
            self._loop_writes.timed(write, is_on_loop=is_on_loop)
        except OSError as error:
            self._leave()
            raise WriteFailed(str(explain(error, "append to a log file in", self.directory.path))) from error
        self.entries.parts[-1].add(position, file.position, frame.seal, spot is not None)
        self.entries.end = number + 1
        self.tail = Tail(number + 1, frame.seal, nonce_of(entry), file.header.file_id, file.position)

    def resolve(self, number: int) -> bool:
        """Find out what became of an append: True if the entry is there. False: it certainly is not, and will
        not be. StoreUnavailable if that cannot be found out yet."""
        if self.tail.number > number:
            return True
        if self._file is None and self.entries.parts:
            # What can be read of the entry in the file before counts no longer.
            self._begin(self.new_file_id(), MAX_FRAME_BYTES)
        return False

    def _file_for(self, size: int, spot: Spot | None) -> ActiveFile:
        tail, file = self.tail, self._file
        if spot is None:
            if file is not None and self.has_space(tail, size):
                return file
            return self._begin(self.new_file_id(), size)
        if file is not None and spot.file_id == file.header.file_id:
            if spot.position != file.position:
                raise StoreUnavailable("the batches of the entry were placed behind another entry")
            return file
        if spot.position != HEADER_BYTES:
            raise StoreUnavailable("the batches of the entry were placed in a file that was left")
        return self._begin(spot.file_id, size)

    def _new_header(self, file_id: bytes, after: Tail) -> LogHeader:
        self._sequence += 1
        return LogHeader(
            self._cluster_id,
            file_id,
            self.directory.shard,
            self._sequence,
            after.number,
            after.seal,
            after.nonce,
            created_ms(self.directory.locator(file_id)),
            boot=self._boot,
        )

    def _begin(self, file_id: bytes, first_bytes: int) -> ActiveFile:
        """Go on in a new file, which has space for a frame of `first_bytes`. StoreUnavailable if not."""
        tail = self.tail
        header = self._new_header(file_id, tail)
        try:
            begun = begin_file(self.directory, header, first_bytes)
            # From here on nothing may be written to the file before: it counts up to this entry only.
            self._leave()
            file = begun.write_header()
        except OSError as error:
            raise explain(error, "begin a log file in", self.directory.path) from error
        self._newest_ms = max(self._newest_ms, header.created_ms)
        self._file = file
        self.tail = tail._replace(file_id=file_id, position=HEADER_BYTES)
        self._extend_chain(header)
        return file

    def _extend_chain(self, header: LogHeader) -> None:
        parts = list(self.entries.parts)
        superseded = []
        while parts and parts[-1].first >= header.first_entry:
            superseded.append(parts.pop())
        if parts:
            parts[-1].end, parts[-1].next_seal = header.first_entry, header.previous_seal
            self._cut_off(parts[-1])
        path = self.directory.path_of(header.file_id)
        self.entries.parts = [*parts, LogPartFile(header, path, self.directory.locator(header.file_id))]
        if superseded:
            with suppress(OSError):
                self.directory.put_aside([part.header.file_id for part in superseded], self.roll_bytes)

    def _cut_off(self, part: LogPartFile) -> None:
        """What is behind the last frame of a file that was left, if that is much."""
        with suppress(OSError):
            # Perhaps the file before one that a process has left without a frame: not looked through so far.
            part.scan()
            if part.known_end == part.end and not is_full(part.tail_at, self.roll_bytes):
                os.truncate(part.path, part.tail_at)

    def _leave(self) -> None:
        """Write no more to the file."""
        file, self._file = self._file, None
        self.tail = self.tail._replace(file_id=None, position=HEADER_BYTES)
        if file is not None:
            with suppress(OSError):
                file.leave()

    @property
    def ahead_bytes(self) -> int:
        """Space that is taken and not yet used. From any thread."""
        file = self._file
        return self.directory.spare_bytes + (file.ahead_bytes if file is not None else 0)

    @property
    def wants_zeros(self) -> bool:
        """Whether `fill` has something to do. From any thread."""
        file = self._file
        return file is not None and file.wants_zeros

    def fill(self) -> None:
        """Write zeros ahead of the last frame. Called by another thread than the rest."""
        file = self._file
        with suppress(OSError):
            # A frame that finds no zeros allocates its blocks.
            while file is not None and file.fill(self.roll_bytes):
                pass

    # Pruning

    def raise_start(self, number: int) -> None:
        pruned = self.entries.pruned
        self._start_floor = max(self._start_floor, number)
        if self._start_floor > pruned.start:
            self._replace_pruned(Pruned(self._start_floor, pruned.settled, pruned.kept))

    def _replace_pruned(self, pruned: Pruned) -> None:
        try:
            self.directory.replace(PRUNED, encode_pruned(pruned))
        except OSError as error:
            raise explain(error, "write to the directory", self.directory.path) from error
        try:
            self.directory.sync()
        except OSError as error:
            raise OutcomeUnknown(str(explain(error, "sync the directory", self.directory.path))) from error
        self.entries.pruned = pruned

    def delete(self, numbers: Sequence[int]) -> None:
        """Entries below `start` are gone; files that have no other ones are settled, and those of them that
        never had batches used again."""
        pruned = self.entries.pruned
        gone = {number for number in numbers if number < pruned.start}
        if kept := gone & pruned.kept.keys():
            left = {number: data for number, data in pruned.kept.items() if number not in kept}
            self._replace_pruned(Pruned(pruned.start, pruned.settled, left))
        deleted = self.entries.deleted.copy()
        deleted.add_all(gone)
        self.entries.deleted = deleted
        self._settle()

    def _settle(self) -> None:
        """Files whose entries are all pruned are needed no longer for these."""
        pruned = self.entries.pruned
        kept = dict(pruned.kept)
        settling: list[LogPartFile] = []
        for part in self.entries.parts[:-1]:
            left = list(islice(self.entries.deleted.missing(part.first, part.end), MAX_KEPT_OF_FILE + 1))
            if part.end > pruned.start or len(left) > MAX_KEPT_OF_FILE:
                break
            kept |= {number: data for number in left if (data := self._get(number)) is not None}
            settling.append(part)
        if not settling:
            return
        end = settling[-1].end
        self._replace_pruned(Pruned(pruned.start, end, kept))
        deleted = self.entries.deleted.copy()
        deleted.add_range(0, end)
        self.entries.deleted = deleted
        self.entries.parts = self.entries.parts[len(settling) :]
        if free := [part.header.file_id for part in settling if not self._has_batches(part)]:
            self._put_aside(free)

    def _has_batches(self, part: LogPartFile) -> bool:
        """True also if that is not known."""
        try:
            part.scan()
        except OSError:
            return True
        return part.has_batches or part.known_end < part.end

    def _get(self, number: int) -> bytes | None:
        try:
            return self.entries.get(number)
        except OSError as error:
            raise explain(error, "read the local log in", self.directory.path) from error

    def free(self, locators: Sequence[str]) -> None:
        """These files, which have no live run, are used again or removed. StoreUnavailable for one that still
        has entries."""
        for locator in locators:
            if self.entries.holds(locator):
                raise StoreUnavailable(f"log file {locator} has entries that are not pruned")
        ids = [file_id for locator in locators if (file_id := log_file_id(locator)) is not None]
        own = [file_id for file_id in ids if self.directory.locator(file_id) in locators]
        if own:
            self._put_aside(own)

    def _put_aside(self, file_ids: Sequence[bytes]) -> None:
        try:
            self.directory.put_aside(file_ids, self.roll_bytes)
        except OSError as error:
            # Of several files some may have gone.
            failed = explain(error, "delete a log file in", self.directory.path)
            raise OutcomeUnknown(str(failed)) from error

    # Beginning where a snapshot ends

    def begin_with(self, first: int, entries: Sequence[bytes]) -> None:
        """The entries from `first` on, if the log has none: all of them or none are there, whenever the
        process ends."""
        if self.entries.parts:
            return
        tail = self.tail._replace(number=first)
        header = self._new_header(self.new_file_id(), tail)
        buffers: list[Buffer] = [encode_header(header)]
        seal = tail.seal
        for number, entry in enumerate(entries, first):
            frame = encode_frame(header, number, seal, entry)
            buffers += frame.buffers
            seal = frame.seal
        try:
            self.directory.replace(self.directory.path_of(header.file_id).name, b"".join(buffers))
            self.directory.sync()
            self._recover(None)
        except OSError as error:
            raise explain(error, "begin a log file in", self.directory.path) from error

    def discard(self) -> None:
        """Remove the log."""
        self._leave()
        try:
            for file_id in self.directory.file_ids():
                self.directory.path_of(file_id).unlink(missing_ok=True)
            self.directory.sync()
            (self.directory.path / PRUNED).unlink(missing_ok=True)
            self.directory.sync()
        except OSError as error:
            raise explain(error, "empty the directory", self.directory.path) from error
        self.entries.parts, self.entries.pruned, self.entries.deleted = [], Pruned(), Numbers()
        self.entries.end = self._start_floor = 0
        self.tail = Tail(0, NO_SEAL, bytes(NONCE_BYTES), None, HEADER_BYTES)

    def close(self) -> None:
        if self._file is not None:
            self._leave()
            self.entries.parts[-1].end = self.tail.number
            self._cut_off(self.entries.parts[-1])
        self.directory.close()


def frame_bytes(entry: bytes, spot: Spot | None) -> int:
    """Of an entry, and of the batches that are placed with it."""
    return FRAME_BYTES + len(entry) + (spot.layout.size if spot is not None else 0)
