"""Encodes and decodes any message of `gateway.wire.messages.generated` and `internal`.

Codecs are compiled at first use.

Bytes after a message are ignored, as in Apache Kafka: its `RequestContext.parseRequest` reads the fields, and
does not check what remains in the buffer (tried with 4.3.1).
"""

from collections.abc import Generator
from importlib import import_module
from typing import Any

from gateway.wire.apis import AnyApi, InternalApi, codec_range
from gateway.wire.decoder_source import (
    Decoder,
    SlicedDecoder,
    compile_decoder,
    compile_sliced_decoder,
    compile_small_decoder,
)
from gateway.wire.encoder_source import (
    Encoder,
    Encoding,
    SlicedEncoder,
    compile_encoder,
    compile_sliced_encoder,
)
from gateway.wire.errors import NeedsSlices, UnsupportedVersion
from gateway.wire.primitives import MAX_REQUEST_ITEMS, run_out
from gateway.wire.schema import Schema


def load(key: AnyApi) -> tuple[type, type]:
    """The classes of request and response, imported if need be. Raises UnsupportedVersion for other APIs."""
    return request_schema(key).root, response_schema(key).root


def request_schema(key: AnyApi) -> Schema:
    return _schema(key, "REQUEST")


def response_schema(key: AnyApi) -> Schema:
    return _schema(key, "RESPONSE")


def decode_request(key: AnyApi, version: int, body: memoryview) -> Any:
    """The request after its header, of any size. Raises Malformed, or UnsupportedVersion outside
    `codec_range`."""
    try:
        return decode_small_request(key, version, body)
    except NeedsSlices:
        return run_out(decoding_request(key, version, body))


def decode_small_request(key: AnyApi, version: int, body: memoryview) -> Any:
    """The same. Raises NeedsSlices for a request of more elements than are decoded at once."""
    decode = _request_decoders.get((key, version)) or _request_decoder(key, version)
    return decode(body)[0]


def decoding_request(
    key: AnyApi,
    version: int,
    body: memoryview,
    max_items: int = MAX_REQUEST_ITEMS,
    kept: list[Any] | None = None,
) -> Generator[int, None, Any]:
    """The same in slices: yields the units of weight that are done. Malformed also for more than `max_items`
    elements. Adds every long list to `kept`, to be freed in slices."""
    decode = _sliced_decoders.get((key, version)) or _sliced_decoder(key, version)
    message, _ = yield from decode(body, max_items, [] if kept is None else kept)
    return message


def decode_response(key: AnyApi, version: int, body: memoryview) -> Any:
    """The response after its header. Raises Malformed, or UnsupportedVersion outside `codec_range`."""
    decode = _response_decoders.get((key, version)) or _response_decoder(key, version)
    return decode(body)[0]


def encode_request(key: AnyApi, version: int, message: Any) -> bytes:
    """The body alone. Raises Unencodable, or UnsupportedVersion outside `codec_range`."""
    encode = _request_encoders.get((key, version)) or _request_encoder(key, version)
    return encode(message)


def encode_response(key: AnyApi, version: int, message: Any) -> bytes:
    """The body alone. Raises Unencodable, or UnsupportedVersion outside `codec_range`."""
    encode = _response_encoders.get((key, version)) or _response_encoder(key, version)
    return encode(message)


def encoding_response(key: AnyApi, version: int, message: Any, kept: list[Any] | None = None) -> Encoding:
    """The same in slices: yields the units of weight that are done. The message must not change meanwhile;
    its long lists are added to `kept`."""
    encode = _sliced_encoders.get((key, version)) or _sliced_encoder(key, version)
    return encode(message, [] if kept is None else kept)


_request_decoders: dict[tuple[int, int], Decoder] = {}
_response_decoders: dict[tuple[int, int], Decoder] = {}
_request_encoders: dict[tuple[int, int], Encoder] = {}
_response_encoders: dict[tuple[int, int], Encoder] = {}
_sliced_decoders: dict[tuple[int, int], SlicedDecoder] = {}
_sliced_encoders: dict[tuple[int, int], SlicedEncoder] = {}


def _request_decoder(key: AnyApi, version: int) -> Decoder:
    return _request_decoders.setdefault((key, version), compile_small_decoder(request_schema(key), version))


def _sliced_decoder(key: AnyApi, version: int) -> SlicedDecoder:
    return _sliced_decoders.setdefault((key, version), compile_sliced_decoder(request_schema(key), version))


def _sliced_encoder(key: AnyApi, version: int) -> SlicedEncoder:
    return _sliced_encoders.setdefault((key, version), compile_sliced_encoder(response_schema(key), version))


def _response_decoder(key: AnyApi, version: int) -> Decoder:
    return _response_decoders.setdefault((key, version), compile_decoder(response_schema(key), version))


def _request_encoder(key: AnyApi, version: int) -> Encoder:
    return _request_encoders.setdefault((key, version), compile_encoder(request_schema(key), version))


def _response_encoder(key: AnyApi, version: int) -> Encoder:
    return _response_encoders.setdefault((key, version), compile_encoder(response_schema(key), version))


def _schema(key: AnyApi, side: str) -> Schema:
    # By name and on demand: a gateway that never speaks an API never pays for its classes.
    if codec_range(key) is None:
        raise UnsupportedVersion(f"no messages for API {key}")
    package = "internal" if isinstance(key, InternalApi) else "generated"
    module = import_module(f"gateway.wire.messages.{package}.{key.name.lower()}")
    schema: Schema = getattr(module, side)
    return schema
