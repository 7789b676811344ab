"""Retention: how far a partition's log start may move, by age and by size, in whole runs.

As with Kafka's segments, the unit is what is stored together: a run goes when all of its records are too old,
or when the partition holds retention.bytes without it. A run without a timestamp is as old as its
commit (Kafka: as the modification time of the segment's file).
"""

from collections.abc import Callable

from ledger.partitions.runs import Run, committed_ms
from ledger.partitions.state import PartitionLog

UNLIMITED = -1


def retention_offset(  # noqa: PLR0913 - both bounds and both clocks
    log: PartitionLog,
    retention_ms: int,
    retention_bytes: int,
    now_ms: int,
    limit_runs: int,
    object_created_ms: Callable[[int], int],
    ahead_ms: int = 0,
) -> int:
    """The log start offset that retention requires; the present one if there is nothing to do.

    -1 means no bound. Looks at `limit_runs` runs at most: what is left comes with the next call.
    `object_created_ms`, by object number, serves runs of journals that do not say when they were committed.
    The next commit is stamped by a clock that is `ahead_ms` ahead of `now_ms`.
    """
    start = log.log_start
    excess = log.size_bytes - retention_bytes if retention_bytes != UNLIMITED else 0
    for seen, run in enumerate(log.runs()):
        if seen == limit_runs:
            break
        if run.last < log.log_start:
            excess -= run.size  # no longer readable, only not drained yet
            continue
        too_old = (
            retention_ms != UNLIMITED
            and _time_ms(run, object_created_ms, now_ms, ahead_ms) < now_ms - retention_ms
        )
        too_much = retention_bytes != UNLIMITED and excess >= run.size
        if not too_old and not too_much:
            break
        start = run.last + 1
        excess -= run.size
    return start


def _time_ms(run: Run, object_created_ms: Callable[[int], int], now_ms: int, ahead_ms: int) -> int:
    if run.max_timestamp >= 0:
        return run.max_timestamp
    committed = committed_ms(run.max_timestamp)
    at_ms = committed if committed is not None else object_created_ms(run.object_number)
    # One that is not in the future may be from before the journal got ahead: it is never taken for older.
    return at_ms if at_ms <= now_ms else at_ms - ahead_ms
