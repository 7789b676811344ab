"""Bounds on the producers that partitions remember."""

from ledger.overlay import Overlay
from ledger.partitions.producers import TOO_MANY_PRODUCERS
from ledger.partitions.state import PartitionLog
from ledger.requests import Refused
from ledger.state import LedgerState


def admit_newcomer(state: LedgerState, overlay: Overlay, log: PartitionLog) -> Refused | None:
    """A producer that is not known in this partition is counted, or refused."""
    bounds = state.producer_bounds
    here = overlay.new_producers.get(log.number, 0)
    if overlay.producer_count >= bounds.total:
        return Refused(
            TOO_MANY_PRODUCERS,
            f"{bounds.total} pairs of producer and partition are there already (limits.producers)",
        )
    if len(log.producers) + here >= bounds.partition:
        reason = f"the partition has {bounds.partition} producers already (limits.partition_producers)"
        return Refused(TOO_MANY_PRODUCERS, reason)
    overlay.producer_count += 1
    overlay.new_producers[log.number] = here + 1
    return None
