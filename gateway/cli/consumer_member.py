"""A member of a consumer group (the classic protocol), as `dragoman consume --group` is one.

It heartbeats between fetches, not in a thread of its own: a command whose output is not read for longer than
its session loses its partitions, as a consumer that does not poll does.
"""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from gateway.cli.assignments import (
    assignment,
    held_partitions,
    range_assignments,
    subscribed_topics,
    subscription,
)
from gateway.cli.client import ClientError
from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint, Refusal, TopicInfo
from gateway.cli.fetching import Partition, Patience
from gateway.cli.output import talk
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.heartbeat import HeartbeatRequest
from gateway.wire.messages.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gateway.wire.messages.generated.leave_group import LeaveGroupRequest, MemberIdentity
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PROTOCOL_TYPE: Final = "consumer"
ASSIGNOR: Final = "range"
SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 60_000
RESPONSE_S: Final = REBALANCE_MS / 1000 + 15
"""A JoinGroup waits for the other members."""
HEARTBEAT_S: Final = 3.0
COMMIT_S: Final = 5.0
LAST_COMMIT_S: Final = 3.0
RETRY_S: Final = 0.2
LOOK_S: Final = 60.0
"""How often the leader looks for new partitions."""
REJOINS: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)
"""After these a member joins again."""


class Rebalanced(Exception):
    """The group assigns its partitions again: join again. The message says why."""


