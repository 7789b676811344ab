"""Seeds of histories of transactions: readers see each that was committed whole, and nothing of any other.

python -m tests.sim tSEED    # lives through one of them again
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from gateway.coordination import opening
from gateway.coordination.recovery import Recovered, recover
from gateway.transactions.expiry import TransactionExpiry
from ledger.merging.found import FoundRun
from ledger.merging.merge import swap_of
from ledger.partitions.isolation import Isolation
from ledger.partitions.markers import marker_bytes, marker_run
from ledger.partitions.state import PartitionLog
from ledger.swaps.requests import SwapSegments
from ledger.transactions import apply, rules
from ledger.transactions.rules import Ending, Expected
from ledger.transactions.state import Transaction, Transactions
from tests.sim.history import TRANSACTIONAL_IDS, TRANSACTIONS, history, lived

SEEDS = 2_000 if os.environ.get("DRAGOMAN_TEST_FULL") else 16
AT_ONCE = 8
SABOTAGED_SEEDS = 6
"""One of so many shows every sabotage below."""


def wrong_in(seeds: Sequence[int]) -> list[str]:
    found, ends_merged = [], 0
    for seed in seeds:
        lived_through = lived(partial(history, seed, is_transactional=True))
        ends_merged += lived_through.ends_merged
        wrong = list(lived_through.wrong)
        if not wrong and lived_through.committed < len(TRANSACTIONAL_IDS) * TRANSACTIONS:
            wrong = [f"{lived_through.committed} transactions were committed"]
        if wrong:
            found.append("\n  ".join([f"python -m tests.sim t{seed}", *wrong]))
    if not ends_merged:
        found.append(f"jobs have merged no end of a transaction in {seeds}")
    return found


def shows(*reasons: str) -> bool:
    """Whether the histories have a contradiction that has one of these words."""
    for seed in range(SABOTAGED_SEEDS):
        wrong = lived(partial(history, seed, is_transactional=True)).wrong
        if any(reason in sentence for reason in reasons for sentence in wrong):
            return True
    return False


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_invariant_05_each_transaction_is_seen_whole_or_not_at_all(first: int) -> None:
    wrong = wrong_in(range(first, min(first + AT_ONCE, SEEDS)))
    assert not wrong, "\n".join(wrong)


def test_a_last_stable_offset_that_passes_open_transactions_would_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PartitionLog, "last_stable", property(lambda log: log.high_watermark))
    assert shows("last stable offset", "open, is seen")


def test_an_aborted_read_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    true_end = Isolation.end

    def end(self: Isolation, producer_id: int, marker: int, is_commit: bool) -> object:
        return true_end(self, producer_id, marker, True)

    monkeypatch.setattr(Isolation, "end", end)
    assert shows("aborted, is seen")


def test_a_delayed_end_that_ends_a_later_transaction_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    true_end = rules.end_and_bump

    def end(
        known: Transaction | None, expected: Expected, is_commit: bool, new_producer_id: int, now_ms: int
    ) -> Ending:
        if known is not None and known.is_open and expected.epoch == known.epoch - 1:
            expected = Expected(known.producer_id, known.epoch)
        return true_end(known, expected, is_commit, new_producer_id, now_ms)

    monkeypatch.setattr(rules, "end_and_bump", end)
    assert shows("is seen", "of the input", "last stable offset")


def test_a_stuck_last_stable_offset_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(_: TransactionExpiry) -> int:
        return 0

    monkeypatch.setattr(TransactionExpiry, "abort_timed_out", none)
    true_begin = rules.begin

    def begin(known: Transaction | None, *more: object) -> object:
        """What is open stays so."""
        begun = true_begin(known, *more)  # type: ignore[arg-type]
        return begun._replace(aborted=None) if isinstance(begun, rules.Begun) else begun

    monkeypatch.setattr(rules, "begin", begin)
    assert shows("do not come to an end")


def test_a_segment_with_another_end_of_a_transaction_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger knows how it ended, and a job writes something else."""

    def committed(run: FoundRun) -> bytes:
        assert run.marker is not None
        marker = run.marker._replace(is_commit=not run.marker.is_commit)
        return marker_bytes(marker_run(*marker, run.base, run.max_timestamp))

    monkeypatch.setattr(FoundRun, "marker_bytes", property(committed))
    assert shows("records are seen")


def test_a_job_that_forgets_the_end_of_a_transaction_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def swap(*given: object) -> SwapSegments:
        made = swap_of(*given)  # type: ignore[arg-type]
        return replace(made, markers=made.markers[1:])

    monkeypatch.setattr("tests.sim.merging.swap_of", swap)
    assert shows("a swap was refused")


def test_offsets_that_a_commit_forgets_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "put_offsets", lambda *_: None)
    assert shows("of the input")


def test_open_transactions_that_a_restart_forgets_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgetful(*stores: object) -> Recovered:
        recovered = await recover(*stores)  # type: ignore[arg-type]
        for producer_id in list(recovered.state.part(Transactions).open):
            recovered.state.part(Transactions).open[producer_id].partitions.clear()
        return recovered

    monkeypatch.setattr(opening, "recover", forgetful)
    assert shows("do not come to an end", "is seen", "INVALID_TXN_STATE")
