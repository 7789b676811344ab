"""How the objects of far stores are read: counts, and the metrics of them."""

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


@dataclass(slots=True)
class ObjectReadCounts:
    """Of objects that fetches needed: counted once for each object of a fetch."""

    hits: int = 0
    """It was in memory, or another fetch or read-ahead was reading it."""
    misses: int = 0
    """It was read whole."""
    ranges: int = 0
    """Only the wanted ranges were read."""
    ahead: int = 0
    """Objects that were read before a fetch wanted them."""
    bytes_read: int = 0


class ObjectReadsCollector(Collector):
    """Reads the counts whenever the metrics are collected."""

    def __init__(self, counts: ObjectReadCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        counts = self._counts
        reads = CounterMetricFamily(
            "dragoman_object_reads",
            "Objects of a far store that fetches needed: in memory (hit), read whole (miss), or in ranges "
            "(range); and those read before they were needed (ahead)",
            labels=["result"],
        )
        results = {"hit": counts.hits, "miss": counts.misses, "range": counts.ranges, "ahead": counts.ahead}
        for result, count in results.items():
            reads.add_metric([result], count)
        read = CounterMetricFamily("dragoman_object_read_bytes", "Bytes read from objects of a far store")
        read.add_metric([], counts.bytes_read)
        return reads, read
