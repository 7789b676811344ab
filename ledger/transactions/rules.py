"""What a transactional id becomes by each request: the rules of Kafka's transaction coordinator, without what
they touch (sans-I/O). They were compared with a broker of 4.3.1.

A request is refused by an error name. Both kinds of clients are served at once: those of transaction version
1, whose transactions end without a new epoch, and those of version 2, who get one with every end (KIP-890).
"""

from typing import Final, NamedTuple, TypeAlias

from ledger.errors import ErrorName
from ledger.transactions.state import (
    EXHAUSTED_EPOCH,
    NO_EPOCH,
    NO_PRODUCER,
    NOT_STARTED,
    Status,
    Transaction,
)

NO_MAPPING: Final = ErrorName.INVALID_PRODUCER_ID_MAPPING
FENCED: Final = ErrorName.PRODUCER_FENCED
WRONG_STATE: Final = ErrorName.INVALID_TXN_STATE


class Ended(NamedTuple):
    """How a transaction ends. `marker_epoch`: the epoch of its markers, from which on the partitions refuse
    older ones. `after`: what the id is then."""

    after: Transaction
    marker_epoch: int
    is_commit: bool


class Again(NamedTuple):
    """The request repeats one that was carried out: nothing changes."""

    present: Transaction


Ending: TypeAlias = Ended | Again | ErrorName


class Begun(NamedTuple):
    """What InitProducerId makes of an id. `aborted`: an open transaction, which is aborted before.

    `present` None: that alone happens, and the request is refused as fenced.
    """

    present: Transaction | None
    aborted: Ended | None = None
    uses_new_id: bool = False
    """Whether the new producer id was taken."""


class Expected(NamedTuple):
    """What the producer believes to be (KIP-360)."""

    producer_id: int
    epoch: int


def begin(
    known: Transaction | None,
    name: str,
    timeout_ms: int,
    expected: Expected | None,
    new_producer_id: int,
    now_ms: int,
) -> Begun | ErrorName:
    """InitProducerId of a transactional id. An open transaction is aborted in the same step: a broker does so
    too, but lets the producer ask again meanwhile.

    As there, any producer with the right producer id aborts it, and learns only then that it is fenced.
    """
    if known is None:
        return Begun(_fresh(name, new_producer_id, timeout_ms, now_ms), uses_new_id=True)
    if expected is not None and not _may_expect(known, expected):
        return FENCED
    aborted = None
    if known.is_open:
        aborted = fence(known, now_ms)
        known = aborted.after
    if known.is_exhausted and _may_rotate(known, expected):
        rotated = _rotated(known, new_producer_id, NO_EPOCH if expected is None else expected.epoch)
        return Begun(_emptied(rotated, timeout_ms, now_ms), aborted, uses_new_id=True)
    bumped = _bumped(known, expected)
    if bumped is None:
        return Begun(None, aborted) if aborted is not None else FENCED
    return Begun(_emptied(bumped, timeout_ms, now_ms), aborted)


def _may_expect(known: Transaction, expected: Expected) -> bool:
    if expected.producer_id == known.producer_id:
        return True
    # It did not hear of its new producer id.
    return expected.producer_id == known.previous_producer_id and expected.epoch >= EXHAUSTED_EPOCH


def _may_rotate(known: Transaction, expected: Expected | None) -> bool:
    """Whether this producer goes on with a new producer id. With the greatest epoch an id is fenced for good:
    the producer that had the one before it would get that one by KIP-360, and none after it."""
    if expected is None or expected.epoch == known.epoch:
        return True
    return known.epoch > EXHAUSTED_EPOCH and expected == (known.producer_id, known.last_epoch)


def _bumped(known: Transaction, expected: Expected | None) -> Transaction | None:
    if expected is None:
        return known._replace(epoch=known.epoch + 1, last_epoch=NO_EPOCH)
    if expected.epoch == known.epoch and expected.producer_id == known.producer_id:
        return known._replace(epoch=known.epoch + 1, last_epoch=known.epoch)
    if expected.epoch == known.last_epoch:
        return known
    return None


