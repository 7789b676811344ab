"""Applying the metadata records about the cluster as a whole."""

from ledger.cluster.owners import KEPT_EPOCHS, Epoch, Jump, Owners
from ledger.cluster.records import (
    ClusterCreated,
    FeatureLevelRaised,
    LedgerRestored,
    OwnerChanged,
    OwnerDescribed,
    TimeHeld,
    TimeJumped,
)
from ledger.objects.rows import find_inline
from ledger.state import LedgerState

OWNERS = 12
"""The section of image rows."""
THE_ROW = 0
"""Its only key."""


def cluster_created(state: LedgerState, record: ClusterCreated) -> None:
    state.cluster_id = record.cluster_id


def owner_changed(state: LedgerState, record: OwnerChanged) -> None:
    state.epoch = record.epoch
    owners = state.part(Owners)
    # An owner that describes itself does so in the same entry. Images of builds whose owners did not have no
    # such row, and must say the same as their journal.
    owners.newest_gateway, owners.store = record.gateway, ""
    if owners.epochs:
        state.dirty[OWNERS].add(THE_ROW)


def owner_described(state: LedgerState, record: OwnerDescribed) -> None:
    owners = state.part(Owners)
    newest = Epoch(state.epoch, owners.newest_gateway, state.entry_time_ms, record.host, record.address)
    owners.epochs = (*owners.epochs, newest)[-KEPT_EPOCHS:]
    owners.store = record.store
    state.dirty[OWNERS].add(THE_ROW)


def time_held(state: LedgerState, record: TimeHeld) -> None:
    owners = state.part(Owners)
    owners.held_until_ms = record.until_ms
    if not record.until_ms:
        owners.jumps = ()
    state.dirty[OWNERS].add(THE_ROW)


def time_jumped(state: LedgerState, record: TimeJumped) -> None:
    jump = Jump(record.until_ms, record.jump_ms)
    state.part(Owners).jump(jump, state.entry_time_ms - record.jump_ms)
    state.dirty[OWNERS].add(THE_ROW)


def feature_level_raised(state: LedgerState, record: FeatureLevelRaised) -> None:
    state.feature_level = record.level


def ledger_restored(state: LedgerState, record: LedgerRestored) -> None:
    state.restores.append(record)
    state.objects.keep(record.kept_from_ms, record.kept_to_ms)
    state.objects.lose_entries(record.entries)
    find_inline(state)
