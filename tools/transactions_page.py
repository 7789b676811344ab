"""docs/transactions.md: what becomes of a transactional id by each request, found by carrying the rules out.

The tables are not written by hand: every request is put to `ledger/transactions/rules.py` in every state, and
what comes out is printed.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ledger.errors import ErrorName
from ledger.transactions import rules
from ledger.transactions.decide import MAX_TRANSACTIONAL_IDS
from ledger.transactions.requests import MAX_GROUPS, MAX_PARTITIONS, MAX_PENDING, MAX_TOUCHED
from ledger.transactions.rules import Again, Begun, Ended, Expected
from ledger.transactions.state import NO_EPOCH, NO_PRODUCER, NOT_STARTED, Status, Transaction

NOW_MS: Final = 2_000
NEW_ID: Final = 8
EPOCH: Final = 4
Outcome: TypeAlias = str
Request: TypeAlias = Callable[[Transaction | None], Outcome]

MEANINGS: Final[Mapping[Status, str]] = {
    Status.EMPTY: "a producer has the id, and has no transaction yet",
    Status.ONGOING: "a transaction is open: it has partitions or offsets of groups",
    Status.COMMITTED: "the last transaction was committed",
    Status.ABORTED: "the last transaction was aborted",
}


def _known(status: Status) -> Transaction:
    started_ms = NOT_STARTED if status is Status.EMPTY else 1_000
    return Transaction("id", 7, EPOCH, NO_EPOCH, NO_PRODUCER, 60_000, status, started_ms, 1_000)


def _became(before: Transaction | None, after: Transaction) -> Outcome:
    if before is None:
        return f"{after.status}, a new producer id"
    grown = after.epoch - before.epoch
    return after.status + (f", epoch + {grown}" if grown else "")


def _init(known: Transaction | None) -> Outcome:
    begun = rules.begin(known, "id", 60_000, None, NEW_ID, NOW_MS)
    assert isinstance(begun, Begun) and begun.present is not None
    aborted = "" if begun.aborted is None else "aborted, then "
    return aborted + _became(known, begun.present)


def _add(known: Transaction | None) -> Outcome:
    refused = rules.verify(known, 7, EPOCH)
    if known is None or refused is not None:
        return str(refused)
    return _became(known, rules.go_on(known, NOW_MS))


def _end(is_commit: bool, *, bumps: bool) -> Request:
    def ended(known: Transaction | None) -> Outcome:
        if bumps:
            ending = rules.end_and_bump(known, Expected(7, EPOCH), is_commit, NEW_ID, NOW_MS)
        else:
            ending = rules.end(known, 7, EPOCH, is_commit, NOW_MS)
        match ending:
            case ErrorName():
                return str(ending)
            case Again():
                return "unchanged"
            case Ended(after=after):
                return _became(known, after)

    return ended


def _time_out(known: Transaction | None) -> Outcome:
    if known is None or not known.is_open:
        return ""
    return _became(known, rules.fence(known, NOW_MS).after)


REQUESTS: Final[Mapping[str, Request]] = {
    "InitProducerId": _init,
    "a partition or group is added": _add,
    "EndTxn 0-4, commit": _end(True, bumps=False),
    "EndTxn 0-4, abort": _end(False, bumps=False),
    "EndTxn 5, commit": _end(True, bumps=True),
    "EndTxn 5, abort": _end(False, bumps=True),
    "its time is over": _time_out,
}

HEAD: Final = """# Transactions

Printed by `tools/print_docs.py`, the tables by carrying out the rules of `ledger/transactions/rules.py`;
a test holds them together.

A producer with a `transactional.id` writes records into many partitions, and commits offsets of groups,
all or nothing. Consumers with `isolation.level=read_committed` see the records of committed transactions
alone. The client libraries do all of this; Kafka Streams (`exactly_once_v2`) and Kafka Connect use it.
Names and responses are those of Apache Kafka, with which the tests compare them: clients of both versions
of the protocol are served (KIP-98, and KIP-890 with a new epoch for every transaction).

[Two libraries may stand still](clients.md), at Kafka too: librdkafka in `send_offsets_to_transaction` when
the connection to its broker breaks (watch the progress of the application from outside, and start it again),
and a consumer of kafka-python while its group changes.

## The states of a transactional id
"""

TAIL: Final = f"""\
An id that is not known, and a producer id that is not the present one, are INVALID_PRODUCER_ID_MAPPING;
another epoch is PRODUCER_FENCED (INVALID_PRODUCER_EPOCH for clients that do not know it). The same EndTxn
again gets the response of the first. In Kafka a transaction is being prepared for a while (PrepareCommit,
PrepareAbort), in which clients get CONCURRENT_TRANSACTIONS; here its end is one entry of the journal, so
these states never are.

## What ends a transaction

- **Its producer**, with a commit or an abort.
- **A new producer with the same transactional id.** The open transaction is aborted, and the producer
  before is fenced, with one line in the log, `transactions.fenced`. So an application that is started again
  goes on at once.
