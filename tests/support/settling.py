"""Settled ledgers as a job with a pin would name them: of a ledger that has no bytes."""

import itertools

from ledger.keys import settled_keys
from ledger.partitions.state import PartitionLog
from ledger.settled.requests import NameSettled, SettledFiles
from ledger.state import LedgerState
from ledger.swaps.state import Pins

JOB = b"s" * 16
_numbers = itertools.count()


def naming_of(
    state: LedgerState, log: PartitionLog, created_ms: int, *, job: bytes = JOB, attempt: int = 0
) -> NameSettled:
    """Of all that the partition has now."""
    random = next(_numbers).to_bytes(10, "big")
    files = SettledFiles(settled_keys(log.topic_id, log.index, created_ms, random).log_key, 500, 50, 300)
    as_of = state.part(Pins)[job].entry, log.high_watermark, log.layout_version
    return NameSettled(job, attempt, log.topic_id, log.index, files, *as_of)
