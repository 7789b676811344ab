"""The job `ledger`: writes settled ledgers, in this process.

`planned` is one topic, and what would be written of it; `progress` and `summary` have the fields of
`pipeline.settling.SettlingTotals`.
"""

import dataclasses
import os
import time
from typing import Final

from pipeline.costs import dollars
from pipeline.engines.process import LOCAL, JobRequest, Opened, RequestError, Say, max_rss_bytes, opened
from pipeline.segments import Host
from pipeline.settling import LocalWriter, SettlingEngine, SettlingJob, SettlingTotals

PROGRESS_S: Final = 1.0


def run(request: JobRequest, say: Say) -> None:
    """Plan, or write. Errors: as `pipeline.settling.SettlingJob`; NotInstalled, ValueError."""
    began_s = time.monotonic()
    with opened(request) as place:
        engine = None if request.dry_run else _engine(request, place)
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


def _engine(request: JobRequest, place: Opened) -> SettlingEngine:
    if request.engine != LOCAL:
        raise RequestError(f"the job {request.job} runs with the engine {LOCAL} alone")
    return SettlingEngine(LocalWriter(place.store, os.urandom))


class _Progress:
    """Says now and then what was done."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._said_s = 0.0

    def __call__(self, totals: SettlingTotals) -> None:
        if time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            self._say("progress", {**dataclasses.asdict(totals), "left": []})
