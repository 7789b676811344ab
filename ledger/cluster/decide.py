"""Deciding what concerns the cluster as a whole."""

from ledger.cluster.records import ClusterCreated, FeatureLevelRaised, OwnerChanged
from ledger.cluster.requests import BecomeOwner, Owner
from ledger.machine import Decision
from ledger.overlay import Overlay
from ledger.records import NEWEST_LEVEL
from ledger.state import LedgerState


def become_owner(state: LedgerState, overlay: Overlay, request: BecomeOwner, now_ms: int) -> Decision:
    epoch = state.epoch + 1
    changed = OwnerChanged(epoch, request.gateway, request.incarnation)
    is_new = state.applied == 0
    level = request.feature_level or (NEWEST_LEVEL if is_new else 0)
    # A level is never lowered: what is in the journal needs it.
    raised = (FeatureLevelRaised(level),) if level > state.feature_level else ()
    created = (ClusterCreated(request.cluster_id),) if is_new else ()
    return Decision(Owner(epoch), (*created, *raised, changed))
