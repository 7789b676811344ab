"""Retention: how far a partition's log start may move, by age and by size, in whole runs.

As with Kafka's segments, the unit is what is stored together: a run goes when all of its records are too old,
or when the partition holds retention.bytes without it. A run without a timestamp is as old as its
commit (Kafka: as the modification time of the segment's file).
"""

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from ledger.partitions.runs import Run, committed_ms
from ledger.partitions.state import PartitionLog

UNLIMITED = -1
MAX_DEAD_RUNS = 20_000
"""Runs that are no longer readable and not drained yet. With more of them nothing goes by size until they
are: to count the bytes of all takes too long."""


class RetainedFrom(NamedTuple):
    """Where what is kept begins."""

    offset: int
    """The log start offset that retention requires; the present one if there is nothing to do."""
    is_limited: bool
    """Whether the search ended at its limit: more may be due from there on."""


def retention_offset(  # noqa: PLR0913 - both bounds and both clocks
    log: PartitionLog,
    retention_ms: int,
    retention_bytes: int,
    now_ms: int,
    limit_runs: int,
    object_created_ms: Callable[[int], int],
    ahead_ms: int = 0,
) -> RetainedFrom:
    """-1 means no bound. Looks at `limit_runs` readable runs at most.

    `object_created_ms`, by object number, serves runs of journals that do not say when they were committed.
    The next commit is stamped by a clock that is `ahead_ms` ahead of `now_ms`.
    """
    excess = _excess(log, retention_bytes)
    start, seen = log.log_start, 0
    for run in islice(log.runs_from(start), limit_runs):
        too_old = (
            retention_ms != UNLIMITED
            and _time_ms(run, object_created_ms, now_ms, ahead_ms) < now_ms - retention_ms
        )
        too_much = retention_bytes != UNLIMITED and excess >= run.size
        if not too_old and not too_much:
            break
        start, seen = run.last + 1, seen + 1
        excess -= run.size
    return RetainedFrom(start, seen == limit_runs)


def _excess(log: PartitionLog, retention_bytes: int) -> int:
    """By how much the readable runs exceed the bound, as far as that is known."""
    dead_bytes = log.dead_bytes(MAX_DEAD_RUNS) if retention_bytes != UNLIMITED else None
    return log.size_bytes - dead_bytes - retention_bytes if dead_bytes is not None else 0


def _time_ms(run: Run, object_created_ms: Callable[[int], int], now_ms: int, ahead_ms: int) -> int:
    if run.max_timestamp >= 0:
        return run.max_timestamp
    committed = committed_ms(run.max_timestamp)
    at_ms = committed if committed is not None else object_created_ms(run.object_number)
    # One that is not in the future may be from before the journal got ahead: it is never taken for older.
    return at_ms if at_ms <= now_ms else at_ms - ahead_ms
