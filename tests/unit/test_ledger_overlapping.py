"""Two entries of which the second is decided before the first is applied: as if it were decided after it."""

import random
from collections.abc import Sequence

import pytest

from ledger.errors import StoreDamaged
from ledger.groups.requests import CommitOffsets
from ledger.groups.state import OffsetRow
from ledger.image import all_rows
from ledger.journal import apply_entry, decode_entry, encode_entry
from ledger.machine import Decision
from ledger.objects.uploads import Upload, Uploader
from ledger.overlay import CARRIED, Overlay
from ledger.partitions.producers import ProducerBounds
from ledger.partitions.requests import (
    CommitBatch,
    CommitDraft,
    CommitFile,
    CommitPlaced,
    ReserveProducerIds,
)
from ledger.records import NEWEST_LEVEL
from ledger.registry import REGISTRY, decide, encode_record
from ledger.requests import Request
from ledger.rows import digest
from ledger.state import LedgerState
from ledger.topics.requests import CreateTopic
from tests.support.journalled import locator, topic_id

SEEDS = 60
ENTRIES = 40
PARTITIONS, PRODUCERS = 3, 4
UPLOADER = Uploader(1, bytes(16))


class Drawn:
    """Requests of a seed, many of them repeats, gaps and new producers."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.sequences: dict[tuple[int, int], int] = {}
        self.drafts = 0
        self.made: list[Request] = []

    def requests(self) -> Sequence[Request]:
        return [self._one() for _ in range(self.dice.randint(1, 4))]

    def _one(self) -> Request:
        kind = self.dice.random()
        if kind < 0.1:
            return ReserveProducerIds(self.dice.randint(1, 5))
        if kind < 0.2:
            row = OffsetRow(topic_id(1), self.dice.randrange(PARTITIONS + 1), self.dice.randrange(9))
            return CommitOffsets("g", [row])
        if kind < 0.3 and self.made:
            return self.dice.choice(self.made)
        self.made.append(self._commit())
        return self.made[-1]

    def _commit(self) -> CommitFile:
        self.drafts += 1
        # Two drafts share an object.
        batches, start = [], self.drafts % 2 * 1_000
        for _ in range(self.dice.randint(1, 3)):
            batches.append(self._batch(start))
            start += 100
        settled = max(0, self.drafts - self.dice.randint(1, 6))
        upload = Upload(UPLOADER, self.drafts, settled) if self.dice.random() < 0.8 else None
        return CommitFile(locator(self.drafts // 2, 1_000), start, batches, upload=upload)

    def _batch(self, start: int) -> CommitBatch:
        partition, producer = self.dice.randrange(PARTITIONS), self.dice.randrange(-1, PRODUCERS)
        key = partition, producer
        sequence = self.sequences.get(key, 0) + self.dice.choice((0, 0, 0, 0, -2, 2))
        self.sequences[key] = max(sequence, 0) + 2
        known = (producer, 0, max(sequence, 0)) if producer >= 0 else (-1, -1, -1)
        return CommitBatch(topic_id(1), partition, start, 100, 2, 1_000, 0, *known)


def new_state() -> LedgerState:
    state = LedgerState()
    state.feature_level = NEWEST_LEVEL
    state.producer_bounds = ProducerBounds(9, 3)
    apply(state, [decide(state, Overlay(state), CreateTopic("t", topic_id(1), PARTITIONS, {}), 1_000)], 1_000)
    return state


def apply(state: LedgerState, decisions: Sequence[Decision], now_ms: int) -> None:
    records = [encode_record(record, state.feature_level) for one in decisions for record in one.records]
    apply_entry(state, decode_entry(encode_entry(1, now_ms, bytes(16), records), "here"))


def one_by_one(seed: int) -> tuple[list[Decision], bytes]:
    drawn, state, decided = Drawn(seed), new_state(), list[Decision]()
    for number in range(ENTRIES):
        overlay = Overlay(state)
        entry = [decide(state, overlay, request, 2_000 + number) for request in drawn.requests()]
        apply(state, entry, 2_000 + number)
        decided += entry
    return decided, digest(all_rows(state))


def overlapping(seed: int) -> tuple[list[Decision], bytes]:
    """Each entry is decided while the one before is not applied; now and then all are."""
    drawn, state, decided = Drawn(seed), new_state(), list[Decision]()
    pending: tuple[Overlay, list[Decision], int] | None = None
    for number in range(ENTRIES):
        if pending is not None and number % 7 == 0:
            apply(state, *pending[1:])
            pending = None
        overlay = Overlay(state, pending[0] if pending is not None else None)
        entry = [decide(state, overlay, request, 2_000 + number) for request in drawn.requests()]
        if pending is not None:
            apply(state, *pending[1:])
        pending = overlay, entry, 2_000 + number
        decided += entry
    assert pending is not None
    apply(state, *pending[1:])
    return decided, digest(all_rows(state))


def differs(seed: int) -> bool:
    try:
        return overlapping(seed) != one_by_one(seed)
    except StoreDamaged:
        return True


@pytest.mark.parametrize("seed", range(SEEDS))
def test_results_and_records_are_those_of_entries_one_by_one(seed: int) -> None:
    assert overlapping(seed) == one_by_one(seed)


@pytest.mark.parametrize("name", [*CARRIED, "new_producers", "producer_count", "next_producer_id"])
def test_without_any_part_of_what_is_carried_over_that_would_show(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry = Overlay.carry

    def carry_less(self: Overlay, before: Overlay) -> None:
        kept = getattr(self, name)
        carry(self, before)
        setattr(self, name, kept)

    monkeypatch.setattr(Overlay, "carry", carry_less)
    assert any(differs(seed) for seed in range(SEEDS))


def test_what_an_overlay_carries_does_not_grow() -> None:
    drawn, state = Drawn(1), new_state()
    before, sizes = None, []
    for number in range(200):
        overlay = Overlay(state, before)
        entry = [decide(state, overlay, request, 2_000 + number) for request in drawn.requests()]
        sizes.append(len(overlay.repeats))
        apply(state, entry, 2_000 + number)
        before = overlay
    assert max(sizes[100:]) <= 2 * 4 * 3


def test_only_these_requests_overlap() -> None:
    assert REGISTRY.overlapping == {
        CommitDraft,
        CommitFile,
        CommitOffsets,
        CommitPlaced,
        ReserveProducerIds,
    }
