"""A ledger without stores: decides, encodes, decodes and applies entries as the shard driver does."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.cluster.requests import BecomeOwner
from ledger.cut import StateCut
from ledger.formats.snapshot import Snapshot, decode_snapshot, encode_snapshot
from ledger.image import all_rows, everything, restore
from ledger.journal import apply_entry, decode_entry, encode_entry
from ledger.keys import uuid7
from ledger.machine import Decision
from ledger.overlay import Overlay
from ledger.partitions.requests import CommitBatch
from ledger.partitions.state import PartitionLog
from ledger.records import NEWEST_LEVEL
from ledger.registry import decide, encode_records
from ledger.requests import LedgerResult, Request
from ledger.rows import Row, digest
from ledger.state import LedgerState
from ledger.types import TopicId


@dataclass(frozen=True, slots=True)
class DecidedEntry:
    """What was decided, and is not durable yet."""

    time_ms: int
    decisions: Sequence[Decision]


class JournalledLedger:
    """The state, every entry that made it, and an image that is written later."""

    def __init__(self, feature_level: int = NEWEST_LEVEL) -> None:
        self.state = LedgerState()
        self.entries: list[bytes] = []
        self.image: dict[tuple[int, bytes], bytes] = {}
        self._cut: tuple[StateCut, Iterator[None], bytes] | None = None
        self.now_ms = 1_000_000
        self._nonces = itertools.count(1)
        self.submit(BecomeOwner(1, bytes(16), "cluster", feature_level))

    def submit(self, *requests: Request) -> list[LedgerResult]:
        """Decide the requests in one entry, make it durable, apply it."""
        decided = self.decide(*requests)
        self.make_durable(decided)
        return [decision.result for decision in decided.decisions]

    def decide(self, *requests: Request) -> DecidedEntry:
        overlay = Overlay(self.state)
        now_ms = max(self.now_ms, self.state.entry_time_ms)
        return DecidedEntry(now_ms, [decide(self.state, overlay, request, now_ms) for request in requests])

    def make_durable(self, decided: DecidedEntry) -> list[PartitionLog]:
        """Apply it from its bytes. Returns the partitions that it touched."""
        level = self.state.feature_level
        records = [data for decision in decided.decisions for data in encode_records(decision.records, level)]
        if not records:
            return []
        nonce = next(self._nonces).to_bytes(16, "big")
        data = encode_entry(self.state.epoch, decided.time_ms, nonce, records)
        self.entries.append(data)
        return apply_entry(self.state, decode_entry(data, "entry"))

    def write_image(self) -> None:
        self.end_image(fails=False)
        self.begin_image()
        self.end_image(fails=False)

    def begin_image(self) -> None:
        """Take a cut, of which partitions are left. It must say in the end what is so now."""
        if self._cut is None:
            now = digest(all_rows(self.state))
            cut = StateCut(self.state)
            for _ in cut.begin():
                pass
            self._cut = cut, cut.rest(), now

    def continue_image(self, steps: int) -> None:
        if self._cut is not None:
            _, rest, _ = self._cut
            for _ in itertools.islice(rest, steps):
                pass

    def end_image(self, *, fails: bool) -> None:
        taken, self._cut = self._cut, None
        if taken is None:
            return
        cut, rest, expected = taken
        if fails:
            cut.give_up()
            return
        for _ in rest:
            pass
        for section, key, value in cut.rows():
            if value is None:
                self.image.pop((section, key), None)
            else:
                self.image[section, key] = value
        assert digest(all_rows(self._imaged())) == expected

    def from_image(self) -> LedgerState:
        """Image, then the journal after it."""
        return self._follow(self._imaged())

    def _imaged(self) -> LedgerState:
        return restore([Row(section, key, value) for (section, key), value in self.image.items()])

    def from_journal(self) -> LedgerState:
        return self._follow(LedgerState())

    def from_snapshot(self) -> LedgerState:
        data = encode_snapshot(Snapshot(self.state.applied, bytes(16), list(all_rows(self.state))))
        return restore(decode_snapshot(data, "snapshot").rows)

    def restart(self, source: str) -> None:
        """Continue with the state that `source` ("image", "journal" or "snapshot") gives, as recovery
        does."""
        self._cut = None
        if source == "image" and self.image:
            self.state = self.from_image()
            return
        self.state = self.from_snapshot() if source == "snapshot" else self.from_journal()
        self.image = {}
        self.state.dirty = everything(self.state)

    def _follow(self, state: LedgerState) -> LedgerState:
        for data in self.entries[state.applied :]:
            apply_entry(state, decode_entry(data, "entry"))
        return state


def locator(number: int, created_ms: int) -> str:
    """A key such as a segment store makes."""
    return f"wal/0/{uuid7(created_ms, number.to_bytes(10, 'big'))}.wal"


def topic_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(16, "big"))


def commit_batch(
    topic: TopicId,
    partition: int,
    start: int,
    *,
    records: int = 1,
    size: int = 100,
    producer: tuple[int, int, int] = (-1, -1, -1),
    max_timestamp: int = 0,
) -> CommitBatch:
    """`producer`: id, epoch, base sequence."""
    return CommitBatch(topic, partition, start, size, records, max_timestamp, 0, *producer)


def batches_in_order(
    topic: TopicId, partition: int, counts: Sequence[int], start: int = 0, size: int = 100
) -> list[CommitBatch]:
    """Adjacent batches of one partition."""
    return [
        commit_batch(topic, partition, start + i * size, records=count, size=size)
        for i, count in enumerate(counts)
    ]
