"""DisklessDescribeFiles (100), v0.

KIP-1164: whether anything live is in stored objects. An object that no commit and no swap has named has
RESOURCE_NOT_FOUND, after a barrier: it may still be named, so this is no permission to delete it.
"""

from gateway.internal.shard_access import ShardAccess
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.internal.diskless_describe_files import (
    DescribedFile,
    DisklessDescribeFilesRequest,
    DisklessDescribeFilesResponse,
)
from ledger.requests import Refused


async def handle(
    access: ShardAccess, context: RequestContext, request: DisklessDescribeFilesRequest
) -> DisklessDescribeFilesResponse:
    slices = context.slices
    objects = access.shard.state.objects
    unknown = [
        file async for file in slices.paced(request.files) if file.object_key not in objects.by_locator
    ]
    slices.keep(unknown)
    refused = await access.confirm(context.deadline(request.timeout_ms)) if unknown else None
    files = [_described(access, file.object_key, refused) async for file in slices.paced(request.files)]
    return DisklessDescribeFilesResponse(files=slices.keep(files))


def _described(access: ShardAccess, object_key: str, refused: Refused | None) -> DescribedFile:
    known = access.shard.state.objects.by_locator.get(object_key)
    if known is not None:
        return DescribedFile(object_key, has_live_batches=known.live_runs > 0)
    if refused is not None:
        return DescribedFile(object_key, ERROR_CODES[refused.error], refused.message)
    return DescribedFile(object_key, ErrorCode.RESOURCE_NOT_FOUND, "no commit has named it")
