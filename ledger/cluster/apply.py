"""Applying the metadata records about the cluster as a whole."""

from ledger.cluster.records import ClusterCreated, FeatureLevelRaised, LedgerRestored, OwnerChanged
from ledger.state import LedgerState


def cluster_created(state: LedgerState, record: ClusterCreated) -> None:
    state.cluster_id = record.cluster_id


def owner_changed(state: LedgerState, record: OwnerChanged) -> None:
    state.epoch = record.epoch


def feature_level_raised(state: LedgerState, record: FeatureLevelRaised) -> None:
    state.feature_level = record.level


def ledger_restored(state: LedgerState, record: LedgerRestored) -> None:
    state.restores.append(record)
    state.objects.keep(record.kept_from_ms, record.kept_to_ms)
