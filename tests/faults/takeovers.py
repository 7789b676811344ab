"""Two gateways on one store, of which the newer takes over: clients connect to one address, behind which a
proxy leads to the gateway that was started last."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from tests.support.far_stores import FarGateway, FarPlace
from tests.support.tcp_proxy import HOST, Link

READY_S: Final = 60.0
EXIT_S: Final = 30.0
TAKEN_OVER: Final = 5


def gateway_of(place: FarPlace, directory: Path, node_id: int, link: Link) -> FarGateway:
    settings = ("groups.group.initial.rebalance.delay.ms=200", "ledger.takeover_wait_ms=0")
    options = [option for setting in settings for option in ("--set", setting)]
    directory /= f"node-{node_id}"
    return FarGateway(place, directory, [*options, "--node-id", str(node_id), "--advertise", link.endpoint])


@asynccontextmanager
async def two_gateways(place: FarPlace, directory: Path) -> AsyncIterator[tuple[Link, Sequence[FarGateway]]]:
    """The proxy leads to the first one, which alone is started."""
    async with AsyncExitStack() as stack:
        link = Link(0)
        gateways = [gateway_of(place, directory, node_id, link) for node_id in (1, 2)]
        for gateway in gateways:
            stack.push_async_callback(asyncio.to_thread, gateway.stop)
        await asyncio.to_thread(gateways[0].start, READY_S)
        await link.lead_to(gateways[0].port)
        await link.start()
        stack.push_async_callback(link.stop)
        yield link, gateways


async def replace(link: Link, older: FarGateway, newer: FarGateway) -> None:
    """Start the newer, to which the proxy leads then, and wait until the older has ended."""
    await asyncio.to_thread(newer.start, READY_S)
    await link.lead_to(newer.port)
    async with _client(older):
        assert await asyncio.to_thread(older.wait_for_exit, EXIT_S) == TAKEN_OVER


@asynccontextmanager
async def _client(gateway: FarGateway) -> AsyncIterator[None]:
    """One that stays connected: a gateway without clients does not look whether it was replaced, and on a
    busy machine those that are led away may have sent nothing meanwhile."""
    writer: asyncio.StreamWriter | None = None
    with suppress(OSError):
        _, writer = await asyncio.open_connection(HOST, gateway.port)
    try:
        yield
    finally:
        if writer is not None:
            writer.transport.abort()
