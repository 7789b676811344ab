"""What a transactional id becomes by each request. The tables were taken from a broker of Kafka 4.3.1."""

import pytest

from ledger.errors import ErrorName
from ledger.transactions import rules
from ledger.transactions.rules import Again, Begun, Ended, Expected
from ledger.transactions.state import (
    EXHAUSTED_EPOCH,
    NO_EPOCH,
    NO_PRODUCER,
    NOT_STARTED,
    Status,
    Transaction,
)

NEW = 77
NOW = 5_000
FENCED, NO_MAPPING, WRONG_STATE = (
    ErrorName.PRODUCER_FENCED,
    ErrorName.INVALID_PRODUCER_ID_MAPPING,
    ErrorName.INVALID_TXN_STATE,
)


def known(
    status: Status = Status.EMPTY,
    epoch: int = 3,
    last_epoch: int = NO_EPOCH,
    previous: int = NO_PRODUCER,
) -> Transaction:
    started = NOT_STARTED if status is Status.EMPTY else 1_000
    return Transaction("t", 10, epoch, last_epoch, previous, 60_000, status, started, 2_000)


def begin(transaction: Transaction | None, expected: tuple[int, int] | None = None) -> Begun | ErrorName:
    return rules.begin(
        transaction, "t", 30_000, Expected(*expected) if expected is not None else None, NEW, NOW
    )


def given(begun: Begun | ErrorName) -> tuple[int, int] | ErrorName:
    """Producer id and epoch, or why there are none."""
    if isinstance(begun, ErrorName):
        return begun
    return FENCED if begun.present is None else (begun.present.producer_id, begun.present.epoch)


@pytest.mark.parametrize("status", [Status.EMPTY, Status.COMMITTED, Status.ABORTED])
@pytest.mark.parametrize(
    ("expected", "result"),
    [
        (None, (10, 4)),
        ((10, 3), (10, 4)),
        ((10, 2), FENCED),
        ((10, 4), FENCED),
        ((11, 3), FENCED),
    ],
    ids=["a new producer", "its own epoch", "an older one", "a later one", "another producer"],
)
def test_a_new_epoch_begins_for_the_producer_that_has_the_present_one(
    status: Status, expected: tuple[int, int] | None, result: tuple[int, int] | ErrorName
) -> None:
    assert given(begin(known(status), expected)) == result


def test_a_producer_that_did_not_hear_of_its_epoch_gets_it_again() -> None:
    first = begin(known(), (10, 3))
    assert isinstance(first, Begun) and first.present is not None
    assert given(begin(first.present, (10, 3))) == given(first) == (10, 4)
    assert given(begin(first.present, (10, 4))) == (10, 5)


def test_a_new_producer_leaves_the_one_before_no_second_try() -> None:
    first = begin(known(), None)
    assert isinstance(first, Begun) and first.present is not None
    assert given(begin(first.present, (10, 3))) == FENCED


def test_an_unknown_id_gets_a_producer_id_whatever_is_expected() -> None:
    for expected in (None, (5, 3)):
        begun = begin(None, expected)
        assert given(begun) == (NEW, 0)
        assert isinstance(begun, Begun) and begun.uses_new_id
        assert begun.present is not None and begun.present.status is Status.EMPTY


@pytest.mark.parametrize(
    ("expected", "result"),
    [(None, (10, 5)), ((10, 3), (10, 4)), ((10, 2), FENCED), ((11, 3), FENCED)],
    ids=["a new producer", "its own", "an older one", "another producer"],
)
def test_an_open_transaction_is_aborted_before(
    expected: tuple[int, int] | None, result: tuple[int, int] | ErrorName
) -> None:
    begun = begin(known(Status.ONGOING), expected)
    assert given(begun) == result
    if expected == (11, 3):
        assert begun == FENCED
        return
    assert isinstance(begun, Begun) and begun.aborted is not None
    assert (begun.aborted.marker_epoch, begun.aborted.is_commit) == (4, False)
    assert begun.aborted.after.status is Status.ABORTED


