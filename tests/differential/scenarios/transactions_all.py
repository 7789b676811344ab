"""Every exchange of transactions, in the order in which it is held; the error of each kind of bad input."""

import re
from collections.abc import Mapping
from typing import Final

from gateway.wire.errors import ErrorCode
from tests.differential.exchange import Exchange
from tests.differential.scenarios import (
    transactional_offsets,
    transactional_records,
    transactions,
    transactions_admin,
)

TRANSACTIONS: list[Exchange] = [
    *transactions.EXCHANGES,
    *transactional_records.EXCHANGES,
    *transactional_offsets.EXCHANGES,
    *transactions_admin.EXCHANGES,
]
BAD_INPUT: Final[Mapping[str, ErrorCode]] = {
    "init producer id: the epoch before, v3": ErrorCode.INVALID_PRODUCER_EPOCH,
    "init producer id: the epoch before, v5": ErrorCode.PRODUCER_FENCED,
    "init producer id: another producer id, v5": ErrorCode.PRODUCER_FENCED,
    "init producer id: a timeout of 0, v5": ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    "init producer id: a timeout of 900001, v0": ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    "init producer id: an epoch without a producer id, v5": ErrorCode.INVALID_REQUEST,
    "add partitions: of a stale epoch, v1": ErrorCode.INVALID_PRODUCER_EPOCH,
    "add partitions: of a stale epoch, v3": ErrorCode.PRODUCER_FENCED,
    "add partitions: of an unknown id, v3": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "add partitions: of another producer id, v3": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "add partitions: an unknown partition, v3": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "add partitions: known and unknown, v3": ErrorCode.OPERATION_NOT_ATTEMPTED,
    "add partitions: verified, not added, v4": ErrorCode.TRANSACTION_ABORTABLE,
    "add offsets: of a stale epoch, v4": ErrorCode.PRODUCER_FENCED,
    "end: a late commit of the transaction before, v5": ErrorCode.PRODUCER_FENCED,
    "end: commit, then commit after nothing, v5": ErrorCode.INVALID_TXN_STATE,
    "transactional produce: to a partition that was not added, v8": ErrorCode.INVALID_TXN_STATE,
    "transactional produce: to a partition that was not added, v11": ErrorCode.TRANSACTION_ABORTABLE,
    "transactional produce: to a partition that was not added, v12": ErrorCode.NONE,
    "transactional produce: a first sequence of 4, v11": ErrorCode.NONE,
    "transactional produce: a first sequence of 4, v12": ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    "transactional produce: of a stale epoch, v13": ErrorCode.INVALID_PRODUCER_EPOCH,
    "transactional produce: of another producer id, v13": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "transactional produce: without an id, v13": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "transactional produce: not transactional, while a transaction is open, v13": ErrorCode.INVALID_TXN_STATE,
    "transactional produce: a control batch, v13": ErrorCode.INVALID_RECORD,
    "txn offset commit: of a group that was not added, v3": ErrorCode.INVALID_TXN_STATE,
    "txn offset commit: of a group that was not added, v4": ErrorCode.TRANSACTION_ABORTABLE,
    "txn offset commit: of a group that was not added, v5": ErrorCode.NONE,
    "txn offset commit: of a stale epoch, v5": ErrorCode.INVALID_PRODUCER_EPOCH,
    "txn offset commit: of an unknown member, v5": ErrorCode.UNKNOWN_MEMBER_ID,
    "txn offset commit: of a stale generation, v5": ErrorCode.ILLEGAL_GENERATION,
    "txn offset commit: of a fenced instance, v5": ErrorCode.FENCED_INSTANCE_ID,
    "offset fetch: pending, named, v8": ErrorCode.NONE,
    "offset fetch: pending, named, stable, v8": ErrorCode.UNSTABLE_OFFSET_COMMIT,
    "describe transactions: an unknown id": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    "list transactions: pattern '[', v2": ErrorCode.INVALID_REGULAR_EXPRESSION,
    "write markers: abort of a stale epoch, v1": ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""By the name of an exchange, an error that Kafka's first response has; NONE: all is well in this version."""

_VARIANT: Final = re.compile(r"(pattern .*)?(, level \d)?(, v\d+)?$")


def _short() -> list[Exchange]:
    newest = {_VARIANT.sub("", one.name): one.name for one in TRANSACTIONS}
    of_versions = {(one.api, one.version): one.name for one in reversed(TRANSACTIONS)}
    chosen = {*newest.values(), *of_versions.values(), *BAD_INPUT}
    return [one for one in TRANSACTIONS if one.name in chosen]


SHORT: Final = _short()
"""What every run holds: each in its newest version, each version of an API once, and those of the table."""
