"""Records for the console, looked for through the fetch service and its budget.

A search takes a bounded number of bytes and seconds, and says for each partition where the next one goes on.
So a search through a large topic is many small requests, between which clients are served.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gateway.console.record_scan import FoundRecord, RecordFilter, RecordScan, ScanBounds
from gateway.fetch.list_offsets import LATEST, OffsetQuery
from gateway.fetch.service import FetchService
from gateway.requests.context import Services
from gateway.scheduling.batch_opening import BatchOpener
from gateway.scheduling.slices import Owner
from gateway.security.principals import ANONYMOUS
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import (
    SESSIONLESS_EPOCH,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
)
from gateway.wire.primitives import ZERO_UUID
from ledger.batch.header import walk_whole
from ledger.topics.state import Topic

MIB: Final = 1024 * 1024
FETCH_VERSION: Final = 12
FETCH_BYTES: Final = MIB
SEARCH_BYTES: Final = 16 * MIB
"""Stored bytes that one search opens, and at least one batch of each partition."""
SEARCH_S: Final = 4.0
MAX_OPENED_BYTES: Final = 64 * MIB
"""Of a batch, decompressed."""
MAX_PARTITIONS: Final = 64
"""Of one search."""
MAX_RECORDS: Final = 200
LIST_OFFSETS_VERSION: Final = 7

OnSent: TypeAlias = Callable[[], None] | None


class NotReadable(Exception):
    """The records cannot be shown; the text says why."""


@dataclass(frozen=True, slots=True)
class Search:
    """`starts` and `ends`: the first offset of each partition that is wanted, and the first that is not."""

    topic: Topic
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    wanted: RecordFilter
    limit: int
    keep_bytes: int
    """Of each key, value and header."""


@dataclass(slots=True)
class Found:
    """`positions`: where each partition goes on."""

    records: list[tuple[int, FoundRecord]] = field(default_factory=list)
    unreadable: list[tuple[int, int, str]] = field(default_factory=list)
    """Batches: partition, first offset, reason."""
    positions: dict[int, int] = field(default_factory=dict)
    scanned: int = 0
    is_complete: bool = True
    """Whether all was searched that was wanted."""


class MessageSearch:
    """Searches of the console. `opener` opens batches in worker threads of its own."""

    def __init__(self, services: Services, opener: BatchOpener) -> None:
        self._services = services
        self._opener = opener
        self._max_opened = min(services.settings.limits.decompressed_bytes, MAX_OPENED_BYTES)

    async def starts_at(self, topic: Topic, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        """The first offset of each partition with this time (Unix ms) or a later one; the end of the
        partition where there is none. Raises NotReadable."""
        deadline = asyncio.get_running_loop().time() + SEARCH_S
        queries = [OffsetQuery(topic.name, index, timestamp) for index in partitions]
        results = await self._services.offsets.list_offsets(LIST_OFFSETS_VERSION, queries, 0, deadline)
        starts: dict[int, int] = {}
        for index, result in zip(partitions, results, strict=True):
            if result.error is not ErrorCode.NONE:
                raise NotReadable(f"partition {index}: {result.error.name}")
            is_found = result.offset >= 0 and timestamp != LATEST
            starts[index] = result.offset if is_found else topic.partitions[index].high_watermark
        return starts

    async def search(self, search: Search, owner: Owner) -> Found:
        """Raises NotReadable."""
        found = Found(positions=dict(search.starts))
        budget = _Budget(asyncio.get_running_loop().time() + SEARCH_S)
        # Each partition has its part of the page, so that the positions stay right for all of them.
        limit = max(1, search.limit // max(1, len(search.starts)))
        for index in search.starts:
            await self._search_partition(search, index, limit, budget, (found, owner))
        found.is_complete = all(at >= search.ends[index] for index, at in found.positions.items())
        found.records.sort(key=lambda one: (one[1].timestamp_ms, one[0], one[1].offset))
        return found

    async def _search_partition(
        self, search: Search, index: int, limit: int, budget: "_Budget", into: tuple[Found, Owner]
    ) -> None:
        found, owner = into
        end = search.ends[index]
        budget.begin_partition()
        left = limit
        while found.positions[index] < end and left and budget.allows():
            response, on_sent = await self._fetch(search.topic.name, index, found.positions[index], owner)
            try:
                data = memoryview(b"".join(response.records or ()))
            finally:
                if on_sent is not None:
                    on_sent()
            if not len(data):
                found.positions[index] = end
                return
            for batch in _batches(data):
                bounds = ScanBounds(found.positions[index], end, left, search.keep_bytes, self._max_opened)
                scan = RecordScan(batch, bounds, search.wanted)
                await self._opener.run(owner, search.topic.topic_id, scan)
                budget.spend(len(batch))
                found.scanned += scan.scanned
                found.records += [(index, one) for one in scan.found]
                left -= len(scan.found)
                if scan.unreadable:
                    found.unreadable.append((index, scan.header.base_offset, scan.unreadable))
                found.positions[index] = min(scan.next_offset, end)
                if not left or scan.next_offset >= end or not budget.allows():
                    break

    async def _fetch(
        self, topic: str, index: int, offset: int, owner: Owner
    ) -> tuple[FetchPartitionResponse, OnSent]:
        fetch: FetchService = self._services.fetch
        partition = FetchPartition(index, -1, offset, -1, -1, FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=SESSIONLESS_EPOCH,
            topics=[FetchTopic(topic, ZERO_UUID, [partition])],
            forgotten_topics=[],
        )
        now = asyncio.get_running_loop().time()
        result = await fetch.fetch(FETCH_VERSION, request, ANONYMOUS, now, owner=owner)
        response = result.response.topics[0].partitions[0]
        if response.error_code:
            if result.on_sent is not None:
                result.on_sent()
            raise NotReadable(f"partition {index} at offset {offset}: {ErrorCode(response.error_code).name}")
        return response, result.on_sent


class _Budget:
    """Bytes and seconds of one search."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._left = SEARCH_BYTES
        self._is_first = True

    def begin_partition(self) -> None:
        self._is_first = True

    def allows(self) -> bool:
        if asyncio.get_running_loop().time() >= self._deadline:
            return False
        return self._is_first or self._left > 0

    def spend(self, size: int) -> None:
        self._left -= size
        self._is_first = False


def _batches(data: memoryview) -> Iterator[memoryview]:
    for walked in walk_whole(data):
        yield data[walked.position : walked.position + walked.size_bytes]
