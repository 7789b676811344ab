"""A produce request that a test waits for, in the place of one that came over a connection."""

import asyncio

from gateway.produce.accumulator import Waiter


class RequestWaiter(Waiter):
    """`done` when all partitions are answered."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        super().__init__()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
