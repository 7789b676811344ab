"""The results of DescribeConfigs, encoded one by one: the response is never held as objects.

The configs of a topic are 3 KB encoded and ten times that as objects. Most topics have the same ones, so the
part of a result after the resource's name, its *tail*, is encoded once and copied into each of their results.
"""

from collections.abc import Sequence
from functools import cache
from struct import Struct
from typing import Final

from gateway.wire.apis import ApiKey
from gateway.wire.messages import codec
from gateway.wire.messages.generated.describe_configs import (
    RESPONSE,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from gateway.wire.primitives import encode_uvarint

CHUNK_BYTES: Final = 64 * 1024
"""Parts are joined to chunks of about this size, so that no slice copies much."""
_HEAD: Final = Struct(">ii")
_THROTTLE_TIME: Final = Struct(">i")


class ResultEncoder:
    """Encodes parts of the response in one version."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._is_flexible = RESPONSE.is_flexible(version)
        self._end = b"\x00" if self._is_flexible else b""
        self._no_configs = b"\x01\x00" if self._is_flexible else b"\x00\x00\x00\x00"
        self._nameless = len(self.head(DescribeConfigsResult()))

    def head(self, result: DescribeConfigsResult) -> bytes:
        """The part before the configs, of a result without any."""
        return self._whole(result)[: -len(self._no_configs)]

    def tail(self, configs: Sequence[DescribeConfigsResourceResult]) -> bytes:
        """The configs and the part after them."""
        return (
            self._whole(DescribeConfigsResult(configs=list(configs)))[self._nameless :]
            if configs
            else self.none
        )

    @property
    def none(self) -> bytes:
        """The tail without configs."""
        return self._no_configs

    def _whole(self, result: DescribeConfigsResult) -> bytes:
        response = DescribeConfigsResponse(results=[result])
        encoded = codec.encode_response(ApiKey.DESCRIBE_CONFIGS, self._version, response)
        return encoded[len(self.begin(1)) : len(encoded) - len(self._end)]

    def begin(self, results: int) -> bytes:
        """The part before the results: the throttle time and their number."""
        if self._is_flexible:
            return _THROTTLE_TIME.pack(0) + encode_uvarint(results + 1)
        return _HEAD.pack(0, results)

    @property
    def end(self) -> bytes:
        """The part after the results."""
        return self._end


@cache
def result_encoder(version: int) -> ResultEncoder:
    """The encoder of this version, which all requests share."""
    return ResultEncoder(version)


class Chunks:
    """Joins parts into chunks as they are added."""

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size >= CHUNK_BYTES:
            self._join()

    def all(self) -> list[bytes]:
        self._join()
        return self._done

    def _join(self) -> None:
        if self._parts:
            self._done.append(b"".join(self._parts))
            self._parts, self._size = [], 0
