"""The slow store of the tests takes the time that it says, call by call."""

import asyncio

from adapters.blobs.memory import MemoryBlobs
from tests.support.slow_blobs import SlowBlobs, constant, with_tail
from tests.support.virtual_time import run_virtually

KEY = "wal/0/018bcfe5-6800-7000-8000-000000000000"


def test_calls_take_their_time_next_to_each_other_and_are_counted() -> None:
    async def main() -> None:
        blobs = SlowBlobs(MemoryBlobs(), put=constant(0.05), get=constant(0.1), bytes_a_s=1000)
        now = asyncio.get_running_loop().time
        await blobs.put(KEY, [b"x" * 100])
        assert abs(now() - 0.15) < 1e-6
        await asyncio.gather(*(blobs.get(KEY, start, 50) for start in (0, 50)))
        assert abs(now() - 0.3) < 1e-6
        assert (blobs.puts, blobs.gets) == ([(KEY, 100)], [(KEY, 0, 50), (KEY, 50, 50)])
        assert (blobs.bytes_read, blobs.most_under_way["get"]) == (100, 2)

    run_virtually(main)


def test_a_tail_is_one_slow_call_of_every_few() -> None:
    delay = with_tail(0.1, 0.5, every=3)
    assert [delay() for _ in range(6)] == [0.1, 0.1, 0.5, 0.1, 0.1, 0.5]


def test_a_key_that_hangs_holds_its_own_gets_alone() -> None:
    async def main() -> None:
        blobs = SlowBlobs(MemoryBlobs())
        await blobs.put(KEY, [b"x"])
        other = KEY[:-1] + "1"
        await blobs.put(other, [b"y"])
        with blobs.hanging(KEY):
            held = asyncio.create_task(blobs.get(KEY))
            assert await blobs.get(other) == b"y"
            assert not held.done()
        assert await held == b"x"

    run_virtually(main)
