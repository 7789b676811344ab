"""The five ports: what the ledger needs of a backend, and nothing more.

Every backend passes the contract suite of its port (tests/contract). Methods raise the errors of
`ledger.errors`: `StoreUnavailable` when a call certainly had no effect, `OutcomeUnknown` when it may
have had one. Every call ends: backends bound their own waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeGuard

from ledger.read_back import PAGE_BYTES, ReadBack
from ledger.records import FIRST_LEVEL
from ledger.rows import Row
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject

SCAN_BYTES: Final = PAGE_BYTES
"""Values that one scan of a metadata store reads: a bound on its memory, and on the time that it takes."""


@dataclass(frozen=True, slots=True)
class BlobInfo:
    key: str
    size: int


class Blobs(Protocol):
    """Immutable named bytes. Keys are as `MetadataStore` has them; a key is never reused."""

    @property
    def durable_ack(self) -> bool:
        """What is acknowledged survives kill -9 and loss of power."""
        ...

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Create-only and atomic: durable and whole when it returns. AlreadyExists if the key is there."""
        ...

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """The bytes [start, start + size), or to the end. NotFound if there is no such key or range."""
        ...

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[BlobInfo]:
        """At most `limit` blobs whose key has the prefix and is > `after`, ascending by key."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Idempotent: deleting what is not there is no error. Durable when it returns."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value and the version to expect when replacing it. A version may be a content hash, so values that
    replace each other carry a nonce or counter."""

    value: bytes
    version: str


@dataclass(frozen=True, slots=True)
class Won:
    """The put happened and is durable; `version` is the new one."""

    version: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The put certainly did not happen: the expected version is not the present one."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The put may or may not have happened, and may still happen late. Read to find out."""

    reason: str


PutOutcome: TypeAlias = Won | Lost | Unknown


class MetadataStore(Protocol):
    """A small versioned map with compare-and-set: journals, leases, membership.

    Keys are `/`-separated, at most 1024 bytes. Their parts match `[A-Za-z0-9_-][A-Za-z0-9._-]*` and have at
    most 200 bytes; `ledger.keys.KEY_PARTS` says how many parts each kind has, so that no key is a folder of
    another. Every store refuses other keys by ValueError. What a store cannot promise it declares.
    """

    @property
    def exclusive(self) -> bool:
        """True if this process alone can write for as long as the store is open (an embedded file under
        a lock): then no other process can have written since the last read."""
        ...

    @property
    def unique_versions(self) -> bool:
        """True if no version is given twice, not even after a delete. A store whose versions are content
        hashes (ETags of S3) gives equal values equal versions."""
        ...

    @property
    def durable_ack(self) -> bool:
        """What is acknowledged survives kill -9 and loss of power."""
        ...

    async def get(self, key: str) -> Versioned | None: ...

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        """At most `limit` pairs whose key has the prefix and is >= `start`, ascending by key; the last one is
        that with which the values together reach SCAN_BYTES, if they do."""
        ...

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        """Write if the present version is `expect`; None = the key must not exist. Raises
        StoreUnavailable when the call certainly had no effect. Durable when Won."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Unconditional and idempotent, for pruning."""
        ...

    async def close(self) -> None: ...


def identity_of(store: MetadataStore) -> str:
    """Which metadata store this is, where it can tell itself from a copy that was restored from a backup (an
    attribute `identity`); else empty."""
    return str(getattr(store, "identity", ""))


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """How full a metadata store with a quota is."""

    used_bytes: int
    """What values take, and what is kept of earlier ones."""
    file_bytes: int
    """What counts against the quota: also pages that are free again, and used before it grows further."""
    quota_bytes: int
    full: str
    """Why no value can be written, and what to do; empty if they can."""


class MeteredStore(MetadataStore, Protocol):
    """A metadata store with a quota, in which deleting alone frees nothing."""

    async def usage(self) -> StoreUsage:
        """StoreUnavailable if that cannot be found out."""
        ...

    async def reclaim(self) -> str:
        """Free the space of what was deleted. Returns why that was not done, with the remedy, where it is
        left to the operator; else nothing. Idempotent."""
        ...


