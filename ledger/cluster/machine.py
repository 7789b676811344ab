"""The cluster as a whole, as a machine of the registry."""

from ledger.cluster.apply import cluster_created, feature_level_raised, ledger_restored, owner_changed
from ledger.cluster.decide import become_owner
from ledger.cluster.records import (
    CLUSTER_CREATED,
    FEATURE_LEVEL_RAISED,
    LEDGER_RESTORED,
    OWNER_CHANGED,
    ClusterCreated,
    FeatureLevelRaised,
    LedgerRestored,
    OwnerChanged,
)
from ledger.cluster.requests import BecomeOwner
from ledger.cluster.rows import SECTIONS
from ledger.machine import Machine

CLUSTER = Machine(
    decide={BecomeOwner: become_owner},
    formats=(CLUSTER_CREATED, OWNER_CHANGED, LEDGER_RESTORED, FEATURE_LEVEL_RAISED),
    apply={
        ClusterCreated: cluster_created,
        OwnerChanged: owner_changed,
        FeatureLevelRaised: feature_level_raised,
        LedgerRestored: ledger_restored,
    },
    sections=SECTIONS,
)
