"""Producer ids that the gateway has not given out."""

from typing import Final

import pytest

from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from ledger.batch.records import Producer, Record, build_batch
from tests.hostile.arena import Arena, Bounds
from tests.hostile.conftest import OpenArena
from tests.hostile.speaking import batches_of_producers, exchange, produce
from tests.hostile.test_answers import create
from tests.support.messages import read

AT_ONCE: Final = 500
ACTIVE: Final = 7


def of_active(sequence: int) -> bytes:
    return build_batch([Record(0, 0, None, b"x", ())], producer=Producer(ACTIVE, 0, sequence))


@pytest.mark.parametrize("ids", [5000, pytest.param(19_000, marks=pytest.mark.full)])
def test_a_flood_of_producer_ids(arena: Arena, ids: int) -> None:
    arena.rounds = 1  # after a second one the first sequences would be too old to be known
    create(arena, "ids")
    frames = [produce("ids", 0, batch) for batch in batches_of_producers(range(100_000, 100_000 + ids))]
    first = [offset_of(arena, of_active(sequence)) for sequence in range(3)]

    def run() -> None:
        for at in range(0, ids, AT_ONCE):
            assert all(
                isinstance(response, bytes) for response in exchange(arena, *frames[at : at + AT_ONCE])
            )
        # A repeat is still recognised, and the next sequence is accepted.
        assert [offset_of(arena, of_active(sequence)) for sequence in range(3)] == first
        assert offset_of(arena, of_active(3)) > first[-1]

    arena.withstands(f"{ids:,} producer ids that were not given out", run, Bounds(cpu_s=ids / 1000))


def test_producers_that_are_active_stay_while_newcomers_are_refused(open_arena: OpenArena) -> None:
    arena = open_arena(limits__producers=1000, limits__partition_producers=1000)
    create(arena, "ids", 2)
    frames = [produce("ids", 0, batch) for batch in batches_of_producers(range(100_000, 101_000))]
    first = [offset_of(arena, of_active(sequence)) for sequence in range(3)]
    codes: list[int] = []

    def run() -> None:
        for at in range(0, len(frames), AT_ONCE):
            for response in exchange(arena, *frames[at : at + AT_ONCE]):
                assert isinstance(response, bytes)
                codes.append(read(ApiKey.PRODUCE, 7, response).responses[0].partition_responses[0].error_code)
        assert [offset_of(arena, of_active(sequence)) for sequence in range(3)] == first
        assert offset_of(arena, of_active(3)) > first[-1]

    # The well-behaved client has a producer id of its own, from before.
    arena.withstands("1,000 more producer ids where 1,000 may be", run)
    refused = [code for code in codes if code]
    assert 990 < len(codes) - len(refused) < 1000
    assert all(ErrorCode(code).retriable for code in refused)


def offset_of(arena: Arena, batch: bytes) -> int:
    (response,) = exchange(arena, produce("ids", 0, batch))
    assert isinstance(response, bytes)
    part = read(ApiKey.PRODUCE, 7, response).responses[0].partition_responses[0]
    assert part.error_code == 0, part
    return int(part.base_offset)