def is_metered(store: MetadataStore) -> TypeGuard[MeteredStore]:
    return hasattr(store, "usage")


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry of a journal, not decoded. `where` it is, for messages to the operator. `batches`: the WAL
    frame of those inside of it (`ledger/formats/inline.py`), if the journal has them in the entry itself."""

    number: int
    data: bytes
    where: str
    batches: bytes = b""


@dataclass(frozen=True, slots=True)
class EntryPage:
    """What one read of a journal has found from entry `first` on."""

    first: int
    entries: Sequence[StoredEntry]
    """Ascending by number."""
    gap: int | None
    """The first number from `first` on that is missing before the last of these entries; None: there is no
    such gap."""
    more: bool
    """False: at the time of the read there were no entries after these."""
    pruned: bool
    """`start`, read after the entries, is above `first`: another process has pruned, and of the entries
    below `start` some are missing, and some may never have counted."""

    @property
    def next(self) -> int:
        """Where the next page begins."""
        return self.entries[-1].number + 1 if self.entries else self.first


@dataclass(frozen=True, slots=True)
class Appended:
    """The entry is durable under its number, with exactly these bytes."""

    counts: bool
    """True: it counts. False: that is still to be found out. It counts if `start`, called after this, is not
    above its number; if it is above, the outcome is that of `Unknown`. The next entry may be appended
    meanwhile, but nothing of either is true before this is found out."""


AppendOutcome: TypeAlias = Appended | Lost | Unknown


class Journal(Protocol):
    """The append-only metadata log of one shard: entries with numbers from 0 on, none of which ever changes.

    Several processes may append to it and prune it. Each number has at most one entry that counts. **An
    append or a read of entry N counts only if `start`, read afterwards, is not above N**: pruned numbers are
    free again, so a process that slept may still put an entry under one of them.

    Entries below `start` may be missing. From `start` on there is no gap before the last entry: one that a
    reader finds there is damage if `start` has not been raised since it began, and else a reason to begin
    again from a newer snapshot.

    Any gateway may read. Only the owner of an epoch appends and prunes, but one that was deposed may not know
    it yet: all of this holds nevertheless. Reads raise StoreUnavailable, and StoreDamaged for what cannot be
    part of a journal; they decode no entry. The opener closes the stores below.
    """

    @property
    def shard(self) -> int: ...

    @property
    def exclusive(self) -> bool:
        """True if this process alone can append and prune: then what it has read last is still so, and every
        append counts."""
        ...

    @property
    def entry_batches(self) -> int:
        """How many batches may share an entry: more where an append takes long."""
        ...

    @property
    def unknown_entry(self) -> str:
        """Where the entry is that `append` is at, while its outcome is unknown; else empty. For operators."""
        ...

    @property
    def read_back(self) -> ReadBack:
        """How long `read` takes, from the reads of this process."""
        ...

    def takes(self, batches: int, size: int) -> bool:
        """Whether a draft of this many batches, which have `size` bytes together, may be submitted with its
        bytes now, to be appended with an entry, instead of going to the segment store first. A hint: the
        result may be another one at the next call, and `place` may still say None. Has no effect."""
        ...

    @property
    def appends_at_once(self) -> bool:
        """Whether a small append would most likely be done when its coroutine has made its first step, and
        that step uses no task. A hint. Has no effect."""
        ...

    def holds(self, locator: str) -> bool:
        """Whether this object has entries that are not pruned, or may still get some: its bytes stay whatever
        the ledger says of the runs in it, and `SegmentStore.delete` is not called for it. Has no effect."""
        ...

    def place(self, number: int, batches: Sequence[DraftBatch]) -> Placement | None:
        """Where these record batches will be if they are appended with entry `number`: an object's locator
        and the start of each batch in it, so that the entry can name them before it is written. None: this
        journal takes no batches, or not these; they go to the segment store first, and the entry is appended
        without them. Has no effect."""
        ...

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        """Make entry `number` durable, and in the same step `batches`, where `place` has said they will be.
        The caller has all entries before it, or has appended them, and has one append at a time under way.

        Appended: see there. Lost: another gateway's entry has the number, and this one certainly is not in
        the journal; the caller owns the shard no longer, and what waited has failed. Unknown: it may or may
        not have been in the journal, which was pruned past it, or so it may be; the caller owns the shard no
        longer, and does not say that anything has failed. StoreUnavailable: the entry certainly is not there
        and will not be; the caller is the owner as before, and may append other bytes under the number.

        This resolves unknown outcomes of the store by itself, by reading and by repeating the same bytes, and
        does not return before; `unknown_entry` says so. A caller that was cancelled meanwhile owns the shard
        no longer. ValueError for batches that `place` does not take."""
        ...

    async def get(self, number: int) -> bytes | None:
        """The bytes of one entry; None if it is absent. To look whether an entry is still the last, or is the
        expected one."""
        ...

    async def read(self, first: int, max_bytes: int) -> EntryPage:
        """Entries from number `first` on, in order, also across gaps; the last one is that with which they
        reach `max_bytes`, or an earlier one. At least one, if there is any. A read from 0 on also finds
        damage that sorts before every entry."""
        ...

    async def start(self) -> int:
        """The number below which entries may have been pruned: 0 at first. It only grows, whichever gateway
        raises it and however late. Never cached."""
        ...

    async def raise_start(self, number: int) -> None:
        """Make `start` at least `number`, durably. Before that the caller has put all entries below into the
        archive, and a snapshot of the state at `number` or later. OutcomeUnknown: it may or may not have been
        raised; the caller deletes nothing."""
        ...

    async def delete(self, numbers: Sequence[int]) -> None:
        """Prune these entries, all below a `start` that is durable. Never the first one of an epoch. The
        journal may keep their bytes for longer. Idempotent."""
        ...

    async def begin(self, number: int, entry: bytes, before: bytes | None) -> None:
        """Begin a journal that has no entries and no `start`, with `entry` under `number`, and `before` under
        the number before it, if that one is known; `start` is the lower of them. A process that is killed in
        between leaves what is refused at the next start, or all of it; the same call puts what is missing of
        it. StoreError if it cannot be written, or if something else is there. For a restore or a move."""
        ...

    async def discard(self, number: int) -> None:
        """Remove what `begin` has written, whole or in part. Only where the journal is exclusive, or while
        no gateway may go on with it."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a segment store can promise."""

    deletes: bool
    """`delete` frees the bytes."""
    atomic: bool
    """A draft is written wholly or not at all."""
    durable_ack: bool
    """When `write` returns, the draft survives kill -9 and loss of power."""
    overlapping: bool = False
    """Concurrent writes end sooner than sequential ones: true of a remote store, not of one disk."""
    keeps_reads: bool = False
    """Reading the same bytes again costs little: the operating system caches files in memory."""


