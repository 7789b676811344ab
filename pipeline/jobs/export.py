"""The job `export`: writes the live records of a ledger in KafScale's layout (`pipeline.exporting`).

Options: `target`, as `adapters.open.open_kafscale` takes it, `namespace`, and `committed`: whether it has
what consumers of read_committed see. `progress` and `summary` have the fields of
`pipeline.exporting.ExportTotals`.
"""

import asyncio
import dataclasses
import os
import time
from contextlib import ExitStack, closing, suppress
from typing import Final

from adapters.open import Access, FarOptions, FarStores, open_kafscale
from ledger.merging.reads import FAR, NEAR
from pipeline.costs import dollars
from pipeline.engines.process import JobRequest, Say, max_rss_bytes, opened
from pipeline.exporting import Export, ExportTotals, Target
from pipeline.peer import PeerRefused, PeerUnavailable
from pipeline.pins import Pin, PinLost
from pipeline.rounds import JobError
from pipeline.segments import SLOW, places_of

PROGRESS_S: Final = 1.0
OTHER_TARGET: Final = "another TARGET"


def run(request: JobRequest, say: Say) -> None:
    """Errors: as `pipeline.exporting.Export`; ValueError."""
    began_s = time.monotonic()
    url = str(request.options["target"])
    totals, progress = ExportTotals(), _Progress(say)
    with ExitStack() as stack:
        place = stack.enter_context(opened(request))
        runner = stack.enter_context(asyncio.Runner())
        far = FarStores(FarOptions(**request.far))
        blobs = open_kafscale(url, Access.SHARED, far=far, other=OTHER_TARGET)
        target = stack.enter_context(closing(Target(blobs, runner, totals)))
        pin = Pin(place.peer, os.urandom, time.monotonic)
        try:
            export = Export(
                place.peer,
                place.store,
                target,
                pin,
                totals,
                namespace=str(request.options["namespace"]),
                committed=bool(request.options.get("committed", True)),
                rule=FAR if place.is_far else NEAR,
                said=lambda: progress(totals),
            )
            for partition in places_of(place.peer, request.topics):
                export.partition(partition)
        except PinLost:
            raise JobError(SLOW) from None
        finally:
            with suppress(PeerUnavailable, PeerRefused):
                pin.release()
        cost = dollars(place.url, totals.reads, 0) + dollars(url, totals.target_reads, totals.writes)
        # A listing costs as much as a write.
        cost += dollars(url, 0, totals.listings)
    used = {"took_s": round(time.monotonic() - began_s, 3), "dollars": cost, "max_rss_bytes": max_rss_bytes()}
    say("summary", {**dataclasses.asdict(totals), **used})


class _Progress:
    """Says now and then what was done."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._said_s = 0.0

    def __call__(self, totals: ExportTotals) -> None:
        if time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            self._say("progress", dataclasses.asdict(totals))
