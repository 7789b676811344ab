"""Transactions, as a machine of the registry."""

from ledger.groups.records import GroupRemoved, OffsetsCommitted, OffsetsRemoved
from ledger.machine import Machine
from ledger.partitions.records import FileCommitted
from ledger.transactions.apply import (
    added_to_transaction,
    file_committed,
    group_removed,
    offsets_committed,
    offsets_pended,
    offsets_removed,
    partitions_marked,
    transaction_ended,
    transaction_stored,
    transactional_ids_expired,
)
from ledger.transactions.decide import (
    abort_transaction,
    add_to_transaction,
    end_transaction,
    expire_transactional_ids,
    init_transactional_id,
    pend_offsets,
    write_markers,
)
from ledger.transactions.records import (
    ADDED_TO_TRANSACTION,
    OFFSETS_PENDED,
    PARTITIONS_MARKED,
    TRANSACTION_ENDED,
    TRANSACTION_STORED,
    TRANSACTIONAL_IDS_EXPIRED,
    AddedToTransaction,
    OffsetsPended,
    PartitionsMarked,
    TransactionalIdsExpired,
    TransactionEnded,
    TransactionStored,
)
from ledger.transactions.requests import (
    AbortTransaction,
    AddToTransaction,
    EndTransaction,
    ExpireTransactionalIds,
    InitTransactionalId,
    PendOffsets,
    WriteMarkers,
)
from ledger.transactions.rows import SECTIONS, complete

TRANSACTIONS = Machine(
    decide={
        InitTransactionalId: init_transactional_id,
        AddToTransaction: add_to_transaction,
        EndTransaction: end_transaction,
        AbortTransaction: abort_transaction,
        PendOffsets: pend_offsets,
        WriteMarkers: write_markers,
        ExpireTransactionalIds: expire_transactional_ids,
    },
    formats=(
        TRANSACTION_STORED,
        ADDED_TO_TRANSACTION,
        OFFSETS_PENDED,
        TRANSACTION_ENDED,
        TRANSACTIONAL_IDS_EXPIRED,
        PARTITIONS_MARKED,
    ),
    apply={
        TransactionStored: transaction_stored,
        AddedToTransaction: added_to_transaction,
        OffsetsPended: offsets_pended,
        TransactionEnded: transaction_ended,
        TransactionalIdsExpired: transactional_ids_expired,
        PartitionsMarked: partitions_marked,
        FileCommitted: file_committed,
        OffsetsCommitted: offsets_committed,
        OffsetsRemoved: offsets_removed,
        GroupRemoved: group_removed,
    },
    sections=SECTIONS,
    complete=complete,
    growing=frozenset({InitTransactionalId, PendOffsets}),
)
