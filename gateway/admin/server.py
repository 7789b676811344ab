"""The admin address: /healthz, /readyz, /metrics, /version, /debug/shards, and the console. HTTP or TLS, by
default on loopback only. No page but the console's changes anything or shows the content of records."""

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.addresses import Address, is_loopback
from gateway.admin.connections import AdminConnections
from gateway.security.tls import Certificates
from gateway.settings import Admin
from gateway.telemetry.logs import QuietLog
from gateway.telemetry.loop_lag import LoopLag
from gateway.telemetry.metrics import Metrics

HEADER_BYTES: Final = 8190
BODY_BYTES: Final = 64 * 1024
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_CLIENTS_FAULTS: Final = (HttpProcessingError, web.RequestPayloadError, ConnectionError)

BodyReader = Callable[[web.Request], Awaitable[bytes]]

quiet = QuietLog()
http_log = logging.getLogger("aiohttp.server.admin")
"""What aiohttp logs of the connections of the address."""


def _is_our_fault(record: logging.LogRecord) -> bool:
    """A filter. aiohttp logs requests that are no HTTP with a traceback, which shows what is in them; they
    are one quiet event."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, _CLIENTS_FAULTS):
        return True
    quiet.info("admin.request_malformed", reason=type(error).__name__)
    return False


http_log.addFilter(_is_our_fault)


class Pages(Protocol):
    """Further pages of the address."""

    def add_to(self, app: web.Application, body_of: BodyReader, *, is_loopback: bool) -> None:
        """`body_of`: reads the body of a request in bounded time, or raises TimeoutError, OSError or
        web.RequestPayloadError. `is_loopback`: whether only this host reaches the address."""
        ...

    async def close(self) -> None: ...


class AdminServer:
    """Answers operators and probes. `not_ready` gives the reasons why it is not ready, `shards` a page for
    each shard, `warnings` what needs an operator although clients are served."""

    def __init__(
        self,
        metrics: Metrics,
        version: str,
        not_ready: Callable[[], Sequence[Mapping[str, str]]],
        shards: Callable[[], Sequence[Mapping[str, object]]],
        settings: Admin,
        warnings: Callable[[], Sequence[Mapping[str, str]]] = tuple,
    ) -> None:
        self._metrics = metrics
        self._version = version
        self._not_ready = not_ready
        self._warnings = warnings
        self._shards = shards
        self._connections = AdminConnections(settings.connections, settings.request_head_ms / 1000)
        self._runner: web.AppRunner | None = None
        self._loop_lag = LoopLag(metrics.loop_lag)
        metrics.not_ready = not_ready
        self.console: Pages | None = None
        self.certificates: Certificates | None = None
        """For TLS. Both are to be set before the start."""

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on bound sockets."""
        app = web.Application(client_max_size=BODY_BYTES, middlewares=[self._connections.watched])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics_page)
        app.router.add_get("/version", self._version_page)
        app.router.add_get("/debug/shards", self._shards_page)
        if self.console is not None:
            hosts = [str(sock.getsockname()[0]) for sock in sockets]
            body_of = self._connections.body_of
            self.console.add_to(app, body_of, is_loopback=all(map(is_loopback, hosts)))
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=http_log,
            handle_signals=False,
            shutdown_timeout=1.0,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )
        self._runner = runner
        await runner.setup()
        assert runner.server is not None
        self._connections.certificates = self.certificates
        self._connections.listen(sockets, runner.server)
        self._loop_lag.start()

    async def close(self) -> None:
        self._loop_lag.close()
        self._connections.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self.console is not None:
            await self.console.close()

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readyz(self, request: web.Request) -> web.Response:
        reasons = list(self._not_ready())
        page: dict[str, object] = {"ready": not reasons, "reasons": reasons}
        if warnings := list(self._warnings()):
            page["warnings"] = warnings
        return web.json_response(page, status=503 if reasons else 200)

    async def _metrics_page(self, request: web.Request) -> web.Response:
        return web.Response(body=await self._metrics.page(), headers={"Content-Type": METRICS_TYPE})

    async def _version_page(self, request: web.Request) -> web.Response:
        return web.json_response({"version": self._version})

    async def _shards_page(self, request: web.Request) -> web.Response:
        return web.json_response({"shards": list(self._shards())})


def admin_address(sockets: Sequence[socket.socket], configured: Address) -> Address:
    """The bound address of the admin server."""
    return Address(configured.host, int(sockets[0].getsockname()[1]))
