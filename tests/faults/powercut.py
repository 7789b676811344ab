"""What is left of a directory after a loss of power, rebuilt from a trace of `shim/powercut.c`.

The rule is POSIX read by its letter: bytes of a file survive for certain once an fsync or fdatasync of
that file that began after the write has returned; names in a directory (create, rename, link, unlink,
mkdir) once an fsync of that directory that began after the change has returned. What else survives is
up to a `Survival`: nothing, everything but half of the last write, or a random part.
"""

import random
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from itertools import pairwise
from pathlib import Path

BLOCK_BYTES = 4096
HEADER = struct.Struct("=IHHQQQQQqII")
MAGIC = 0x54554350
SYNC_IGNORED, SYNC_FAILED, SYNC_OF_WRITE = 1, 2, 4
NEVER_NS = 1 << 63


class Kind(IntEnum):
    START = 1
    CREATE = 2
    WRITE = 3
    TRUNCATE = 4
    RENAME = 5
    LINK = 6
    UNLINK = 7
    MKDIR = 8
    SYNC_BEGIN = 9
    SYNC_END = 10
    MAPPED = 11
    UNSUPPORTED = 12


@dataclass(frozen=True, slots=True)
class Event:
    """One effect, at the CLOCK_MONOTONIC time `ns` at which it was complete (`time.monotonic_ns`)."""

    kind: Kind
    flags: int
    seq: int
    ns: int
    ino: int
    directory: int
    directory_to: int
    offset: int
    first: bytes
    second: bytes


class UntraceableEffect(Exception):
    """The program did what the trace cannot follow; a rebuilt tree would be a guess."""


class Survival(Enum):
    """What survives of the effects that no sync covered."""

    NOTHING = "nothing"
    TORN = "torn"
    """Everything, but of the last write only the first half."""
    RANDOM = "random"
    """Each 4 KiB block and each size as it was at some moment since the last sync, by a seed; names as
    a prefix in their order."""


def read_trace(path: Path) -> list[Event]:
    """All whole events; a half one at the end is where the recorded process was killed."""
    raw, at, events = path.read_bytes(), 0, []
    while at + HEADER.size <= len(raw):
        magic, kind, flags, seq, ns, ino, directory, directory_to, offset, len1, len2 = HEADER.unpack_from(
            raw, at
        )
        if magic != MAGIC:
            raise UntraceableEffect(f"{path}: no event at byte {at}")
        middle, end = at + HEADER.size + len1, at + HEADER.size + len1 + len2
        if end > len(raw):
            break
        first, second = raw[at + HEADER.size : middle], raw[middle:end]
        events.append(Event(Kind(kind), flags, seq, ns, ino, directory, directory_to, offset, first, second))
        at = end
    return events


def sync_points(events: Sequence[Event]) -> list[int]:
    """The indices of the SYNC_END events, ignored syncs included."""
    return [index for index, event in enumerate(events) if event.kind is Kind.SYNC_END]


def sample(points: Sequence[int], count: int, seed: int = 1) -> list[int]:
    """At most `count` of them: one at random of each stretch of equal length, and the last. Not at equal
    distances: syncs of two files take turns, and all cuts would fall on one of the two."""
    if len(points) <= count:
        return list(points)
    dice = random.Random(seed)
    edges = [len(points) * part // (count - 1) for part in range(count)]
    chosen = [points[dice.randrange(start, end)] for start, end in pairwise(edges)]
    return sorted({*chosen, points[-1]})


def cut_time_ns(events: Sequence[Event], cut: int) -> int:
    """The power fails after the first `cut` events and before the next one: what was acknowledged
    before this time must have survived."""
    return events[cut].ns if cut < len(events) else NEVER_NS


@dataclass(slots=True, eq=False)
class File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Event] = field(default_factory=list)

    def settle(self, before_seq: int) -> None:
        for event in self.pending:
            if event.seq < before_seq:
                apply_whole(self.durable, event)
        self.pending = [event for event in self.pending if event.seq >= before_seq]

    def settle_write(self, seq: int) -> None:
        """The bytes of this write are durable, and the size of the file as it was. Nothing else is: what was
        written before elsewhere in it still waits."""
        write = next(event for event in self.pending if event.seq == seq)
        later = [event for event in self.pending if event.seq > seq]
        waiting: list[Event] = []
        for event in self.pending:
            if event.seq >= seq:
                break
            if event.kind is Kind.TRUNCATE:
                apply_whole(self.durable, event)
                waiting = [piece for other in waiting for piece in _without(other, event.offset, sys.maxsize)]
            else:
                waiting.append(event)
        end = write.offset + len(write.first)
        waiting = [piece for other in waiting for piece in _without(other, write.offset, end)]
        apply_whole(self.durable, write)
        self.pending = [*waiting, *later]


