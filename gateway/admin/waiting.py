"""The admin pages of a gateway that waits before it takes its shard over."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from gateway.admin.server import AdminServer
from gateway.admin.tls import admin_certificates
from gateway.settings import Settings
from gateway.telemetry.metrics import Metrics


@asynccontextmanager
async def waiting_pages(
    listen: Callable[[], Awaitable[Sequence[socket.socket]]] | None,
    settings: Settings,
    metrics: Metrics,
    version: str,
    detail: Callable[[], str],
) -> AsyncIterator[None]:
    """Not ready, with the reason `waiting_for_owner`. The address is free again afterwards. Without `listen`
    there are none."""
    if listen is None:
        yield
        return
    pages = AdminServer(
        metrics, version, lambda: [{"reason": "waiting_for_owner", "detail": detail()}], list, settings.admin
    )
    pages.certificates = admin_certificates(settings)
    await pages.start(await listen())
    try:
        yield
    finally:
        await pages.close()
