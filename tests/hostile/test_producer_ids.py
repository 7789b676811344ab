"""W9: producer ids that nobody has given out."""

from typing import Final

from gateway.wire.apis import ApiKey
from ledger.batch.records import Producer, Record, build_batch
from tests.hostile.arena import Arena, Bounds
from tests.hostile.speaking import batches_of_producers, exchange, produce, read
from tests.hostile.test_answers import create

IDS: Final = 5000
AT_ONCE: Final = 500
ACTIVE: Final = 7


def of_active(sequence: int) -> bytes:
    return build_batch([Record(0, 0, None, b"x", ())], producer=Producer(ACTIVE, 0, sequence))


def test_w9_a_flood_of_producer_ids(arena: Arena) -> None:
    create(arena, "ids")
    frames = [produce("ids", 0, batch) for batch in batches_of_producers(range(100_000, 100_000 + IDS))]
    first = [offset_of(arena, of_active(sequence)) for sequence in range(3)]

    def run() -> None:
        for at in range(0, IDS, AT_ONCE):
            assert all(isinstance(answer, bytes) for answer in exchange(arena, *frames[at : at + AT_ONCE]))
        # A repeat is still known, and the next in turn is taken.
        assert [offset_of(arena, of_active(sequence)) for sequence in range(3)] == first
        assert offset_of(arena, of_active(3)) > first[-1]

    arena.withstands(f"W9 {IDS:,} producer ids that nobody gave out", run, Bounds(cpu_s=5.0))


def offset_of(arena: Arena, batch: bytes) -> int:
    (answer,) = exchange(arena, produce("ids", 0, batch))
    assert isinstance(answer, bytes)
    part = read(ApiKey.PRODUCE, 7, answer).responses[0].partition_responses[0]
    assert part.error_code == 0, part
    return int(part.base_offset)
