"""Which handler serves which internal API."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from gateway.handlers import api_versions
from gateway.internal import (
    adopt_runs,
    adopt_topic,
    commit_file,
    describe_files,
    describe_shard,
    find_batches,
    journal_follow,
    list_offsets,
    pin,
    segments_swap,
    settled_ledger,
    take_snapshot,
)
from gateway.internal.shard_access import ShardAccess
from gateway.requests.audit import denied
from gateway.requests.context import RequestContext
from gateway.router import AnyHandler, Handler
from gateway.wire.apis import AnyApi, ApiKey, InternalApi
from gateway.wire.connection import CloseConnection
from ledger.errors import ErrorName

HANDLERS: Final[Mapping[InternalApi, Callable[[ShardAccess, RequestContext, Any], Awaitable[Any]]]] = {
    InternalApi.DISKLESS_COMMIT_FILE: commit_file.handle,
    InternalApi.DISKLESS_LIST_OFFSETS: list_offsets.handle,
    InternalApi.DISKLESS_FIND_BATCHES: find_batches.handle,
    InternalApi.DISKLESS_DESCRIBE_FILES: describe_files.handle,
    InternalApi.JOURNAL_FOLLOW: journal_follow.handle,
    InternalApi.SEGMENTS_SWAP: segments_swap.handle,
    InternalApi.PIN: pin.handle,
    InternalApi.DESCRIBE_SHARD: describe_shard.handle,
    InternalApi.SETTLED_LEDGER: settled_ledger.handle,
    InternalApi.ADOPT_TOPIC: adopt_topic.handle,
    InternalApi.ADOPT_RUNS: adopt_runs.handle,
    InternalApi.TAKE_SNAPSHOT: take_snapshot.handle,
}


def handlers_of(access: ShardAccess) -> dict[AnyApi, AnyHandler]:
    """All APIs of an internal listener."""
    handlers: dict[AnyApi, AnyHandler] = {
        key: Handler(partial(_guarded, access, partial(handle, access))) for key, handle in HANDLERS.items()
    }
    # It says itself why it refuses.
    handlers[InternalApi.DESCRIBE_SHARD] = Handler(partial(describe_shard.handle, access))
    handlers[ApiKey.API_VERSIONS] = Handler(partial(_guarded, access, api_versions.handle))
    return handlers


async def _guarded(
    access: ShardAccess,
    handle: Callable[[RequestContext, Any], Awaitable[Any]],
    context: RequestContext,
    request: Any,
) -> Any:
    if refusal := access.refusal_of(context.listener.name, context.principal):
        denied(context, ErrorName.CLUSTER_AUTHORIZATION_FAILED, refusal)
        raise CloseConnection(refusal)
    return await handle(context, request)
