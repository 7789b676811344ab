"""The page of a shard in /debug/shards: figures of its journal and its state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

from gateway.coordination.shard import Shard


class ShardPage(TypedDict):
    shard: int
    cluster_id: str
    owner: int | None
    """Node id; null when this gateway has lost the shard and does not know the owner."""
    epoch: int
    entries: int
    """Applied; the number of the next entry."""
    entry_time_ms: int
    journal_bytes: int
    """Appended by this process."""
    image_entries: int | None
    snapshot_entries: int
    topics: int
    partitions: int
    draining_partitions: int
    """Those that still have unreadable runs."""
    runs: int
    objects: int
    garbage_objects: int
    """Without live runs, until the grace is over."""
    orphan_objects: int
    floor_ms: int
    """Nothing older may be committed."""
    unknown_entry: str | None
    """The entry of which it is not known whether it is durable."""


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """The sources of figures that the shard itself does not know."""

    node_id: int
    image_entries: Callable[[], int | None]
    snapshot_entries: Callable[[], int]
    orphan_objects: Callable[[], int]


def shard_page(shard: Shard, facts: ShardFacts) -> ShardPage:
    state, objects = shard.state, shard.state.objects
    return ShardPage(
        shard=shard.journal.shard,
        cluster_id=state.cluster_id,
        owner=facts.node_id if shard.broken is None else None,
        epoch=state.epoch,
        entries=state.applied,
        entry_time_ms=state.entry_time_ms,
        journal_bytes=shard.replica.journal_bytes,
        image_entries=facts.image_entries(),
        snapshot_entries=facts.snapshot_entries(),
        topics=len(state.topics.by_id),
        partitions=state.logs.in_topics,
        draining_partitions=len(state.draining),
        runs=sum(log.run_count for log in state.logs.values()),
        objects=len(objects.by_number),
        garbage_objects=len(objects.garbage),
        orphan_objects=facts.orphan_objects(),
        floor_ms=objects.floor_ms,
        unknown_entry=shard.journal.unknown_entry or None,
    )
