"""A draft that is too large for an entry among many that are not: these go on inside of entries."""

import asyncio

from adapters.blobs.memory import MemoryBlobs
from gateway.produce.accumulator import PendingBatch
from gateway.produce.service import ProduceOptions, ProduceService
from tests.support.inline_world import MAX_DRAFT_BYTES, InlineHost, far_metadata, stored_values
from tests.support.slow_blobs import SlowBlobs, constant
from tests.support.virtual_time import run_virtually

PUT_S = 0.03
PAUSE_S = 0.004
LINGER_MS = 5


async def opened(blobs: SlowBlobs) -> InlineHost:
    host = await InlineHost(far_metadata(), blobs).open()
    options = ProduceOptions(1 << 20, 100, 3, linger_ms=LINGER_MS)
    host.service = ProduceService(host.shard, host.segments, options, lambda: host.now_ms)
    return host


async def results(sent: list[PendingBatch]) -> list[int]:
    for pending in sent:
        await pending.completion.completed  # type: ignore[attr-defined]
    assert not any(pending.error for pending in sent)
    return [pending.base_offset for pending in sent]


def wal_puts(blobs: SlowBlobs) -> int:
    return sum(key.startswith("wal/") for key, _ in blobs.puts)


def test_what_follows_a_large_draft_closely_is_not_uploaded_as_well() -> None:
    async def main() -> None:
        blobs = SlowBlobs(MemoryBlobs(), put=constant(PUT_S))
        host = await opened(blobs)
        sent = []
        for number in range(40):
            # There is never a pause in which no draft is under way.
            sent.append(host.begin(b"%03d" % number + b"x" * (MAX_DRAFT_BYTES if number == 5 else 10)))
            await asyncio.sleep(PAUSE_S)
        assert await results(sent) == list(range(40))
        assert wal_puts(blobs) == 1
        found = b"".join(await stored_values(host.shard, host.metadata, host.blobs))
        places = [found.find(b"%03dx" % number) for number in range(40)]
        assert places == sorted(places) and places[0] >= 0
        await host.close()

    run_virtually(main)


def test_what_waits_is_uploaded_when_it_is_too_much_for_an_entry() -> None:
    async def main() -> None:
        blobs = SlowBlobs(MemoryBlobs(), put=constant(PUT_S))
        host = await opened(blobs)
        large, loop = b"x" * MAX_DRAFT_BYTES, asyncio.get_running_loop()
        began = loop.time()
        sent = [host.begin(large)]
        await asyncio.sleep(2 * LINGER_MS / 1000)
        sent.append(host.begin(b"small"))
        await asyncio.sleep(LINGER_MS / 1000)
        assert wal_puts(blobs) == 1
        sent.append(host.begin(large))
        await asyncio.sleep(LINGER_MS / 1000)
        assert wal_puts(blobs) == 2, "next to the first one"
        assert await results(sent) == [0, 1, 2]
        assert loop.time() - began < 2 * PUT_S
        await host.close()

    run_virtually(main)
