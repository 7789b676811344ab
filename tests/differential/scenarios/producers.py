"""Produce by idempotent producers: sequences, epochs, repeats (KIP-98, KIP-360)."""

from typing import Any

from gateway.wire.apis import ApiKey
from tests.differential.batches import Batch
from tests.differential.exchange import Exchange, ProducerIdOf, Step
from tests.differential.scenarios.builders import end_of, produce, produce_many, read_back
from tests.differential.steps import Create, NewProducer, Send

KEY = ApiKey.PRODUCE
P = ProducerIdOf("p")
Q = ProducerIdOf("q")
LAST = 2**31 - 1


def own(
    sequence: int, count: int = 1, *, epoch: int = 0, producer: Any = P, value: bytes = b"value"
) -> Batch:
    return Batch(count, value, producer=producer, epoch=epoch, sequence=sequence)


def _after(name: str, sent: tuple[Batch, ...], then: Batch, version: int = 9) -> Exchange:
    """`then` after batches that were taken."""
    before: list[Step] = [Create(), NewProducer("p"), NewProducer("q")]
    if sent:
        before.append(Send(sent))
    return Exchange(f"producers: {name}", KEY, version, produce(then), before, [read_back(), end_of()])


FIVE = tuple(own(i) for i in range(5))
SIX = tuple(own(i) for i in range(6))

EXCHANGES = [
    *(_after(f"the first batch, v{v}", (), own(0, 3), v) for v in (3, 8, 13)),
    *(_after(f"the next batch, v{v}", (own(0, 3),), own(3, 2), v) for v in (3, 8, 13)),
    *(_after(f"a repeat, v{v}", (own(0, 3),), own(0, 3), v) for v in (3, 8, 13)),
    *(_after(f"a gap, v{v}", (own(0, 3),), own(4), v) for v in (3, 8, 13)),
    _after("a repeat of the fifth last", FIVE, own(0)),
    _after("a repeat of the third last", FIVE, own(2)),
    _after("a repeat of the sixth last", SIX, own(0)),
    _after("a repeat with other bytes", (own(0, 3),), own(0, 3, value=b"other")),
    _after("a repeat with fewer records", (own(0, 3),), own(0, 2)),
    _after("a repeat with more records", (own(0, 3),), own(0, 4)),
    _after("a batch from the middle of another", (own(0, 5),), own(2, 2)),
    _after("a sequence far back", SIX, own(0, 9)),
    _after("an unknown producer that does not begin at 0", (), own(7)),
    _after("a producer id that was never given", (), own(0, producer=987_654_321)),
    _after("a producer id that was never given, from 9 on", (), own(9, producer=987_654_322)),
    _after("a higher epoch from 0 on", (own(0, 3),), own(0, epoch=1)),
    _after("a higher epoch that continues", (own(0, 3),), own(3, epoch=1)),
    _after("a higher epoch with a gap", (own(0, 3),), own(9, epoch=1)),
    *(_after(f"an older epoch, v{v}", (own(0), own(0, epoch=1)), own(1), v) for v in (3, 8, 13)),
    _after("an older epoch that repeats", (own(0), own(0, epoch=1)), own(0)),
    _after("a repeat in the newer epoch", (own(0), own(0, epoch=1)), own(0, epoch=1)),
    _after("the greatest epoch", (), own(0, epoch=32767)),
    _after("epoch -1 with an id", (), own(0, epoch=-1)),
    *(_after(f"epoch 0 from {n} on after none", (own(0, epoch=-1),), own(n)) for n in (0, 5)),
    _after("epoch -2 with an id", (), own(0, epoch=-2)),
    _after("sequence -1 with an id", (), own(-1)),
    _after("sequence -5 with an id", (), own(-5)),
    _after("a sequence without an id", (), own(3, producer=-1)),
    _after("an epoch without an id", (), Batch(producer=-1, epoch=4)),
    _after("producer id -2", (), own(0, producer=-2)),
    _after("the last sequence", (own(LAST - 2, 2),), own(LAST)),
    _after("around the end of the sequences", (own(LAST),), own(0, 2)),
    _after("a batch across the end of the sequences", (own(LAST - 1, 1),), own(LAST, 3)),
    _after("after a batch across the end", (own(LAST, 3),), own(2)),
    _after("two producers do not meet", (own(0), own(0, producer=Q), own(1)), own(1, producer=Q)),
    _after("a batch without a producer in between", (own(0), Batch()), own(1)),
    _after("a refused batch leaves no trace", (own(0),), own(1)),
    Exchange(
        "producers: one sequence in each partition",
        KEY,
        9,
        produce_many([("t", 0, own(0)), ("t", 1, own(0))]),
        [Create(partitions=2), NewProducer("p")],
        [read_back(), read_back(partition=1)],
    ),
    Exchange(
        "producers: a gap in one of two partitions",
        KEY,
        9,
        produce_many([("t", 0, own(5)), ("t", 1, own(1))]),
        [Create(partitions=2), NewProducer("p"), Send((own(0),)), Send((own(0),), partition=1)],
        [read_back(), read_back(partition=1)],
    ),
    Exchange(
        "producers: a gap with acks 1",
        KEY,
        9,
        produce(own(4), acks=1),
        [Create(), NewProducer("p"), Send((own(0),))],
    ),
    Exchange(
        "producers: a gap with acks 0",
        KEY,
        9,
        produce(own(4), acks=0),
        [Create(), NewProducer("p"), Send((own(0),))],
    ),
    Exchange(
        "producers: a repeat with acks 0",
        KEY,
        9,
        produce(own(0), acks=0),
        [Create(), NewProducer("p"), Send((own(0),))],
        [read_back()],
    ),
]
