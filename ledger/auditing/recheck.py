"""Which damages are still there in a later state: a gateway over far stores may go on while its ledger is
audited, and deletes what nothing needs any more."""

from ledger.auditing.damages import Damage, DamageKind
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState


def is_there_still(damage: Damage, state: LedgerState) -> bool:
    """False if the bytes that are damaged are not needed in this state."""
    if damage.object is None:
        return True
    known = state.objects.by_locator.get(damage.object)
    if damage.kind is DamageKind.STRAY_OBJECT:
        return known is None
    if known is None or known.closed:
        return False
    if damage.topic is None or damage.offset is None or damage.partition is None:
        return True
    log = _log_of(state, damage.topic, damage.partition)
    if log is None:
        return False
    last = damage.offset if damage.last_offset is None else damage.last_offset
    for run in log.runs_from(max(damage.offset, log.log_start)):
        if run.base > last:
            break
        if run.object_number == known.number:
            return True
    return False


def _log_of(state: LedgerState, name: str, partition: int) -> PartitionLog | None:
    topic = state.topics.by_name.get(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return None
    return topic.partitions[partition]
