"""The console's routes at the admin address: the page and its files, and `/api/...`, which returns JSON.

| request                        | returns                                                           |
|--------------------------------|-------------------------------------------------------------------|
| GET /                          | the page; /console/NAME its style, script and icon                |
| GET /api/session               | whether a token is needed, and what the settings allow            |
| GET /api/overview              | the gateway and its figures, with the points of the last minutes  |
| GET /api/topics                | a page of topics: search, sort, order, page, rows                 |
| GET /api/topic                 | a topic with a page of its partitions: name, page, rows           |
| GET /api/messages              | records (`admin.read_records`): topic, partition, from ... below  |
| GET /api/position              | where an offset is stored: topic, partition, offset               |
| GET /api/groups, /api/group    | a page of groups; a group with members and a page of its offsets  |
| GET /api/transactions          | a page of transactional ids, with what is open of each            |
| POST /api/group/reset/preview  | what a reset would do (`admin.write`): group, topics, to, value   |
| POST /api/group/reset          | does what the preview showed: preview                             |

Errors are {"error": {"reason", "detail"}}. Counts, sizes and times of every request are bounded here or in
what is called.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from gateway.admin.server import BodyReader
from gateway.console import views
from gateway.console.access import SECURITY_HEADERS, Access, Denied, RequestFacts
from gateway.console.forms import bad, name_of, number, page_request, positions, record_filter, reset_target
from gateway.console.history import Counts, History
from gateway.console.messages import MAX_PARTITIONS, MAX_RECORDS, MessageSearch, NotReadable, Search
from gateway.console.paging import DEFAULT_PAGE_ROWS, MAX_PAGE_ROWS, PageRequest, page_of
from gateway.console.positions import Positions
from gateway.console.resets import NotPossible, Resets, audit_reset
from gateway.console.tables import (
    GROUP_SORTS,
    TOPIC_SORTS,
    TRANSACTION_SORTS,
    GroupTable,
    Row,
    Table,
    TopicTable,
    TransactionTable,
)
from gateway.requests.context import Services
from gateway.scheduling.batch_opening import BatchOpener
from gateway.scheduling.slices import Owner, Slices
from gateway.security.principals import ANONYMOUS, principal_of
from gateway.settings import Admin
from gateway.telemetry.logs import QuietLog
from gateway.wire.connection import CloseConnection
from gateway.world import World
from ledger.groups.state import OffsetKey
from ledger.topics.state import Topic
from ledger.types import TopicId

log = structlog.get_logger()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Json = dict[str, Any]

FILES: Final[Mapping[str, str]] = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "api.js": "text/javascript",
    "dom.js": "text/javascript",
    "plots.js": "text/javascript",
    "overview.js": "text/javascript",
    "lists.js": "text/javascript",
    "topic.js": "text/javascript",
    "group.js": "text/javascript",
    "ledger.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
PAGE: Final = "index.html"
CONNECTION: Final = -2
"""The connection id of the console, for what is shared fairly between connections."""
MAX_SEARCHES: Final = 2
"""Searches for records, and look-ups of positions, at a time."""
WAIT_S: Final = 5.0
KEEP_BYTES: Final = 4 * 1024
MAX_KEEP_BYTES: Final = 256 * 1024
"""Of each key and value, by default and at most."""
MAX_SHOWN_BYTES: Final = 1024 * 1024
"""Of all keys, and of all values, in one response."""
MAX_GROUP_ID: Final = 10_000


@dataclass(frozen=True, slots=True)
class GatewayFacts:
    """What the console shows of its gateway and does not find in the services."""

    version: str
    not_ready: Callable[[], Sequence[Mapping[str, str]]]
    warnings: Callable[[], Sequence[Mapping[str, str]]]
    epoch: Callable[[], int]


class Console:
    """The console of one gateway."""

    def __init__(self, services: Services, settings: Admin, facts: GatewayFacts, world: World) -> None:
        self._services = services
        self._settings = settings
        self._facts = facts
        self._wall_ms = world.wall_ms
        self._opener = BatchOpener(world.thread_pool, world.cpu_s)
        self._topics = TopicTable(services.shard)
        self._groups = GroupTable(services.shard, services.groups)
        self._transactions = TransactionTable(services.shard)
        self._messages = MessageSearch(services, self._opener)
        self._positions = Positions(services.fetch)
        self._resets = Resets(services, world.random_bytes)
        self._history = History(self._counts, world.wall_ms)
        self._searching = asyncio.Semaphore(MAX_SEARCHES)
        self._sampling: asyncio.Task[None] | None = None
        self._access: Access | None = None
        self._body_of: BodyReader | None = None
        self._quiet = QuietLog()
        self._started_ms = world.wall_ms()

    def add_to(self, app: web.Application, body_of: BodyReader, *, is_loopback: bool) -> None:
        """Serve it with the other pages of the address. Raises ConfigError."""
        self._body_of = body_of
        self._access = Access(self._settings, is_loopback=is_loopback)
        if self._access.is_closed:
            log.warning(
                "console.closed", reason="the admin address is not loopback", needs="admin.token_file"
            )
        static = files("gateway.console").joinpath("static")
        app.router.add_get("/", _file(static.joinpath(PAGE).read_bytes(), "text/html", self._checked))
        for name, kind in FILES.items():
            body = static.joinpath(name).read_bytes()
            app.router.add_get(f"/console/{name}", _file(body, kind, self._checked))
        api = web.Application(middlewares=[self._guard])
        api.router.add_get("/session", self._session)
        for path, handler in self._pages().items():
            api.router.add_get(path, handler)
        api.router.add_post("/group/reset/preview", self._reset_preview)
        api.router.add_post("/group/reset", self._reset)
        app.add_subapp("/api", api)
        self._sampling = asyncio.get_running_loop().create_task(self._history.run(), name="console history")

    def _pages(self) -> Mapping[str, Handler]:
        return {
            "/overview": self._overview,
            "/topics": self._topics_page,
            "/topic": self._topic_page,
            "/messages": self._messages_page,
            "/position": self._position_page,
            "/groups": self._groups_page,
            "/group": self._group_page,
            "/transactions": self._transactions_page,
        }

    async def close(self) -> None:
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
        self._topics.forget()
        self._groups.forget()
        self._transactions.forget()
        self._opener.close()

    def _checked(self, request: web.Request) -> None:
        assert self._access is not None
        self._access.check_sender(_facts_of(request))

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every request for data."""
        assert self._access is not None
        facts = _facts_of(request)
        try:
            self._access.check_sender(facts)
            if request.path != "/api/session":
                self._access.check_user(facts)
            return await handler(request)
        except Denied as denied:
            if denied.status != 400:
                self._quiet.warning("console.denied", reason=denied.reason, peer=request.remote)
            return _error(denied.status, denied.reason, denied.detail)
        except NotPossible as error:
            return _error(409, "not_possible", str(error))
        except NotReadable as error:
            return _error(502, "not_readable", str(error))
        except (CloseConnection, TimeoutError):
            return _error(503, "busy", "The gateway is too busy for this at present: try again.")

    async def _session(self, request: web.Request) -> web.Response:
        assert self._access is not None
        return _json(
            {
                "needsToken": self._access.needs_token_of(_principal_of(request)),
                "isClosed": self._access.is_closed,
                "mayReadRecords": self._settings.read_records,
                "mayWrite": self._settings.write,
            }
        )

    async def _overview(self, request: web.Request) -> web.Response:
        services, state = self._services, self._services.shard.state
        await self._groups.totals.count()
        return _json(
            {
                "clusterId": services.cluster_id,
                "nodeId": services.node_id,
                "version": self._facts.version,
                "now": self._wall_ms(),
                "started": self._started_ms,
                "epoch": self._facts.epoch(),
                "entries": state.applied,
                "topics": len(state.topics.by_id),
                "partitions": state.logs.in_topics,
                "groups": self._groups.totals.groups,
                "members": self._groups.totals.members,
                "objects": len(state.objects.by_number),
                "garbageObjects": len(state.objects.garbage),
                "notReady": views.warnings(self._facts.not_ready()),
                "warnings": views.warnings(self._facts.warnings()),
                "points": [point._asdict() for point in self._history.points],
            }
        )

    async def _topics_page(self, request: web.Request) -> web.Response:
        return await self._list(request, self._topics, TOPIC_SORTS, views.topic_row)

    async def _groups_page(self, request: web.Request) -> web.Response:
        return await self._list(request, self._groups, GROUP_SORTS, views.group_row)

    async def _transactions_page(self, request: web.Request) -> web.Response:
        return await self._list(request, self._transactions, TRANSACTION_SORTS, views.transaction_row)

    async def _list(
        self,
        request: web.Request,
        table: Table[Row],
        sorts: Mapping[str, Callable[[Row], Any]],
        shown: Callable[[Row], Json],
    ) -> web.Response:
        wanted = page_request(request.query, sorts)
        slices = self._slices(request)
        try:
            page = await page_of(await table.rows(slices), wanted, sorts[wanted.sort], slices)
        finally:
            slices.leave()
        return _json(_paged([shown(row) for row in page.rows], page.matching, page.total))

    async def _topic_page(self, request: web.Request) -> web.Response:
        topic = self._topic(name_of(request.query, "name"))
        rows = number(request.query, "rows", DEFAULT_PAGE_ROWS, 1, MAX_PAGE_ROWS)
        first = number(request.query, "page", 0, 0, 10**9) * rows
        return _json(views.topic_page(topic, first, rows))

    async def _messages_page(self, request: web.Request) -> web.Response:
        if not self._settings.read_records:
            raise Denied(403, "read_records", "Records are shown only with the setting admin.read_records.")
        query = request.query
        topic = self._topic(name_of(query, "topic"))
        limit = number(query, "limit", DEFAULT_PAGE_ROWS, 1, MAX_RECORDS)
        keep_bytes = number(query, "bytes", KEEP_BYTES, 0, MAX_KEEP_BYTES)
        keep_bytes = min(keep_bytes, MAX_SHOWN_BYTES // limit)
        wanted = record_filter(query)
        async with self._search_slot():
            starts = await self._starts(topic, query, limit)
            until = positions(query.get("until", ""), "until")
            ends = {
                index: min(until.get(index, high), high)
                for index, high in ((index, _log_of(topic, index)[1]) for index in starts)
            }
            search = Search(topic, starts, ends, wanted, limit, keep_bytes)
            found = await self._messages.search(search, _owner(request))
        # Megabytes of texts: not on the event loop.
        return _encoded(await asyncio.to_thread(lambda: msgspec.json.encode(views.messages(found))))

    async def _starts(self, topic: Topic, query: Mapping[str, str], limit: int) -> dict[int, int]:
        """The first offsets to look at: `at` has them, else `from` says where (earliest, latest, offset,
        time) with `start` in the partition, or in all."""
        if at := query.get("at", ""):
            given = positions(at, "at")
            if len(given) > MAX_PARTITIONS or any(index >= len(topic.partitions) for index in given):
                raise bad("The parameter at names partitions that the topic does not have, or too many.")
            return {index: max(offset, _log_of(topic, index)[0]) for index, offset in given.items()}
        partition = number(query, "partition", -1, -1, len(topic.partitions) - 1)
        indexes = [partition] if partition >= 0 else list(range(len(topic.partitions)))
        if len(indexes) > MAX_PARTITIONS:
            raise bad(f"The topic has more than {MAX_PARTITIONS} partitions: choose one.")
        where = query.get("from", "latest")
        if where == "time":
            return await self._messages.starts_at(topic, indexes, number(query, "start", None, 0, 2**62))
        ranges = {index: _log_of(topic, index) for index in indexes}
        if where == "earliest":
            return {index: low for index, (low, _) in ranges.items()}
        if where == "latest":
            each = max(1, limit // len(indexes))
            return {index: max(low, high - each) for index, (low, high) in ranges.items()}
        if where == "offset":
            offset = number(query, "start", None, 0, 2**63 - 1)
            return {index: min(max(offset, low), high) for index, (low, high) in ranges.items()}
        raise bad("The parameter from is none of earliest, latest, offset, time.")

    async def _position_page(self, request: web.Request) -> web.Response:
        topic = self._topic(name_of(request.query, "topic"))
        index = number(request.query, "partition", 0, 0, len(topic.partitions) - 1)
        offset = number(request.query, "offset", None, 0, 2**63 - 1)
        async with self._search_slot():
            found = await self._positions.of(
                topic.partitions[index],
                offset,
                _owner(request),
                shows_records=self._settings.read_records,
            )
        return _json({"topic": topic.name, "partition": index, **found})

    async def _group_page(self, request: web.Request) -> web.Response:
        group_id = name_of(request.query, "name")
        rows = number(request.query, "rows", DEFAULT_PAGE_ROWS, 1, MAX_PAGE_ROWS)
        first = number(request.query, "page", 0, 0, 10**9) * rows
        group = self._services.groups.describe(group_id)
        if group is None:
            raise Denied(404, "unknown", "There is no such group.")
        state = self._services.shard.state
        wanted = PageRequest(page=first // rows, rows=rows)
        # Only their keys: a pair for each of very many takes some milliseconds to make, and to free.
        keys = list(self._services.group_offsets.of(group_id))
        slices = self._slices(request)
        try:
            page = await page_of(keys, wanted, _place_of(state.topics.by_id), slices)
        finally:
            slices.leave()
        offsets = self._services.group_offsets.of(group_id)
        return _json(
            {
                "name": group_id,
                "state": group.state,
                "protocolType": group.protocol_type,
                "protocol": group.protocol,
                "memberCount": len(group.members),
                "members": views.members(group),
                "offsetCount": len(keys),
                "first": first,
                # Some may have been deleted meanwhile.
                "offsets": [
                    views.offset_row(state, key, offsets[key]) for key in page.rows if key in offsets
                ],
            }
        )

    async def _reset_preview(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        group_id, topics = body.get("group"), body.get("topics", [])
        if not isinstance(group_id, str) or not 0 < len(group_id) <= MAX_GROUP_ID:
            raise bad("The field group is missing.")
        if not isinstance(topics, list) or not all(isinstance(name, str) for name in topics):
            raise bad("The field topics is a list of names.")
        target = reset_target(body.get("to"), body.get("value", 0))
        return _json(views.preview(await self._resets.preview(group_id, topics, target)))

    async def _reset(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        preview_id = body.get("preview")
        if not isinstance(preview_id, str):
            raise bad("The field preview is missing.")
        preview, errors = await self._resets.apply(preview_id)
        audit_reset(preview, errors, (_principal_of(request), request.remote or ""))
        return _json(views.preview(preview, errors))

    async def _body(self, request: web.Request) -> dict[str, Any]:
        if not self._settings.write:
            raise Denied(403, "write", "The console changes something only with the setting admin.write.")
        try:
            body = msgspec.json.decode(await self._received(request))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise bad("The body is no JSON.") from None
        if not isinstance(body, dict):
            raise bad("The body is no object.")
        return body

    async def _received(self, request: web.Request) -> bytes:
        assert self._body_of is not None
        try:
            return await self._body_of(request)
        except TimeoutError:
            raise Denied(408, "body", "The body of the request did not come in time.") from None
        except (OSError, web.RequestPayloadError):
            # The client may be gone, and not read this.
            raise bad("The body of the request is not whole.") from None

    def _topic(self, name: str) -> Topic:
        topic = self._services.shard.state.topics.by_name.get(name)
        if topic is None:
            raise Denied(404, "unknown", "There is no such topic.")
        return topic

    def _slices(self, request: web.Request) -> Slices:
        deadline = asyncio.get_running_loop().time() + WAIT_S
        return Slices(self._services.scheduler, _owner(request), deadline)

    def _search_slot(self) -> "_Slot":
        return _Slot(self._searching)

    def _counts(self) -> Counts:
        traffic = self._services.metrics.traffic
        return Counts(
            traffic.produced_bytes.value,
            traffic.fetched_bytes.value,
            traffic.produced_records.value,
            traffic.fetched_records.value,
        )


class _Slot:
    """A place among those that search at the same time. TimeoutError if there is none in time."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places

    async def __aenter__(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self._places.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._places.release()


def _log_of(topic: Topic, index: int) -> tuple[int, int]:
    """Log start and high watermark."""
    log = topic.partitions.made[index]
    return (0, 0) if log is None else (log.log_start, log.high_watermark)


def _place_of(topics: Mapping[TopicId, Topic]) -> Callable[[OffsetKey], Any]:
    """Offsets are sorted by topic name and partition; those of deleted topics come first."""

    def place(key: OffsetKey) -> tuple[str, int]:
        topic_id, partition = key
        topic = topics.get(topic_id)
        return (topic.name if topic is not None else "", partition)

    return place


def _owner(request: web.Request) -> Owner:
    return Owner(CONNECTION, request.remote or "")


def _facts_of(request: web.Request) -> RequestFacts:
    headers = request.headers
    return RequestFacts(
        method=request.method,
        scheme=request.scheme,
        host=headers.get("Host"),
        origin=headers.get("Origin"),
        fetch_site=headers.get("Sec-Fetch-Site"),
        content_type=request.content_type,
        authorization=headers.get("Authorization"),
        principal=_principal_of(request),
    )


def _principal_of(request: web.Request) -> str:
    transport = request.transport
    return principal_of(transport.get_extra_info("peercert")) if transport is not None else ANONYMOUS


def _file(body: bytes, kind: str, check: Callable[[web.Request], None]) -> Handler:
    """Serves one file of the page."""
    headers = {**SECURITY_HEADERS, "Content-Type": f"{kind}; charset=utf-8", "Cache-Control": "no-cache"}

    async def serve(request: web.Request) -> web.Response:
        try:
            check(request)
        except Denied as denied:
            return _error(denied.status, denied.reason, denied.detail)
        return web.Response(body=body, headers=headers)

    return serve


def _paged(rows: list[Json], matching: int, total: int) -> Json:
    return {"rows": rows, "matching": matching, "total": total}


def _json(value: object, status: int = 200) -> web.Response:
    return _encoded(msgspec.json.encode(value), status)


def _encoded(body: bytes, status: int = 200) -> web.Response:
    headers = {**SECURITY_HEADERS, "Content-Type": "application/json", "Cache-Control": "no-store"}
    return web.Response(body=body, status=status, headers=headers)


def _error(status: int, reason: str, detail: str) -> web.Response:
    return _json({"error": {"reason": reason, "detail": detail}}, status)