def _fresh(name: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    return Transaction(
        name, producer_id, 0, NO_EPOCH, NO_PRODUCER, timeout_ms, Status.EMPTY, NOT_STARTED, now_ms
    )


def _emptied(transaction: Transaction, timeout_ms: int, now_ms: int) -> Transaction:
    return transaction._replace(
        timeout_ms=timeout_ms, status=Status.EMPTY, started_ms=NOT_STARTED, updated_ms=now_ms
    )


def _rotated(known: Transaction, producer_id: int, last_epoch: int) -> Transaction:
    return known._replace(
        producer_id=producer_id, epoch=0, last_epoch=last_epoch, previous_producer_id=known.producer_id
    )


def verify(known: Transaction | None, producer_id: int, epoch: int) -> ErrorName | None:
    """Why this producer may not add anything to its transaction; None if it may."""
    if known is None or known.producer_id != producer_id:
        return NO_MAPPING
    return FENCED if epoch != known.epoch or epoch > EXHAUSTED_EPOCH else None


def go_on(known: Transaction, now_ms: int) -> Transaction:
    """Something is added to the transaction, which begins with it unless it is open."""
    started_ms = known.started_ms if known.is_open else now_ms
    return known._replace(status=Status.ONGOING, started_ms=started_ms, updated_ms=now_ms)


def end(known: Transaction | None, producer_id: int, epoch: int, is_commit: bool, now_ms: int) -> Ending:
    """EndTxn of a client of transaction version 1."""
    if known is None or known.producer_id != producer_id:
        return NO_MAPPING
    if epoch != known.epoch:
        return FENCED
    if known.is_open:
        return Ended(_completed(known, is_commit, now_ms), known.epoch, is_commit)
    return Again(known) if known.status is _outcome(is_commit) else WRONG_STATE


def end_and_bump(
    known: Transaction | None, expected: Expected, is_commit: bool, new_producer_id: int, now_ms: int
) -> Ending:
    """EndTxn of a client of transaction version 2, which goes on with the next epoch. A transaction to which
    nothing was added can be aborted, not committed. `new_producer_id` is taken if `after` has it."""
    if known is None:
        return NO_MAPPING
    is_first = expected.producer_id == known.producer_id
    if not is_first and not _is_end_before_rotation(known, expected):
        return NO_MAPPING
    if not is_first or expected.epoch == known.epoch - 1:
        return _ended_before(known, is_commit)
    if expected.epoch != known.epoch:
        return FENCED
    if is_commit and not known.is_open:
        return WRONG_STATE
    completed = _completed(known, is_commit, now_ms)
    if not known.is_open:
        completed = completed._replace(started_ms=now_ms)
    if known.is_exhausted:
        after = _rotated(completed, new_producer_id, known.epoch)
    else:
        after = completed._replace(epoch=known.epoch + 1, last_epoch=known.epoch)
    return Ended(after, _next_epoch(known), is_commit)


def _is_end_before_rotation(known: Transaction, expected: Expected) -> bool:
    is_previous = expected.producer_id == known.previous_producer_id
    return is_previous and known.epoch == 0 and expected.epoch == EXHAUSTED_EPOCH


def _ended_before(known: Transaction, is_commit: bool) -> Ending:
    """The producer ends a transaction for the second time, as it did not hear of the first."""
    if known.status in (Status.EMPTY, Status.ONGOING) or known.epoch > EXHAUSTED_EPOCH:
        return FENCED
    return Again(known) if known.status is _outcome(is_commit) else WRONG_STATE


def fence(known: Transaction, now_ms: int) -> Ended:
    """Abort an open transaction and refuse its producer from now on: it took too long, or another one has its
    id."""
    epoch = _next_epoch(known)
    after = _completed(known, False, now_ms)._replace(epoch=epoch, last_epoch=known.epoch)
    return Ended(after, epoch, is_commit=False)


def _next_epoch(known: Transaction) -> int:
    """Of a marker. The greatest one is followed by none."""
    return min(known.epoch, EXHAUSTED_EPOCH) + 1


def _completed(known: Transaction, is_commit: bool, now_ms: int) -> Transaction:
    return known._replace(status=_outcome(is_commit), updated_ms=now_ms)


def _outcome(is_commit: bool) -> Status:
    return Status.COMMITTED if is_commit else Status.ABORTED
