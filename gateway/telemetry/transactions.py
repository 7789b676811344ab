"""The metrics of transactions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class TransactionOutcome(StrEnum):
    """How a transaction ended, and why."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """By its producer."""
    TIMED_OUT = "timed_out"
    FENCED = "fenced"
    """Another producer with the same transactional id, or an operator, has taken its place."""


@dataclass(frozen=True, slots=True)
class TransactionView:
    """Sources of the figures of transactions."""

    open: Callable[[], int]
    oldest_ms: Callable[[], int]
    """For how long the oldest open one has been open; 0 if there is none."""
    by_state: Callable[[], Mapping[str, int]]
    """Transactional ids."""


class TransactionsCollector(Collector):
    """Reads the figures whenever the metrics are collected."""

    def __init__(self, view: TransactionView) -> None:
        self._view = view

    def collect(self) -> Iterable[Metric]:
        view = self._view
        yield GaugeMetricFamily("dragoman_open_transactions", "Open transactions", view.open())
        yield GaugeMetricFamily(
            "dragoman_oldest_transaction_seconds",
            "For how long the oldest open transaction has been open; 0 if there is none",
            view.oldest_ms() / 1000,
        )
        ids = GaugeMetricFamily(
            "dragoman_transactional_ids", "Transactional ids that are remembered", labels=["state"]
        )
        for state, count in view.by_state().items():
            ids.add_metric([state], count)
        yield ids
