"""A long poll and what comes while its fetch is still reading."""

import asyncio
import time

from tests.support.reading import batch_of, reading_world, records_of, with_base

SMALL, LARGE = batch_of(b"a" * 100), batch_of(b"b" * 2000)


async def test_what_is_committed_while_a_fetch_reads_is_not_waited_for() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        # One run: before it was searched, all of it counts as if it could be served from offset 3 on.
        await world.produce(LARGE, LARGE, LARGE, SMALL)
        reading, go_on = asyncio.Event(), asyncio.Event()
        read = world.segments.read

        async def held(positions):  # type: ignore[no-untyped-def]
            reading.set()
            await go_on.wait()
            return await read(positions)

        world.segments.read = held  # type: ignore[method-assign]
        began = time.monotonic()
        fetch = asyncio.create_task(world.one("t", 0, 3, max_wait_ms=8000, min_bytes=2000))
        await reading.wait()
        await world.produce(LARGE)
        go_on.set()
        assert records_of(await fetch) == with_base(SMALL, 3) + with_base(LARGE, 4)
        assert time.monotonic() - began < 4
