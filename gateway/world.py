"""The world of a gateway as one value: clocks, random values, threads, child processes, links and stores.

In another world a gateway does all that it does, but uses no clock, kernel or disk of this host: two in one
process with equal worlds and loads write the same bytes. What belongs to the event loop comes with the loop:
its clock, by which everything waits, and the executor of its blocking calls (`asyncio.to_thread`). Threads of
a store come with the store.
"""

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.host import (
    Milliseconds,
    RandomBytes,
    Seconds,
    StartChild,
    ThreadPool,
    boot_ms,
    clock_ms,
    cpu_s,
    host_name,
    precise_s,
    random_bytes,
    start_child,
    thread_pool,
    uuid4_of,
)
from gateway.network.links import Links
from gateway.timers.timerfd import NewTimer, TimerFd
from ledger.ports import Blobs, ImageStore, Journal, MetadataStore, SegmentStore


class JournalInLog(Protocol):
    """A journal in a local log, with the files of that."""

    @property
    def journal(self) -> Journal: ...

    @property
    def files(self) -> Any:
        """For the segment store, which reads, lists and deletes them as objects."""
        ...

    @property
    def ahead_bytes(self) -> int:
        """Of its files, made ahead and not used yet: they count as free."""
        ...

    def with_older_batches(self, segments: SegmentStore) -> SegmentStore:
        """The same store, which also reads the batches inside of entries of the part before the log."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StoreOpener:
    """From URLs to stores, as the functions of `adapters/open.py`. The first three take `far`, which opens
    what is not on this host."""

    metadata: Callable[..., MetadataStore]
    segments: Callable[..., SegmentStore]
    blobs: Callable[..., Blobs]
    image: Callable[..., ImageStore]
    journal: Callable[..., Journal]
    """The journal in a metadata store."""
    log: Callable[..., Awaitable[JournalInLog]] | None = None
    """The journal in a local log; None: there is none in this world."""


@dataclass(frozen=True, slots=True)
class World:
    """Without more than stores and links, it is this host."""

    stores: StoreOpener
    links: Links
    wall_ms: Milliseconds = clock_ms
    """Unix time."""
    boot_ms: Milliseconds = boot_ms
    """Time since boot."""
    precise_s: Seconds = precise_s
    """For durations within one iteration of the event loop."""
    cpu_s: Seconds = cpu_s
    """CPU time of the calling thread."""
    random_bytes: RandomBytes = random_bytes
    host_name: Callable[[], str] = host_name
    thread_pool: ThreadPool = thread_pool
    timer: NewTimer = TimerFd
    """Makes timers for fractions of a millisecond."""
    start_child: StartChild | None = start_child
    """None: there are no other processes in this world."""

    def new_uuid4(self) -> uuid.UUID:
        return uuid4_of(self.random_bytes)
