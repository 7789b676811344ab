"""The job `adopt`: makes a bucket in KafScale's layout readable at its offsets (`pipeline.adopting`).

Options: `source`, as `adapters.open.open_kafscale` takes it, and `namespace`. `planned` is one topic
(`pipeline.adopting.PlannedTopic`); `progress` and `summary` have the fields of
`pipeline.adopting.AdoptTotals`.
"""

import asyncio
import dataclasses
import os
import tempfile
import time
import uuid
from contextlib import ExitStack, closing
from typing import Final

from adapters.open import FarOptions, FarStores, open_kafscale
from pipeline.adopting import Adoption, AdoptTotals, BucketPlan, Source, Spool
from pipeline.costs import dollars
from pipeline.engines.process import JobRequest, Say, max_rss_bytes
from pipeline.peer import PeerClient

PROGRESS_S: Final = 1.0


def run(request: JobRequest, say: Say) -> None:
    """Errors: as `pipeline.adopting`; ValueError."""
    began_s = time.monotonic()
    place = str(request.options["source"])
    totals = AdoptTotals()
    progress = _Progress(say, totals)
    with ExitStack() as stack:
        peer = stack.enter_context(PeerClient(request.peer.link()))
        # A gateway that is out of reach is found before a bucket is read.
        peer.describe()
        runner = stack.enter_context(asyncio.Runner())
        far = FarStores(FarOptions(**request.far))
        blobs = open_kafscale(place, far=far, other="another SOURCE")
        source = stack.enter_context(closing(Source(blobs, runner, totals)))
        spool = Spool(stack.enter_context(tempfile.TemporaryFile()))
        plan = BucketPlan(source, totals, progress)
        plan.read(str(request.options["namespace"]), request.topics, spool)
        for topic in plan.topics.values():
            say("planned", dataclasses.asdict(topic))
        if not request.dry_run:
            Adoption(peer, place, totals, _new_id, progress).enter(plan.topics, spool)
    cost = dollars(place, totals.reads, totals.listings)
    used = {"took_s": round(time.monotonic() - began_s, 3), "dollars": cost, "max_rss_bytes": max_rss_bytes()}
    say("summary", {**dataclasses.asdict(totals), **used})


def _new_id() -> bytes:
    return uuid.UUID(bytes=os.urandom(16), version=4).bytes


class _Progress:
    """Says now and then what was done."""

    def __init__(self, say: Say, totals: AdoptTotals) -> None:
        self._say = say
        self._totals = totals
        self._said_s = 0.0

    def __call__(self) -> None:
        if time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            self._say("progress", dataclasses.asdict(self._totals))
