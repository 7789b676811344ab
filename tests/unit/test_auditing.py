"""The audit log has one event for each durable change: the principal, the address and the change."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping, Sequence
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from gateway.addresses import Address
from gateway.requests import audit as auditing
from gateway.wire.apis import ApiKey
from gateway.wire.messages import codec
from gateway.wire.messages.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from gateway.wire.messages.generated.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from gateway.wire.messages.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gateway.wire.messages.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gateway.wire.messages.generated.delete_groups import DeleteGroupsRequest
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest
from gateway.wire.messages.generated.incremental_alter_configs import (
    AlterableConfig as Edit,
)
from gateway.wire.messages.generated.incremental_alter_configs import (
    AlterConfigsResource as EditedResource,
)
from gateway.wire.messages.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.support.group_member import Member
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, records
from tests.support.raw import raw_connection, request

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND = 0, 1, 2
WHO = {"principal": "User:ANONYMOUS", "peer": "127.0.0.1"}
Events = list[MutableMapping[str, Any]]


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    async with in_memory_gateway({"groups.group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def events() -> Any:
    with capture_logs() as captured:
        yield captured


def audited(events: Events) -> Events:
    """The events so far, without principal and address; removes them."""
    found = [dict(event) for event in events if "principal" in event]
    events.clear()
    for event in found:
        assert {key: event.pop(key) for key in WHO} == WHO
        assert event.pop("client_id")
        assert event.pop("log_level") == "info"
    return list(found)


async def create(gateway: InMemoryGateway, *topics: CreatableTopic, dry: bool = False) -> None:
    await gateway.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(list(topics), 5000, dry))


async def test_each_topic_that_is_created_leaves_an_event(gateway: InMemoryGateway, events: Events) -> None:
    topics = [
        CreatableTopic("a", 2, 1, configs=[CreatableTopicConfig("retention.ms", "7")]),
        CreatableTopic("b", 1, 1),
        CreatableTopic("not a name", 1, 1),
    ]
    await create(gateway, *topics, dry=True)
    assert audited(events) == []
    await create(gateway, *topics)
    assert sorted(audited(events), key=str) == [
        {"event": "topic.created", "topic": "a", "partitions": 2, "configs": "retention.ms=7"},
        {"event": "topic.created", "topic": "b", "partitions": 1, "configs": ""},
    ]
    await create(gateway, *topics)
    assert audited(events) == []


async def test_a_topic_that_metadata_creates_leaves_an_event(
    gateway: InMemoryGateway, events: Events
) -> None:
    request = MetadataRequest([MetadataRequestTopic(name="a"), MetadataRequestTopic(name="b c")])
    for _ in range(2):
        await gateway.ask(ApiKey.METADATA, 12, request)
    assert audited(events) == [{"event": "topic.created", "topic": "a", "partitions": 1, "configs": ""}]


async def test_a_topic_that_grows_leaves_an_event(gateway: InMemoryGateway, events: Events) -> None:
    await gateway.create("a", 1)
    audited(events)
    grown = [CreatePartitionsTopic("a", 3, None), CreatePartitionsTopic("missing", 3, None)]
    await gateway.ask(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(grown, 5000, True))
    assert audited(events) == []
    for _ in range(2):
        await gateway.ask(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(grown, 5000))
    assert audited(events) == [{"event": "topic.grown", "topic": "a", "partitions": 3, "before": 1}]


async def test_a_topic_that_is_deleted_leaves_an_event(gateway: InMemoryGateway, events: Events) -> None:
    await gateway.create("a")
    audited(events)
    request = DeleteTopicsRequest(topic_names=["a", "missing"], timeout_ms=5000)
    for _ in range(2):
        await gateway.ask(ApiKey.DELETE_TOPICS, 5, request)
    (event,) = audited(events)
    assert len(event.pop("topic_id")) == 36
    assert event == {"event": "topic.deleted", "topic": "a"}


async def test_records_that_are_deleted_leave_one_event_a_request(
    gateway: InMemoryGateway, events: Events
) -> None:
    await gateway.create("a", 2)
    await gateway.send("a", records(5), 0)
    await gateway.send("a", records(5), 1)
    audited(events)
    for offset in (-1, 9):
        places = [
            DeleteRecordsPartition(0, offset),
            DeleteRecordsPartition(1, 2),
            DeleteRecordsPartition(7, 2),
        ]
        if offset == 9:
            places = [places[0], places[2]]
        request = DeleteRecordsRequest([DeleteRecordsTopic("a", places)], 5000)
        await gateway.ask(ApiKey.DELETE_RECORDS, 2, request)
    assert audited(events) == [{"event": "records.deleted", "partitions": "a-0 before 5, a-1 before 2"}]


@pytest.mark.parametrize(
    ("kind", "name", "edits", "changes"),
    [
        (TOPIC, "a", [("retention.ms", SET, "7"), ("cleanup.policy", APPEND, "compact")],
         "retention.ms=7, cleanup.policy+=compact"),
        (BROKER, "", [("log.retention.ms", SET, "7")], "log.retention.ms=7"),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")], "consumer.session.timeout.ms=50000"),
        (TOPIC, "a", [("retention.ms", DELETE, None)], "retention.ms removed"),
    ],
)  # fmt: skip
async def test_configs_that_are_altered_leave_an_event(
    gateway: InMemoryGateway,
    events: Events,
    kind: int,
    name: str,
    edits: Sequence[tuple[str, int, str | None]],
    changes: str,
) -> None:
    await gateway.create("a")
    audited(events)
    whole = [EditedResource(kind, name, [Edit(*edit) for edit in edits])]
    bad = EditedResource(kind, f"{name}-other", [Edit("retention.ms", SET, "soon")])
    empty = EditedResource(TOPIC, "missing", [])
    await gateway.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest([*whole, bad, empty], True)
    )
    assert audited(events) == []
    await gateway.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest([*whole, bad, empty])
    )
    resource = {TOPIC: "topic", BROKER: "broker", GROUP: "group"}[kind]
    assert audited(events) == [
        {
            "event": "configs.altered",
            "resource": resource,
            "name": name,
            "changes": changes,
            "others": "kept",
        }
    ]


async def test_the_event_of_replaced_configs_says_so(gateway: InMemoryGateway, events: Events) -> None:
    await gateway.create("a")
    audited(events)
    resource = AlterConfigsResource(TOPIC, "a", [AlterableConfig("flush.ms", "7")])
    await gateway.ask(ApiKey.ALTER_CONFIGS, 2, AlterConfigsRequest([resource]))
    (event,) = audited(events)
    assert (event["changes"], event["others"]) == ("flush.ms=7", "to their defaults")


async def test_a_quota_that_is_changed_leaves_an_event(gateway: InMemoryGateway, events: Events) -> None:
    entity = [
        AlterClientQuotasRequestEntityData("client-id", None),
        AlterClientQuotasRequestEntityData("user", "u"),
    ]
    entries = [
        AlterClientQuotasRequestEntryData(
            entity, [OpData("producer_byte_rate", 1024.0), OpData("request_percentage", 0.0, True)]
        ),
        AlterClientQuotasRequestEntryData(entity[:1], [OpData("no_such_quota", 1.0)]),
    ]
    await gateway.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries, True))
    assert audited(events) == []
    await gateway.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries))
    assert audited(events) == [
        {
            "event": "quota.altered",
            "entity": "client-id=<default>, user=u",
            "changes": "producer_byte_rate=1024, request_percentage removed",
        }
    ]


async def commit(gateway: InMemoryGateway, offset: int, group: str = "g") -> None:
    parts = [OffsetCommitRequestPartition(0, offset), OffsetCommitRequestPartition(9, offset)]
    request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic("a", partitions=parts)])
    await gateway.ask(ApiKey.OFFSET_COMMIT, 8, request)


async def test_a_reset_of_an_empty_group_leaves_an_event(gateway: InMemoryGateway, events: Events) -> None:
    await gateway.create("a")
    member = Member(Address("127.0.0.1", gateway.running.bound[0].port), "g", "a")
    await asyncio.to_thread(lambda: (member.join(), member.sync({member.member_id: b""})))
    audited(events)
    await commit(gateway, 5)
    assert await asyncio.to_thread(member.commit, 0, 5) == "NONE"
    assert audited(events) == [], "a refused one, and one of a member"
    await asyncio.to_thread(member.leave)
    await commit(gateway, 7)
    assert audited(events) == [{"event": "offsets.reset", "group": "g", "offsets": "a-0: 5 to 7"}]


async def test_of_a_simple_consumer_only_the_first_commit_and_those_that_go_back_leave_an_event(
    gateway: InMemoryGateway, events: Events
) -> None:
    await gateway.create("a")
    audited(events)
    for offset in (5, 6, 7, 2, 3):
        await commit(gateway, offset)
    assert [event["offsets"] for event in audited(events)] == ["a-0: none to 5", "a-0: 7 to 2"]


async def test_a_group_and_offsets_that_are_deleted_leave_an_event(
    gateway: InMemoryGateway, events: Events
) -> None:
    await gateway.create("a")
    await commit(gateway, 5)
    await commit(gateway, 5, "h")
    audited(events)
    topics = [OffsetDeleteRequestTopic("a", [OffsetDeleteRequestPartition(i) for i in (0, 9)])]
    for group in ("g", "missing"):
        await gateway.ask(ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group, topics))
    await gateway.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(["h", "missing"]))
    assert audited(events) == [
        {"event": "offsets.deleted", "group": "g", "partitions": "a-0"},
        {"event": "group.deleted", "group": "h"},
    ]


async def test_the_changes_of_a_client_that_hangs_up_leave_events(
    gateway: InMemoryGateway, events: Events
) -> None:
    def ask_and_leave() -> None:
        body = codec.encode_request(
            ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([CreatableTopic("gone", 1, 1)], 5000)
        )
        with raw_connection("127.0.0.1", gateway.running.bound[0].port) as connection:
            connection.send(request(ApiKey.CREATE_TOPICS, 7, body, flexible=True))

    await asyncio.to_thread(ask_and_leave)
    for _ in range(100):
        if any(event.get("topic") == "gone" for event in events):
            break
        await asyncio.sleep(0.01)
    (event,) = audited(events)
    assert (event["event"], event["topic"]) == ("topic.created", "gone")


async def test_events_beyond_the_rate_limit_are_counted(
    gateway: InMemoryGateway, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "BURST", 2)
    monkeypatch.setattr(auditing, "EVENTS_PER_S", 0)
    allowance = auditing._RateLimit()
    monkeypatch.setattr(auditing, "_rate_limit", allowance)
    for name in "abcd":
        await gateway.create(name)
    assert [event["topic"] for event in audited(events)] == ["a", "b"]
    monkeypatch.setattr(auditing, "EVENTS_PER_S", 1e9)
    await gateway.create("e")
    assert [(event["event"], event.get("events")) for event in events if event["event"] != "e"] == [
        ("audit.left_out", 2),
        ("topic.created", None),
    ]


def test_an_event_names_a_hundred_parts_and_counts_the_rest() -> None:
    said: list[int] = []

    def say(number: int) -> str:
        said.append(number)
        return str(number)

    assert auditing.in_words(range(100), say).endswith("98, 99")
    said.clear()
    assert auditing.in_words(range(500_000), say).endswith("98, 99 and 499900 more")
    assert len(said) == 100
