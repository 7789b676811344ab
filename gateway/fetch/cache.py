"""Stored batches in memory: those written lately, and what was read lately. Pure.

One bound for all, and two lists: what was *written* here, of which the oldest goes first, and what was *read*
from the store, of which that goes first that was not used for the longest time. While both need room each
keeps at least half of it, so a consumer that catches up through the whole log does not evict the end that all
others read, nor do producers evict what it is reading. A written batch that was read is no more likely to be
read again than those after it, so its use changes nothing.
"""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from typing import Final

from ledger.types import Buffer

ENTRY_OVERHEAD_BYTES: Final = 512
"""About what the bookkeeping of one entry takes: counted, so that the bound holds for small batches too."""
MAX_WASTE: Final = 2
"""An entry may keep this multiple of its own size in memory."""
MIN_SHARED_BYTES: Final = 16 * 1024
"""A written batch of this size is a view of its frame until it is read: to copy it may be in vain."""
FRAME_FRACTION: Final = 8
"""Of the bound, the largest frame that is kept for its batches."""
RESERVED_FRACTION: Final = 4
"""Of the bound, what may be reserved for objects that are being read."""
_WHOLE: Final = -1
"""In the place of the start: the entry is a whole object."""


class RunCache:
    """Byte ranges of objects, and whole objects, at most about `max_bytes` of them.

    Every range is one or more whole batches that were checked, so it is served as the entries it consists of
    and nothing is ever joined. A whole object is as the store had it: who takes batches of it checks them.
    Objects are immutable and keys are never reused: nothing becomes stale.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._written = _WrittenEntries()
        self._read = _Entries()
        # Starts of entries with several batches: a reader may begin in the middle of one.
        self._range_starts: dict[str, list[int]] = {}
        self.reserved_bytes = 0
        self.copied_bytes = 0
        """In all, of written batches that were read."""

    def __len__(self) -> int:
        return len(self._written.views) + len(self._read.views)

    @property
    def held_bytes(self) -> int:
        return self._written.held_bytes + self._read.held_bytes + self.reserved_bytes

    def put(self, locator: str, start: int, data: Buffer) -> None:
        """Cache one batch that was written."""
        view = memoryview(data)
        is_shared = len(view) >= MIN_SHARED_BYTES and _whole_bytes(view) <= self.max_bytes // FRAME_FRACTION
        if self._add(self._written, (locator, start), view if is_shared else _kept(view)):
            self._make_room()

    def put_range(self, locator: str, start: int, data: Buffer) -> None:
        """Cache adjacent batches that were read together, and checked."""
        is_new = (locator, start) not in self._written.views
        if is_new and self._add(self._read, (locator, start), _kept(data)):
            insort(self._range_starts.setdefault(locator, []), start)
            self._make_room()

    def put_object(self, locator: str, data: Buffer) -> None:
        """Cache a whole object that was read."""
        if self._add(self._read, (locator, _WHOLE), _kept(data)):
            self._make_room()

    def get(self, locator: str, start: int, size: int) -> tuple[list[memoryview], int]:
        """Views of checked batches from `start` on without a gap, and the bytes that they cover: 0 if nothing
        is cached there; more than `size` if the last entry reaches further."""
        views: list[memoryview] = []
        covered = 0
        while covered < size:
            view = self._at(locator, start + covered)
            if view is None:
                break
            views.append(view)
            covered += len(view)
        return views, covered

    def object(self, locator: str) -> memoryview | None:
        """A whole object."""
        return self._read.use((locator, _WHOLE))

    def written(self, locator: str, start: int) -> memoryview | None:
        """The batch at `start`, if it was written here lately and need not be copied before it is served."""
        view = self._written.views.get((locator, start))
        # Smaller ones were copied when they came.
        is_own = view is not None and (len(view) < MIN_SHARED_BYTES or not _is_small_part(view))
        return view if is_own else None

    def has_written(self, locator: str, start: int) -> bool:
        """Whether the batch at `start` was written here lately."""
        return (locator, start) in self._written.views

    def discard_written(self, locator: str, start: int) -> None:
        """A batch that was put here is not in the store, and others may come to be in its place."""
        self._written.remove((locator, start))

    def discard_object(self, locator: str) -> None:
        """It is not what the ledger says: the store is to be asked again."""
        self._read.remove((locator, _WHOLE))

    def reserve(self, size: int, *, is_ahead: bool = False) -> bool:
        """Make room for an object that will be read, until `release`. False if too much is being read, of
        which half is for fetches that wait; or if the object is too large for this cache."""
        most = self.max_bytes // RESERVED_FRACTION // (2 if is_ahead else 1)
        is_alone = not self.reserved_bytes and size <= self.max_bytes // 2
        if self.reserved_bytes + size > most and not is_alone:
            return False
        self.reserved_bytes += size
        self._make_room()
        return True

    def release(self, size: int) -> None:
        """The object has been read, or will not be."""
        self.reserved_bytes -= size

    def _add(self, entries: "_Entries", key: tuple[str, int], view: memoryview) -> bool:
        cost = len(view) + ENTRY_OVERHEAD_BYTES
        if not len(view) or cost > self.max_bytes or key in entries.views:
            return False
        entries.add(key, view)
        return True

    def _at(self, locator: str, position: int) -> memoryview | None:
        view = self.written(locator, position)
        if view is not None:
            return view
        key = (locator, position)
        if key in self._written.views:
            return self._copied(key)
        view = self._read.use(key)
        if view is not None:
            return view
        starts = self._range_starts.get(locator)
        at = bisect_right(starts, position) - 1 if starts else -1
        if not starts or at < 0:
            return None
        view = self._read.use((locator, starts[at]))
        inside = position - starts[at]
        return view[inside:] if view is not None and inside < len(view) else None

    def _copied(self, key: tuple[str, int]) -> memoryview:
        view = self._written.copy(key)
        self.copied_bytes += len(view)
        self._make_room()
        return view

    def _make_room(self) -> None:
        written, read = self._written, self._read
        while self.held_bytes > self.max_bytes:
            reads_bytes = read.held_bytes + self.reserved_bytes
            if read.views and (reads_bytes > self.max_bytes // 2 or not written.views):
                self._evict_read()
            elif written.views:
                written.evict()
            else:
                return

    def _evict_read(self) -> None:
        locator, start = self._read.evict()
        starts = self._range_starts.get(locator)
        if starts:
            at = bisect_left(starts, start)
            if at < len(starts) and starts[at] == start:
                del starts[at]
                if not starts:
                    del self._range_starts[locator]


class _Entries:
    """Entries in the order in which they are evicted."""

    __slots__ = ("held_bytes", "views")

    def __init__(self) -> None:
        self.views: OrderedDict[tuple[str, int], memoryview] = OrderedDict()
        self.held_bytes = 0

    def add(self, key: tuple[str, int], view: memoryview) -> None:
        self.views[key] = view
        self._count(view)

    def use(self, key: tuple[str, int]) -> memoryview | None:
        """The entry, which becomes the last."""
        view = self.views.get(key)
        if view is not None:
            self.views.move_to_end(key)
        return view

    def evict(self) -> tuple[str, int]:
        """Remove the first."""
        key, view = self.views.popitem(last=False)
        self._uncount(view)
        return key

    def remove(self, key: tuple[str, int]) -> None:
        view = self.views.pop(key, None)
        if view is not None:
            self._uncount(view)

    def _count(self, view: memoryview) -> None:
        self.held_bytes += len(view) + ENTRY_OVERHEAD_BYTES

    def _uncount(self, view: memoryview) -> None:
        self.held_bytes -= len(view) + ENTRY_OVERHEAD_BYTES


class _WrittenEntries(_Entries):
    """Written batches. One that is a small part of its frame is copied when it is first read. Until then it
    keeps the whole frame, which counts once for all its batches, as long as one of them is here."""

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        super().__init__()
        self._frames: dict[int, int] = {}
        """How many entries are views of a frame, by its identity: these keep it alive."""

    def copy(self, key: tuple[str, int]) -> memoryview:
        """Copy this entry, so that a response that its client does not read cannot keep a frame. It keeps its
        place."""
        view = self.views[key]
        self.views[key] = copied = memoryview(bytes(view))
        self._uncount(view)
        self._count(copied)
        return copied

    def _count(self, view: memoryview) -> None:
        if not _is_small_part(view):
            super()._count(view)
            return
        frame = id(view.obj)
        entries = self._frames.get(frame, 0)
        self._frames[frame] = entries + 1
        self.held_bytes += ENTRY_OVERHEAD_BYTES + (0 if entries else _whole_bytes(view))

    def _uncount(self, view: memoryview) -> None:
        if not _is_small_part(view):
            super()._uncount(view)
            return
        frame = id(view.obj)
        entries = self._frames.pop(frame) - 1
        if entries:
            self._frames[frame] = entries
        self.held_bytes -= ENTRY_OVERHEAD_BYTES + (0 if entries else _whole_bytes(view))


def _whole_bytes(view: memoryview) -> int:
    """What a view keeps in memory."""
    whole = view.obj
    return len(whole) if isinstance(whole, bytes | bytearray) else memoryview(whole).nbytes


def _is_small_part(view: memoryview) -> bool:
    return _whole_bytes(view) > MAX_WASTE * len(view)


def _kept(data: Buffer) -> memoryview:
    """What an entry holds. A view keeps all in memory that it was cut from, so a small batch of a large frame
    is copied."""
    view = memoryview(data)
    return memoryview(bytes(view)) if _is_small_part(view) else view
