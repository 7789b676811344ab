"""The goals of the bench, one line each. Pure.

A goal bounds the median itself, or the median ratio to Kafka in the same rounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class Of(Enum):
    VALUE = "value"
    RATIO = "ratio"


@dataclass(frozen=True, slots=True)
class Goal:
    of: Of
    at_most: float | None = None
    at_least: float | None = None

    def is_met(self, value: float) -> bool:
        too_much = self.at_most is not None and value > self.at_most
        too_little = self.at_least is not None and value < self.at_least
        return not (too_much or too_little)

    def __str__(self) -> str:
        sign, bound = ("<=", self.at_most) if self.at_most is not None else (">=", self.at_least)
        return f"{sign} {bound:g}{'x' if self.of is Of.RATIO else ''}"


GOALS: Mapping[str, Goal] = MappingProxyType(
    {
        "produce_1k_p6.cpu_s_gb": Goal(Of.RATIO, at_most=0.85),
        "produce_1k_p6.mb_s": Goal(Of.RATIO, at_least=1.0),
        "produce_1k_p6_synced.cpu_s_gb": Goal(Of.RATIO, at_most=0.5),
        "produce_1k_p6_synced.mb_s": Goal(Of.RATIO, at_least=1.7),
        "produce_100b_p6.cpu_s_gb": Goal(Of.RATIO, at_most=1.0),
        "catchup_1k_p6.cpu_s_gb": Goal(Of.RATIO, at_most=0.85),
        "produce_1k_p6_tls.cpu_to_plain": Goal(Of.VALUE, at_most=1.5),
        "catchup_1k_p6_tls.cpu_to_plain": Goal(Of.VALUE, at_most=1.5),
        "single.cpu_us_request": Goal(Of.RATIO, at_most=1.0),
        "latency.ack_p50_ms": Goal(Of.VALUE, at_most=0.45),
        "latency.ack_p99_ms": Goal(Of.VALUE, at_most=3.0),
        "latency.end_to_end_p50_ms": Goal(Of.VALUE, at_most=0.6),
        "latency.cpu_percent": Goal(Of.VALUE, at_most=30.0),
        "latency_synced.end_to_end_p50_ms": Goal(Of.RATIO, at_most=0.6),
        "idle.kib_connection": Goal(Of.VALUE, at_most=16.0),
        "group_10.join_ms": Goal(Of.RATIO, at_most=1.0),
        "group_10.rebalance_ms": Goal(Of.RATIO, at_most=1.0),
        "group_100.join_ms": Goal(Of.RATIO, at_most=1.0),
        "group_100.rebalance_ms": Goal(Of.RATIO, at_most=1.0),
        "group_commits.commits_s": Goal(Of.RATIO, at_least=1.0),
        "group_commits.cpu_us_commit": Goal(Of.RATIO, at_most=0.9),
        **{
            f"transactions_{partitions}.{figure}": goal
            for partitions in (1, 10, 100)
            for figure, goal in (
                ("transactions_s", Goal(Of.RATIO, at_least=1.0)),
                ("cpu_us_transaction", Goal(Of.RATIO, at_most=1.0)),
            )
        },
        "group_idle.cpu_percent": Goal(Of.VALUE, at_most=5.0),
        "startup.idle_mb": Goal(Of.VALUE, at_most=120.0),
        "startup.ready_s": Goal(Of.VALUE, at_most=1.0),
        "startup_runs.ready_s": Goal(Of.VALUE, at_most=5.0),
        "startup_runs.snapshot_ready_s": Goal(Of.VALUE, at_most=5.0),
        "ledger.bytes_run": Goal(Of.VALUE, at_most=64.0),
        "ledger.apply_us_batch": Goal(Of.VALUE, at_most=1.2),
        "ledger.apply_longest_ms": Goal(Of.VALUE, at_most=5.0),
        "ledger.find_p99_ms": Goal(Of.VALUE, at_most=1.0),
        # An entry, and half of the one before, with the linger of 5 ms. Over the bucket an entry is a PUT and
        # a GET, which takes half as long.
        "far_etcd_30.ack_p50_ms": Goal(Of.VALUE, at_most=12.0),
        "far_etcd_100.ack_p50_ms": Goal(Of.VALUE, at_most=12.0),
        "far_bucket_30.ack_p50_ms": Goal(Of.VALUE, at_most=75.0),
        "far_bucket_100.ack_p50_ms": Goal(Of.VALUE, at_most=235.0),
        # A PUT, the linger, and 5 ms; the bucket alone: a PUT, two of the journal, and the linger.
        "far_etcd_30_objects.ack_p50_ms": Goal(Of.VALUE, at_most=40.0),
        "far_bucket_30_objects.ack_p50_ms": Goal(Of.VALUE, at_most=95.0),
        "far_tail.ack_p99_p50": Goal(Of.VALUE, at_most=3.0),
        "far_produce.mb_s": Goal(Of.VALUE, at_least=100.0),
        "far_cpu.cpu_ratio": Goal(Of.VALUE, at_most=1.3),
        "far_journal_etcd.batches_s": Goal(Of.VALUE, at_least=100_000.0),
        "far_journal_bucket.batches_s": Goal(Of.VALUE, at_least=20_000.0),
        "far_cost.usd_gib": Goal(Of.VALUE, at_most=0.0025),
        # Store bytes; the shuffle of Spark is counted apart.
        **{
            f"pipeline_{case}.{way}_bytes_ratio": Goal(Of.VALUE, at_most=1.05)
            for case in ("local", "local_s3", "spark", "spark_s3")
            for way in ("read", "written")
        },
        "pipeline_local.peak_mb": Goal(Of.VALUE, at_most=256.0),
        "pipeline_local_small.peak_mb": Goal(Of.VALUE, at_most=256.0),
        "pipeline_latency.ack_p99_ratio": Goal(Of.VALUE, at_most=2.0),
        "pipeline_latency.end_to_end_p99_ratio": Goal(Of.VALUE, at_most=2.0),
        "growth_partitions.growth_1000": Goal(Of.VALUE, at_most=1.2),
        "growth_partitions.growth_10000": Goal(Of.VALUE, at_most=1.2),
        "growth_in_use.growth_60": Goal(Of.VALUE, at_most=1.2),
        "growth_in_use.growth_600": Goal(Of.VALUE, at_most=1.2),
        "growth_in_use.growth_6000": Goal(Of.VALUE, at_most=1.2),
        "growth_runs.growth_100000": Goal(Of.VALUE, at_most=1.2),
        "growth_runs.growth_1000000": Goal(Of.VALUE, at_most=1.2),
    }
)
