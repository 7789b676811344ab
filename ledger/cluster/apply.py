"""Applying the metadata records about the cluster as a whole."""

from ledger.cluster.owners import KEPT_EPOCHS, Epoch, Owners
from ledger.cluster.records import (
    ClusterCreated,
    FeatureLevelRaised,
    LedgerRestored,
    OwnerChanged,
    OwnerDescribed,
    TimeHeld,
)
from ledger.records import LEVEL_WITH_ORIGINS
from ledger.state import LedgerState

OWNERS = 12
"""The section of image rows."""
THE_ROW = 0
"""Its only key."""


def cluster_created(state: LedgerState, record: ClusterCreated) -> None:
    state.cluster_id = record.cluster_id


def owner_changed(state: LedgerState, record: OwnerChanged) -> None:
    state.epoch = record.epoch
    if state.feature_level < LEVEL_WITH_ORIGINS:
        # Rows of that level do not have it.
        return
    owners = state.part(Owners)
    owners.store = ""
    newest = Epoch(record.epoch, record.gateway, state.entry_time_ms)
    owners.epochs = (*owners.epochs, newest)[-KEPT_EPOCHS:]
    state.dirty[OWNERS].add(THE_ROW)


def owner_described(state: LedgerState, record: OwnerDescribed) -> None:
    owners = state.part(Owners)
    newest = owners.epochs[-1]._replace(host=record.host, address=record.address)
    owners.epochs = (*owners.epochs[:-1], newest)
    owners.store = record.store
    state.dirty[OWNERS].add(THE_ROW)


def time_held(state: LedgerState, record: TimeHeld) -> None:
    state.part(Owners).held_until_ms = record.until_ms
    state.dirty[OWNERS].add(THE_ROW)


def feature_level_raised(state: LedgerState, record: FeatureLevelRaised) -> None:
    state.feature_level = record.level


def ledger_restored(state: LedgerState, record: LedgerRestored) -> None:
    state.restores.append(record)
    state.objects.keep(record.kept_from_ms, record.kept_to_ms)
