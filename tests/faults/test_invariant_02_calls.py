"""Invariant 2: offsets of a partition are dense, strictly increasing, and assigned once."""

import asyncio
import random
from pathlib import Path

from ledger.batch.header import read_header
from ledger.topics.requests import CreateTopic
from tests.support.embedded import Client, Clock, Embedded
from tests.support.journalled import topic_id

PRODUCERS, ROUNDS, PARTITIONS = 6, 12, 2


async def produce_at_random(host: Embedded, client: Client, seed: int) -> dict[tuple[int, bytes], int]:
    """Batches of one client, several on their way at once. (partition, batch) -> base offset."""
    choose = random.Random(seed)
    acked: dict[tuple[int, bytes], int] = {}
    for _ in range(ROUNDS):
        partition = choose.randrange(PARTITIONS)
        batches = [client.batch("t", partition, choose.randint(1, 5)) for _ in range(choose.randint(1, 3))]
        results = await host.send("t", partition, *batches)
        for batch, base in zip(batches, results, strict=True):
            assert isinstance(base, int)
            acked[partition, batch] = base
        if choose.random() < 0.5:
            await asyncio.sleep(0)
    return acked


async def test_batches_of_many_producers_through_restarts_get_each_offset_once(scratch: Path) -> None:
    clock, acked = Clock(), dict[tuple[int, bytes], int]()
    clients = [Client(number if number % 2 else -1 - number) for number in range(PRODUCERS)]
    for life in range(3):
        async with Embedded(scratch, clock) as host:
            if life == 0:
                await host.ask(CreateTopic("t", topic_id(1), PARTITIONS, {}))
            work = [produce_at_random(host, client, life * 100 + n) for n, client in enumerate(clients)]
            for found in await asyncio.gather(*work):
                acked |= found
            if life == 1:
                await host.checkpointer.write_image()
    async with Embedded(scratch, clock) as host:
        for partition in range(PARTITIONS):
            taken = sorted((base, batch) for (at, batch), base in acked.items() if at == partition)
            following = 0
            for base, batch in taken:
                assert base == following
                following += read_header(memoryview(batch)).record_count
            assert host.log("t", partition).high_watermark == following > 50
            stored = [(found.base, found.data) for found in await host.read("t", partition)]
            assert stored == taken
