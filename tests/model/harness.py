"""A ledger without stores: decides, encodes, decodes and applies entries as the shard driver does."""

import itertools
from collections.abc import Sequence

from ledger.formats.snapshot import Snapshot, decode_snapshot, encode_snapshot
from ledger.image import all_rows, restore, take_dirty_rows
from ledger.journal import decode_entry, encode_entry
from ledger.keys import uuid7
from ledger.machine import decide
from ledger.overlay import Overlay
from ledger.records import encode_record
from ledger.requests import Answer, BecomeOwner, CommitBatch, Request
from ledger.state import LedgerState
from ledger.types import TopicId


class JournalledLedger:
    """The state, every entry that made it, and an image that is written behind."""

    def __init__(self) -> None:
        self.state = LedgerState()
        self.entries: list[bytes] = []
        self.image: dict[tuple[int, bytes], bytes] = {}
        self.now_ms = 1_000_000
        self._nonces = itertools.count(1)
        self.ask(BecomeOwner(1, bytes(16), "cluster"))

    def ask(self, *requests: Request) -> list[Answer]:
        """Decide the requests in one entry, make it durable, apply it."""
        overlay = Overlay(self.state)
        now_ms = max(self.now_ms, self.state.entry_time_ms)
        decisions = [decide(self.state, overlay, request, now_ms) for request in requests]
        records = [encode_record(record) for decision in decisions for record in decision.records]
        if records:
            nonce = next(self._nonces).to_bytes(16, "big")
            data = encode_entry(self.state.epoch, now_ms, nonce, records)
            self.entries.append(data)
            self.state.apply_entry(decode_entry(data, "entry"))
        return [decision.answer for decision in decisions]

    def write_image(self) -> None:
        for section, key, value in take_dirty_rows(self.state):
            if value is None:
                self.image.pop((section, key), None)
            else:
                self.image[section, key] = value

    def from_image(self) -> LedgerState:
        """Image, then the journal behind it."""
        from ledger.image import Row

        state = restore([Row(section, key, value) for (section, key), value in self.image.items()])
        return self._follow(state)

    def from_journal(self) -> LedgerState:
        return self._follow(LedgerState())

    def from_snapshot(self) -> LedgerState:
        data = encode_snapshot(Snapshot(self.state.applied, bytes(16), list(all_rows(self.state))))
        return restore(decode_snapshot(data, "snapshot").rows)

    def _follow(self, state: LedgerState) -> LedgerState:
        for data in self.entries[state.applied :]:
            state.apply_entry(decode_entry(data, "entry"))
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
    """Batches of one partition that lie side by side."""
    return [
        commit_batch(topic, partition, start + i * size, records=count, size=size)
        for i, count in enumerate(counts)
    ]
