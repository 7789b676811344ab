"""A member of a consumer group without a client library, so that its responses are known to the byte."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.addresses import Address
from gateway.cli.client import Client, ClientError
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_groups import DescribeGroupsRequest
from gateway.wire.messages.generated.heartbeat import HeartbeatRequest
from gateway.wire.messages.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gateway.wire.messages.generated.leave_group import LeaveGroupRequest, MemberIdentity
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from gateway.wire.messages.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

WAIT_S: Final = 30.0
LOST: Final = "LOST"
"""The connection broke: what became of the request is not known."""
NO_TOPICS: Final = b"\0\0\0\0\0\0\xff\xff\xff\xff"
"""A subscription to nothing."""


@dataclass(slots=True)
class Member:
    """One member; every request goes over a connection of its own."""

    address: Address
    group: str
    topic: str = "t"
    instance_id: str | None = None
    session_ms: int = 10_000
    rebalance_ms: int = 20_000
    metadata: bytes = NO_TOPICS
    member_id: str = ""
    generation: int = -1

    def ask(self, key: ApiKey, version: int, message: object) -> Any:
        """Errors: ClientError."""
        with Client(self.address, timeout=WAIT_S) as client:
            return client.ask(key, version, message)

    def join(self) -> Any:
        """The response of the second JoinGroup, after the one that gives the id. Errors: ClientError."""
        while True:
            response = self._join_once()
            error = name_of(response)
            if error in ("NONE", "MEMBER_ID_REQUIRED"):
                self.member_id = response.member_id
            if error == "NONE":
                self.generation = response.generation_id
            if error != "MEMBER_ID_REQUIRED":
                return response

    def ask_for_id(self) -> None:
        """Only that; it is not joined with. Errors: ClientError."""
        self.member_id = self._join_once().member_id

    def sync(self, shares: Mapping[str, bytes] | None = None) -> Any:
        """`shares` by member id. Errors: ClientError."""
        given = [SyncGroupRequestAssignment(member, share) for member, share in (shares or {}).items()]
        request = SyncGroupRequest(
            self.group, self.generation, self.member_id, self.instance_id, "consumer", "range", given
        )
        return self.ask(ApiKey.SYNC_GROUP, 5, request)

    def beat(self) -> str:
        request = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance_id)
        return self._error_of(ApiKey.HEARTBEAT, 4, request)

    def leave(self) -> str:
        request = LeaveGroupRequest(self.group, members=[MemberIdentity(self.member_id, self.instance_id)])
        return self._error_of(ApiKey.LEAVE_GROUP, 4, request)

    def commit(self, partition: int, offset: int) -> str:
        topic = OffsetCommitRequestTopic(
            self.topic, partitions=[OffsetCommitRequestPartition(partition, offset, -1, "")]
        )
        request = OffsetCommitRequest(
            self.group, self.generation, self.member_id, self.instance_id, topics=[topic]
        )
        try:
            response = self.ask(ApiKey.OFFSET_COMMIT, 8, request)
        except ClientError:
            return LOST
        return ErrorCode(response.topics[0].partitions[0].error_code).name

    def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        """-1 where nothing is committed. Errors: ClientError; AssertionError where it is refused."""
        topics = [OffsetFetchRequestTopics(self.topic, partition_indexes=list(partitions))]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(self.group, topics=topics)], require_stable=True
        )
        (group,) = self.ask(ApiKey.OFFSET_FETCH, 8, request).groups
        assert group.error_code == 0, ErrorCode(group.error_code)
        return {part.partition_index: part.committed_offset for part in group.topics[0].partitions}

    def described(self) -> Any:
        """Errors: ClientError."""
        request = DescribeGroupsRequest([self.group])
        (group,) = self.ask(ApiKey.DESCRIBE_GROUPS, 5, request).groups
        return group

    def _join_once(self) -> Any:
        request = JoinGroupRequest(
            self.group,
            self.session_ms,
            self.rebalance_ms,
            self.member_id,
            self.instance_id,
            "consumer",
            [JoinGroupRequestProtocol("range", self.metadata)],
        )
        return self.ask(ApiKey.JOIN_GROUP, 9, request)

    def _error_of(self, key: ApiKey, version: int, request: object) -> str:
        try:
            return name_of(self.ask(key, version, request))
        except ClientError:
            return LOST


def name_of(response: Any) -> str:
    return ErrorCode(response.error_code).name
