"""DescribeTopicPartitions (75), v0.

KIP-966: partitions of topics by topic name, page by page. No leaders are elected here, so there are no
eligible leader replicas.
"""

import heapq
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from gateway.requests.authorized_operations import TOPIC_OPERATIONS
from gateway.requests.context import RequestContext
from gateway.scheduling.slices import Slices
from gateway.topics.service import TopicService
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ledger.batch.header import LEADER_EPOCH
from ledger.topics.state import INTERNAL_TOPICS, Topic, check_topic_name

SORTED_AT_ONCE: Final = 2_000
MAX_PARTITIONS: Final = 2000
"""Of one response: Kafka's max.request.partition.size.limit."""


async def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    service, cursor = context.services.topics, request.cursor
    slices = context.slices
    first = "" if cursor is None else cursor.topic_name
    named = slices.keep(await _sorted(request.topics, first, slices))
    error = _check(bool(request.topics), named, cursor)
    if error is not ErrorCode.NONE:
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(error, topic.name)
                async for topic in context.slices.paced(request.topics)
            ]
        )
    is_confirmed = await service.confirm_absent(named, context.journal_deadline(), context.slices)
    names: Iterable[str] = named if request.topics else (t.name for t in service.all() if t.name >= first)
    limit = max(min(request.response_partition_limit, MAX_PARTITIONS), 1)
    page = _Page(service, context.services.node_id, limit, is_confirmed)
    async for name in context.slices.paced(names):
        if not page.take(name, cursor.partition_index if cursor is not None and name == first else 0):
            break
    return DescribeTopicPartitionsResponse(topics=page.topics, next_cursor=page.next_cursor)


async def _sorted(topics: Sequence[TopicRequest], first: str, slices: Slices) -> dict[str, None]:
    """The names from the first on, each once. Very many are sorted in parts, which are then merged: dicts of
    text, since the collector would visit every element of a young list."""
    runs = list[dict[str, None]]()
    for start in range(0, len(topics), SORTED_AT_ONCE):
        part = topics[start : start + SORTED_AT_ONCE]
        if slices.is_due(len(part)):
            await slices.next_slice()
        runs.append(dict.fromkeys(sorted(topic.name for topic in part if topic.name >= first)))
        slices.keep(runs[-1])
    if len(runs) == 1:
        return runs[0]
    return {name: None async for name in slices.paced(heapq.merge(*runs))}


def _check(
    names_topics: bool, named: Collection[str], cursor: DescribeTopicPartitionsRequestCursor | None
) -> ErrorCode:
    if cursor is not None and (
        cursor.partition_index < 0 or (names_topics and cursor.topic_name not in named)
    ):
        return ErrorCode.INVALID_REQUEST
    # Kafka fails on an empty name, and with it on the whole request.
    return ErrorCode.UNKNOWN_SERVER_ERROR if "" in named else ErrorCode.NONE


class _Page:
    """One response in the making, and where the next begins."""

    def __init__(self, service: TopicService, node_id: int, limit: int, is_confirmed: bool) -> None:
        self.topics: list[DescribeTopicPartitionsResponseTopic] = []
        self.next_cursor: DescribeTopicPartitionsResponseCursor | None = None
        self._service = service
        self._nodes = [node_id]
        self._left = limit
        self._is_confirmed = is_confirmed

    def take(self, name: str, first: int) -> bool:
        """Add a topic's partitions from `first` on; False when the page is full."""
        if self._left == 0:
            self.next_cursor = DescribeTopicPartitionsResponseCursor(name, 0)
            return False
        topic = self._service.get(name)
        if topic is None:
            self.topics.append(_error_result(name, self._is_confirmed))
            return True
        end = min(len(topic.partitions), first + self._left)
        self.topics.append(self._describe(topic, range(first, end)))
        self._left -= max(end - first, 0)
        if end < len(topic.partitions):
            self.next_cursor = DescribeTopicPartitionsResponseCursor(name, end)
            return False
        return True

    def _describe(self, topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
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


def _error_result(name: str, is_confirmed: bool) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_confirmed else ErrorCode.LEADER_NOT_AVAILABLE
    if check_topic_name(name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(error, name, topic_authorized_operations=TOPIC_OPERATIONS)
