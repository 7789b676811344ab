"""Counters and histograms for every request, as plain numbers of the event loop.

The metrics of prometheus_client take a lock and check their labels at every call, which costs more than most
of the counted operations. These are changed by the event loop alone, and become metrics when they are
collected.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import INF, floatToGoString


class LocalCounter:
    """A count; `value` only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class LocalHistogram:
    """A histogram of durations."""

    __slots__ = ("bounds", "counts", "total_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: ascending, in seconds; each is the longest of its bucket."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Bound and cumulated count, as a histogram of Prometheus has them."""
        found: list[tuple[str, float]] = []
        count = 0
        for bound, counted in zip((*self.bounds, INF), self.counts, strict=True):
            count += counted
            found.append((floatToGoString(bound), count))  # type: ignore[no-untyped-call]
        return found


class LocalCounters(Collector):
    """Counters of one name, by the values of their labels."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = ()) -> None:
        self._family = (name, documentation)
        self._labels = labels
        self._of: dict[tuple[str, ...], LocalCounter] = {}

    def labels(self, *values: str) -> LocalCounter:
        counter = self._of.get(values)
        if counter is None:
            counter = self._of[values] = LocalCounter()
        return counter

    def put(self, counter: LocalCounter, *values: str) -> None:
        """Let a counter that there is already be the one of these labels."""
        self._of[values] = counter

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(*self._family, labels=self._labels)
        for values, counter in self._of.items():
            family.add_metric(values, counter.value)
        return (family,)


class LocalHistograms(Collector):
    """Histograms of one name, by the values of their labels."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._family = (name, documentation)
        self._labels = labels
        self._bounds = bounds
        self._of: dict[tuple[str, ...], LocalHistogram] = {}

    def labels(self, *values: str) -> LocalHistogram:
        times = self._of.get(values)
        if times is None:
            times = self._of[values] = LocalHistogram(self._bounds)
        return times

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(*self._family, labels=self._labels)
        for values, times in self._of.items():
            family.add_metric(values, times.buckets(), times.total_s)
        return (family,)
