"""Members and offsets of groups that exchanges need beforehand."""

import struct
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.heartbeat import HeartbeatRequest
from gateway.wire.messages.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from gateway.wire.messages.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.differential.conversation import Answered, Conversation
from tests.differential.exchange import Call, IdOf, MemberOf
from tests.differential.steps import response_of, wait_until

JOIN_VERSION: Final = 9
SESSION_MS: Final = 60_000
MEMBER_ID_REQUIRED: Final = 79
REBALANCE_IN_PROGRESS: Final = 27
CONSUMER: Final = "consumer"

Protocols = Sequence[tuple[str, bytes]]


def subscription(*topics: str) -> bytes:
    """Version 0 of a consumer's metadata: https://kafka.apache.org/protocol.html (ConsumerProtocol)."""
    names = [struct.pack(">h", len(name.encode())) + name.encode() for name in topics]
    return struct.pack(">hi", 0, len(names)) + b"".join(names) + struct.pack(">i", -1)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A placeholder: a consumer's metadata that names topics of the exchange."""

    topics: tuple[str, ...] = ("t",)

    def build(self, names: Any) -> bytes:
        return subscription(*(names.topic_name(topic) for topic in self.topics))


RANGE: Final = (("range", Subscription()),)


def join(
    group: str = "{g}",
    member: Any = "",
    *,
    instance: str | None = None,
    protocols: Sequence[tuple[str, Any]] = RANGE,
    kind: str = CONSUMER,
    session_ms: int = SESSION_MS,
    rebalance_ms: int = SESSION_MS,
) -> JoinGroupRequest:
    given = [JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols]
    return JoinGroupRequest(group, session_ms, rebalance_ms, member, instance, kind, given)


def sync(
    generation: int,
    member: Any,
    assignments: Mapping[str, bytes] | None = None,
    *,
    group: str = "{g}",
    instance: str | None = None,
    kind: str | None = CONSUMER,
    protocol: str | None = "range",
) -> SyncGroupRequest:
    """`assignments` by the aliases of members."""
    members: list[tuple[Any, bytes]] = [(MemberOf(to), data) for to, data in (assignments or {}).items()]
    given = [SyncGroupRequestAssignment(to, data) for to, data in members]
    return SyncGroupRequest(group, generation, member, instance, kind, protocol, given)


