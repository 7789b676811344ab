"""Request and response headers (https://kafka.apache.org/protocol.html#protocol_messages), after the length.

Request: api key int16, api version int16, correlation id int32, client id nullable string and, in version 2,
tagged fields. The client id keeps its int16 length in version 2 (KIP-482). Response: correlation id int32
and, in version 1, tagged fields.
"""

from struct import Struct
from typing import NamedTuple

from gateway.wire.apis import (
    FIRST_FLEXIBLE,
    NEVER,
    AnyApi,
    ApiKey,
    InternalApi,
    flexible,
    response_header_version,
)
from gateway.wire.errors import Malformed
from gateway.wire.primitives import encode_string, read_nullable_string, skip_tagged_fields

_FIXED = Struct(">hhi")
_CORRELATION = Struct(">i")
_NO_TAGS = b"\x00"


class RequestHeader(NamedTuple):
    """`api_key` and `api_version` as sent, so possibly unknown here."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def read_fixed_header(frame: memoryview) -> RequestHeader:
    """The first 8 bytes alone, which mean the same in every version; client_id is None. Raises Malformed.

    For a caller that refuses an unknown API or version before it reads more of the frame.
    """
    if len(frame) < _FIXED.size:
        raise Malformed(f"request header in {len(frame)} bytes")
    return RequestHeader(*_FIXED.unpack_from(frame, 0))


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header and the position of the body. Raises Malformed.

    An unknown api key gives the fixed part and position 8: what follows is unknown, close the connection.
    """
    if len(frame) < _FIXED.size:
        raise Malformed(f"request header in {len(frame)} bytes")
    api_key, api_version, correlation_id = _FIXED.unpack_from(frame, 0)
    first_flexible = _FIRST_FLEXIBLE.get(api_key)
    if first_flexible is None:
        return RequestHeader(api_key, api_version, correlation_id), _FIXED.size
    client_id, pos = read_nullable_string(frame, _FIXED.size)
    if api_version >= first_flexible:
        # There are hardly ever any.
        pos = pos + 1 if frame[pos : pos + 1] == _NO_TAGS else skip_tagged_fields(frame, pos)
    return RequestHeader(api_key, api_version, correlation_id, client_id), pos


def encode_request_header(header: RequestHeader) -> bytes:
    fixed = _FIXED.pack(header.api_key, header.api_version, header.correlation_id)
    tags = _NO_TAGS if flexible(ApiKey(header.api_key), header.api_version) else b""
    return fixed + encode_string(header.client_id) + tags


def encode_response_header(key: AnyApi, version: int, correlation_id: int) -> bytes:
    if version >= _FIRST_WITH_RESPONSE_TAGS[key]:
        return _CORRELATION.pack(correlation_id) + _NO_TAGS
    return _CORRELATION.pack(correlation_id)


def decode_response_header(key: AnyApi, version: int, frame: memoryview) -> tuple[int, int]:
    """(correlation id, position of the body), for peers and tests. Raises Malformed."""
    if len(frame) < _CORRELATION.size:
        raise Malformed(f"response header in {len(frame)} bytes")
    (correlation_id,) = _CORRELATION.unpack_from(frame, 0)
    pos = _CORRELATION.size
    if response_header_version(key, version):
        pos = skip_tagged_fields(frame, pos)
    return correlation_id, pos


_FIRST_WITH_RESPONSE_TAGS = {
    key: first if response_header_version(key, first) else NEVER + 1
    for key in (*ApiKey, *InternalApi)
    for first in (FIRST_FLEXIBLE.get(key, NEVER),)
}
_FIRST_FLEXIBLE = {int(key): FIRST_FLEXIBLE.get(key, NEVER) for key in (*ApiKey, *InternalApi)}
