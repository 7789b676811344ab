"""Which handler serves which API. ApiVersions advertises what is in this table."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, Final, TypeAlias

from gateway.completion import Cancellable, Completion
from gateway.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from gateway.network.pipeline import Peer
from gateway.quotas.alter import REQUEST
from gateway.requests.context import RequestContext, Services
from gateway.requests.deferred import defer
from gateway.requests.response_cache import Encoded
from gateway.requests.throttling import throttle_request
from gateway.response import Buffers, Response
from gateway.telemetry.handler_time import HandlerTime
from gateway.telemetry.parked import Parked, parked_in_this_task
from gateway.wire.apis import INTERNAL_RANGES, RANGES, AnyApi, ApiKey, InternalApi
from gateway.wire.connection import CloseConnection, Request
from gateway.wire.errors import Malformed, NeedsSlices
from gateway.wire.header import encode_response_header
from gateway.wire.messages import codec
from ledger.errors import ErrorName
from ledger.types import Buffer

_THROTTLE_TIME: Final = Struct(">i")
NOT_SERVED_BELOW: Final[Mapping[AnyApi, int]] = {ApiKey.PRODUCE: 3}
"""Versions that are advertised, because clients check for them, but never served."""


@dataclass(frozen=True, slots=True)
class Handler:
    """`handle(context, request)` returns the response message, or None where the protocol has no response.

    If `raw`, it gets the body's bytes and returns the `Response`, without its header. If `may_park`, it may
    wait for other clients for longer than the longest request timeout, by deadlines of its own.
    """

    handle: Callable[[RequestContext, Any], Awaitable[Any]]
    raw: bool = False
    may_park: bool = False


@dataclass(frozen=True, slots=True)
class Pipelined:
    """`start(context, body, completion)` accepts a request without waiting; the completion gets the buffers
    of the response's body. It is called while earlier requests of its connection are unanswered, if those
    are pipelined too."""

    start: Callable[[RequestContext, memoryview, Completion[Buffers | None]], Cancellable]


@dataclass(frozen=True, slots=True)
class Inline:
    """`start(context, request, completion)` accepts a request without waiting; the completion gets the
    response message. For requests that nearly always have their response at once, or from the shard's
    completion: they need no task. One that must wait otherwise gets a task (`gateway.requests.deferred`)."""

    start: Callable[[RequestContext, Any, Completion[object]], Cancellable | None]
    wait: Callable[[RequestContext, Any], Coroutine[Any, Any, Any]]
    """The same in a task, for a request that is not decoded at once."""


AnyHandler: TypeAlias = Handler | Pipelined | Inline
Handlers: TypeAlias = Mapping[ApiKey, AnyHandler] | Mapping[AnyApi, AnyHandler]

HANDLERS: Final[Mapping[ApiKey, AnyHandler]] = {
    ApiKey.PRODUCE: Pipelined(produce.start),
    ApiKey.FETCH: Handler(fetch.handle, raw=True),
    ApiKey.LIST_OFFSETS: Handler(list_offsets.handle),
    ApiKey.METADATA: Handler(metadata.handle),
    ApiKey.API_VERSIONS: Handler(api_versions.handle),
    ApiKey.CREATE_TOPICS: Handler(create_topics.handle),
    ApiKey.DELETE_TOPICS: Handler(delete_topics.handle),
    ApiKey.INIT_PRODUCER_ID: Handler(init_producer_id.handle),
    ApiKey.DESCRIBE_CONFIGS: Handler(describe_configs.handle),
    ApiKey.DESCRIBE_CLUSTER: Handler(describe_cluster.handle),
    ApiKey.DELETE_RECORDS: Handler(delete_records.handle),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(offset_for_leader_epoch.handle),
    ApiKey.ALTER_CONFIGS: Handler(alter_configs.handle),
    ApiKey.DESCRIBE_LOG_DIRS: Handler(describe_log_dirs.handle),
    ApiKey.CREATE_PARTITIONS: Handler(create_partitions.handle),
    ApiKey.ELECT_LEADERS: Handler(elect_leaders.handle),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler(incremental_alter_configs.handle),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Handler(alter_partition_reassignments.handle),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Handler(list_partition_reassignments.handle),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Handler(describe_client_quotas.handle),
    ApiKey.ALTER_CLIENT_QUOTAS: Handler(alter_client_quotas.handle),
    ApiKey.DESCRIBE_PRODUCERS: Handler(describe_producers.handle),
    ApiKey.LIST_CONFIG_RESOURCES: Handler(list_config_resources.handle),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler(describe_topic_partitions.handle),
    ApiKey.OFFSET_COMMIT: Inline(offset_commit.start, offset_commit.wait_in_slices),
    ApiKey.OFFSET_FETCH: Handler(offset_fetch.handle),
    ApiKey.FIND_COORDINATOR: Handler(find_coordinator.handle),
    ApiKey.JOIN_GROUP: Handler(join_group.handle, may_park=True),
    ApiKey.HEARTBEAT: Inline(heartbeat.start, heartbeat.wait),
    ApiKey.LEAVE_GROUP: Handler(leave_group.handle),
    ApiKey.SYNC_GROUP: Handler(sync_group.handle, may_park=True),
    ApiKey.DESCRIBE_GROUPS: Handler(describe_groups.handle),
    ApiKey.LIST_GROUPS: Handler(list_groups.handle),
    ApiKey.DELETE_GROUPS: Handler(delete_groups.handle),
    ApiKey.OFFSET_DELETE: Handler(offset_delete.handle),
    ApiKey.DESCRIBE_ACLS: Handler(describe_acls.handle),
    ApiKey.CREATE_ACLS: Handler(create_acls.handle),
    ApiKey.DELETE_ACLS: Handler(delete_acls.handle),
    ApiKey.ADD_PARTITIONS_TO_TXN: Inline(add_partitions_to_txn.start, add_partitions_to_txn.wait),
    ApiKey.ADD_OFFSETS_TO_TXN: Handler(add_offsets_to_txn.handle),
    ApiKey.END_TXN: Inline(end_txn.start, end_txn.wait),
    ApiKey.TXN_OFFSET_COMMIT: Handler(txn_offset_commit.handle),
    ApiKey.DESCRIBE_TRANSACTIONS: Handler(describe_transactions.handle),
    ApiKey.LIST_TRANSACTIONS: Handler(list_transactions.handle),
    ApiKey.WRITE_TXN_MARKERS: Handler(write_txn_markers.handle),
}


def served_versions(handlers: Handlers) -> dict[int, tuple[int, int]]:
    """Lowest and highest version of each API, as ApiVersions reports them: every version that the codec
    knows."""
    return {
        int(key): INTERNAL_RANGES[key] if isinstance(key, InternalApi) else RANGES[key] for key in handlers
    }


CANCELLED: Final = "CANCELLED"
"""The outcome of a request whose client left, or whose connection was closed, before its response."""


class RequestRouter:
    """Decodes, calls the handler, encodes, and counts."""

    def __init__(
        self,
        services: Services,
        handlers: Handlers = HANDLERS,
        *,
        has_quotas: bool = True,
    ) -> None:
        """`has_quotas`: client quotas of handler time hold for these requests."""
        self._services = services
        self._has_quotas = has_quotas
        self._handlers: dict[int, tuple[AnyApi, Handler]] = {}
        self._pipelined: dict[int, tuple[AnyApi, Pipelined]] = {}
        self._inline: dict[int, tuple[AnyApi, Inline]] = {}
        for key, handler in handlers.items():
            if isinstance(handler, Pipelined):
                self._pipelined[int(key)] = (key, handler)
            elif isinstance(handler, Inline):
                self._inline[int(key)] = (key, handler)
            else:
                self._handlers[int(key)] = (key, handler)
        self._may_park = {key for key, (_, handler) in self._handlers.items() if handler.may_park}
        self.served = served_versions(handlers)

    def is_pipelined(self, api_key: int) -> bool:
        return api_key in self._pipelined

    def is_inline(self, api_key: int) -> bool:
        return api_key in self._inline

    def may_park(self, api_key: int) -> bool:
        return api_key in self._may_park

    def starved_since(self) -> float:
        return self._services.fetch.budget.stuck_since

    def waiting_since(self) -> float:
        return self._services.fetch.budget.waiting_since

    async def answer(self, request: Request, peer: Peer, received_at: float) -> Response | None:
        """Response header and body. Raises Malformed, and CloseConnection for a version never served."""
        key, handler = self._handlers[request.header.api_key]
        counted = _Counted(key, self._context(key, request, peer, received_at), parked_in_this_task())
        try:
            response = await self._timed_body(key, handler, counted.context, request)
        except BaseException as error:
            counted.failed(error)
            raise
        finally:
            counted.context.end()
        version = 0 if request.unsupported_api_versions else request.header.api_version
        if response is None:
            counted.finished(version, None)
        else:
            response.buffers = counted.finished(version, response.buffers) or ()
        return response

    def start(
        self, request: Request, peer: Peer, received_at: float, completion: Completion[Buffers | None]
    ) -> Cancellable | None:
        """The same for a pipelined or inline request; the completion gets response header and body. Returns
        None if it has them already."""
        inline = self._inline.get(request.header.api_key)
        if inline is not None:
            return self._start_inline(*inline, request, peer, received_at, completion)
        key, pipelined = self._pipelined[request.header.api_key]
        counted = _CountedCompletion(key, self._context(key, request, peer, received_at), completion)
        try:
            return pipelined.start(counted.context, request.body, counted)
        except Exception as error:
            counted.failed(error)
            raise

    def _start_inline(
        self,
        key: AnyApi,
        inline: Inline,
        request: Request,
        peer: Peer,
        received_at: float,
        completion: Completion[Buffers | None],
    ) -> Cancellable | None:
        counted = _CountedCompletion(
            key, self._context(key, request, peer, received_at), completion, _inline_body
        )
        context = counted.context
        if context.handler_time is not None:
            context.handler_time.start()
        try:
            message = codec.decode_small_request(key, context.header.api_version, request.body)
            return inline.start(context, message, counted)
        except NeedsSlices:
            return defer(context, partial(_heavy_body, key, inline, context, request.body), counted)
        except Exception as error:
            counted.failed(error)
            raise
        finally:
            if context.handler_time is not None:
                context.handler_time.stop()

    def _context(self, key: AnyApi, request: Request, peer: Peer, received_at: float) -> RequestContext:
        header = request.header
        if key in NOT_SERVED_BELOW and header.api_version < NOT_SERVED_BELOW[key]:
            raise CloseConnection(f"version {header.api_version} of {key.name} is not answered")
        return RequestContext(
            header,
            peer.listener,
            peer.host,
            peer.principal,
            received_at,
            self._services,
            peer.connection_id,
            peer.mute,
            peer.is_lost,
            HandlerTime() if self._has_quotas and self._services.quotas.has(REQUEST) else None,
        )

    def _timed_body(
        self, key: AnyApi, handler: Handler, context: RequestContext, request: Request
    ) -> Awaitable[Response | None]:
        body = self._body(key, handler, context, request)
        return body if context.handler_time is None else context.handler_time.timed(body)

    async def _body(
        self, key: AnyApi, handler: Handler, context: RequestContext, request: Request
    ) -> Response | None:
        version = request.header.api_version
        if request.unsupported_api_versions:
            return Response([codec.encode_response(key, 0, api_versions.too_new(context))])
        if handler.raw:
            made: Response | None = await handler.handle(context, request.body)
            return made
        try:
            message = codec.decode_small_request(key, version, request.body)
        except NeedsSlices:
            message = await _decoded(key, context, request.body)
            if handler.may_park:
                context.leave()
        response = await handler.handle(context, message)
        if isinstance(response, Encoded):
            return Response([_with_throttle_time(context, response), *response.rest])
        return None if response is None else Response([await _encoded_in_slices(key, context, response)])


class _Counted:
    """Counts one request when it is done, and puts the header before its response."""

    __slots__ = ("_began", "_key", "_parked", "context")

    def __init__(self, key: AnyApi, context: RequestContext, parked: Parked | None = None) -> None:
        self._key = key
        self._parked = parked
        self.context = context
        # The loop clock counts in whole milliseconds.
        self._began = time.perf_counter()

    def finished(self, version: int, body: Sequence[Buffer] | None) -> Sequence[Buffer] | None:
        self._count(self.context.error)
        if body is None:
            return None
        return [encode_response_header(self._key, version, self.context.header.correlation_id), *body]

    def failed(self, error: BaseException) -> None:
        if isinstance(error, Malformed):
            self._count("MALFORMED")
        elif isinstance(error, asyncio.CancelledError):
            self._count(CANCELLED)
        else:
            self._count(
                self.context.error if isinstance(error, CloseConnection) else ErrorName.UNKNOWN_SERVER_ERROR
            )

    def _count(self, outcome: str) -> None:
        took_s = time.perf_counter() - self._began
        parked_s = 0.0 if self._parked is None else self._parked.seconds
        self.context.services.metrics.request_done(self._key._name_, outcome, took_s, parked_s)


class _CountedCompletion(_Counted):
    """What a handler completes: counts the request, then completes the connection's.

    A pipelined request is completed with the buffers of its body, or None where the protocol has no
    response; an inline one with its response message, which `encode` turns into buffers."""

    __slots__ = ("_completion", "_encode")

    def __init__(
        self,
        key: AnyApi,
        context: RequestContext,
        completion: Completion[Buffers | None],
        encode: Callable[[AnyApi, RequestContext, Any], Buffers] | None = None,
    ) -> None:
        super().__init__(key, context)
        self._completion = completion
        self._encode = encode

    def done(self) -> bool:
        return self._completion.done()

    def set_result(self, result: Any, /) -> None:
        if self._encode is not None:
            # The shard completes other requests afterwards, even if this response cannot be encoded.
            try:
                result = self._encode(self._key, self.context, result)
            except Exception as error:
                self.set_exception(error)
                return
        self._completion.set_result(self.finished(self.context.header.api_version, result))

    def set_exception(self, error: Exception, /) -> None:
        self.failed(error)
        self._completion.set_exception(error)


def _inline_body(key: AnyApi, context: RequestContext, response: Any) -> Buffers:
    if context.handler_time is not None:
        context.handler_time.start()
    return [response if isinstance(response, bytes) else _encoded(key, context, response)]


async def _decoded(key: AnyApi, context: RequestContext, body: memoryview) -> Any:
    decoding = partial(codec.decoding_request, key, context.header.api_version, body)
    return await context.decoded(decoding, len(body))


async def _heavy_body(key: AnyApi, inline: Inline, context: RequestContext, body: memoryview) -> Buffer:
    try:
        response = await inline.wait(context, await _decoded(key, context, body))
        return await _encoded_in_slices(key, context, response)
    finally:
        context.end()


async def _encoded_in_slices(key: AnyApi, context: RequestContext, response: Any) -> Buffer:
    if not context.is_heavy:
        return _encoded(key, context, response)
    _prepare(context, response)
    return await context.slices.drive_heavy(
        codec.encoding_response(key, context.header.api_version, response, context.slices.kept)
    )


def _with_throttle_time(context: RequestContext, response: Encoded) -> Buffer:
    throttle_ms = throttle_request(context) if context.handler_time is not None else 0
    if not throttle_ms or not response.begins_with_throttle_time:
        return response.body
    return _THROTTLE_TIME.pack(throttle_ms) + response.body[_THROTTLE_TIME.size :]


def _encoded(key: AnyApi, context: RequestContext, response: Any) -> bytes:
    _prepare(context, response)
    return codec.encode_response(key, context.header.api_version, response)


def _prepare(context: RequestContext, response: Any) -> None:
    """Count its error, and set how long its client is throttled."""
    _note_error(context, response)
    if context.handler_time is not None:
        throttle_ms = throttle_request(context)
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)


def _note_error(context: RequestContext, response: Any) -> None:
    """Count the request under its response's own error, where the API has one for all."""
    code = getattr(response, "error_code", 0)
    if code and context.error == ErrorName.NONE:
        context.error = str(getattr(code, "name", code))
