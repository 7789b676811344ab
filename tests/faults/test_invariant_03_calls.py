"""Invariant 3: a retried idempotent batch gets its first result, a gap and an old epoch are refused."""

from pathlib import Path

import pytest

from ledger.batch.records import Producer, Record, build_batch
from ledger.topics.requests import CreateTopic
from tests.support.embedded import Clock, Embedded
from tests.support.journalled import topic_id

PRODUCER_ID = 7


def batch_at(sequence: int, epoch: int = 0, records: int = 2) -> bytes:
    made = [Record(offset_delta=n, value=f"{epoch}/{sequence}".encode()) for n in range(records)]
    return build_batch(made, producer=Producer(PRODUCER_ID, epoch, sequence))


async def restart(host: Embedded, source: str) -> Embedded:
    """A new life that begins from the journal, an image or a snapshot."""
    if source == "image":
        await host.checkpointer.write_image()
    if source == "snapshot":
        for _ in range(2):
            await host.checkpointer.snapshot()
        await host.checkpointer.prune()
    await host.stop()
    if source != "image":
        for path in host.root.glob("image*"):
            path.unlink()
    again = Embedded(host.root, host.clock)
    await again.start()
    if source == "snapshot":
        assert await again.shard.journal.start() > 0
    return again


@pytest.mark.parametrize("source", ["journal", "image", "snapshot"])
async def test_a_batch_retried_across_a_restart_gets_its_first_result(scratch: Path, source: str) -> None:
    host = await Embedded(scratch, Clock()).start()
    try:
        await host.ask(CreateTopic("t", topic_id(1), 1, {}))
        for sequence in range(0, 14, 2):
            assert await host.send("t", 0, batch_at(sequence)) == [sequence]
        host = await restart(host, source)
        # The last five are remembered; an older one looks like a gap.
        assert [await host.send("t", 0, batch_at(sequence)) for sequence in (4, 6, 8, 10, 12)] == [
            [4],
            [6],
            [8],
            [10],
            [12],
        ]
        for refused in (0, 2, 16, 13):
            assert await host.send("t", 0, batch_at(refused)) == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]
        assert host.log("t").high_watermark == 14
        assert await host.send("t", 0, batch_at(14)) == [14]
        assert await host.send("t", 0, batch_at(0, epoch=1)) == [16]
        assert await host.send("t", 0, batch_at(16)) == ["INVALID_PRODUCER_EPOCH"]
        host = await restart(host, source)
        assert await host.send("t", 0, batch_at(16)) == ["INVALID_PRODUCER_EPOCH"]
        assert await host.send("t", 0, batch_at(0, epoch=1)) == [16]
        assert await host.send("t", 0, batch_at(2, epoch=1)) == [18]
        stored = await host.read("t")
        assert [found.base for found in stored] == list(range(0, 20, 2))
        assert len({found.data for found in stored}) == 10
    finally:
        await host.stop()


async def test_a_batch_retried_after_its_first_copy_was_merely_late_is_stored_once(scratch: Path) -> None:
    """Both copies lie in one draft: the client gave up on the first before it was written."""
    async with Embedded(scratch, Clock()) as host:
        await host.ask(CreateTopic("t", topic_id(1), 1, {}))
        assert await host.send("t", 0, batch_at(0), batch_at(2), batch_at(0), batch_at(2)) == [0, 2, 0, 2]
        assert host.log("t").high_watermark == 4
        assert [found.base for found in await host.read("t")] == [0, 2]
