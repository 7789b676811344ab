"""Deciding what concerns the cluster as a whole."""

from typing import Final

from ledger.cluster.owners import Owners
from ledger.cluster.records import (
    MAX_ADDRESS_CHARS,
    MAX_HOST_CHARS,
    MAX_STORE_CHARS,
    ClusterCreated,
    FeatureLevelRaised,
    OwnerChanged,
    OwnerDescribed,
    TimeHeld,
)
from ledger.cluster.requests import BecomeOwner, Description, HoldTime, Owner, ShowLife
from ledger.machine import Decision
from ledger.overlay import Overlay
from ledger.records import LEVEL_WITH_ORIGINS, NEWEST_LEVEL
from ledger.requests import Done
from ledger.state import LedgerState

MAX_STEP_MS: Final = 60 * 60 * 1000
"""A new owner's time may be this much after that of the last entry."""
HOLD_MS: Final = 24 * 60 * 60 * 1000
"""For how long nothing is deleted for its age after a greater step."""


def become_owner(state: LedgerState, overlay: Overlay, request: BecomeOwner, now_ms: int) -> Decision:
    epoch = state.epoch + 1
    changed = OwnerChanged(epoch, request.gateway, request.incarnation)
    is_new = state.applied == 0
    level = request.feature_level or (NEWEST_LEVEL if is_new else 0)
    # A level is never lowered: what is in the journal needs it.
    raised = (FeatureLevelRaised(level),) if level > state.feature_level else ()
    created = (ClusterCreated(request.cluster_id),) if is_new else ()
    described = (
        _described(state, request.described, now_ms)
        if request.described is not None and max(level, state.feature_level) >= LEVEL_WITH_ORIGINS
        else ()
    )
    return Decision(Owner(epoch), (*created, *raised, changed, *described))


def _described(
    state: LedgerState, of: Description, now_ms: int
) -> tuple[OwnerDescribed] | tuple[OwnerDescribed, TimeHeld]:
    described = OwnerDescribed(
        of.host[:MAX_HOST_CHARS], of.address[:MAX_ADDRESS_CHARS], of.store[:MAX_STORE_CHARS]
    )
    if of.right_until_ms is None or now_ms <= of.right_until_ms:
        return (described, TimeHeld(0)) if state.part(Owners).held_until_ms else (described,)
    if state.applied and now_ms - state.entry_time_ms > MAX_STEP_MS:
        return described, TimeHeld(now_ms + HOLD_MS)
    return (described,)


def hold_time(state: LedgerState, overlay: Overlay, request: HoldTime, now_ms: int) -> Decision:
    if state.feature_level < LEVEL_WITH_ORIGINS:
        return Decision(Done(0))
    return Decision(Done(1), (TimeHeld(request.until_ms),))


def show_life(state: LedgerState, overlay: Overlay, request: ShowLife, now_ms: int) -> Decision:
    return Decision(Done(1))