class GroupMember:
    """Joins, heartbeats, commits `positions`, and leaves. The caller puts the next offset of each partition
    into them."""

    def __init__(
        self,
        contact: Contact,
        group: str,
        topics: Mapping[str, TopicInfo],
        positions: Mapping[Partition, int],
    ) -> None:
        """Errors: ConfigError, ClientError."""
        self._endpoint = Endpoint(contact, RESPONSE_S)
        self._group = group
        self._topics = dict(topics)
        self._positions = positions
        self._committed: dict[Partition, int] = {}
        self._member_id = ""
        self._generation = -1
        self._is_leader = False
        self._next_heartbeat = self._next_commit = self._next_look = 0.0
        self._patience = Patience()

    def __enter__(self) -> "GroupMember":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._generation >= 0:
                self._commit_at_last()
                self._leave()
        except Rebalanced:
            talk(
                f"Group {self._group} rebalanced before the last offsets were committed: they may come again."
            )
        except ClientError as failure:
            talk(f"{failure}; the last offsets may come again.")
        finally:
            self._endpoint.__exit__(None, None, None)

    def join(self) -> list[Partition]:
        """The partitions of this member in a new generation. ClientError."""
        self._commit_before_joining()
        while True:
            try:
                assigned = self._join_once()
            except ClientError as error:
                if isinstance(error, Refusal) and error.error in REJOINS:
                    if error.error is not ErrorCode.REBALANCE_IN_PROGRESS:
                        self._forget(error.error)
                    continue
                self._patience.wait_after(error)
                continue
            self._patience.renew()
            self._committed = {}
            now = time.monotonic()
            self._next_heartbeat, self._next_commit = now + HEARTBEAT_S, now + COMMIT_S
            self._next_look = now + LOOK_S
            return assigned

    def tend(self) -> None:
        """Heartbeat and commit when they are due. Rebalanced, ClientError."""
        now = time.monotonic()
        if now >= self._next_commit:
            self._next_commit = now + COMMIT_S
            self._patiently(self.commit)
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT_S
            self._patiently(self._heartbeat)
        if self._is_leader and now >= self._next_look:
            self._next_look = now + LOOK_S
            self._patiently(self._look_for_partitions)

    def commit(self) -> None:
        """Commit the positions that have changed. Rebalanced, ClientError."""
        changed = {
            part: offset for part, offset in self._positions.items() if self._committed.get(part) != offset
        }
        if not changed:
            return
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, partition), offset in changed.items():
            topic = topics.setdefault(name, OffsetCommitRequestTopic(name))
            topic.partitions.append(OffsetCommitRequestPartition(partition, offset))
        request = OffsetCommitRequest(
            self._group, self._generation, self._member_id, topics=list(topics.values())
        )
        response = self._ask(ApiKey.OFFSET_COMMIT, request)
        for found in (one for topic in response.topics for one in topic.partitions):
            self._check(found.error_code, f"offsets of group {self._group} were not committed")
        self._committed |= changed

    def _commit_at_last(self) -> None:
        """Again for a while, since the connection may be one that a restart has closed. Rebalanced,
        ClientError."""
        until = time.monotonic() + LAST_COMMIT_S
        while True:
            try:
                self.commit()
                return
            except ClientError:
                if time.monotonic() > until:
                    raise
                time.sleep(RETRY_S)

    def _patiently(self, work: Any) -> None:
        try:
            work()
            self._patience.renew()
        except ClientError as error:
            self._patience.wait_after(error)

    def _join_once(self) -> list[Partition]:
        names = sorted(self._topics)
        joining = JoinGroupRequest(
            self._group,
            SESSION_MS,
            REBALANCE_MS,
            self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(ASSIGNOR, subscription(names))],
        )
        joined = self._ask(ApiKey.JOIN_GROUP, joining)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            joining.member_id = joined.member_id
            joined = self._ask(ApiKey.JOIN_GROUP, joining)
        self._refuse(joined.error_code, f"group {self._group} was not joined")
        self._member_id, self._generation = joined.member_id, joined.generation_id
        self._is_leader = joined.leader == joined.member_id
        syncing = SyncGroupRequest(
            self._group,
            self._generation,
            self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNOR,
            assignments=self._assignments(joined.members) if self._is_leader else [],
        )
        synced = self._ask(ApiKey.SYNC_GROUP, syncing)
        self._refuse(synced.error_code, f"group {self._group} was not joined")
        return [part for part in held_partitions(bytes(synced.assignment)) if part[0] in self._topics]

    def _assignments(self, members: Sequence[Any]) -> list[SyncGroupRequestAssignment]:
        reads = {member.member_id: subscribed_topics(bytes(member.metadata)) for member in members}
        known = self._endpoint.topics()
        counts = {name: len(topic.leaders) for name, topic in known.items()}
        self._topics |= {name: known[name] for name in self._topics if name in known}
        return [
            SyncGroupRequestAssignment(member, assignment(partitions))
            for member, partitions in range_assignments(reads, counts).items()
        ]

    def _commit_before_joining(self) -> None:
        if self._generation < 0:
            return
        try:
            self._commit_at_last()
        except (Rebalanced, ClientError) as error:
            # The generation is over for this member: the next owner continues at the last commit.
            talk(f"Group {self._group}: what came since the last commit may come again ({error}).")

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(self._group, self._generation, self._member_id)
        self._check(self._ask(ApiKey.HEARTBEAT, request).error_code, f"heartbeat in group {self._group}")

    def _look_for_partitions(self) -> None:
        found = self._endpoint.topics(sorted(self._topics))
        if any(len(found[name].leaders) != len(topic.leaders) for name, topic in self._topics.items()):
            raise Rebalanced("a topic has more partitions")

    def _leave(self) -> None:
        request = LeaveGroupRequest(self._group, self._member_id, [MemberIdentity(self._member_id)])
        self._ask(ApiKey.LEAVE_GROUP, request)

    def _ask(self, key: ApiKey, request: Any) -> Any:
        return self._endpoint.ask_coordinator(key, self._group, request)

    def _check(self, code: int, what: str) -> None:
        """Rebalanced if the member must join again. Refusal."""
        if code and code in REJOINS:
            error = ErrorCode(code)
            if error is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._forget(error)
            raise Rebalanced(error.name)
        self._refuse(code, what)

    def _refuse(self, code: int, what: str) -> None:
        if code:
            raise Refusal(what, code, REASONS.get(code))

    def _forget(self, error: ErrorCode) -> None:
        self._generation = -1
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""


REASONS: Final[Mapping[int, str]] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: f"its members do not all support the assignor {ASSIGNOR}, which "
    "dragoman consume uses",
}
