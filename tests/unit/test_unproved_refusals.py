"""A gateway that another has replaced, and that does not know it yet, refuses nothing by what it knew.

Each request is sent to the owner first, which refuses it for good, then to the same gateway when it has been
replaced, which may only return what clients repeat. Over a store that other gateways may write to.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from gateway.assembly import HOST
from gateway.coordination.opening import open_shard
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from gateway.wire.messages.generated.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from gateway.wire.messages.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from gateway.wire.messages.generated.heartbeat import HeartbeatRequest
from gateway.wire.messages.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from gateway.wire.messages.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gateway.wire.messages.generated.leave_group import LeaveGroupRequest, MemberIdentity
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.wire.messages.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ledger.batch.records import Record, build_batch
from tests.support.in_memory import InMemoryGateway, in_memory_gateway

SETTINGS = {"groups.group.initial.rebalance.delay.ms": "0", "limits.groups": "1", "limits.partitions": "5"}
TOPIC, GROUP = 2, 32
PROTOCOL = JoinGroupRequestProtocol("range", b"")


class Replaced:
    """`member_id` is the only member of the only group, in its first generation; offsets of that group are
    committed, and it has configs."""

    def __init__(self, gateway: InMemoryGateway, store: MemoryMetadata) -> None:
        self.gateway = gateway
        self.member_id = ""
        self.topic_id = b""
        self._store = store

    async def prepare(self) -> None:
        self.topic_id = await self.gateway.create("t")
        await self.gateway.create("small", max_message_bytes="70")
        await self.gateway.create("compacted", cleanup_policy="compact")
        self.member_id = (await self.join("consumer", "range")).member_id
        assignments = [SyncGroupRequestAssignment(self.member_id, b"a")]
        assert (await self.sync(assignments)) is ErrorCode.NONE
        assert await self.commit("g", self.member_id, 1) is ErrorCode.NONE
        assert await self.alter(GROUP, "g", "consumer.session.timeout.ms", "50000") is ErrorCode.NONE

    async def replace(self) -> None:
        other = await open_shard(MetadataJournal(self._store, 0), None, None, 2, lambda: 1_000)
        await other.close()

    async def join(self, protocol_type: str, protocol: str, group: str = "g"):  # type: ignore[no-untyped-def]
        protocols = [JoinGroupRequestProtocol(protocol, b"")]
        request = JoinGroupRequest(group, 10_000, 10_000, "", None, protocol_type, protocols)
        return await self.gateway.ask(ApiKey.JOIN_GROUP, 3, request)

    async def sync(self, assignments: list[SyncGroupRequestAssignment]) -> ErrorCode:
        request = SyncGroupRequest("g", 1, self.member_id, assignments=assignments)
        return ErrorCode((await self.gateway.ask(ApiKey.SYNC_GROUP, 3, request)).error_code)

    async def commit(self, group: str, member_id: str = "", generation: int = -1) -> ErrorCode:
        topic = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 1)])
        request = OffsetCommitRequest(group, generation, member_id, topics=[topic])
        (found,) = (await self.gateway.ask(ApiKey.OFFSET_COMMIT, 7, request)).topics
        return ErrorCode(found.partitions[0].error_code)

    async def alter(self, kind: int, name: str, config: str, value: str) -> ErrorCode:
        resource = AlterConfigsResource(kind, name, [AlterableConfig(config, 0, value)])
        request = IncrementalAlterConfigsRequest([resource], validate_only=name != "g")
        (found,) = (await self.gateway.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
        return ErrorCode(found.error_code)

    async def produce(self, topic: str, acks: int = -1) -> ErrorCode:
        batch = bytes(build_batch([Record(value=b"x" * 100)], base_timestamp=1))
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])
        response = await self.gateway.ask(ApiKey.PRODUCE, 8, ProduceRequest(None, acks, 4000, [data]))
        return ErrorCode(response.responses[0].partition_responses[0].error_code)


@pytest.fixture
async def replaced() -> AsyncIterator[Replaced]:
    store = MemoryMetadata(exclusive=False)
    world = replace(HOST, stores=replace(HOST.stores, metadata=lambda url, **_: store))
    async with in_memory_gateway(SETTINGS, world) as gateway:
        made = Replaced(gateway, store)
        await made.prepare()
        yield made


async def heartbeat(to: Replaced) -> ErrorCode:
    request = HeartbeatRequest("g", 1, to.member_id)
    return ErrorCode((await to.gateway.ask(ApiKey.HEARTBEAT, 3, request)).error_code)


async def join_of_another_protocol(to: Replaced) -> ErrorCode:
    return ErrorCode((await to.join("consumer", "sticky")).error_code)


async def sync(to: Replaced) -> ErrorCode:
    return await to.sync([])


async def leave(to: Replaced) -> ErrorCode:
    request = LeaveGroupRequest("g", members=[MemberIdentity("nobody")])
    response = await to.gateway.ask(ApiKey.LEAVE_GROUP, 3, request)
    return ErrorCode(response.error_code or response.members[0].error_code)


async def commit_of_one_group_too_many(to: Replaced) -> ErrorCode:
    return await to.commit("another")


async def commit_of_another_generation(to: Replaced) -> ErrorCode:
    return await to.commit("g", to.member_id, 7)


async def creation_of_too_many_partitions(to: Replaced) -> ErrorCode:
    request = CreateTopicsRequest([CreatableTopic("u", 3, 1)], 4_000)
    (found,) = (await to.gateway.ask(ApiKey.CREATE_TOPICS, 5, request)).topics
    return ErrorCode(found.error_code)


async def configs_of_one_group_too_many(to: Replaced) -> ErrorCode:
    return await to.alter(GROUP, "another", "consumer.session.timeout.ms", "50000")


async def configs_of_a_topic_that_are_only_validated(to: Replaced) -> ErrorCode:
    return await to.alter(TOPIC, "t", "retention.ms", "5")


async def deletion_of_records_of_a_compacted_topic(to: Replaced) -> ErrorCode:
    topic = DeleteRecordsTopic("compacted", [DeleteRecordsPartition(0, -1)])
    request = DeleteRecordsRequest([topic], 4_000)
    (found,) = (await to.gateway.ask(ApiKey.DELETE_RECORDS, 2, request)).topics
    return ErrorCode(found.partitions[0].error_code)


async def deletion_by_name_and_id(to: Replaced) -> ErrorCode:
    states = [DeleteTopicState("t"), DeleteTopicState(None, to.topic_id)]
    found = (await to.gateway.ask(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(states, [], 4_000))).responses
    return ErrorCode(found[0].error_code)


async def election(to: Replaced, timeout_ms: int = 4_000) -> ErrorCode:
    request = ElectLeadersRequest(0, [TopicPartitions("t", [0])], timeout_ms)
    (found,) = (await to.gateway.ask(ApiKey.ELECT_LEADERS, 2, request)).replica_election_results
    return ErrorCode(found.partition_result[0].error_code)


async def end_of_a_reassignment(to: Replaced, timeout_ms: int = 4_000) -> ErrorCode:
    topic = ReassignableTopic("t", [ReassignablePartition(0, None)])
    request = AlterPartitionReassignmentsRequest(timeout_ms, topics=[topic])
    (found,) = (await to.gateway.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)).responses
    return ErrorCode(found.partitions[0].error_code)


async def batch_that_is_too_large(to: Replaced) -> ErrorCode:
    return await to.produce("small")


async def record_without_a_key(to: Replaced) -> ErrorCode:
    return await to.produce("compacted")


async def batch_of_an_unknown_topic(to: Replaced) -> ErrorCode:
    return await to.produce("unknown")


UNAVAILABLE, FAILED = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("send", "by_the_owner", "when_replaced"),
    [
        (heartbeat, ErrorCode.NONE, UNAVAILABLE),
        (join_of_another_protocol, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, UNAVAILABLE),
        (sync, ErrorCode.NONE, UNAVAILABLE),
        (leave, ErrorCode.UNKNOWN_MEMBER_ID, UNAVAILABLE),
        (commit_of_one_group_too_many, ErrorCode.GROUP_MAX_SIZE_REACHED, UNAVAILABLE),
        (commit_of_another_generation, ErrorCode.ILLEGAL_GENERATION, UNAVAILABLE),
        (creation_of_too_many_partitions, ErrorCode.POLICY_VIOLATION, FAILED),
        (configs_of_one_group_too_many, ErrorCode.POLICY_VIOLATION, FAILED),
        (configs_of_a_topic_that_are_only_validated, ErrorCode.NONE, FAILED),
        (deletion_of_records_of_a_compacted_topic, ErrorCode.POLICY_VIOLATION, TIMED_OUT),
        (deletion_by_name_and_id, ErrorCode.INVALID_REQUEST, TIMED_OUT),
        (election, ErrorCode.ELECTION_NOT_NEEDED, TIMED_OUT),
        (end_of_a_reassignment, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, TIMED_OUT),
        (batch_that_is_too_large, ErrorCode.MESSAGE_TOO_LARGE, FAILED),
        (record_without_a_key, ErrorCode.INVALID_RECORD, FAILED),
        (batch_of_an_unknown_topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, FAILED),
    ],
)
async def test_a_gateway_that_was_replaced_refuses_nothing_by_what_it_knew(
    replaced: Replaced,
    send: Callable[[Replaced], Awaitable[ErrorCode]],
    by_the_owner: ErrorCode,
    when_replaced: ErrorCode,
) -> None:
    assert await send(replaced) is by_the_owner
    await replaced.replace()
    assert await send(replaced) is when_replaced


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_the_journal_gets_its_own_time_where_a_client_gives_none(
    replaced: Replaced, timeout_ms: int
) -> None:
    assert await election(replaced, timeout_ms) is ErrorCode.ELECTION_NOT_NEEDED
    assert await end_of_a_reassignment(replaced, timeout_ms) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
