"""Where two states of one entry differ, in words."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ledger.cluster.apply import OWNERS
from ledger.cluster.rows import RESTORED
from ledger.groups.rows import GROUP, OFFSET
from ledger.image import all_rows, key_decoders
from ledger.objects.rows import OBJECT, UPLOADER
from ledger.partitions.isolation_rows import ABORTED_TRANSACTION, OPEN_TRANSACTION
from ledger.partitions.rows import CHUNK, PARTITION, PRODUCER
from ledger.rows import META, Row, digest
from ledger.settings.rows import QUOTA, RESOURCE_CONFIG
from ledger.state import LedgerState
from ledger.swaps.rows import PIN, SWAP_RESULT
from ledger.topics.rows import TOPIC
from ledger.transactions.rows import PENDING, TRANSACTION

SHOWN: Final = 3
WHAT_ROWS_SAY: Final[Mapping[int, str]] = MappingProxyType(
    {
        META: "the numbers of the whole ledger",
        TOPIC: "a topic",
        PARTITION: "offsets",
        CHUNK: "runs",
        PRODUCER: "a producer",
        OBJECT: "an object",
        RESTORED: "a restore",
        GROUP: "a group",
        OFFSET: "a committed offset",
        QUOTA: "a quota",
        RESOURCE_CONFIG: "configs",
        UPLOADER: "an uploader",
        OWNERS: "owners",
        PIN: "a pin",
        SWAP_RESULT: "the result of a swap",
        OPEN_TRANSACTION: "an open transaction",
        ABORTED_TRANSACTION: "an aborted transaction",
        TRANSACTION: "a transactional id",
        PENDING: "an offset that a transaction commits",
    }
)
OF_PARTITIONS: Final = (PARTITION, CHUNK, PRODUCER, OPEN_TRANSACTION, ABORTED_TRANSACTION)
"""Their keys are the number of a partition, or begin with it."""


def state_digest(state: LedgerState) -> bytes:
    """The same for two states that say the same."""
    return digest(all_rows(state))


def differences(one: LedgerState, other: LedgerState) -> str:
    """What the rows are about that only one of them has, or that they have with other values. Holds the rows
    of both: to be called only when their digests differ."""
    found = [_in_words(one, row.section, row.key) for row in _differing(one, other)]
    more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def _differing(one: LedgerState, other: LedgerState) -> Iterator[Row]:
    rows = {(row.section, row.key): row for row in all_rows(other)}
    for row in all_rows(one):
        if rows.pop((row.section, row.key), None) != row:
            yield row
    yield from rows.values()


def _in_words(state: LedgerState, section: int, key: bytes) -> str:
    what = WHAT_ROWS_SAY.get(section, f"section {section}")
    if section not in OF_PARTITIONS:
        return what
    number = key_decoders()[section](key)
    log = state.logs.get(number if section == PARTITION else number[0])
    topic = state.topics.by_id.get(log.topic_id) if log is not None else None
    return what if log is None or topic is None else f"{what} of {topic.name}-{log.index}"