@pytest.mark.parametrize("expected", [None, (10, EXHAUSTED_EPOCH)], ids=["a new producer", "its own"])
def test_a_producer_id_without_further_epochs_is_replaced(expected: tuple[int, int] | None) -> None:
    begun = begin(known(epoch=EXHAUSTED_EPOCH), expected)
    assert given(begun) == (NEW, 0)
    assert isinstance(begun, Begun) and begun.present is not None
    again = begin(begun.present, (10, EXHAUSTED_EPOCH))
    assert given(again) == (FENCED if expected is None else (NEW, 0))


def test_a_producer_that_was_fenced_by_the_greatest_epoch_is_never_given_it() -> None:
    """With that epoch its next transaction could not end: there is none for the markers."""
    own = (10, EXHAUSTED_EPOCH)
    timed_out = rules.fence(known(Status.ONGOING, epoch=EXHAUSTED_EPOCH), NOW).after
    for transaction in (known(Status.ONGOING, epoch=EXHAUSTED_EPOCH), timed_out):
        begun = begin(transaction, own)
        assert given(begun) == (NEW, 0)
        assert isinstance(begun, Begun) and begun.present is not None
        assert given(begin(begun.present, own)) == (NEW, 0)
    assert rules.end_and_bump(timed_out, Expected(*own), False, NEW, NOW) == FENCED


@pytest.mark.parametrize("status", [Status.EMPTY, Status.ABORTED, Status.ONGOING])
def test_nothing_is_added_with_the_greatest_epoch(status: Status) -> None:
    transaction = known(status, epoch=EXHAUSTED_EPOCH + 1, last_epoch=EXHAUSTED_EPOCH)
    assert rules.verify(transaction, 10, EXHAUSTED_EPOCH + 1) == FENCED


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_is_open_with_the_greatest_epoch_ends_with_it(is_commit: bool) -> None:
    greatest = EXHAUSTED_EPOCH + 1
    transaction = known(Status.ONGOING, epoch=greatest, last_epoch=EXHAUSTED_EPOCH)
    ended = rules.end_and_bump(transaction, Expected(10, greatest), is_commit, NEW, NOW)
    assert isinstance(ended, Ended)
    assert (ended.after.producer_id, ended.after.epoch, ended.marker_epoch) == (NEW, 0, greatest)
    assert rules.fence(transaction, NOW).marker_epoch == greatest


def test_the_last_epoch_but_one_is_given() -> None:
    assert given(begin(known(epoch=EXHAUSTED_EPOCH - 1), (10, EXHAUSTED_EPOCH - 1))) == (10, EXHAUSTED_EPOCH)


@pytest.mark.parametrize(
    ("transaction", "producer", "epoch", "why"),
    [
        (None, 10, 3, NO_MAPPING),
        (known(), 11, 3, NO_MAPPING),
        (known(), 10, 2, FENCED),
        (known(), 10, 4, FENCED),
        (known(), 10, 3, None),
    ],
    ids=["unknown id", "another producer", "older epoch", "later epoch", "the present one"],
)
def test_only_the_present_producer_may_add_to_a_transaction(
    transaction: Transaction | None, producer: int, epoch: int, why: ErrorName | None
) -> None:
    assert rules.verify(transaction, producer, epoch) == why


def test_a_transaction_begins_with_what_is_added_first() -> None:
    begun = rules.go_on(known(Status.COMMITTED), NOW)
    assert (begun.status, begun.started_ms) == (Status.ONGOING, NOW)
    assert rules.go_on(begun, NOW + 1).started_ms == NOW