def commit(
    *offsets: tuple[str, int, int],
    group: str = "{g}",
    generation: int = -1,
    member: Any = "",
    instance: str | None = None,
    metadata: str | None = "",
    epoch: int = -1,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    """`offsets`: (topic alias, partition, offset), those of one topic together."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for alias, partition, offset in offsets:
        id_of: Any = IdOf(alias)
        topic = topics.setdefault(alias, OffsetCommitRequestTopic("{" + alias + "}", id_of))
        topic.partitions.append(OffsetCommitRequestPartition(partition, offset, epoch, metadata))
    return OffsetCommitRequest(group, generation, member, instance, retention_ms, list(topics.values()))


@dataclass(frozen=True, slots=True)
class Join:
    """Members that are together in a generation, the first one first; synced unless said otherwise.

    A member is known by its alias; the leader gives each its alias as assignment.
    """

    members: tuple[str, ...] = ("m",)
    group: str = "{g}"
    instances: Mapping[str, str] = field(default_factory=dict)
    protocols: Sequence[tuple[str, Any]] = RANGE
    kind: str = CONSUMER
    synced: bool = True

    def run(self, conversation: Conversation) -> None:
        generation, leader = self._first(conversation)
        for count in range(2, len(self.members) + 1):
            generation, leader = self._grow(conversation, self.members[:count], generation)
        if self.synced:
            self._sync(conversation, self.members, generation, leader)

    def _first(self, conversation: Conversation) -> tuple[int, str]:
        (alias,) = self.members[:1]
        joined = self._join(conversation, alias)
        return joined.generation_id, joined.leader

    def _grow(self, conversation: Conversation, members: Sequence[str], generation: int) -> tuple[int, str]:
        """One more member: it waits until those before have heard of it and joined again."""
        *old, new = members
        with ThreadPoolExecutor(len(members)) as pool:
            joins = [pool.submit(self._join, conversation.aside(), new)]
            wait_until(lambda: self._is_rebalancing(conversation, old[0], generation))
            joins += [pool.submit(self._join, conversation.aside(), alias) for alias in old]
            joined = [one.result() for one in joins]
        (after,) = {response.generation_id for response in joined}
        return after, joined[0].leader

    def _join(self, conversation: Conversation, alias: str) -> Any:
        instance = self.instances.get(alias)
        member = conversation.member_ids.get(alias, "")
        while True:
            request = join(self.group, member, instance=instance, protocols=self.protocols, kind=self.kind)
            response = conversation.ask(Call(ApiKey.JOIN_GROUP, JOIN_VERSION, request))
            assert isinstance(response, Answered), response
            member = response.message.member_id
            if response.message.error_code != MEMBER_ID_REQUIRED:
                assert response.message.error_code == 0, response
                conversation.member_ids[alias] = member
                return response.message

    def _is_rebalancing(self, conversation: Conversation, alias: str, generation: int) -> bool:
        request = HeartbeatRequest(
            self.group, generation, conversation.member_id(alias), self.instances.get(alias)
        )
        response = conversation.ask(Call(ApiKey.HEARTBEAT, 4, request))
        assert isinstance(response, Answered), response
        return bool(response.message.error_code == REBALANCE_IN_PROGRESS)

    def _sync(self, conversation: Conversation, members: Sequence[str], generation: int, leader: str) -> None:
        by_id = {conversation.member_id(alias): alias for alias in members}
        ordered = [by_id[leader], *(alias for alias in members if alias != by_id[leader])]
        for alias in ordered:
            shares = {to: to.encode() for to in members} if alias == ordered[0] else {}
            request = sync(
                generation,
                conversation.member_id(alias),
                shares,
                group=self.group,
                instance=self.instances.get(alias),
                kind=self.kind,
                protocol=self.protocols[0][0],
            )
            response_of(conversation, Call(ApiKey.SYNC_GROUP, 5, request))


@dataclass(frozen=True, slots=True)
class AskForId:
    """A member id that was given out, and that has not joined with yet (KIP-394)."""

    member: str = "m"
    group: str = "{g}"

    def run(self, conversation: Conversation) -> None:
        response = conversation.ask(Call(ApiKey.JOIN_GROUP, JOIN_VERSION, join(self.group)))
        assert isinstance(response, Answered), response
        assert response.message.error_code == MEMBER_ID_REQUIRED, response
        conversation.member_ids[self.member] = response.message.member_id


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that is left unanswered; it waits at the endpoint, over a connection of its own."""

    call: Call
    seconds: float = 0.3

    def run(self, conversation: Conversation) -> None:
        conversation.leave_waiting(self.call)
        time.sleep(self.seconds)


@dataclass(frozen=True, slots=True)
class Commit:
    """Offsets of a simple group."""

    offsets: tuple[tuple[str, int, int], ...] = (("t", 0, 5),)
    group: str = "{g}"
    metadata: str | None = "note"
    epoch: int = 0

    def run(self, conversation: Conversation) -> None:
        request = commit(*self.offsets, group=self.group, metadata=self.metadata, epoch=self.epoch)
        response_of(conversation, Call(ApiKey.OFFSET_COMMIT, 9, request))


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Until no offset of a deleted topic is left; Kafka lets go of them a little after the topic."""

    group: str = "{g}"

    def run(self, conversation: Conversation) -> None:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group, topics=None)])
        call = Call(ApiKey.OFFSET_FETCH, 9, request)
        wait_until(lambda: not response_of(conversation, call).groups[0].topics)
