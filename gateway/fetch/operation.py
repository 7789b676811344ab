"""One fetch under way: its partitions, its bounds, and what each partition gets (KIP-74).

`run_fetch` drives it: plan all partitions, confirm errors, then read (`gateway/fetch/read_rounds.py`) or park
(`gateway/fetch/parking.py`), and plan again until there is enough or the wait is over.

A fetch of many partitions is processed in slices, between which the ledger changes. It releases its memory of
heavy requests (`Slices.leave`) before it waits for anything else. The response has each partition in the
state of its last plan, and partitions may have been planned at different times.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec.structs import replace

from gateway.coordination.ledger import Ledger
from gateway.fetch.budget import NO_OWNER, FetchBudget, Share
from gateway.fetch.offset_index import SparseOffsetIndex
from gateway.fetch.partition_memory import PartitionMemory
from gateway.fetch.planning import PartitionFetch, partition_response, plan, plan_ends, readable_bytes
from gateway.fetch.purgatory import Purgatory
from gateway.fetch.reader import RunReader
from gateway.fetch.sessions import FetchContext, FetchSession, SessionPartition
from gateway.fetch.stream import BatchStream, outgoing
from gateway.fetch.turns import RUN_BYTES, SENT_BYTES, TURN_BYTES, Turn
from gateway.scheduling.slices import Owner, Slices, SliceScheduler
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import FetchPartitionResponse, FetchRequest
from ledger.types import Buffer, TopicId

MIB: Final = 1024 * 1024
CHUNK_PARTITIONS: Final = 256
"""Partitions that are processed at once. A fetch of more is processed in slices."""
PLANNED_RUNS: Final = TURN_BYTES // RUN_BYTES
"""Runs that are planned at once."""
SENT_AT_ONCE: Final = 256
"""Batches that are made ready to be sent at once."""


@dataclass(frozen=True, slots=True)
class FetchOptions:
    max_response_bytes: int = 55 * MIB
    """Kafka's broker setting fetch.max.bytes."""
    in_flight_bytes: int = 256 * MIB
    """Records that all fetches together hold, from before they are read until they are sent."""
    round_bytes: int = 64 * MIB
    """Bytes that one fetch reads at once."""
    partitions_in_memory: int = 500_000
    """Partitions of all large fetches under way together."""
    longest_wait_s: float = 120.0
    ledger_wait_s: float = 10.0
    """How long the confirmation of an error may take, and the wait for a share of the budget."""


class FetchResources(Protocol):
    """What all fetches share: `FetchService` has it."""

    shard: Ledger
    reader: RunReader
    options: FetchOptions
    budget: FetchBudget
    partition_memory: PartitionMemory
    purgatory: Purgatory
    offset_index: SparseOffsetIndex

    async def is_newest(self) -> bool:
        """Whether the state is confirmed to be the newest. False if that took too long or failed."""
        ...


class Sliced(Protocol):
    """How a request shares the event loop. The slices are made when they are first used
    (`RequestContext`)."""

    @property
    def slices(self) -> Slices: ...


class _Alone:
    """Of a request that shares the event loop with no other."""

    @property
    def slices(self) -> Slices:
        return Slices(SliceScheduler(), NO_OWNER)


ALONE: Final = _Alone()