class SegmentStore(Protocol):
    """Record batches as opaque bytes: written once, read by position. WAL objects are written here, segments
    by jobs (`JobSegments`); both are read, listed and deleted here."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        """Store a draft durably, all of it in one object. `created_ms` is the time to carry in a new
        object's key, so that a slow clock never makes a key below the orphan floor. `feature_level`: of the
        journal that will name the object, whose older readers must be able to read it. One call at a time
        or several: the store orders them. After any error the same call must not be repeated with the
        same object: the store abandons it and starts a new one by itself."""
        ...

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        """The bytes of each position in order; None where object or range is not there. Raises
        StoreUnavailable when the store cannot be reached."""
        ...

    async def abandon(self, locator: str) -> None:
        """No further draft may go into this object (a commit that named it was refused)."""
        ...

    async def delete(self, locators: Sequence[str]) -> None:
        """Idempotent. Never deletes an object that is still being written: that one is abandoned first. After
        any error some of them may be gone."""
        ...

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        """What is stored, live or not, ascending by locator: segments by partition and base offset, settled
        ledgers by partition and age, then WAL objects of a shard by creation time. A segment or a settled
        ledger is one object with its other files; where only these are there it is listed with 0 bytes."""
        ...

    async def close(self) -> None: ...


class JobSegments(Protocol):
    """What a job in a process of its own has of a gateway's segment store: it reads everything, makes new
    segments and settled ledgers, and deletes nothing. The gateway goes on meanwhile, so an object may have
    gone."""

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        """As `SegmentStore.read`; also of the other files of an object, by their own keys."""
        ...

    async def write_segment(self, locator: str, buffers: Sequence[Buffer], index: Buffer) -> None:
        """Store a segment and its `.index`, durably, under a new key (`ledger.keys.segment_locator`): an
        orphan until a swap names it. StoreUnavailable on every failure: the job takes another key then, as
        nothing is known of what is stored under this one. The buffers must not change before this returns."""
        ...

    async def write_settled(self, locator: str, log: Sequence[Buffer], index: Buffer, meta: Buffer) -> None:
        """Store the three files of a settled ledger in the same way (`ledger.keys.settled_keys`), the `.json`
        last: an orphan until a journal entry names it."""
        ...

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        """As `SegmentStore.objects`."""
        ...

    async def close(self) -> None: ...


class ImageStore(Protocol):
    """The durable state of one shard as rows, for a fast restart. Disposable, since the journal has all of
    it: an image may lose its newest writes, but never a part of one. Calls take effect in the order in which
    they were made. Any call may raise StoreUnavailable."""

    @property
    def location(self) -> str:
        """Where the image is, for messages to the operator."""
        ...

    async def load(self) -> tuple[Sequence[Row], bytes] | None:
        """(rows, nonce of the last applied entry) in any order of rows; None if there is no image.
        StoreDamaged if it cannot be read."""
        ...

    async def rows(self) -> tuple[Sequence[Row], bytes]:
        """The same; an image that is not there has no rows and an empty nonce."""
        ...

    async def write(self, rows: Sequence[Row], nonce: bytes) -> None:
        """Bring the image up to the entry with this nonce, in one atomic step: a row replaces the one of its
        section and key, a row whose value is None removes it. Idempotent. OutcomeUnknown if it may or may not
        have been written."""
        ...

    async def clear(self) -> None:
        """Begin an empty image, also in the place of a damaged one."""
        ...

    async def remove(self) -> None:
        """There is no image any more, until one is written."""
        ...

    async def close(self) -> None: ...
