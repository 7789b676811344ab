"""Counts and times of our own, compared with those of prometheus_client."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest

from gateway.telemetry.local_metrics import LocalCounters, LocalHistograms

disable_created_metrics()  # type: ignore[no-untyped-call]  # as in the gateway

BOUNDS = (0.001, 0.25, 1.0, 10.0)
LABELS = st.sampled_from([("produce", "NONE"), ("fetch", "NONE"), ("fetch", 'a "quoted"\\\n')])


@given(st.lists(st.tuples(LABELS, st.sampled_from([*BOUNDS, 0.0, 0.5, 1e9]))))
def test_times_read_like_a_histogram_of_prometheus(observed: list[tuple[tuple[str, str], float]]) -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("took", "How long", ["api", "error"], buckets=BOUNDS, registry=theirs)
    timings = LocalHistograms("took", "How long", ["api", "error"], BOUNDS)
    ours.register(timings)
    for labels, seconds in observed:
        histogram.labels(*labels).observe(seconds)
        timings.labels(*labels).observe(seconds)
    assert generate_latest(ours) == generate_latest(theirs)


@given(st.lists(st.tuples(LABELS, st.integers(0, 1000))))
def test_tallies_read_like_a_counter_of_prometheus(counted: list[tuple[tuple[str, str], int]]) -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    counter = Counter("seen", "How many", ["api", "error"], registry=theirs)
    counters = LocalCounters("seen", "How many", ["api", "error"])
    ours.register(counters)
    for labels, count in counted:
        counter.labels(*labels).inc(count)
        counters.labels(*labels).value += count
    assert generate_latest(ours) == generate_latest(theirs)


def test_a_tally_without_labels_is_there_before_it_is_counted() -> None:
    registry, counters = CollectorRegistry(), LocalCounters("bytes", "How many")
    registry.register(counters)
    counter = counters.labels()
    assert registry.get_sample_value("bytes_total") == 0
    counter.value += 7
    assert registry.get_sample_value("bytes_total") == 7
