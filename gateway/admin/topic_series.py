"""Metrics of each topic, partition and consumer group, where `metrics.topics` enables them.

A topic or a group has all its series or none, so that sums over its partitions are right. `metrics.series`
bounds the series of a page: topics and groups share it in the order in which they were created, each kind has
half of it at least, and what is left out is counted. A page is made in slices of the event loop, one page at
a time.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.admin.series import Families, is_label, quoted
from gateway.telemetry.traffic import Traffic
from ledger.groups.state import CommittedOffset, OffsetKey
from ledger.state import LedgerState
from ledger.topics.state import Topic

SLICE: Final = 250
"""Series that are printed in one iteration of the event loop."""
TOPIC_SERIES: Final = 4
PARTITION_SERIES: Final = 3
GROUP_SERIES: Final = 2
OFFSET_SERIES: Final = 2
LEFT_OUT_SERIES: Final = 2
NO_OFFSETS: Final[Mapping[OffsetKey, CommittedOffset]] = {}
TOO_MANY: Final = 1 << 60
"""Series of what never gets any."""

FAMILIES: Final[Mapping[str, tuple[str, str]]] = {
    "dragoman_topic_produce_bytes": ("counter", "Record batch bytes that were committed, by topic"),
    "dragoman_topic_produce_records": ("counter", "Records that were committed, by topic"),
    "dragoman_topic_fetch_bytes": ("counter", "Record batch bytes fetched, by topic"),
    "dragoman_topic_fetch_records": ("counter", "Records of the batches fetched, by topic"),
    "dragoman_partition_log_end_offset": ("gauge", "The offset of the next record"),
    "dragoman_partition_log_start_offset": ("gauge", "The offset of the first record"),
    "dragoman_partition_bytes": ("gauge", "Record batch bytes that can be read"),
    "dragoman_group_size": ("gauge", "Members of a consumer group"),
    "dragoman_group_generation": ("gauge", "Generation of a consumer group: grows with each rebalance"),
    "dragoman_group_lag_records": ("gauge", "Log end offset minus committed offset; 0 if that is beyond it"),
    "dragoman_group_committed_offset": ("gauge", "The offset at which a consumer group continues"),
    "dragoman_series_left_out": ("gauge", "Topics and groups that have no series, because of metrics.series"),
}


@dataclass(frozen=True, slots=True)
class TopicSources:
    """Where the figures come from."""

    state: Callable[[], LedgerState]
    members_of: Callable[[str], int]
    """Members of a consumer group."""
    traffic: Traffic


class TopicSeries:
    """Makes the part of the metrics page that has labels of topics and groups."""

    def __init__(self, sources: TopicSources, max_series: int) -> None:
        self._sources = sources
        self._max_series = max_series - LEFT_OUT_SERIES
        self._lock = asyncio.Lock()

    async def page(self) -> bytes:
        """In the text exposition format."""
        async with self._lock:
            state = self._sources.state()
            families = Families(FAMILIES)
            of_topics = TOPIC_SERIES * len(state.topics.by_id) + PARTITION_SERIES * state.logs.in_topics
            for_groups = max(self._max_series // 2, self._max_series - of_topics)
            groups = await self._printed(self._groups(state), for_groups, families)
            for_topics = self._max_series - families.count
            topics = await self._printed(self._topics(state), for_topics, families)
            families.add("dragoman_series_left_out", 'kind="group"', groups)
            families.add("dragoman_series_left_out", 'kind="topic"', topics)
            parts = []
            for part in families.text():
                parts.append(part)
                await asyncio.sleep(0)
            return b"".join(parts)

    async def _printed(self, found: "Iterator[_Counted]", most: int, families: Families) -> int:
        """Print what fits. Returns how many did not."""
        left_out = looked_at = 0
        left = most
        for counted in found:
            looked_at += 1
            if counted.series > left:
                left_out += 1
            else:
                left -= counted.series
                for printed in counted.print_into(families):
                    looked_at += printed
                    if looked_at >= SLICE:
                        looked_at = 0
                        await asyncio.sleep(0)
            if looked_at >= SLICE:
                looked_at = 0
                await asyncio.sleep(0)
        return left_out

    def _topics(self, state: LedgerState) -> "Iterator[_Counted]":
        for topic in list(state.topics.by_id.values()):
            yield _TopicFigures(topic, self._sources.traffic)

    def _groups(self, state: LedgerState) -> "Iterator[_Counted]":
        for group_id in state.groups.ids():
            yield _GroupFigures(group_id, state, self._sources.members_of)


class _Counted(Protocol):
    """A topic or a group."""

    series: int

    def print_into(self, families: Families) -> Iterator[int]:
        """Print its series step by step; yields how many each step has."""
        ...


class _TopicFigures:
    def __init__(self, topic: Topic, traffic: Traffic) -> None:
        self._topic = topic
        self._traffic = traffic
        self._partitions = len(topic.partitions)
        self.series = TOPIC_SERIES + PARTITION_SERIES * self._partitions

    def print_into(self, families: Families) -> Iterator[int]:
        traffic, label = self._traffic.of(self._topic.topic_id), f"topic={quoted(self._topic.name)}"
        families.add("dragoman_topic_produce_bytes", label, traffic.produced_bytes)
        families.add("dragoman_topic_produce_records", label, traffic.produced_records)
        families.add("dragoman_topic_fetch_bytes", label, traffic.fetched_bytes)
        families.add("dragoman_topic_fetch_records", label, traffic.fetched_records)
        yield TOPIC_SERIES
        # It may grow meanwhile, and be deleted; it never shrinks.
        for index in range(self._partitions):
            log, labels = self._topic.partitions.made[index], f'{label},partition="{index}"'
            end, start, size = (
                (0, 0, 0) if log is None else (log.high_watermark, log.log_start, log.size_bytes)
            )
            families.add("dragoman_partition_log_end_offset", labels, end)
            families.add("dragoman_partition_log_start_offset", labels, start)
            families.add("dragoman_partition_bytes", labels, size)
            yield PARTITION_SERIES


class _GroupFigures:
    def __init__(self, group_id: str, state: LedgerState, members_of: Callable[[str], int]) -> None:
        self._group_id = group_id
        self._state = state
        self._members_of = members_of
        self._offsets = state.groups.offsets.get(group_id, NO_OFFSETS)
        # A client may choose any text as the id of its group.
        fits = is_label(group_id)
        self.series = GROUP_SERIES + OFFSET_SERIES * len(self._offsets) if fits else TOO_MANY

    def print_into(self, families: Families) -> Iterator[int]:
        # As they are now: other commits come between the steps.
        offsets = list(self._offsets.items())
        label, group = f"group={quoted(self._group_id)}", self._state.groups.by_id.get(self._group_id)
        families.add("dragoman_group_size", label, self._members_of(self._group_id))
        families.add("dragoman_group_generation", label, 0 if group is None else group.generation)
        yield GROUP_SERIES
        topics = self._state.topics.by_id
        for (topic_id, partition), committed in offsets:
            topic = topics.get(topic_id)
            if topic is None:
                continue  # deleted; its offsets go soon
            made = topic.partitions.made
            log = made[partition] if partition < len(made) else None
            end = 0 if log is None else log.high_watermark
            labels = f'{label},topic={quoted(topic.name)},partition="{partition}"'
            families.add("dragoman_group_lag_records", labels, max(0, end - committed.offset))
            families.add("dragoman_group_committed_offset", labels, committed.offset)
            yield OFFSET_SERIES