@dataclass(frozen=True, slots=True)
class Change:
    """One atomic change of one directory: name -> what it names now, None = gone."""

    seq: int
    names: "dict[bytes, Node | None]"


@dataclass(slots=True, eq=False)
class Directory:
    durable: "dict[bytes, Node]" = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    def settle(self, before_seq: int) -> None:
        self.durable = self.names(change for change in self.pending if change.seq < before_seq)
        self.pending = [change for change in self.pending if change.seq >= before_seq]

    def names(self, changes: Iterable[Change]) -> "dict[bytes, Node]":
        names: dict[bytes, Node | None] = dict(self.durable)
        for change in changes:
            names.update(change.names)
        return {name: node for name, node in names.items() if node is not None}


Node = File | Directory
Tree = dict[str, bytes | None]
"""Relative path -> content; None = a directory. Parents come before what they hold."""


class Disk:
    """A directory tree with its durable and its pending half, fed one event after the other."""

    def __init__(self) -> None:
        self.root = Directory()
        self.nodes: dict[int, Node] = {}
        self.mapped: set[str] = set()

    def apply(self, event: Event) -> None:  # noqa: C901 - one case a call
        match event.kind:
            case Kind.START:
                self.nodes.setdefault(event.ino, self.root)
            case Kind.CREATE:
                self._enter(event, File())
            case Kind.MKDIR:
                self._enter(event, Directory())
            case Kind.LINK:
                self._change(event.directory, event.seq, {event.first: self._node(event.ino)})
            case Kind.UNLINK:
                self._change(event.directory, event.seq, {event.first: None})
            case Kind.RENAME:
                self._rename(event)
            case Kind.WRITE | Kind.TRUNCATE:
                self._file(event.ino).pending.append(event)
            case Kind.SYNC_END:
                self._sync(event)
            case Kind.MAPPED:
                self._mapped(event)
            case Kind.UNSUPPORTED:
                raise UntraceableEffect(f"{event.first.decode()} {event.second.decode(errors='replace')}")

    def tree(self, survival: Survival, seed: int = 0) -> Tree:
        """What is found after the power has come back."""
        match survival:
            case Survival.NOTHING:
                return _walk(lambda directory: directory.durable, lambda file: bytes(file.durable), self.root)
            case Survival.TORN:
                return self._torn_tree()
            case Survival.RANDOM:
                return self._random_tree(random.Random(seed))

    def whole_tree(self) -> Tree:
        """Everything that was done, as the running system sees it (mapped files may differ)."""
        return _walk(lambda directory: directory.names(directory.pending), _whole, self.root)

    def _torn_tree(self) -> Tree:
        writes = [event for file in self._files() for event in file.pending if event.kind is Kind.WRITE]
        last_seq = max((event.seq for event in writes), default=0)

        def content(file: File) -> bytes:
            data = bytearray(file.durable)
            for event in file.pending:
                apply_whole(data, _half(event) if event.seq == last_seq else event)
            return bytes(data)

        return _walk(lambda directory: directory.names(directory.pending), content, self.root)

    def _random_tree(self, dice: random.Random) -> Tree:
        changes = sorted(
            change.seq for node in self._distinct() if isinstance(node, Directory) for change in node.pending
        )
        until = dice.choice([0, *changes])

        def names(directory: Directory) -> dict[bytes, Node]:
            return directory.names(change for change in directory.pending if change.seq <= until)

        return _walk(names, lambda file: random_content(file, dice), self.root)

    def _node(self, ino: int) -> Node:
        if ino not in self.nodes:
            raise UntraceableEffect(f"inode {ino} was there before the recording began")
        return self.nodes[ino]

    def _file(self, ino: int) -> File:
        node = self._node(ino)
        if not isinstance(node, File):
            raise UntraceableEffect(f"inode {ino} is written to, but is a directory")
        return node

    def _distinct(self) -> Iterator[Node]:
        return iter({id(node): node for node in self.nodes.values()}.values())

    def _files(self) -> Iterator[File]:
        return (node for node in self._distinct() if isinstance(node, File))

    def _enter(self, event: Event, node: Node) -> None:
        self.nodes[event.ino] = node  # inode numbers are reused once the former file is gone
        self._change(event.directory, event.seq, {event.first: node})

    def _change(self, directory: int, seq: int, names: dict[bytes, Node | None]) -> None:
        holder = self._node(directory)
        assert isinstance(holder, Directory)
        holder.pending.append(Change(seq, names))

    def _rename(self, event: Event) -> None:
        node = self._node(event.ino)
        if event.directory == event.directory_to:
            self._change(event.directory, event.seq, {event.first: None, event.second: node})
        else:  # nothing promises that two directories reach the disk together
            self._change(event.directory_to, event.seq, {event.second: node})
            self._change(event.directory, event.seq, {event.first: None})

    def _sync(self, event: Event) -> None:
        if event.flags & (SYNC_IGNORED | SYNC_FAILED):  # promises nothing
            return
        if event.flags & SYNC_OF_WRITE:
            return self._file(event.ino).settle_write(event.offset)
        for node in [self._node(event.ino)] if event.ino else list(self._distinct()):
            node.settle(before_seq=event.offset)

    def _mapped(self, event: Event) -> None:
        name = event.first.decode()
        if not name.endswith("-shm"):  # SQLite's lock index; it is rebuilt from the -wal after a crash
            raise UntraceableEffect(f"shared writable mapping of {name}")
        self.mapped.add(name)


