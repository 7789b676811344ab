"""Drops the runs that are no longer readable, in slices, so that no single entry takes long to apply."""

import math
from collections.abc import Callable

from gateway.coordination.ledger import Ledger
from ledger.partitions.requests import DrainRuns
from ledger.requests import Done

SLICE_RUNS = 2_000


async def drain(
    shard: Ledger, loop_time: Callable[[], float], wait_s: float, until_s: float = math.inf
) -> None:
    """Until there are none, or all that are left are concerned by the entry that is being filled; or, after
    one slice at least, until this loop time."""
    while shard.state.draining:
        result = await shard.ask(DrainRuns(SLICE_RUNS), loop_time() + wait_s)
        assert isinstance(result, Done)
        if result.count == 0 or loop_time() >= until_s:
            return
