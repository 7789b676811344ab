"""The job `segments`: merges runs into segments, in this process or on Spark.

Its option `sparse` has locators of log files that are to be set free.
`planned` is one topic, and what would be merged of it; `progress` and `summary` have the fields of
`pipeline.rounds.MergeTotals`.
"""

import dataclasses
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Final

from ledger.merging.plan import MergePolicy
from ledger.merging.reads import FAR, NEAR
from pipeline.costs import BILLED, dollars
from pipeline.engines.process import SPARK, JobRequest, Opened, Say, max_rss_bytes, opened, spark_of
from pipeline.engines.spark_context import check_spark, java_pid
from pipeline.pins import numbered
from pipeline.rounds import MergeTotals, Round
from pipeline.segments import ROUND_BYTES, Engine, Host, MergeJob, PlannedTopic

PROGRESS_S: Final = 1.0
WAVE_WINDOW: Final = 64
WAVE_BYTES: Final = 8 * 1024 * 1024 * 1024
WAVE_RUNS: Final = 50_000
"""Of a wave of the Spark engine; the driver holds its plans, and no record batch."""
SPARK_TASK_BYTES: Final = 64 * 1024 * 1024


def run(request: JobRequest, say: Say) -> None:
    """Plan, or merge. Errors: as `pipeline.segments.MergeJob`; NotInstalled, ValueError."""
    began_s = time.monotonic()
    on_spark = request.engine == SPARK
    if on_spark:
        # Before a plan too, though it needs no Spark: what it shows can be carried out.
        check_spark()
    sparse = frozenset(request.options.get("sparse", ()))
    task_bytes = SPARK_TASK_BYTES if on_spark else ROUND_BYTES
    policy = MergePolicy(**{"task_bytes": task_bytes, **request.policy}, sparse=sparse)
    with ExitStack() as stack:
        place = stack.enter_context(opened(request))
        progress = _Progress(say)
        java_rss_bytes: Callable[[], int] = int
        if request.dry_run:
            engine = None
        elif on_spark:
            engine, java_rss_bytes = _spark_engine(request, place, progress, stack)
        else:
            engine = Engine(Round(place.store, os.urandom, FAR if place.is_far else NEAR))
        pin_ids = numbered(bytes.fromhex(request.pins)) if request.pins else os.urandom
        job = MergeJob(place.peer, engine, Host(time.monotonic, pin_ids), policy, progress)
        if request.dry_run:
            for planned in job.plan(request.topics):
                say("planned", _planned(planned))
        else:
            job.run(request.topics)
        used = {"max_rss_bytes": max_rss_bytes(), "java_max_rss_bytes": java_rss_bytes()}
        cost = dollars(place.url, job.totals.reads, job.totals.writes)
        took_s = round(time.monotonic() - began_s, 3)
        say("summary", {**dataclasses.asdict(job.totals), "took_s": took_s, "dollars": cost, **used})


def _spark_engine(
    request: JobRequest, place: Opened, progress: "_Progress", stack: ExitStack
) -> tuple[Engine, Callable[[], int]]:
    """And the memory of its Java so far."""
    from pipeline.engines.spark_layout import LayoutRule
    from pipeline.engines.spark_rounds import SparkRounds, SparkStore

    context = stack.enter_context(spark_of(request))
    rule = LayoutRule(FAR if place.is_far else NEAR, is_billed=place.url.startswith(BILLED))
    rounds = stack.enter_context(
        closing(SparkRounds(context, SparkStore(place.url, request.far), rule, progress))
    )
    pid = java_pid(context)
    engine = Engine(rounds, WAVE_WINDOW, WAVE_BYTES, WAVE_RUNS, max_run_bytes=2 * SPARK_TASK_BYTES)
    return engine, lambda: max_rss_bytes(pid)


class _Progress:
    """Says now and then what was done."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._said_s = 0.0

    def __call__(self, totals: MergeTotals) -> None:
        if time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            self._say("progress", {**dataclasses.asdict(totals), "damages": []})


def _planned(planned: PlannedTopic) -> dict[str, object]:
    return {"topic": planned.topic, **dataclasses.asdict(planned.look)}