END = [
    # status, epoch of the request, commit -> what version 1 does, and version 2
    (Status.EMPTY, 3, True, WRONG_STATE, WRONG_STATE),
    (Status.EMPTY, 3, False, WRONG_STATE, "bumped"),
    (Status.EMPTY, 2, True, FENCED, FENCED),
    (Status.EMPTY, 2, False, FENCED, FENCED),
    (Status.ONGOING, 3, True, "ended", "ended"),
    (Status.ONGOING, 3, False, "ended", "ended"),
    (Status.ONGOING, 2, True, FENCED, FENCED),
    (Status.ONGOING, 4, True, FENCED, FENCED),
    (Status.COMMITTED, 3, True, "again", WRONG_STATE),
    (Status.COMMITTED, 3, False, WRONG_STATE, "bumped"),
    (Status.COMMITTED, 2, True, FENCED, "again"),
    (Status.COMMITTED, 2, False, FENCED, WRONG_STATE),
    (Status.ABORTED, 3, False, "again", "bumped"),
    (Status.ABORTED, 3, True, WRONG_STATE, WRONG_STATE),
    (Status.ABORTED, 2, False, FENCED, "again"),
    (Status.ABORTED, 2, True, FENCED, WRONG_STATE),
    (Status.ABORTED, 1, False, FENCED, FENCED),
]


@pytest.mark.parametrize(("status", "epoch", "is_commit", "version_1", "version_2"), END)
def test_a_transaction_is_ended_once_and_a_repeat_gets_the_same(
    status: Status, epoch: int, is_commit: bool, version_1: str, version_2: str
) -> None:
    first = rules.end(known(status), 10, epoch, is_commit, NOW)
    second = rules.end_and_bump(known(status), Expected(10, epoch), is_commit, NEW, NOW)
    for ending, wanted in ((first, version_1), (second, version_2)):
        match ending:
            case Ended(after=after, marker_epoch=marker, is_commit=outcome):
                assert wanted in ("ended", "bumped")
                assert outcome is is_commit
                assert after.status is (Status.COMMITTED if is_commit else Status.ABORTED)
                bump = 0 if ending is first else 1
                assert (after.producer_id, after.epoch, marker) == (10, 3 + bump, 3 + bump)
            case Again(present=present):
                assert (wanted, present) == ("again", known(status))
            case refusal:
                assert refusal == wanted


def test_another_producer_cannot_end_it() -> None:
    for transaction in (None, known(Status.ONGOING)):
        assert rules.end(transaction, 11, 3, True, NOW) == NO_MAPPING
        assert rules.end_and_bump(transaction, Expected(11, 3), True, NEW, NOW) == NO_MAPPING


def test_the_last_end_of_a_producer_id_gives_a_new_one_and_its_repeat_the_same() -> None:
    last = Expected(10, EXHAUSTED_EPOCH)
    ended = rules.end_and_bump(known(Status.ONGOING, epoch=EXHAUSTED_EPOCH), last, True, NEW, NOW)
    assert isinstance(ended, Ended)
    assert (ended.after.producer_id, ended.after.epoch, ended.marker_epoch) == (NEW, 0, EXHAUSTED_EPOCH + 1)
    assert rules.end_and_bump(ended.after, last, True, 78, NOW) == Again(ended.after)
    assert rules.end_and_bump(ended.after, last, False, 78, NOW) == WRONG_STATE


def test_a_transaction_that_took_too_long_leaves_its_producer_a_way_on() -> None:
    fenced = rules.fence(known(Status.ONGOING), NOW)
    assert (fenced.after.epoch, fenced.marker_epoch, fenced.is_commit) == (4, 4, False)
    assert rules.end(fenced.after, 10, 3, True, NOW) == FENCED
    assert given(begin(fenced.after, (10, 3))) == (10, 4)
    assert given(begin(fenced.after, None)) == (10, 5)


def test_fencing_never_goes_beyond_the_greatest_epoch() -> None:
    fenced = rules.fence(known(Status.ONGOING, epoch=EXHAUSTED_EPOCH), NOW)
    assert fenced.after.epoch == EXHAUSTED_EPOCH + 1 == 2**15 - 1
    assert given(begin(fenced.after, None)) == (NEW, 0)
