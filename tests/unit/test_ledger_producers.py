"""What a batch is to a partition that remembers its producer (KIP-98)."""

import pytest

from ledger.partitions.producers import (
    FRESH,
    MAX_SEQUENCE,
    Fenced,
    OutOfOrder,
    ProducerState,
    Repeat,
    Verdict,
    add_sequence,
    judge,
)


def remembered(*batches: tuple[int, int], epoch: int = 3) -> ProducerState:
    """Batches of (first, last) sequence; each gets as its base offset 100 more than the one before."""
    state = ProducerState(epoch)
    for at, (first, last) in enumerate(batches):
        state.record(epoch, first, last, 100 * at, at)
    return state


@pytest.mark.parametrize(
    ("first", "last", "verdict"),
    [
        (5, 7, FRESH),
        (3, 4, Repeat(100)),
        (0, 2, Repeat(0)),
        (6, 7, OutOfOrder(5)),
        (4, 4, OutOfOrder(5)),
        (3, 5, OutOfOrder(5)),
        (0, 4, OutOfOrder(5)),
    ],
)
def test_a_batch_is_the_next_a_repeat_or_out_of_order(first: int, last: int, verdict: Verdict) -> None:
    assert judge(remembered((0, 2), (3, 4)), 3, first, last) == verdict


def test_the_last_five_batches_are_remembered_and_no_sixth() -> None:
    state = remembered(*[(n, n) for n in range(7)])
    assert [judge(state, 3, n, n) for n in range(8)] == [
        OutOfOrder(7),
        OutOfOrder(7),
        *[Repeat(100 * n) for n in range(2, 7)],
        FRESH,
    ]


def test_sequences_continue_at_0_after_the_largest() -> None:
    assert add_sequence(MAX_SEQUENCE, 1) == 0
    assert add_sequence(MAX_SEQUENCE - 1, 3) == 1
    state = remembered((MAX_SEQUENCE - 1, MAX_SEQUENCE))
    assert judge(state, 3, 0, 0) == FRESH
    assert judge(state, 3, MAX_SEQUENCE, 0) == OutOfOrder(0)
    across = remembered((MAX_SEQUENCE, 1))
    assert judge(across, 3, 2, 2) == FRESH
    assert judge(across, 3, MAX_SEQUENCE, 1) == Repeat(0)


def test_an_older_epoch_is_fenced_even_with_the_next_sequence() -> None:
    assert judge(remembered((0, 2)), 2, 3, 3) == Fenced(3)


def test_a_newer_epoch_begins_at_0_and_forgets_the_batches_before_it() -> None:
    state = remembered((0, 2))
    assert judge(state, 4, 3, 3) == OutOfOrder(0)
    assert judge(state, 4, 0, 2) == FRESH
    state.record(4, 0, 2, 900, 9)
    assert (state.epoch, state.batches, state.last_ms) == (4, [(0, 2, 900)], 9)
    assert judge(state, 4, 0, 2) == Repeat(900)


def test_a_producer_of_which_nothing_is_remembered_may_begin_anywhere() -> None:
    assert judge(None, 0, 77, 80) == FRESH


def test_without_an_epoch_any_sequence_goes_and_a_repeat_is_still_one() -> None:
    assert judge(None, -1, 5, 5) == FRESH
    assert judge(remembered((0, 2), epoch=-1), -1, 9, 9) == FRESH
    assert judge(remembered((0, 2), epoch=-1), -1, 0, 2) == Repeat(0)
    assert judge(remembered((0, 2)), -1, 3, 3) == Fenced(3)


def test_a_producer_without_an_epoch_may_begin_one_at_any_sequence() -> None:
    assert judge(remembered((0, 2), epoch=-1), 0, 5, 6) == FRESH


def test_an_epoch_below_none_is_fenced() -> None:
    assert judge(None, -2, 0, 0) == Fenced(-1)


def test_what_comes_after_a_batch_leaves_the_state_before_it_alone() -> None:
    state = remembered((0, 2))
    after = state.after(3, 3, 3, 5)
    after.record(4, 0, 0, 6, 6)
    assert state == remembered((0, 2))
    assert state.after(3, 3, 3, 5).batches == [(0, 2, 0), (3, 3, 5)]
    assert state.after(4, 0, 0, 5).batches == [(0, 0, 5)]


def test_a_batch_is_found_by_both_sequences_and_never_by_chance() -> None:
    # The bytes of the base offset look like the sequences of a batch.
    state = ProducerState(3)
    state.record(3, 0, 2, (5 << 32) + 6, 0)
    assert judge(state, 3, 5, 6) == OutOfOrder(3)
