"""The ways of a gateway to its remote stores, with proxies that a test without an event loop can turn bad.

    with ways_to(weed.s3_port, etcd.port) as ways:
        ...  # a gateway over ways.s3_endpoint and ways.etcd_endpoint
        with ways.trouble(S3_SLOW_DOWN):
            ...

Requests to S3 pass a proxy of TCP and then one of HTTP, calls to etcd one of TCP. The proxies run in a
thread.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from tests.support.http_proxy import Denied, HttpFault, HttpProxy, running_proxy
from tests.support.loop_thread import CALL_TIMEOUT_S, loop_in_thread
from tests.support.tcp_proxy import Link, linked

T = TypeVar("T")

SLOW_S: Final = 0.3
BETWEEN_CUTS_S: Final = 0.25
HOST: Final = "127.0.0.1"


class Store(Enum):
    S3 = "S3"
    ETCD = "etcd"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong on the way to one store, for as long as it lasts."""

    name: str
    store: Store
    fault: HttpFault | None = None
    """Of every request to S3."""
    denied: Denied | None = None
    """What every request to S3 is answered with."""
    delay_s: float = 0.0
    """Of every request to S3, of every packet to and from etcd."""
    cuts: bool = False
    """All connections are cut again and again."""
    loses_answers: bool = False
    """Nothing comes back, and all connections are cut again and again."""
    is_partition: bool = False
    """Nothing passes in either direction; at the end the connections are cut."""
    arrives_late: bool = False
    """Nothing passes in either direction; at the end everything arrives."""
    is_harmless: bool = False
    """The stores still answer, or the client of the store helps itself: the gateway stays ready."""

    def __str__(self) -> str:
        return f"{self.store.value}-{self.name}"


S3_TROUBLES: Final = (
    Trouble("slow", Store.S3, delay_s=SLOW_S, is_harmless=True),
    Trouble("503-slow-down", Store.S3, HttpFault.SLOW_DOWN_BEFORE),
    Trouble("500-before", Store.S3, HttpFault.ERROR_BEFORE),
    Trouble("500-after", Store.S3, HttpFault.ERROR_AFTER),
    Trouble("cut", Store.S3, HttpFault.CUT_BEFORE),
    Trouble("answers-lost", Store.S3, HttpFault.ANSWER_LOST),
    Trouble("expired-credentials", Store.S3, denied=Denied(lambda _: True, "ExpiredToken", 400)),
    Trouble("partition", Store.S3, is_partition=True),
    Trouble("late", Store.S3, arrives_late=True),
)
ETCD_TROUBLES: Final = (
    Trouble("slow", Store.ETCD, delay_s=SLOW_S, is_harmless=True),
    Trouble("cut", Store.ETCD, cuts=True),
    Trouble("answers-lost", Store.ETCD, loses_answers=True),
    Trouble("partition", Store.ETCD, is_partition=True),
    Trouble("late", Store.ETCD, arrives_late=True),
)


class Ways:
    """Made by `ways_to`. May be used by one thread at a time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, s3: HttpProxy, s3_link: Link, etcd_link: Link | None
    ) -> None:
        self._loop = loop
        self._s3 = s3
        self._links = {Store.S3: s3_link, **({Store.ETCD: etcd_link} if etcd_link is not None else {})}

    @property
    def s3_endpoint(self) -> str:
        return f"http://{self._links[Store.S3].endpoint}"

    @property
    def etcd_endpoint(self) -> str:
        return self._links[Store.ETCD].endpoint

    @contextmanager
    def trouble(self, trouble: Trouble) -> Iterator[None]:
        self._call(self._begin(trouble))
        try:
            yield
        finally:
            self._call(self._end(trouble))

    def requests(self) -> int:
        """To S3 so far."""
        return len(self._s3.requests)

    async def _begin(self, trouble: Trouble) -> None:
        link = self._links[trouble.store]
        if trouble.store is Store.S3:
            self._s3.every, self._s3.delay_s = trouble.fault, trouble.delay_s
            self._s3.denied = trouble.denied
        else:
            link.delay_s = trouble.delay_s
        if trouble.is_partition or trouble.arrives_late:
            link.hold_requests()
            link.hold_answers()
        if trouble.cuts or trouble.loses_answers:
            self._cutting = asyncio.create_task(_cut_again_and_again(link, trouble.loses_answers))

    async def _end(self, trouble: Trouble) -> None:
        link = self._links[trouble.store]
        self._s3.every, self._s3.denied = None, None
        self._s3.delay_s = link.delay_s = 0.0
        if trouble.cuts or trouble.loses_answers:
            self._cutting.cancel()
            await asyncio.gather(self._cutting, return_exceptions=True)
        if trouble.arrives_late:
            link.release()
        elif trouble.is_partition or trouble.loses_answers:
            await link.cut()

    def _call(self, doing: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(CALL_TIMEOUT_S)


async def _cut_again_and_again(link: Link, loses_answers: bool) -> None:
    while True:
        if loses_answers:
            link.hold_answers()
        await asyncio.sleep(BETWEEN_CUTS_S)
        await link.cut()


@contextmanager
def ways_to(s3_port: int, etcd_port: int | None = None) -> Iterator[Ways]:
    """To servers on loopback."""
    with loop_in_thread("ways to the stores") as (loop, call):
        stack = AsyncExitStack()
        try:
            yield call(_opened(loop, stack, s3_port, etcd_port))
        finally:
            call(stack.aclose())


async def _opened(
    loop: asyncio.AbstractEventLoop, stack: AsyncExitStack, s3_port: int, etcd_port: int | None
) -> Ways:
    s3 = await stack.enter_async_context(running_proxy(f"http://{HOST}:{s3_port}"))
    s3_link = await stack.enter_async_context(linked(int(s3.endpoint.rpartition(":")[2])))
    etcd_link = await stack.enter_async_context(linked(etcd_port)) if etcd_port is not None else None
    return Ways(loop, s3, s3_link, etcd_link)
