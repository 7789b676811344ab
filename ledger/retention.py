"""Retention: how far a partition's log start may move, by age and by size, in whole runs.

As with Kafka's segments, the unit is what lies together: a run goes when all of its records are too old,
or when the partition holds retention.bytes without it.
"""

from ledger.partitions import PartitionLog

UNLIMITED = -1


def retention_offset(
    log: PartitionLog, retention_ms: int, retention_bytes: int, now_ms: int, limit_runs: int
) -> int:
    """The log start offset that retention asks for; the present one if there is nothing to do.

    -1 means no bound. Looks at `limit_runs` runs at most: what is left comes with the next call.
    """
    start = log.log_start
    excess = log.size_bytes - retention_bytes if retention_bytes != UNLIMITED else 0
    for seen, run in enumerate(log.runs()):
        if seen == limit_runs:
            break
        if run.last < log.log_start:
            excess -= run.size  # no longer readable, only not drained yet
            continue
        too_old = retention_ms != UNLIMITED and 0 <= run.max_timestamp < now_ms - retention_ms
        too_much = retention_bytes != UNLIMITED and excess >= run.size
        if not too_old and not too_much:
            break
        start = run.last + 1
        excess -= run.size
    return start
