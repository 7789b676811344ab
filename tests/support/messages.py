"""Framed requests of any API out of its messages, and response messages out of frames."""

from typing import Any

from gateway.wire.apis import ApiKey, flexible, response_header_version
from gateway.wire.messages import codec
from tests.support.raw import request


def message(key: ApiKey, version: int, body: Any, client_id: str = "raw") -> bytes:
    """A framed request."""
    encoded = codec.encode_request(key, version, body)
    return request(key, version, encoded, client_id=client_id, flexible=flexible(key, version))


def read(key: ApiKey, version: int, response: bytes) -> Any:
    """The response message of a frame."""
    body_at = 5 if response_header_version(key, version) else 4
    return codec.decode_response(key, version, memoryview(response)[body_at:])