class FetchOperation:
    """One fetch under way."""

    __slots__ = (
        "absent_count",
        "deadline",
        "has_confirmed",
        "has_negative_max_bytes",
        "has_waited",
        "is_from_broker",
        "is_over",
        "is_planned",
        "isolation",
        "keeps_plans",
        "max_bytes",
        "memory",
        "min_bytes",
        "owner",
        "partitions",
        "reportable",
        "requested",
        "resources",
        "served",
        "session",
        "session_epoch",
        "share",
        "sliced",
        "sliced_when_large",
        "stale_plans",
    )

    def __init__(
        self,
        resources: FetchResources,
        request: FetchRequest,
        context: FetchContext,
        received_at: float,
        owner: Owner,
        sliced: Sliced,
    ) -> None:
        self.resources = resources
        self.is_from_broker = is_from_broker = request.replica_id >= 0
        count = len(context.partitions)
        self.requested: Sequence[SessionPartition] = ()
        """Of a large fetch, until they are taken into `partitions` in slices."""
        self.partitions: list[PartitionFetch] = []
        if count > CHUNK_PARTITIONS and context.session is None:
            self.requested = context.partitions
        else:
            self.partitions = [PartitionFetch(one, one.request, is_from_broker) for one in context.partitions]
        self.reportable: list[PartitionFetch] = []
        """Those for which the last plan found records, an error or a divergence."""
        self.session: FetchSession | None = context.session
        self.session_epoch = context.response_epoch
        self.owner = owner
        self.sliced_when_large = sliced
        self.sliced = sliced if count > CHUNK_PARTITIONS else None
        """Of a fetch that is processed in slices: from the start, or once many of its partitions have
        moved."""
        self.isolation = request.isolation_level
        self.max_bytes = min(max(request.max_bytes, 0), resources.options.max_response_bytes)
        self.has_negative_max_bytes = request.max_bytes < 0
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        wait_s = min(request.max_wait_ms / 1000, resources.options.longest_wait_s)
        self.deadline = received_at + wait_s
        self.is_over = wait_s <= 0
        """The fetch waits for nothing more."""
        self.absent_count: int | None = None
        """Partitions that did not exist at the first plan. None before it."""
        self.is_planned = self.has_confirmed = False
        """All partitions were planned once; an error of some partition was confirmed."""
        self.has_waited = self.keeps_plans = False
        """Since the last plan, so that the plan may be outdated; the next one is of what has moved since."""
        self.stale_plans = 0
        self.share: Share | None = None
        """Of the budget for records."""
        self.memory: Share | None = None
        """What a large fetch holds for its partitions."""
        self.served: list[tuple[TopicId, int, int]] = []
        """Topic, bytes and records of each partition of which the response has any."""

    def release_share(self) -> None:
        """Free the share of the budget."""
        share, self.share = self.share, None
        if share is not None:
            share.release()

    async def take_requested(self, slices: Slices) -> None:
        requested, self.requested = self.requested, ()
        for start in range(0, len(requested), CHUNK_PARTITIONS):
            chunk = requested[start : start + CHUNK_PARTITIONS]
            self.partitions += [
                PartitionFetch(partition, partition.request, self.is_from_broker) for partition in chunk
            ]
            if slices.is_due(len(chunk)):
                await slices.next_slice()

    def take_moved(self, session: FetchSession) -> None:
        """Partitions that were quiet in the session and have moved become a part of this fetch."""
        if session.epoch == self.session_epoch:
            self.partitions += [PartitionFetch(partition, partition.request) for partition in session.moved]
            session.moved.clear()
            if len(self.partitions) > CHUNK_PARTITIONS:
                self.sliced = self.sliced_when_large

    async def plan(self) -> bool:
        """Plan all partitions. True if the response has to report anything but records."""
        self.has_waited = False
        reportable: list[PartitionFetch] = []
        if self.sliced is None:
            await self._plan_chunk(self.partitions, reportable)
        else:
            partitions, slices = self.partitions, self.sliced.slices
            for start in range(0, len(partitions), CHUNK_PARTITIONS):
                await self._plan_chunk(partitions[start : start + CHUNK_PARTITIONS], reportable)
                if slices.is_due(CHUNK_PARTITIONS):
                    await slices.next_slice()
            slices.leave()
            self.has_waited = True
        self.reportable = reportable
        self.is_planned, self.keeps_plans = True, False
        # Of a fetch at the end of its partitions there is none.
        return bool(reportable) and any(fetched.is_exceptional for fetched in reportable)

    async def _plan_chunk(
        self, partitions: Sequence[PartitionFetch], reportable: list[PartitionFetch]
    ) -> None:
        """Adds to `reportable` those that have something to report."""
        if not self.is_planned:
            partitions = plan_ends(partitions, self.resources.shard.state.topics)
        planned = self._plan_some(partitions, 0, reportable)
        while planned < len(partitions):
            await self._next_turn()
            self.has_waited = True
            planned = self._plan_some(partitions, planned, reportable)

    def _plan_some(
        self, partitions: Sequence[PartitionFetch], start: int, reportable: list[PartitionFetch]
    ) -> int:
        """Plans these from `start` on, until many runs were looked at. Returns where to go on."""
        topics, offset_index = self.resources.shard.state.topics, self.resources.offset_index
        isolation, max_bytes = self.isolation, self.max_bytes
        runs, keeps_plans = 0, self.keeps_plans
        for index in range(start, len(partitions)):
            fetched = partitions[index]
            if keeps_plans and fetched.stream is not None and not fetched.has_moved:
                reportable.append(fetched)
            # Most are at their end, and stay there until the next plan: that still holds.
            elif not fetched.is_at_end or fetched.has_moved:
                if runs > PLANNED_RUNS:
                    return index
                plan(fetched, topics, isolation, max_bytes, offset_index)
                if not fetched.is_at_end:
                    reportable.append(fetched)
                    runs += len(fetched.stream.runs) if fetched.stream is not None else 0
        return len(partitions)

    def begin_turn(self, max_batches: float = math.inf) -> Turn:
        """Counts what this fetch does from now on."""
        return Turn(self._next_turn, max_batches)

    async def _next_turn(self) -> None:
        """Its memory is charged to the budget for records."""
        await self.sliced_when_large.slices.next_charged()

    async def confirm(self) -> None:
        """After a plan: confirm its errors, and after the first plan note which partitions do not exist."""
        is_exceptional = any([fetched.is_exceptional for fetched in self.reportable])  # noqa: C419 - quicker
        if not is_exceptional and not self.has_negative_max_bytes:
            self.absent_count = self.absent_count or 0
            return
        unconfirmed = [
            fetched for fetched in self.reportable if fetched.may_be_outdated and not fetched.is_confirmed
        ]
        if unconfirmed:
            is_newest = await self.barrier()
            await self.plan()
            for fetched in unconfirmed:
                if fetched.may_be_outdated:
                    fetched.is_confirmed = self.has_confirmed = True
                    if not is_newest:
                        fetched.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        if self.absent_count is None:
            absent = [fetched for fetched in self.reportable if fetched.is_absent]
            for fetched in absent:
                fetched.was_absent = True
            self.absent_count = len(absent)
            if self.has_negative_max_bytes:
                await self._spend_negative_max_bytes()

    async def _spend_negative_max_bytes(self) -> None:
        """As in Kafka, the first partition that exists uses up a negative maximum."""
        first = next((fetched for fetched in self.partitions if not fetched.is_absent), None)
        if first is not None:
            first.request = replace(first.request, max_bytes=-1)
            await self.plan()

    async def barrier(self) -> bool:
        """Wait until the state is the newest. False if that is not confirmed."""
        self.has_waited = True
        return await self.resources.is_newest()

    def must_wait(self) -> bool:
        """KIP-74, and as in Kafka: an error ends the wait. That a partition never existed does so only if all
        partitions of the fetch are such."""
        has_others = self.absent_count != len(self.partitions) or (
            self.session is not None and self.session.quiet
        )
        if self.is_over or not has_others:
            return False
        if not self.reportable:
            return self.min_bytes > 0
        for fetched in self.reportable:
            if fetched.is_diverging or (fetched.error is not ErrorCode.NONE and not fetched.was_absent):
                return False
        return readable_bytes(self.reportable) < self.min_bytes

    def absent_last(self) -> Sequence[PartitionFetch]:
        """All partitions in the order of the response if some do not exist: as in Kafka those come last."""
        return sorted(self.partitions, key=_response_rank)

    async def responses(
        self, partitions: Sequence[PartitionFetch]
    ) -> tuple[list[tuple[SessionPartition, FetchPartitionResponse]], int]:
        """Each partition's part of the response, and how many bytes of records they have."""
        responses = list[tuple[SessionPartition, FetchPartitionResponse]]()
        isolation, turn = self.isolation, self.begin_turn()
        for start in range(0, len(partitions), CHUNK_PARTITIONS):
            chunk = partitions[start : start + CHUNK_PARTITIONS]
            for fetched in chunk:
                records: Sequence[Buffer] = ()
                if fetched.batches and fetched.stream is not None and not fetched.is_exceptional:
                    records = await self._outgoing(fetched.stream, fetched.batches, turn)
                responses.append((fetched.partition, partition_response(fetched, isolation, records)))
            if self.sliced is not None and self.sliced.slices.is_due(len(chunk)):
                await self.sliced.slices.next_slice()
        if self.sliced is not None:
            self.sliced.slices.leave()
        return responses, sum([sum(map(len, part.records)) for _, part in responses if part.records])

    async def _outgoing(self, stream: BatchStream, count: int, turn: Turn) -> list[Buffer]:
        """What is sent of the first `count` batches of a stream."""
        buffers: list[Buffer] = []
        sent_bytes = sent_records = 0
        for start in range(0, count, SENT_AT_ONCE):
            batches = stream.batches[start : min(start + SENT_AT_ONCE, count)]
            if turn.is_due(len(batches) * SENT_BYTES):
                await turn.next()
            some, size, records = outgoing(batches)
            buffers += some
            sent_bytes += size
            sent_records += records
        if stream.log is not None:
            self.served.append((stream.log.topic_id, sent_bytes, sent_records))
        self.resources.reader.served(stream, stream.batches[count - 1])
        return buffers


def _response_rank(fetched: PartitionFetch) -> int:
    """Partitions that do not exist come last, and among those first the ones with an unknown topic id."""
    return 0 if not fetched.is_absent else 1 if fetched.error is ErrorCode.UNKNOWN_TOPIC_ID else 2
