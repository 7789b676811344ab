"""The cluster as a whole, as a machine of the registry."""

from ledger.cluster.apply import (
    cluster_created,
    feature_level_raised,
    ledger_restored,
    owner_changed,
    owner_described,
    time_held,
    time_jumped,
)
from ledger.cluster.decide import become_owner, hold_time, show_life
from ledger.cluster.records import (
    CLUSTER_CREATED,
    FEATURE_LEVEL_RAISED,
    LEDGER_RESTORED,
    OWNER_CHANGED,
    OWNER_DESCRIBED,
    TIME_HELD,
    TIME_JUMPED,
    ClusterCreated,
    FeatureLevelRaised,
    LedgerRestored,
    OwnerChanged,
    OwnerDescribed,
    TimeHeld,
    TimeJumped,
)
from ledger.cluster.requests import BecomeOwner, HoldTime, ShowLife
from ledger.cluster.rows import SECTIONS
from ledger.machine import Machine

CLUSTER = Machine(
    decide={BecomeOwner: become_owner, HoldTime: hold_time, ShowLife: show_life},
    formats=(
        CLUSTER_CREATED,
        OWNER_CHANGED,
        LEDGER_RESTORED,
        FEATURE_LEVEL_RAISED,
        OWNER_DESCRIBED,
        TIME_HELD,
        TIME_JUMPED,
    ),
    apply={
        ClusterCreated: cluster_created,
        OwnerChanged: owner_changed,
        OwnerDescribed: owner_described,
        TimeHeld: time_held,
        TimeJumped: time_jumped,
        FeatureLevelRaised: feature_level_raised,
        LedgerRestored: ledger_restored,
    },
    sections=SECTIONS,
)