- **Time**, counted by the gateway that owns the journal: what takes longer than the producer's
  `transaction.timeout.ms` (at most `transactions.transaction.max.timeout.ms`) is aborted and its producer
  fenced, with one line in the log, `transaction.timed_out`. It is checked every
  `transactions.transaction.abort.timed.out.transaction.cleanup.interval.ms`. A jump of the clock that is
  in doubt does not count.
- **An operator** (below).

Until then readers of committed records wait at the first record of the transaction, in each of its
partitions. Its end is durable before the response, and every partition has its marker by then. A restart
changes nothing.

An id without an open transaction that no producer has used for
`transactions.transactional.id.expiration.ms` is forgotten: a producer that still has it gets
INVALID_PRODUCER_ID_MAPPING, and starts again.

## For operators

```
dragoman transactions list --state Ongoing --longer-than 60000    # since more than a minute
dragoman transactions describe billing-1
dragoman transactions abort billing-1                             # its producer is fenced
```
`dragoman cluster health` says how many are open, and warns of one that has been open for more than ten
minutes. Kafka's own `kafka-transactions.sh` works too, and these commands work with Apache Kafka. `/metrics`
has how many transactions are open, since when, and how they ended ([metrics.md](metrics.md)).

At Apache Kafka a transaction may hang: a partition has it open, and its coordinator does not know it any
more (`kafka-transactions.sh find-hanging`). `dragoman transactions abort --partition orders:0` lists what is
open in a partition, and ends it there with `--start-offset`. What its coordinator still has open there is
refused with the transactional id: a commit later on would leave half of it. Here partitions and coordinator
share one journal, so none hangs.

## Bounds

A transaction has at most {MAX_PARTITIONS:,} partitions, {MAX_GROUPS:,} groups and {MAX_PENDING:,} offsets
of groups, since all of it ends with one entry; all that are open have {MAX_TOUCHED:,} together. One that
wants more gets TRANSACTION_ABORTABLE. At most {MAX_TRANSACTIONAL_IDS:,} ids are remembered: beyond that a
new one gets COORDINATOR_NOT_AVAILABLE until others are forgotten, and one of more than 1,024 characters
already beyond a 32nd of that
([why](decisions/0063-the-ledger-is-the-transaction-coordinator.md)).

## Merging and export

The end of a transaction (its marker) is no object: the ledger knows it, and makes its batch when it is read.
A [merge](operations.md#merging) puts it into the segment together with the records around it, so the records
of short transactions come into large objects as all others do. The gateway compares the markers of a segment
with its own, and refuses a segment that has one too few, too many or another. Offsets, what is aborted and
the last stable offset stay as they are, and readers of both isolation levels get the same bytes.

`dragoman ledger export` writes what a consumer of `read_committed` sees, or all records with
`--isolation-level read_uncommitted` ([KafScale's layout](operations.md#kafscales-layout)).

## What an audit compares

[`dragoman audit`](operations.md#offline-commands) compares transactions and markers of each partition, from
the log start offset on:

- An aborted transaction ends at a marker of its producer that aborts. Of one that was merged the bytes of the
  segment are read.
- In between its producer has no other marker, as far as markers are not merged yet; after the first offset of
  an open transaction neither.
- The last stable offset after an aborted transaction is not above the first offset of one that was open then.

It cannot say that a marker lacks its aborted transaction: a marker that aborts is right without one where its
transaction was added to a partition into which nothing was written.

## Where it differs from Kafka

- There is no `__transaction_state` and no `__consumer_offsets`: DescribeTransactions does not name the
  groups of a transaction, and not a topic that was deleted meanwhile.
- A topic that is deleted leaves the transaction. If it is created again, it gets no marker, and a client of
  transaction version 1 gets TRANSACTION_ABORTABLE until it has added the new one; Kafka puts the marker into
  the new topic ([why](decisions/0072-transactions-are-in-partitions.md)).
- After DeleteRecords up to the middle of a batch of an open transaction the last stable offset is the log
  start; in Kafka it is the base offset of the batch, below the log start.
- A producer whose open transaction is aborted with the last epoch of its producer id, 32766, gets a new
  producer id when it begins again; Kafka fails then, as it has no further epoch.
- Markers have coordinator epoch 0, whatever WriteTxnMarkers says, and a coordinator is never fenced by it
  (TRANSACTION_COORDINATOR_FENCED): the journal alone decides who coordinates. DescribeProducers returns
  that epoch, or -1, as far as it follows from what a partition remembers of the producer.
- WriteTxnMarkers that names a partition twice is answered; in Kafka it is not.
- Patterns of ListTransactions have at most 2,000 characters, and are refused (INVALID_REGULAR_EXPRESSION)
  where matching an id could take longer than some milliseconds.
"""


def transactions_page() -> str:
    """The whole page."""
    lines = [HEAD, "| state | |", "| --- | --- |"]
    lines += [f"| {status} | {MEANINGS[status]} |" for status in Status]
    states: list[tuple[str, Transaction | None]] = [("(not known)", None)]
    states += [(str(status), _known(status)) for status in Status]
    lines += ["", "| | " + " | ".join(name for name, _ in states) + " |", "| --- |" + " --- |" * len(states)]
    for name, request in REQUESTS.items():
        lines.append("| " + " | ".join([name, *(request(known) for _, known in states)]) + " |")
    return "\n".join([*lines, "", TAIL])
