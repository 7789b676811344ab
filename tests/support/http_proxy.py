"""A proxy on loopback before an HTTP server, which harms chosen requests, and may lie about conditions.

    async with running_proxy(server.endpoint) as proxy:
        proxy.harm("PUT", HttpFault.ANSWER_LOST)
        ...

Each harmed request is one that the plan names, in order, or every one while `every` is set; all others pass
through as they are, with the Host header that was signed.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum

from aiohttp import ClientError, ClientSession, DummyCookieJar, TCPConnector, web
from multidict import CIMultiDict
from yarl import URL

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"})
KEY = re.compile(rb"<Key>(.*?)</Key>")
MAX_BYTES = 64 * 1024 * 1024


class HttpFault(Enum):
    """What happens to a chosen request."""

    NONE = "nothing: it passes, and the next one is chosen"
    CUT_BEFORE = "the connection breaks, and the server never sees the request"
    ANSWER_LOST = "the server carries it out, and the connection breaks"
    SLOW_DOWN_BEFORE = "503, and the server never sees the request"
    ERROR_BEFORE = "500, and the server never sees the request"
    CONFLICT_BEFORE = "409, and the server never sees the request"
    ERROR_AFTER = "500 after the server has carried it out"
    LATE = "the connection breaks, and the request reaches the server with `arrive`"
    HELD = "no answer at all; the server never sees the request"


@dataclass(frozen=True, slots=True)
class Denied:
    """Requests that are answered with an error, and never reach the server."""

    concerns: Callable[[web.Request], bool]
    code: str = "AccessDenied"
    status: int = 403
    text: str = ""
    """In the error, or the whole body of a status 200, with KEY for the first one of the request."""

    def response(self, method: str, body: bytes) -> web.Response:
        text = f"<Error><Code>{self.code}</Code>{self.text}</Error>" if self.status != 200 else self.text
        if (key := KEY.search(body)) is not None:
            text = text.replace("KEY", key[1].decode())
        return web.Response(
            status=self.status, text="" if method == "HEAD" else text, content_type="application/xml"
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    method: str
    url: URL
    headers: Mapping[str, str]
    body: bytes


class HttpProxy:
    def __init__(self, target: str, session: ClientSession) -> None:
        self.endpoint = ""
        self.dropped: set[tuple[str, str]] = set()
        """Methods, and headers in lower case, that the server is not sent: it then knows no condition."""
        self.denied: Denied | None = None
        self.requests: list[str] = []
        """Method and path of all requests."""
        self.every: HttpFault | None = None
        """What happens to each request that no plan names."""
        self.delay_s = 0.0
        """Of each request, before anything else happens to it."""
        self._target = URL(target)
        self._session = session
        self._plan: list[tuple[str, HttpFault]] = []
        self._late: list[_Seen] = []
        self._ended = asyncio.Event()

    def harm(self, method: str, *faults: HttpFault) -> None:
        """The next requests of this method."""
        self._plan += [(method, fault) for fault in faults]

    @property
    def unharmed(self) -> int:
        """Planned faults that have not happened yet."""
        return len(self._plan)

    async def arrive(self) -> list[int]:
        """Let the late requests reach the server now; its statuses."""
        late, self._late = self._late, []
        return [(await self._forward(seen)).status for seen in late]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        url = self._target.join(URL(request.raw_path, encoded=True))
        headers = {
            name: value
            for name, value in request.headers.items()
            if (request.method, name.lower()) not in self.dropped
        }
        seen = _Seen(request.method, url, headers, await request.read())
        self.requests.append(f"{request.method} {request.path}")
        if self.denied is not None and self.denied.concerns(request):
            return self.denied.response(request.method, seen.body)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        fault = self._fault_of(request.method) or self.every
        try:
            return await self._harmed(fault or HttpFault.NONE, request, seen)
        except ClientError:
            # The server is gone, which its client sees as it would without a proxy.
            return _cut(request)

    def end(self) -> None:
        self._ended.set()

    def _fault_of(self, method: str) -> HttpFault | None:
        for place, (chosen, fault) in enumerate(self._plan):
            if chosen == method:
                del self._plan[place]
                return fault
        return None

    async def _harmed(self, fault: HttpFault, request: web.Request, seen: _Seen) -> web.StreamResponse:
        match fault:
            case HttpFault.NONE:
                return await self._forward(seen)
            case HttpFault.SLOW_DOWN_BEFORE:
                return web.Response(status=503, text="<Error><Code>SlowDown</Code></Error>")
            case HttpFault.ERROR_BEFORE:
                return web.Response(status=500, text="<Error><Code>InternalError</Code></Error>")
            case HttpFault.CONFLICT_BEFORE:
                return web.Response(status=409, text="<Error><Code>ConditionalRequestConflict</Code></Error>")
            case HttpFault.ERROR_AFTER:
                await self._forward(seen)
                return web.Response(status=500, text="<Error><Code>InternalError</Code></Error>")
            case HttpFault.ANSWER_LOST:
                await self._forward(seen)
            case HttpFault.LATE:
                self._late.append(seen)
            case HttpFault.HELD:
                await self._ended.wait()
        return _cut(request)

    async def _forward(self, seen: _Seen) -> web.Response:
        call = self._session.request(
            seen.method, seen.url, headers=seen.headers, data=seen.body, allow_redirects=False
        )
        async with call as response:
            kept = CIMultiDict(
                (name, value) for name, value in response.headers.items() if name.lower() not in HOP_BY_HOP
            )
            body = await response.read()
            if seen.method == "HEAD":
                kept["Content-Length"] = response.headers.get("Content-Length", "0")
            return web.Response(status=response.status, headers=kept, body=body)


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.close()
    return web.Response(status=500)


@asynccontextmanager
async def running_proxy(target: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpProxy]:
    """On a free port, until the block ends. `tls`: of the proxy, not of the server behind it."""
    connector = TCPConnector(force_close=True)
    async with ClientSession(
        connector=connector, auto_decompress=False, cookie_jar=DummyCookieJar(), skip_auto_headers=("Accept",)
    ) as session:
        proxy = HttpProxy(target, session)
        application = web.Application(client_max_size=MAX_BYTES)
        application.router.add_route("*", "/{path:.*}", proxy.handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
            await site.start()
            host, port = runner.addresses[0][:2]
            proxy.endpoint = f"{'https' if tls is not None else 'http'}://{host}:{port}"
            yield proxy
        finally:
            proxy.end()
            with suppress(ClientError):
                await runner.cleanup()
