"""Seeds of histories: what the gateway has promised its clients holds, whatever the stores and crashes do.

python -m tests.sim SEED    # lives through one of them again
"""

import asyncio
import os
from collections.abc import Sequence
from functools import partial

import pytest

from gateway.coordination import opening
from gateway.coordination.recovery import Recovered, recover
from ledger.overlay import Overlay
from ledger.partitions.producers import FRESH
from ledger.ports import PutOutcome, Won
from ledger.state import LedgerState
from ledger.swaps import decide
from ledger.swaps.requests import SwapSegments
from ledger.swaps.state import Pin, SwapsOfEntry
from tests.sim.history import history, lived
from tests.sim.stores import LivedMetadata, forgotten

SEEDS = 4_000 if os.environ.get("DRAGOMAN_TEST_FULL") else 200
AT_ONCE = 20
SABOTAGED_SEEDS = 12
"""One of so many shows every sabotage below."""


def wrong_in(seeds: Sequence[int]) -> list[str]:
    found = []
    for seed in seeds:
        if wrong := lived(partial(history, seed)).wrong:
            found.append("\n  ".join([f"python -m tests.sim {seed}", *wrong]))
    return found


def shows(reason: str) -> bool:
    seeds = range(SABOTAGED_SEEDS)
    return any(reason in wrong for seed in seeds for wrong in lived(partial(history, seed)).wrong)


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_every_promise_is_kept(first: int) -> None:
    wrong = wrong_in(range(first, min(first + AT_ONCE, SEEDS)))
    assert not wrong, "\n".join(wrong)


def test_histories_have_all_that_a_gateway_writes() -> None:
    lives = [lived(partial(history, seed)) for seed in range(20)]
    found = {key.partition("/")[0] for life in lives for key, _ in life.written}
    assert found >= {"journal", "wal", "log", "seg", "snapshot", "archive", "journal-start", "image", "claim"}
    assert sum(life.swapped for life in lives) > 40


def test_an_acknowledgement_before_the_journal_is_durable_would_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    true_put = LivedMetadata.put

    async def early(self: LivedMetadata, key: str, value: bytes, expect: str | None) -> PutOutcome:
        putting = asyncio.ensure_future(true_put(self, key, value, expect))
        putting.add_done_callback(forgotten)
        return Won("early")

    monkeypatch.setattr(LivedMetadata, "put", early)
    assert shows("was given to two batches")


def test_a_batch_that_is_taken_twice_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.partitions.commit.judge", lambda *_: FRESH)
    assert shows("are stored twice")


def test_a_swap_of_a_job_whose_pin_has_expired_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep deletes a segment that its job names only then."""
    true_find = getattr(decide, "_find")  # noqa: B009 - what is sabotaged is private

    def find(state: LedgerState, overlay: Overlay, request: SwapSegments) -> object:
        pins = overlay.part(SwapsOfEntry).pins
        with monkeypatch.context() as patched:
            patched.setitem(pins, request.job, Pin(0, 0))
            return true_find(state, overlay, request)

    monkeypatch.setattr(decide, "_find", find)
    assert shows("the clients do not come to an end")


def test_offset_commits_that_a_restart_forgets_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgetful(*stores: object) -> Recovered:
        recovered = await recover(*stores)  # type: ignore[arg-type]
        recovered.state.groups.offsets.clear()
        return recovered

    monkeypatch.setattr(opening, "recover", forgetful)
    assert shows("committed -1")
