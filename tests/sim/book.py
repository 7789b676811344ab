"""What the gateway has promised its clients, and everything that contradicts it."""

from collections import defaultdict
from dataclasses import dataclass, field

from ledger.batch.header import read_header, walk

TopicPartition = tuple[str, int]
Identity = bytes

MAX_COMPLAINTS = 20
OPAQUE_FROM = 16
"""The base offset, length and leader epoch before it are not the producer's."""


@dataclass(frozen=True, slots=True)
class ReadBatch:
    base: int
    records: int
    identity: Identity


@dataclass
class Book:
    wrong: list[str] = field(default_factory=list)
    sent: defaultdict[TopicPartition, set[Identity]] = field(default_factory=lambda: defaultdict(set))
    once: list[tuple[TopicPartition, Identity]] = field(default_factory=list)
    """Of idempotent producers, in the order in which each sent them."""
    acked: defaultdict[TopicPartition, dict[int, Identity]] = field(default_factory=lambda: defaultdict(dict))
    ends: defaultdict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    """No later high watermark may be below it."""
    seen: defaultdict[TopicPartition, dict[int, Identity]] = field(default_factory=lambda: defaultdict(dict))
    commits: defaultdict[TopicPartition, int] = field(default_factory=lambda: defaultdict(lambda: -1))
    """Group and partition; no later committed offset may be below it."""
    attempts: defaultdict[TopicPartition, int] = field(default_factory=lambda: defaultdict(lambda: -1))

    def complain(self, reason: str) -> None:
        if len(self.wrong) < MAX_COMPLAINTS and reason not in self.wrong:
            self.wrong.append(reason)

    def will_send(self, place: TopicPartition, data: bytes, *, once: bool = False) -> None:
        identity = identity_of(data)
        self.sent[place].add(identity)
        if once:
            self.once.append((place, identity))

    def acknowledge(self, place: TopicPartition, base: int, data: bytes, records: int) -> None:
        identity = identity_of(data)
        if self.acked[place].setdefault(base, identity) != identity:
            self.complain(f"{place}: offset {base} was given to two batches")
        if self.seen[place].get(base, identity) != identity:
            self.complain(f"{place}: offset {base} was read as another batch before")
        self.ends[place] = max(self.ends[place], base + records)

    def read(
        self, place: TopicPartition, first: int, records: bytes, high_watermark: int, end_before: int
    ) -> int:
        """A Fetch response from offset `first` on. `end_before`: `ends` when it was requested. Returns the
        next offset."""
        if high_watermark < end_before:
            self.complain(f"{place}: high watermark {high_watermark} after {end_before}")
        self.ends[place] = max(self.ends[place], high_watermark)
        for batch in batches_of(records):
            if batch.base != first:
                self.complain(f"{place}: batch at {batch.base} where {first} was expected")
            if self.seen[place].setdefault(batch.base, batch.identity) != batch.identity:
                self.complain(f"{place}: offset {batch.base} changed its batch")
            first = batch.base + batch.records
        if first > high_watermark:
            self.complain(f"{place}: records up to {first}, high watermark {high_watermark}")
        return first

    def committed(self, place: TopicPartition, offset: int, at_least: int) -> None:
        """Of an OffsetFetch. `at_least`: `commits` when it was requested."""
        if not at_least <= offset <= self.attempts[place]:
            self.complain(f"{place}: committed {offset}, not within {at_least}..{self.attempts[place]}")
        self.commits[place] = max(self.commits[place], offset)

    def compare(self, place: TopicPartition, stored: list[ReadBatch]) -> None:
        """All that a partition has in the end."""
        by_base = {batch.base: batch.identity for batch in stored}
        for what, promised in (("acknowledged", self.acked[place]), ("read", self.seen[place])):
            for base, identity in promised.items():
                if by_base.get(base) != identity:
                    self.complain(f"{place}: the batch {what} at {base} is not there")
        found = [batch.identity for batch in stored]
        if len(set(found)) != len(found):
            self.complain(f"{place}: {len(found) - len(set(found))} batches are stored twice")
        if strange := set(found) - self.sent[place]:
            self.complain(f"{place}: {len(strange)} batches that no client sent")
        once = [identity for where, identity in self.once if where == place]
        if missing := set(once) - set(found):
            self.complain(f"{place}: {len(missing)} batches of idempotent producers are missing")


def identity_of(batch: bytes) -> Identity:
    return bytes(batch[OPAQUE_FROM:])


def batches_of(records: bytes) -> list[ReadBatch]:
    view, found = memoryview(records), list[ReadBatch]()
    for walked in walk(view):
        batch = view[walked.position : walked.position + walked.size_bytes]
        header = read_header(batch)
        found.append(ReadBatch(header.base_offset, header.record_count, identity_of(bytes(batch))))
    return found
