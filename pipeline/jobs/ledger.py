"""The job `ledger`: writes settled ledgers, in this process or on Spark.

`planned` is one topic, and what would be written of it; `progress` and `summary` have the fields of
`pipeline.settling.SettlingTotals`.
"""

import dataclasses
import os
import time
from contextlib import ExitStack, closing
from typing import Final

from pipeline.costs import dollars
from pipeline.engines.process import SPARK, JobRequest, Opened, Say, max_rss_bytes, opened, spark_of
from pipeline.engines.spark_context import check_spark
from pipeline.segments import Host
from pipeline.settling import LocalWriter, SettlingEngine, SettlingJob, SettlingTotals

PROGRESS_S: Final = 1.0
WAVE_RUNS: Final = 200_000
"""Of the Spark engine: the driver holds them, in 40 bytes each and the names of their objects."""


def run(request: JobRequest, say: Say) -> None:
    """Plan, or write. Errors: as `pipeline.settling.SettlingJob`; NotInstalled, ValueError."""
    began_s = time.monotonic()
    if request.engine == SPARK:
        # Before a plan too, though it needs no Spark: what it shows can be carried out.
        check_spark()
    with ExitStack() as stack:
        place = stack.enter_context(opened(request))
        engine = None if request.dry_run else _engine(request, place, stack)
        job = SettlingJob(place.peer, engine, Host(time.monotonic, os.urandom), _Progress(say))
        if request.dry_run:
            for planned in job.plan(request.topics):
                say("planned", planned._asdict())
        else:
            job.run(request.topics)
        cost = dollars(place.url, 0, job.totals.writes)
        took_s = round(time.monotonic() - began_s, 3)
        used = {"took_s": took_s, "dollars": cost, "max_rss_bytes": max_rss_bytes()}
        say("summary", {**dataclasses.asdict(job.totals), **used})


def _engine(request: JobRequest, place: Opened, stack: ExitStack) -> SettlingEngine:
    if request.engine != SPARK:
        return SettlingEngine(LocalWriter(place.store, os.urandom))
    from pipeline.engines.spark_settling import SparkWriter

    context = stack.enter_context(spark_of(request))
    writer = stack.enter_context(closing(SparkWriter(context, place.url, request.far)))
    return SettlingEngine(writer, WAVE_RUNS)


class _Progress:
    """Says now and then what was done."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._said_s = 0.0

    def __call__(self, totals: SettlingTotals) -> None:
        if time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            self._say("progress", {**dataclasses.asdict(totals), "left": []})