def replayed(events: Sequence[Event], until: int | None = None) -> Disk:
    disk = Disk()
    for event in events[:until]:
        disk.apply(event)
    return disk


def trees_at(
    events: Sequence[Event], cuts: Iterable[int], survival: Survival, seed: int = 0
) -> Iterator[tuple[int, Tree]]:
    """(cut, tree) for each cut in ascending order, in one pass; each cut has a seed of its own."""
    disk, done = Disk(), 0
    for cut in sorted(cuts):
        for event in events[done:cut]:
            disk.apply(event)
        done = cut
        yield cut, disk.tree(survival, seed + cut)


def write_tree(tree: Tree, to: Path) -> None:
    """`to` must not exist or be empty."""
    to.mkdir(parents=True, exist_ok=True)
    for name, content in tree.items():
        if content is None:
            (to / name).mkdir()
        else:
            (to / name).write_bytes(content)


def read_tree(directory: Path) -> Tree:
    """The present tree, in the form that `Disk` rebuilds. Sockets have no bytes to lose."""
    paths = sorted(path for path in directory.rglob("*") if not path.is_socket())
    return {str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes() for path in paths}


def apply_whole(data: bytearray, event: Event) -> None:
    size = len(data)
    if event.kind is Kind.TRUNCATE:
        if event.offset < size:
            del data[event.offset :]
        else:
            data.extend(bytes(event.offset - size))
        return
    if event.offset > size:
        data.extend(bytes(event.offset - size))
    data[event.offset : event.offset + len(event.first)] = event.first


def random_content(file: File, dice: random.Random) -> bytes:
    """Each block, and the size, at a version of its own: a page cache writes pages back in any order."""
    if not file.pending:
        return bytes(file.durable)
    count = len(file.pending)
    data, size, sizes = bytearray(file.durable), len(file.durable), [len(file.durable)]
    for event in file.pending:
        size = event.offset if event.kind is Kind.TRUNCATE else max(size, event.offset + len(event.first))
        sizes.append(size)
    data.extend(bytes(max(sizes) - len(data)))
    versions: dict[int, int] = {}
    for number, event in enumerate(file.pending):
        end = len(data) if event.kind is Kind.TRUNCATE else event.offset + len(event.first)
        for block in range(event.offset // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
            if number < versions.setdefault(block, dice.randint(0, count)):
                start = max(event.offset, block * BLOCK_BYTES)
                stop = min(end, (block + 1) * BLOCK_BYTES)
                piece = event.first[start - event.offset : stop - event.offset]
                data[start:stop] = piece if event.kind is Kind.WRITE else bytes(stop - start)
    return bytes(data[: sizes[dice.randint(0, count)]])


def _half(event: Event) -> Event:
    return replace(event, first=event.first[: len(event.first) // 2], second=b"")


def _without(write: Event, start: int, end: int) -> list[Event]:
    """What is left of a write without the bytes [start, end) of the file."""
    at, stop = write.offset, write.offset + len(write.first)
    before = write.first[: max(start - at, 0)]
    after = write.first[max(end - at, 0) :]
    if start >= stop or end <= at:
        return [write]
    pieces = [replace(write, first=before), replace(write, offset=max(end, at), first=after)]
    return [piece for piece in pieces if piece.first]


def _whole(file: File) -> bytes:
    data = bytearray(file.durable)
    for event in file.pending:
        apply_whole(data, event)
    return bytes(data)


def _walk(
    names: Callable[[Directory], dict[bytes, Node]], content: Callable[[File], bytes], root: Directory
) -> Tree:
    tree: Tree = {}

    def visit(directory: Directory, prefix: str) -> None:
        for raw_name, node in sorted(names(directory).items()):
            path = prefix + raw_name.decode()
            tree[path] = content(node) if isinstance(node, File) else None
            if isinstance(node, Directory):
                visit(node, path + "/")

    visit(root, "")
    return tree
