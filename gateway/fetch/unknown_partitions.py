"""Removes the partitions that do not exist from a large fetch while it is decoded.

They would take most of the memory of such a request, and the response has only an error for them. If they are
few they stay in the request: a session keeps those, as in Kafka.
"""

from gateway.fetch.sessions import MAX_SESSION_UNKNOWN
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.absent import AbsentPartitions
from gateway.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ledger.topics.state import Topics
from ledger.types import ZERO_TOPIC_ID, TopicId


class UnknownPartitionFilter:
    """For one request, against the newest state. With `is_newest` False that could not be confirmed:
    partitions that seem to be absent get a retriable error."""

    def __init__(self, topics: Topics, is_newest: bool) -> None:
        self._topics = topics
        self._is_newest = is_newest
        self._few: list[tuple[str, bytes, FetchPartition]] | None = []
        """None once they are more than a session takes."""
        self._absent = AbsentPartitions()

    def existing(self, name: str, topic_id: bytes, partitions: list[FetchPartition]) -> list[FetchPartition]:
        """The partitions of a topic that exist."""
        if topic_id != ZERO_TOPIC_ID:
            topic = self._topics.by_id.get(TopicId(topic_id))
        else:
            topic = self._topics.by_name.get(name)
        count = 0 if topic is None else len(topic.partitions.made)
        existing = [partition for partition in partitions if 0 <= partition.index < count]
        if len(existing) < len(partitions):
            is_unknown_id = topic is None and topic_id != ZERO_TOPIC_ID
            error = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self._take_out(name, topic_id, error, [p for p in partitions if not 0 <= p.index < count])
        return existing

    def _take_out(self, name: str, topic_id: bytes, error: ErrorCode, absent: list[FetchPartition]) -> None:
        code = error if self._is_newest else ErrorCode.KAFKA_STORAGE_ERROR
        self._absent.add(name, topic_id, code, [partition.index for partition in absent])
        if self._few is not None:
            self._few += [(name, topic_id, partition) for partition in absent]
            if len(self._few) > MAX_SESSION_UNKNOWN:
                self._few = None

    def absent_of(self, request: FetchRequest) -> AbsentPartitions | None:
        """The partitions that were taken out of this request, which was decoded with `existing`. None if they
        are few: then they are put back."""
        if self._few is None:
            return self._absent
        for name, topic_id, partition in self._few:
            last = request.topics[-1] if request.topics else None
            if last is not None and (last.name, last.topic_id) == (name, topic_id):
                last.partitions.append(partition)
            else:
                request.topics.append(FetchTopic(name, topic_id, [partition]))
        return None
