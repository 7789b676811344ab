"""Deciding what concerns the cluster as a whole."""

from ledger.cluster.records import ClusterCreated, OwnerChanged
from ledger.cluster.requests import BecomeOwner, Owner
from ledger.machine import Decision
from ledger.overlay import Overlay
from ledger.state import LedgerState


def become_owner(state: LedgerState, overlay: Overlay, request: BecomeOwner, now_ms: int) -> Decision:
    epoch = state.epoch + 1
    changed = OwnerChanged(epoch, request.gateway, request.incarnation)
    if state.applied == 0:
        return Decision(Owner(epoch), (ClusterCreated(request.cluster_id), changed))
    return Decision(Owner(epoch), (changed,))
