"""Partitions, their runs and producers, as a machine of the registry."""

from ledger.machine import Machine
from ledger.partitions.apply import (
    file_committed,
    producer_ids_reserved,
    producers_expired,
    records_deleted,
    runs_dropped,
)
from ledger.partitions.commit import commit_file, commit_placed
from ledger.partitions.decide import (
    delete_records,
    drain_runs,
    expire_producers,
    forget_producers,
    reserve_producer_ids,
)
from ledger.partitions.isolation_rows import SECTIONS as ISOLATION_SECTIONS
from ledger.partitions.records import (
    FILE_COMMITTED,
    PRODUCER_IDS_RESERVED,
    PRODUCERS_EXPIRED,
    RECORDS_DELETED,
    RUNS_DROPPED,
    FileCommitted,
    ProducerIdsReserved,
    ProducersExpired,
    RecordsDeleted,
    RunsDropped,
)
from ledger.partitions.requests import (
    CommitDraft,
    CommitFile,
    CommitPlaced,
    DeleteRecords,
    DrainRuns,
    ExpireProducers,
    ForgetProducers,
    ReserveProducerIds,
)
from ledger.partitions.rows import SECTIONS, complete

PARTITIONS = Machine(
    decide={
        CommitFile: commit_file,
        CommitPlaced: commit_placed,
        DeleteRecords: delete_records,
        ReserveProducerIds: reserve_producer_ids,
        DrainRuns: drain_runs,
        ExpireProducers: expire_producers,
        ForgetProducers: forget_producers,
    },
    formats=(FILE_COMMITTED, RECORDS_DELETED, RUNS_DROPPED, PRODUCER_IDS_RESERVED, PRODUCERS_EXPIRED),
    apply={
        FileCommitted: file_committed,
        RecordsDeleted: records_deleted,
        RunsDropped: runs_dropped,
        ProducerIdsReserved: producer_ids_reserved,
        ProducersExpired: producers_expired,
    },
    sections=(*SECTIONS, *ISOLATION_SECTIONS),
    complete=complete,
    overlapping=frozenset({CommitDraft, CommitFile, CommitPlaced, ReserveProducerIds}),
    # Not CommitFile: its bytes are stored already. Nor CommitDraft: the produce service refuses batches while
    # there is no space for them.
    growing=frozenset({ReserveProducerIds}),
)
