"""The four ports: what the ledger needs of a backend, and nothing more.

Every backend passes the contract suite of its port (tests/contract). Methods raise the errors of
`ledger.errors`: `StoreUnavailable` when a call certainly had no effect, `OutcomeUnknown` when it may
have had one. Every call ends: backends bound their own waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from ledger.records import FIRST_LEVEL
from ledger.rows import Row
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject

SCAN_BYTES: Final = 4 * 1024 * 1024
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
    """Record batches as opaque bytes: written once, read by position."""

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
        """Idempotent. Never deletes an object that is still being written: that one is abandoned first."""
        ...

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        """What is stored, live or not, ascending by locator (and so by creation time)."""
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
