"""Members of consumer groups over asyncio, each with a connection of its own and one request in flight.

They speak the project's own codec and nothing more, so that many fit into one process and what a client
library does besides the protocol is not measured.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.header import RequestHeader, decode_response_header, encode_request_header
from gateway.wire.messages import codec
from gateway.wire.messages.generated.heartbeat import HeartbeatRequest
from gateway.wire.messages.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from gateway.wire.messages.generated.leave_group import LeaveGroupRequest, MemberIdentity
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

ANSWER_TIMEOUT_S = 60.0
LENGTH_BYTES = 4
SESSION_MS, REBALANCE_MS = 60_000, 60_000
PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
NO_TOPICS = b"\0\0\0\0\0\0\xff\xff\xff\xff"
"""A subscription to nothing."""


class Line(asyncio.Protocol):
    """A connection with one request in flight at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._awaited: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < LENGTH_BYTES:
            return
        end = LENGTH_BYTES + int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
        if len(self._buffer) < end:
            return
        response, self._buffer = bytes(self._buffer[LENGTH_BYTES:end]), self._buffer[end:]
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(exc or ConnectionResetError("the server closed the connection"))

    async def ask(self, key: ApiKey, version: int, message: object) -> Any:
        """The response's body. Errors: OSError, TimeoutError."""
        assert self._transport is not None
        if self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        header = encode_request_header(RequestHeader(key, version, 1, "bench"))
        body = codec.encode_request(key, version, message)
        self._awaited = asyncio.get_running_loop().create_future()
        self._transport.write((len(header) + len(body)).to_bytes(LENGTH_BYTES, "big") + header + bytes(body))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            response = memoryview(await self._awaited)
        _, position = decode_response_header(key, version, response)
        return codec.decode_response(key, version, response[position:])

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def connected(host: str, port: int) -> Line:
    """Errors: OSError."""
    _, line = await asyncio.get_running_loop().create_connection(Line, host, port)
    return line


@dataclass(slots=True)
class Member:
    """One member; the one that leads a generation gives every member a share of its own."""

    line: Line
    group: str
    member_id: str = ""
    generation: int = -1
    size: int = 0
    """Members of its generation, where it leads; else 0."""
    share: bytes = b""

    async def enter(self) -> None:
        """Join and sync until a generation holds. Errors: OSError, TimeoutError, RuntimeError."""
        while True:
            joined = await self._join()
            if await self._sync(_shares(joined)):
                return

    async def beat(self) -> bool:
        """Whether the generation still holds. Errors: as `enter`."""
        request = HeartbeatRequest(self.group, self.generation, self.member_id, None)
        response = await self.line.ask(ApiKey.HEARTBEAT, 4, request)
        return _holds(response.error_code)

    async def leave(self) -> None:
        request = LeaveGroupRequest(self.group, members=[MemberIdentity(self.member_id)])
        response = await self.line.ask(ApiKey.LEAVE_GROUP, 5, request)
        check(response.error_code)
        check(response.members[0].error_code)
        self.member_id, self.generation = "", -1

    async def commit(self, topic: str, partition: int, offset: int) -> None:
        parts = [OffsetCommitRequestPartition(partition, offset, -1, "")]
        topics = [OffsetCommitRequestTopic(topic, partitions=parts)]
        request = OffsetCommitRequest(self.group, self.generation, self.member_id, topics=topics)
        response = await self.line.ask(ApiKey.OFFSET_COMMIT, 9, request)
        check(response.topics[0].partitions[0].error_code)

    async def _join(self) -> JoinGroupResponse:
        while True:
            protocols = [JoinGroupRequestProtocol(PROTOCOL, NO_TOPICS)]
            request = JoinGroupRequest(
                self.group, SESSION_MS, REBALANCE_MS, self.member_id, None, PROTOCOL_TYPE, protocols
            )
            response: JoinGroupResponse = await self.line.ask(ApiKey.JOIN_GROUP, 9, request)
            self.member_id = response.member_id
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            check(response.error_code)
            self.generation = response.generation_id
            self.size = len(response.members)
            return response

    async def _sync(self, shares: Mapping[str, bytes]) -> bool:
        given = [SyncGroupRequestAssignment(member, share) for member, share in shares.items()]
        request = SyncGroupRequest(
            self.group, self.generation, self.member_id, None, PROTOCOL_TYPE, PROTOCOL, given
        )
        response = await self.line.ask(ApiKey.SYNC_GROUP, 5, request)
        self.share = bytes(response.assignment)
        return _holds(response.error_code)


def _shares(joined: JoinGroupResponse) -> dict[str, bytes]:
    """By member id. Only the leader's response has the members."""
    return {member.member_id: number.to_bytes(4, "big") for number, member in enumerate(joined.members)}


def _holds(error_code: int) -> bool:
    if error_code == ErrorCode.REBALANCE_IN_PROGRESS:
        return False
    check(error_code)
    return True


def check(error_code: int) -> None:
    """Errors: RuntimeError with the code's name."""
    if error_code:
        raise RuntimeError(ErrorCode(error_code).name)
