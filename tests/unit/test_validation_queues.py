"""Batches that wait for others of their partition to be validated: what they hold meanwhile."""

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

from gateway.produce.accumulator import PendingBatch
from gateway.produce.record_validation import RecordValidation
from gateway.produce.sequence_gaps import SequenceGaps
from gateway.produce.validation_queues import QueuedBatch, ValidationQueues
from gateway.scheduling.batch_opening import NotWanted
from ledger.batch.header import CheckedBatch, read_header
from ledger.batch.records import Record, build_batch
from ledger.partitions.state import PartitionLog
from ledger.types import TopicId
from tests.support.completions import AwaitedProduce
from tests.support.held_requests import until

WAIT_S = 20.0


class Frame(bytearray):
    """Of which it can be seen whether anything still refers to it."""


class SlowOpener:
    """In the place of the opener: each work takes until `goes_on` is set."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    async def run(self, owner: object, topic: object, work: object, is_wanted: Callable[[], bool]) -> None:
        dropped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting[dropped] = is_wanted
        going = asyncio.ensure_future(self.goes_on.wait())

        def end(_: object) -> None:
            if not dropped.done():
                dropped.set_result(None)

        going.add_done_callback(end)
        await dropped
        if not going.done():
            going.cancel()
            raise NotWanted

    def drop_unwanted(self) -> None:
        for dropped, is_wanted in self.waiting.items():
            if not is_wanted() and not dropped.done():
                dropped.set_result(None)


class Queues:
    def __init__(self) -> None:
        self.opener = SlowOpener()
        self.accepted: list[str] = []
        opener: Any = self.opener
        self.queues = ValidationQueues(opener, SequenceGaps(), self._accept, self._fail)
        self.logs = [PartitionLog(number, TopicId(b"t" * 16), number) for number in range(2)]

    def _accept(self, pending: PendingBatch, stamp: bool) -> None:
        # The accumulator counts it, and a draft is stored later.
        pending.completion.remaining += 1
        self.accepted.append(bytes(pending.data)[-2:-1].decode())
        asyncio.get_running_loop().call_soon(pending.accepted, 0, 0)

    def _fail(self, *of: Any) -> None:
        raise AssertionError(of)

    def send(self, text: str, partition: int = 0) -> tuple[AwaitedProduce, "weakref.ref[Frame]"]:
        frame, completion = Frame(build_batch([Record(value=text.encode())])), AwaitedProduce()
        batch = CheckedBatch(read_header(memoryview(frame)), memoryview(frame))
        completion.remaining += 1
        pending = PendingBatch(self.logs[partition], batch.header, batch.data, completion)
        self.queues.add(QueuedBatch(pending, batch, RecordValidation(keys_required=False), False))
        return completion, weakref.ref(frame)


async def test_batches_of_answered_requests_do_not_hold_them_while_they_wait_for_others() -> None:
    """Their bytes are in no budget any more, and the client may send further ones."""
    queues = Queues()
    head, _ = queues.send("a")
    later = [queues.send(text) for text in "bcdef"]
    other_head, other_frame = queues.send("g", 1)
    await asyncio.sleep(0)
    for completion, _ in later[:4]:
        completion.is_done = True
    other_head.is_done = True
    await until(lambda: not any(frame() for _, frame in later[:4]) and other_frame() is None)
    last, frame = later[4]
    assert frame() is not None and not last.completed.done()
    queues.opener.goes_on.set()
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(head.completed, last.completed)
    assert queues.accepted == ["a", "f"]
    assert not queues.queues.by_partition
