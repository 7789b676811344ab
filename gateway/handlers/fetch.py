"""Fetch (API 1), versions 4 to 18: bytes in, buffers out; the fetch room does the rest."""

from collections.abc import Sequence

from gateway.context import RequestContext
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import FetchResponse, decode_fetch, encode_fetch_response
from ledger.types import Buffer


async def handle(context: RequestContext, body: memoryview) -> Sequence[Buffer]:
    """Raises Malformed, for which the connection is closed."""
    version = context.header.api_version
    request = decode_fetch(version, body)
    services = context.services
    response = await services.fetch.fetch(version, request, context.principal, context.received_at)
    context.error = _first_error(response)
    services.metrics.fetch_bytes.inc(_record_bytes(response))
    return encode_fetch_response(version, response)


def _first_error(response: FetchResponse) -> str:
    if response.error_code:
        return ErrorCode(response.error_code).name
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                return ErrorCode(partition.error_code).name
    return ErrorCode.NONE.name


def _record_bytes(response: FetchResponse) -> int:
    return sum(
        len(buffer)
        for topic in response.topics
        for partition in topic.partitions
        for buffer in partition.records or ()
    )
