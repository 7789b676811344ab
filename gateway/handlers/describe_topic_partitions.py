"""DescribeTopicPartitions, version 0 (KIP-966): partitions of topics in the order of their names, page by
page. Nothing elects leaders here, so there are no eligible leader replicas to tell of."""

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

from gateway.context import RequestContext
from gateway.handlers.operations import TOPIC_OPERATIONS
from gateway.requests.slicing import Slices
from gateway.topics.room import TopicsRoom
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ledger.batch.header import LEADER_EPOCH
from ledger.topics import INTERNAL_TOPICS, Topic, check_topic_name

SORTED_AT_ONCE: Final = 2_000
MOST_PARTITIONS: Final = 2000
"""Of one answer: Kafka's max.request.partition.size.limit."""


async def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    room, cursor = context.services.topics, request.cursor
    slices = context.slices
    asked = [topic.name async for topic in slices.paced(request.topics)]
    first = "" if cursor is None else cursor.topic_name
    named = await _sorted([name async for name in slices.paced(asked) if name >= first], slices)
    error = _check(asked, named, cursor)
    if error is not ErrorCode.NONE:
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(error, name)
                async for name in context.slices.paced(asked)
            ]
        )
    may_deny = await room.prove_unknown(named, context.journal_deadline(), context.slices)
    names: Iterable[str] = named if asked else (t.name for t in room.all() if t.name >= first)
    limit = max(min(request.response_partition_limit, MOST_PARTITIONS), 1)
    page = _Page(room, context.services.node_id, limit, may_deny)
    async for name in context.slices.paced(names):
        if not page.take(name, cursor.partition_index if cursor is not None and name == first else 0):
            break
    return DescribeTopicPartitionsResponse(topics=page.topics, next_cursor=page.next_cursor)


async def _sorted(names: Sequence[str], slices: Slices) -> list[str]:
    """Each once. Very many are sorted in parts, which are then merged."""
    if len(names) <= SORTED_AT_ONCE:
        return sorted(set(names))
    runs = list[list[str]]()
    for start in range(0, len(names), SORTED_AT_ONCE):
        if slices.is_due(SORTED_AT_ONCE // 4):
            await slices.turn()
        runs.append(sorted(names[start : start + SORTED_AT_ONCE]))
    merged = list[str]()
    async for name in slices.paced(heapq.merge(*runs)):
        if not merged or merged[-1] != name:
            merged.append(name)
    return merged


def _check(
    asked: Sequence[str], named: Sequence[str], cursor: DescribeTopicPartitionsRequestCursor | None
) -> ErrorCode:
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in named)):
        return ErrorCode.INVALID_REQUEST
    # Kafka fails on an empty name, and with it on the whole request.
    return ErrorCode.UNKNOWN_SERVER_ERROR if named and not named[0] else ErrorCode.NONE


class _Page:
    """One answer in the making, and where the next begins."""

    def __init__(self, room: TopicsRoom, node_id: int, limit: int, may_deny: bool) -> None:
        self.topics: list[DescribeTopicPartitionsResponseTopic] = []
        self.next_cursor: DescribeTopicPartitionsResponseCursor | None = None
        self._room = room
        self._nodes = [node_id]
        self._left = limit
        self._may_deny = may_deny

    def take(self, name: str, first: int) -> bool:
        """Add a topic's partitions from `first` on; False when the page is full."""
        if self._left == 0:
            self.next_cursor = DescribeTopicPartitionsResponseCursor(name, 0)
            return False
        topic = self._room.get(name)
        if topic is None:
            self.topics.append(_denied(name, self._may_deny))
            return True
        end = min(len(topic.partitions), first + self._left)
        self.topics.append(self._described(topic, range(first, end)))
        self._left -= max(end - first, 0)
        if end < len(topic.partitions):
            self.next_cursor = DescribeTopicPartitionsResponseCursor(name, end)
            return False
        return True

    def _described(self, topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[
                DescribeTopicPartitionsResponsePartition(
                    partition_index=index,
                    leader_id=self._nodes[0],
                    leader_epoch=LEADER_EPOCH,
                    replica_nodes=self._nodes,
                    isr_nodes=self._nodes,
                    eligible_leader_replicas=[],
                    last_known_elr=[],
                )
                for index in indexes
            ],
            topic_authorized_operations=TOPIC_OPERATIONS,
        )


def _denied(name: str, may_deny: bool) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if may_deny else ErrorCode.LEADER_NOT_AVAILABLE
    if check_topic_name(name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(error, name, topic_authorized_operations=TOPIC_OPERATIONS)
