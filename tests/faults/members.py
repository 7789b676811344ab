"""Members of a consumer group that speak for themselves, through every death of the gateway.

No client library comes between: what was answered is known to the byte, and when.
"""

import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.cli.client import Client, ClientError
from gateway.listeners import Address
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

SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 20_000
WAIT_S: Final = 30.0
RETRY_S: Final = 0.05
LOST: Final = "LOST"
"""The connection broke: what became of the request is not known."""
TRY_AGAIN: Final = frozenset({LOST, "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"})


@dataclass(slots=True)
class Member:
    """One member; every request goes over a connection of its own."""

    address: Address
    group: str
    topic: str = "t"
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1

    def ask(self, key: ApiKey, version: int, message: object) -> Any:
        """Errors: ClientError."""
        with Client(self.address, timeout=WAIT_S) as client:
            return client.ask(key, version, message)

    def join(self) -> Any:
        """The answer that counts, behind the one that gives the id. Errors: ClientError."""
        protocol = JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")
        while True:
            request = JoinGroupRequest(
                self.group, SESSION_MS, REBALANCE_MS, self.member_id, self.instance_id, "consumer", [protocol]
            )
            answer = self.ask(ApiKey.JOIN_GROUP, 9, request)
            error = name_of(answer)
            if error in ("NONE", "MEMBER_ID_REQUIRED"):
                self.member_id = answer.member_id
            if error == "NONE":
                self.generation = answer.generation_id
            if error != "MEMBER_ID_REQUIRED":
                return answer

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
            answer = self.ask(ApiKey.OFFSET_COMMIT, 8, request)
        except ClientError:
            return LOST
        return ErrorCode(answer.topics[0].partitions[0].error_code).name

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

    def _error_of(self, key: ApiKey, version: int, request: object) -> str:
        try:
            return name_of(self.ask(key, version, request))
        except ClientError:
            return LOST


def name_of(answer: Any) -> str:
    return ErrorCode(answer.error_code).name


@dataclass(frozen=True, slots=True)
class Told:
    """A generation as one member heard of it."""

    generation: int
    leader: str
    member_id: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Acked:
    partition: int
    offset: int
    at: float


@dataclass(frozen=True, slots=True)
class Read:
    """What was committed when a member began with a partition."""

    partition: int
    offset: int
    asked_at: float


@dataclass(slots=True)
class Worker:
    """A member in a thread: joins, shares partitions out if it leads, commits offset after offset."""

    member: Member
    partitions: int
    seed: int
    told: list[Told] = field(default_factory=list)
    acked: list[Acked] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    leaving: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread = field(init=False)

    def start(self) -> "Worker":
        self.thread = threading.Thread(target=self._run, name=f"worker-{self.seed}", daemon=True)
        self.thread.start()
        return self

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(2 * WAIT_S)
        assert not self.thread.is_alive()

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                mine = self._enter()
                if mine is not None:
                    self._work(mine)
        except Exception as error:
            self.failed.append(repr(error))

    def _enter(self) -> frozenset[int] | None:
        """Join and sync; None if that has to be tried again."""
        try:
            joined = self.member.join()
            if name_of(joined) != "NONE":
                return self._refused(name_of(joined))
            leads = joined.leader == self.member.member_id and not joined.skip_assignment
            members = [member.member_id for member in joined.members]
            synced = self.member.sync(self._shares(members) if leads else None)
            if name_of(synced) != "NONE":
                return self._refused(name_of(synced))
            mine = frozenset(synced.assignment)
            self.told.append(Told(joined.generation_id, joined.leader, self.member.member_id, mine))
            asked_at = time.monotonic()
            committed = self.member.committed(sorted(mine))
        except ClientError:
            return self._refused(LOST)
        self.reads += [Read(partition, offset, asked_at) for partition, offset in committed.items()]
        return mine

    def _shares(self, members: Sequence[str]) -> dict[str, bytes]:
        """A byte a partition, in turn."""
        shares: dict[str, bytearray] = {member: bytearray() for member in members}
        for partition in range(self.partitions):
            shares[members[partition % len(members)]].append(partition)
        return {member: bytes(share) for member, share in shares.items()}

    def _work(self, mine: frozenset[int]) -> None:
        """Until the membership ends."""
        dice = random.Random(self.seed)
        latest = {read.partition: read.offset for read in self.reads}
        while not self.stopping.is_set():
            if self.leaving.is_set():
                self.leaving.clear()
                self.member.leave()
                self.member.member_id = ""
                return
            partition = dice.choice(sorted(mine)) if mine else None
            if partition is None or dice.random() < 0.5:
                error = self.member.beat()
            else:
                error = self.member.commit(partition, latest[partition] + 1)
                if error == "NONE":
                    latest[partition] += 1
                    self.acked.append(Acked(partition, latest[partition], time.monotonic()))
            if error != "NONE":
                self._refused(error)
                if error not in TRY_AGAIN:
                    return
            time.sleep(RETRY_S)

    def _refused(self, error: str) -> None:
        self.refused.append(error)
        if error in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"):
            self.member.member_id = ""
        time.sleep(RETRY_S)
