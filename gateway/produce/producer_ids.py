"""Producer ids for idempotent producers, taken from the journal in blocks.

The rest of a block that is not used up when the gateway stops is lost: as in Kafka, ids are unique, not
dense.
"""

import asyncio

from gateway.coordination.ledger import Ledger
from ledger.partitions.requests import Reserved, ReserveProducerIds

BLOCK = 1_000


class ProducerIds:
    def __init__(self, shard: Ledger) -> None:
        self._shard = shard
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def take(self, deadline: float) -> int:
        """A producer id that was never given before. Raises as `Ledger.ask`."""
        while self._next == self._end:
            async with asyncio.timeout_at(deadline), self._refill:
                if self._next == self._end:
                    reserved = await self._shard.ask(ReserveProducerIds(BLOCK), deadline)
                    assert isinstance(reserved, Reserved)
                    self._next, self._end = reserved.first, reserved.first + reserved.count
        taken = self._next
        self._next += 1
        return taken
