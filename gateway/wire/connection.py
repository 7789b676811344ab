"""The rules of one connection, sans-I/O: which requests are refused, and in which order responses are sent.

Kafka answers the requests of a connection in the order of their arrival, by which clients match responses to
requests. Handlers here may finish in any order, so a response waits for those before it.
Kafka closes the connection, without a response, for a header it cannot read, an API that the listener
does not serve, and a version out of range; only ApiVersions is answered in every version, so that a
newer client can learn what is spoken (KIP-511: error 35 in a body of version 0).
"""

import struct
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gateway.wire.apis import ApiKey
from gateway.wire.errors import Malformed
from gateway.wire.header import RequestHeader, decode_request_header
from ledger.types import Buffer

MAX_IN_FLIGHT: Final = 100
MAX_IN_FLIGHT_BYTES: Final = 128 * 1024 * 1024

_LENGTH = struct.Struct(">i")


class CloseConnection(Exception):
    """The client broke a rule for which Kafka closes the connection. Earlier responses may still be sent."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Request(NamedTuple):
    """A request to handle; `body` is a view of the frame after the header, `slot` names its response."""

    slot: int
    header: RequestHeader
    body: memoryview
    unsupported_api_versions: bool
    """An ApiVersions of a version out of range: its response is error 35 in a body of version 0."""


class _Pending(msgspec.Struct):
    frame_bytes: int
    response: list[Buffer] | None = None
    response_bytes: int = 0
    is_answered: bool = False


class Connection:
    """One connection's requests in flight, in order.

    `served` gives the lowest and highest version (both inclusive) of each API that this listener
    serves. The bounds are for the driver: it stops reading when `wants_pause` and continues when
    `may_resume`, at half of them. A request that has arrived is always accepted.
    """

    __slots__ = (
        "_max_in_flight",
        "_max_in_flight_bytes",
        "_next_slot",
        "_pending",
        "_served",
        "in_flight_bytes",
    )

    def __init__(
        self,
        served: Mapping[int, tuple[int, int]],
        max_in_flight: int = MAX_IN_FLIGHT,
        max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES,
    ) -> None:
        self._served = served
        self._max_in_flight = max_in_flight
        self._max_in_flight_bytes = max_in_flight_bytes
        self._pending: deque[_Pending] = deque()
        self._next_slot = 0
        self.in_flight_bytes = 0
        """Frames of requests in flight, and the responses among them that wait for an earlier one."""

    @property
    def in_flight(self) -> int:
        """Requests received whose responses have not yet been released, in order, to be sent."""
        return len(self._pending)

    @property
    def wants_pause(self) -> bool:
        return len(self._pending) >= self._max_in_flight or self.in_flight_bytes >= self._max_in_flight_bytes

    @property
    def may_resume(self) -> bool:
        return (
            2 * len(self._pending) <= self._max_in_flight
            and 2 * self.in_flight_bytes <= self._max_in_flight_bytes
        )

    def received(self, frame: memoryview) -> Request:
        """Take a frame (without its length). Raises CloseConnection."""
        try:
            header, body_at = decode_request_header(frame)
        except Malformed as malformed:
            raise CloseConnection(f"malformed request header: {malformed}") from malformed
        bounds = self._served.get(header.api_key)
        is_in_range = bounds is not None and bounds[0] <= header.api_version <= bounds[1]
        unsupported = False if is_in_range else self._check(header, bounds)
        slot = self._next_slot
        self._next_slot += 1
        self._pending.append(_Pending(len(frame)))
        self.in_flight_bytes += len(frame)
        return Request(slot, header, frame[body_at:], unsupported)

    def answered(self, slot: int, buffers: Sequence[Buffer] | None) -> list[Buffer]:
        """Give the response to a request: header and body, or None where the protocol has none.

        Returns the buffers to send now, each response with its length before it; [] while an earlier
        request is unanswered. Raises ValueError for a slot that has no request or has its response.
        """
        pending = self._pending
        index = slot - (self._next_slot - len(pending))
        if not 0 <= index < len(pending) or pending[index].is_answered:
            raise ValueError(f"slot {slot} awaits no response")
        if index:
            self._keep(pending[index], buffers)
            return []
        self.in_flight_bytes -= pending.popleft().frame_bytes
        released = [] if buffers is None else [_LENGTH.pack(sum(map(len, buffers))), *buffers]
        while pending and pending[0].is_answered:
            first = pending.popleft()
            self.in_flight_bytes -= first.frame_bytes + first.response_bytes
            if first.response is not None:
                released += first.response
        return released

    def _check(self, header: RequestHeader, bounds: tuple[int, int] | None) -> bool:
        """Of a request that is not within the bounds: whether it is an ApiVersions of an unknown version.
        Raises CloseConnection for any other."""
        api_key, version = header.api_key, header.api_version
        if bounds is None:
            raise CloseConnection(f"API key {api_key} is not served here")
        if api_key == ApiKey.API_VERSIONS:
            return True
        raise CloseConnection(f"version {version} of API key {api_key} is not one of {bounds[0]}-{bounds[1]}")

    def _keep(self, pending: _Pending, buffers: Sequence[Buffer] | None) -> None:
        pending.is_answered = True
        if buffers is None:
            return
        size = sum(map(len, buffers))
        pending.response = [_LENGTH.pack(size), *buffers]
        pending.response_bytes = size
        self.in_flight_bytes += size
