"""Deciding what concerns the cluster as a whole."""

from typing import Final

from ledger.cluster.owners import HOLD_MS, Owners
from ledger.cluster.records import (
    LEVEL_WITH_JUMPS,
    MAX_ADDRESS_CHARS,
    MAX_HOST_CHARS,
    MAX_STORE_CHARS,
    ClusterCreated,
    FeatureLevelRaised,
    OwnerChanged,
    OwnerDescribed,
    TimeHeld,
    TimeJumped,
)
from ledger.cluster.requests import BecomeOwner, Description, HoldTime, Owner, ShowLife
from ledger.machine import Decision
from ledger.overlay import Overlay
from ledger.records import LEVEL_WITH_ORIGINS, NEWEST_LEVEL
from ledger.requests import Done
from ledger.state import LedgerState

MAX_STEP_MS: Final = 60 * 60 * 1000
"""A new owner's time may be this much after that of the last entry."""


def become_owner(state: LedgerState, overlay: Overlay, request: BecomeOwner, now_ms: int) -> Decision:
    epoch = state.epoch + 1
    changed = OwnerChanged(epoch, request.gateway, request.incarnation)
    is_new = state.applied == 0
    level = request.feature_level or (NEWEST_LEVEL if is_new else 0)
    # A level is never lowered: what is in the journal needs it.
    raised = (FeatureLevelRaised(level),) if level > state.feature_level else ()
    created = (ClusterCreated(request.cluster_id),) if is_new else ()
    described = (
        _described(state, request.described, now_ms, max(level, state.feature_level))
        if request.described is not None and max(level, state.feature_level) >= LEVEL_WITH_ORIGINS
        else ()
    )
    return Decision(Owner(epoch), (*created, *raised, changed, *described))


def _described(
    state: LedgerState, of: Description, now_ms: int, level: int
) -> tuple[OwnerDescribed] | tuple[OwnerDescribed, TimeHeld | TimeJumped]:
    described = OwnerDescribed(
        of.host[:MAX_HOST_CHARS], of.address[:MAX_ADDRESS_CHARS], of.store[:MAX_STORE_CHARS]
    )
    if of.right_until_ms is None or now_ms <= of.right_until_ms:
        return (described, TimeHeld(0)) if state.part(Owners).has_jumped else (described,)
    step_ms = now_ms - state.entry_time_ms
    if state.applied and step_ms > MAX_STEP_MS:
        return described, _doubt(now_ms + HOLD_MS, step_ms, level)
    return (described,)


def _doubt(until_ms: int, jump_ms: int, level: int) -> TimeHeld | TimeJumped:
    """Below its level the journal cannot say by how much time has jumped."""
    return TimeJumped(until_ms, jump_ms) if level >= LEVEL_WITH_JUMPS else TimeHeld(until_ms)


def hold_time(state: LedgerState, overlay: Overlay, request: HoldTime, now_ms: int) -> Decision:
    if state.feature_level < LEVEL_WITH_ORIGINS:
        return Decision(Done(0))
    is_right = request.until_ms == 0
    doubt = TimeHeld(0) if is_right else _doubt(request.until_ms, request.jump_ms, state.feature_level)
    return Decision(Done(1), (doubt,))


def show_life(state: LedgerState, overlay: Overlay, request: ShowLife, now_ms: int) -> Decision:
    return Decision(Done(1))
