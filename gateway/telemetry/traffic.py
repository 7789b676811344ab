"""Records and bytes of record batches that come in and go out: of all topics together, and of each topic
where that is enabled.

Counted once a batch or once a partition of a response, never per record.
"""

from collections.abc import Callable, Container
from typing import Final

from gateway.telemetry.local_metrics import LocalCounter
from ledger.types import TopicId

PRUNE_AT: Final = 1_000
"""Topics that are counted before those that are gone are looked for."""


class TopicTraffic:
    """The counts of one topic since the start, or since its first batch after it was created."""

    __slots__ = ("fetched_bytes", "fetched_records", "produced_bytes", "produced_records")

    def __init__(self) -> None:
        self.produced_bytes = self.produced_records = 0
        self.fetched_bytes = self.fetched_records = 0


NO_TRAFFIC: Final = TopicTraffic()
"""Of a topic without any; it is never changed."""


class Traffic:
    """What was produced and fetched. The counters belong to the event loop."""

    def __init__(self) -> None:
        self.produced_bytes, self.produced_records = LocalCounter(), LocalCounter()
        self.fetched_bytes, self.fetched_records = LocalCounter(), LocalCounter()
        self._topics: dict[TopicId, TopicTraffic] = {}
        self._live: Callable[[], Container[TopicId]] | None = None
        self._prune_at = PRUNE_AT

    def count_topics(self, live: Callable[[], Container[TopicId]]) -> None:
        """From here on also count each topic by itself. `live` has those that exist; counts of others are
        dropped now and then."""
        self._live = live

    def produced(self, topic_id: TopicId, size: int, records: int) -> None:
        """A batch was committed."""
        self.produced_bytes.value += size
        self.produced_records.value += records
        if self._live is not None:
            topic = self._counts_of(topic_id, self._live)
            topic.produced_bytes += size
            topic.produced_records += records

    def fetched(self, topic_id: TopicId, size: int, records: int) -> None:
        """A response has batches of one partition."""
        self.fetched_bytes.value += size
        self.fetched_records.value += records
        if self._live is not None:
            topic = self._counts_of(topic_id, self._live)
            topic.fetched_bytes += size
            topic.fetched_records += records

    def of(self, topic_id: TopicId) -> TopicTraffic:
        """The counts of a topic, to be read only."""
        return self._topics.get(topic_id, NO_TRAFFIC)

    def _counts_of(self, topic_id: TopicId, live: Callable[[], Container[TopicId]]) -> TopicTraffic:
        counts = self._topics.get(topic_id)
        if counts is None:
            if len(self._topics) >= self._prune_at:
                existing = live()
                self._topics = {one: kept for one, kept in self._topics.items() if one in existing}
                self._prune_at = max(PRUNE_AT, 2 * len(self._topics))
            counts = self._topics[topic_id] = TopicTraffic()
        return counts
