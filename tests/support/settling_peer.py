"""A gateway as a job that settles speaks to it, and its stores: as `MergePeer`, and with settled ledgers."""

from collections.abc import Callable, Sequence
from typing import Any

from ledger.errors import ErrorName
from ledger.keys import settled_keys_of
from ledger.objects.uploads import ObjectKind
from ledger.requests import Refused
from ledger.settled.lookup import FoundBatch, SettledLookup
from ledger.settled.requests import NameSettled, SettledFiles
from ledger.types import Buffer, Position, TopicId
from pipeline.messages import NewestSettled, ShardPage
from tests.support.merge_peer import NO_FAILURE, MergePeer


class SettlingPeer(MergePeer):
    """`before_find` is called before each page is found."""

    def __init__(self, topics: Sequence[str] = ("t",), partitions: int = 1, page: int = 300) -> None:
        super().__init__(topics, partitions, page)
        self.level = 4
        self.named: dict[tuple[TopicId, int], NewestSettled] = {}
        self.namings: list[NameSettled] = []
        self.before_find: Callable[[], None] = lambda: None
        self.before_naming: Callable[[NameSettled], Refused | None] = lambda _: None
        self.finds = 0

    def describe(self) -> ShardPage:
        return ShardPage(NO_FAILURE, "cluster", "file:/d", self.level, self.entries, 0, [], False)

    def find_batches(self, topic_id: TopicId, partition: int, offset: int) -> Any:
        self.before_find()
        self.finds += 1
        return super().find_batches(topic_id, partition, offset)

    def newest_settled(self, topic_id: TopicId, partition: int) -> NewestSettled:
        log_start = self.parts[topic_id, partition].log_start
        known = self.named.get((topic_id, partition), NewestSettled(None, 0, 0, 0, 0))
        return known._replace(log_start=log_start)

    def name_settled(self, naming: NameSettled) -> NewestSettled | Refused:
        if (refused := self.before_naming(naming)) is not None:
            return refused
        pinned = self.pins.get(naming.job)
        if pinned is None or pinned.entry != naming.entry:
            return Refused(ErrorName.UNKNOWN_MEMBER_ID)
        self.namings.append(naming)
        keys = settled_keys_of(naming.files.locator)
        assert [len(self.objects[key]) for key in keys] == list(naming.files[1:])
        as_of = naming.entry, naming.high_watermark, naming.layout_version
        self.named[naming.topic_id, naming.partition] = NewestSettled(naming.files, *as_of, 0)
        return self.newest_settled(naming.topic_id, naming.partition)

    def write_settled(self, locator: str, log: Sequence[Buffer], index: Buffer, meta: Buffer) -> None:
        keys = settled_keys_of(locator)
        assert not self.objects.keys() & set(keys)
        for key, data in zip(keys, (b"".join(log), bytes(index), bytes(meta)), strict=True):
            self.objects[key] = data

    def translate(self, topic_id: TopicId, partition: int, offset: int) -> FoundBatch | None:
        """By the newest settled ledger."""
        newest = self.named[topic_id, partition]
        assert newest.files is not None
        lookup = SettledLookup(topic_id, partition, newest.files, newest.high_watermark)
        return found_by(lookup, offset, self.read)

    def batch_of(self, topic_id: TopicId, partition: int, offset: int) -> tuple[str, int, int] | None:
        """By the ledger: object, first offset and end of the batch. The end of a transaction is in none."""
        for run in self.parts[topic_id, partition].runs:
            if run.base <= offset <= run.last and run.kind != ObjectKind.MARKER:
                return self._batch_in(run, offset)
        return None

    def _batch_in(self, run: Any, offset: int) -> tuple[str, int, int] | None:
        from ledger.batch.header import walk

        following = run.base
        for batch in walk(memoryview(self.objects[run.object_key])[run.start : run.start + run.size]):
            base = batch.base_offset if run.kind == ObjectKind.SEGMENT else following
            following = base + batch.last_offset_delta + 1
            if base <= offset < following:
                return run.object_key, run.start + batch.position, batch.size_bytes
        return None


def found_by(
    lookup: SettledLookup, offset: int, read: Callable[[Sequence[Position]], Sequence[Buffer | None]]
) -> FoundBatch | None:
    """What a reader of these bytes finds."""
    reading = lookup.reading(offset)
    positions = next(reading)
    while True:
        try:
            positions = reading.send(read(positions))
        except StopIteration as end:
            found: FoundBatch | None = end.value
            return found


def files_of(peer: SettlingPeer, topic_id: TopicId, partition: int = 0) -> SettledFiles:
    """Of the newest settled ledger."""
    files = peer.named[topic_id, partition].files
    assert files is not None
    return files
