"""AlterConfigs, IncrementalAlterConfigs and ListConfigResources through a whole gateway in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.configs.alter import ConfigEdit, ResourceEdit
from gateway.configs.resource_plans import plan_broker
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated import alter_configs, incremental_alter_configs
from gateway.wire.messages.generated.alter_configs import AlterConfigsRequest
from gateway.wire.messages.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gateway.wire.messages.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from gateway.wire.messages.generated.list_config_resources import ListConfigResourcesRequest
from ledger.requests import Refused
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, names_of, records

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
REPLICAS = "leader.replication.throttled.replicas"

Change = tuple[str, int, str | None]


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    async with in_memory_gateway() as running:
        yield running


async def alter(
    gateway: InMemoryGateway,
    *resources: tuple[int, str, dict[str, str | None]],
    version: int = 2,
    dry: bool = False,
) -> list[str]:
    requested = [
        alter_configs.AlterConfigsResource(
            kind, name, [alter_configs.AlterableConfig(key, value) for key, value in pairs.items()]
        )
        for kind, name, pairs in resources
    ]
    response = await gateway.ask(ApiKey.ALTER_CONFIGS, version, AlterConfigsRequest(requested, dry))
    return names_of([result.error_code for result in response.responses])


async def change(
    gateway: InMemoryGateway,
    *resources: tuple[int, str, Sequence[Change]],
    version: int = 1,
    dry: bool = False,
) -> list[str]:
    requested = [
        incremental_alter_configs.AlterConfigsResource(
            kind, name, [incremental_alter_configs.AlterableConfig(*one) for one in changes]
        )
        for kind, name, changes in resources
    ]
    request = IncrementalAlterConfigsRequest(requested, dry)
    response = await gateway.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request)
    return names_of([result.error_code for result in response.responses])


async def in_force(gateway: InMemoryGateway, topic: str) -> dict[str, str | None]:
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, None)])
    (result,) = (await gateway.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)).results
    return {config.name: config.value for config in result.configs}


async def group_configs(gateway: InMemoryGateway, group: str) -> dict[str, str | None]:
    """The configs set on a group, without defaults."""
    request = DescribeConfigsRequest([DescribeConfigsResource(GROUP, group, None)])
    (result,) = (await gateway.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)).results
    assert result.error_code == 0
    return {config.name: config.value for config in result.configs if config.config_source == 8}


@pytest.mark.parametrize("version", [0, 2])
async def test_altering_sets_what_is_named_and_unsets_the_rest(
    gateway: InMemoryGateway, version: int
) -> None:
    await gateway.create("t", retention_ms="1000", flush_ms="5")
    assert await alter(gateway, (TOPIC, "t", {"retention.ms": " 7 "}), version=version) == ["NONE"]
    assert await gateway.configs("t") == {"retention.ms": "7"}
    assert await alter(gateway, (TOPIC, "t", {}), version=version) == ["NONE"]
    assert await gateway.configs("t") == {}


@pytest.mark.parametrize("version", [0, 1])
async def test_a_change_keeps_configs_that_it_does_not_name(gateway: InMemoryGateway, version: int) -> None:
    await gateway.create("t", retention_ms="1000", flush_ms="5")
    changes = [("flush.ms", DELETE, None), ("segment.ms", SET, "9"), ("cleanup.policy", APPEND, "compact")]
    assert await change(gateway, (TOPIC, "t", changes), version=version) == ["NONE"]
    assert await gateway.configs("t") == {
        "retention.ms": "1000",
        "segment.ms": "9",
        "cleanup.policy": "delete,compact",
    }


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("0:1", [(REPLICAS, APPEND, "1:1")], "0:1,1:1"),
        ("0:1", [(REPLICAS, APPEND, "0:1, 2:1,2:1")], "0:1,2:1"),
        ("0:1,1:1", [(REPLICAS, SUBTRACT, "0:1,5:1")], "1:1"),
        ("0:1", [(REPLICAS, SUBTRACT, "0:1")], ""),
        ("", [(REPLICAS, APPEND, "")], ""),
        ("0:1", [(REPLICAS, DELETE, None)], None),
    ],
)
async def test_lists_grow_and_shrink_by_items(
    gateway: InMemoryGateway, before: str, changes: list[Change], after: str | None
) -> None:
    await gateway.create("t")
    assert await change(gateway, (TOPIC, "t", [(REPLICAS, SET, before)])) == ["NONE"]
    assert await change(gateway, (TOPIC, "t", changes)) == ["NONE"]
    assert (await gateway.configs("t")).get(REPLICAS) == after


@pytest.mark.parametrize(
    ("one", "error"),
    [
        (("retention.ms", SET, "soon"), "INVALID_CONFIG"),
        (("retention.ms", SET, None), "INVALID_REQUEST"),
        (("retention.ms", APPEND, "5"), "INVALID_CONFIG"),
        (("retention.ms", SUBTRACT, "5"), "INVALID_CONFIG"),
        (("retention.ms", 9, "5"), "UNKNOWN_SERVER_ERROR"),
        (("no.such", SET, "5"), "INVALID_CONFIG"),
        (("no.such", APPEND, "5"), "INVALID_CONFIG"),
        (("remote.storage.enable", SET, "true"), "INVALID_CONFIG"),
        (("cleanup.policy", APPEND, "shred"), "INVALID_CONFIG"),
        (("cleanup.policy", APPEND, ""), "INVALID_CONFIG"),
        (("cleanup.policy", APPEND, None), "INVALID_REQUEST"),
        (("max.compaction.lag.ms", SET, "4"), "INVALID_CONFIG"),
    ],
)
async def test_a_change_that_is_refused_changes_nothing(
    gateway: InMemoryGateway, one: Change, error: str
) -> None:
    await gateway.create("t", min_compaction_lag_ms="5")
    changes = [("flush.ms", SET, "1"), one]
    for dry in (True, False):
        assert await change(gateway, (TOPIC, "t", changes), dry=dry) == [error]
    assert await gateway.configs("t") == {"min.compaction.lag.ms": "5"}


async def test_a_change_that_is_only_validated_changes_nothing(gateway: InMemoryGateway) -> None:
    await gateway.create("t", flush_ms="5")
    assert await alter(gateway, (TOPIC, "t", {"retention.ms": "7"}), dry=True) == ["NONE"]
    assert await change(gateway, (TOPIC, "t", [("retention.ms", SET, "7")]), dry=True) == ["NONE"]
    assert await gateway.configs("t") == {"flush.ms": "5"}


async def test_each_resource_has_a_result_of_its_own_in_order(gateway: InMemoryGateway) -> None:
    for name in ("a", "b", "twice"):
        await gateway.create(name)
    resources: list[tuple[int, str, dict[str, str | None]]] = [
        (TOPIC, "nope", {"flush.ms": "1"}),
        (TOPIC, "a", {"flush.ms": "1"}),
        (TOPIC, "twice", {"flush.ms": "1"}),
        (TOPIC, "b", {"flush.ms": "x"}),
        (TOPIC, "twice", {"flush.ms": "2"}),
        (TOPIC, "a b", {"flush.ms": "1"}),
        (TOPIC, "", {"flush.ms": "1"}),
    ]
    assert await alter(gateway, *resources) == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NONE",
        "INVALID_REQUEST",
        "INVALID_CONFIG",
        "INVALID_REQUEST",
        "INVALID_TOPIC_EXCEPTION",
        "INVALID_REQUEST",
    ]
    assert await gateway.configs("a") == {"flush.ms": "1"}
    assert await gateway.configs("twice") == {}


async def test_a_config_named_twice_is_refused(gateway: InMemoryGateway) -> None:
    await gateway.create("t")
    changes = [("flush.ms", SET, "1"), ("flush.ms", DELETE, None)]
    assert await change(gateway, (TOPIC, "t", changes)) == ["INVALID_REQUEST"]


@pytest.mark.parametrize("name", ["1", ""])
async def test_of_a_broker_the_defaults_of_topics_can_be_set_while_it_runs(
    gateway: InMemoryGateway, name: str
) -> None:
    await gateway.create("t")
    requested = [("message.max.bytes", SET, " 2000 "), ("log.cleanup.policy", APPEND, "compact")]
    assert await change(gateway, (BROKER, name, requested), dry=True) == ["NONE"]
    assert (await in_force(gateway, "t"))["max.message.bytes"] == "1048588"
    assert await change(gateway, (BROKER, name, requested)) == ["NONE"]
    found = await in_force(gateway, "t")
    assert (found["max.message.bytes"], found["cleanup.policy"]) == ("2000", "delete,compact")
    assert await alter(gateway, (BROKER, name, {"log.retention.ms": "7"})) == ["NONE"]
    found = await in_force(gateway, "t")
    assert (found["max.message.bytes"], found["retention.ms"]) == ("1048588", "7")
    assert await change(gateway, (BROKER, name, [("log.retention.ms", DELETE, None)])) == ["NONE"]
    assert (await in_force(gateway, "t"))["retention.ms"] == "604800000"


async def test_the_default_of_highest_precedence_counts_and_all_are_returned(
    gateway: InMemoryGateway,
) -> None:
    await gateway.create("t")
    for name, value in (("", "2000"), ("1", "3000")):
        assert await change(gateway, (BROKER, name, [("message.max.bytes", SET, value)])) == ["NONE"]
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", ["max.message.bytes"])], True)
    (result,) = (await gateway.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)).results
    (config,) = result.configs
    assert (config.value, config.config_source) == ("3000", 2)
    assert [(one.name, one.value, one.source) for one in config.synonyms] == [
        ("message.max.bytes", "3000", 2),
        ("message.max.bytes", "2000", 3),
        ("message.max.bytes", "1048588", 5),
    ]
    request = DescribeConfigsRequest([DescribeConfigsResource(BROKER, "", None)], True)
    (result,) = (await gateway.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)).results
    assert [(one.name, one.value, one.config_source) for one in result.configs] == [
        ("message.max.bytes", "2000", 3)
    ]


async def test_a_changed_default_applies_to_a_producer_at_once(gateway: InMemoryGateway) -> None:
    await gateway.create("t")
    assert await gateway.send("t", records(20)) == 0
    assert await change(gateway, (BROKER, "", [("message.max.bytes", SET, "100")])) == ["NONE"]
    with pytest.raises(AssertionError, match="10"):
        await gateway.send("t", records(20))
    assert await change(gateway, (BROKER, "", [("message.max.bytes", DELETE, None)])) == ["NONE"]
    assert await gateway.send("t", records(20)) == 20


@pytest.mark.parametrize(
    ("one", "error"),
    [
        (("num.partitions", SET, "3"), "INVALID_REQUEST"),
        (("num.partitions", APPEND, "3"), "INVALID_CONFIG"),
        (("num.partitions", DELETE, None), "NONE"),
        (("no.such", DELETE, None), "NONE"),
        (("no.such", SET, "3"), "INVALID_REQUEST"),
        (("message.max.bytes", SET, "x"), "INVALID_REQUEST"),
        (("message.max.bytes", SET, None), "INVALID_REQUEST"),
        (("message.max.bytes", APPEND, "5"), "INVALID_CONFIG"),
        (("message.max.bytes", 7, "5"), "INVALID_REQUEST"),
        (("log.cleanup.policy", APPEND, "shred"), "INVALID_REQUEST"),
        (("log.cleanup.policy", APPEND, ""), "INVALID_REQUEST"),
        (("log.cleaner.max.compaction.lag.ms", SET, "4"), "INVALID_REQUEST"),
    ],
)
async def test_a_change_of_a_broker_that_is_refused_changes_nothing(
    gateway: InMemoryGateway, one: Change, error: str
) -> None:
    before = [("log.cleaner.min.compaction.lag.ms", SET, "5")]
    assert await change(gateway, (BROKER, "1", before)) == ["NONE"]
    for dry in (True, False):
        assert await change(
            gateway, (BROKER, "1", [("log.segment.bytes", SET, "2000000"), one]), dry=dry
        ) == [error]
    await gateway.create("t")
    assert (await in_force(gateway, "t"))["segment.bytes"] == ("2000000" if error == "NONE" else "1073741824")


async def test_other_brokers_are_not_known_and_one_config_is_for_all_of_them(
    gateway: InMemoryGateway,
) -> None:
    for name in ("9", "one", "-1"):
        assert await change(gateway, (BROKER, name, [("message.max.bytes", SET, "3")])) == ["INVALID_REQUEST"]
    replicas = [("min.insync.replicas", SET, "2")]
    assert await change(gateway, (BROKER, "1", replicas)) == ["INVALID_CONFIG"]
    assert await change(gateway, (BROKER, "", replicas)) == ["NONE"]


async def test_groups_have_configs_of_their_own(gateway: InMemoryGateway) -> None:
    requested = [
        ("consumer.session.timeout.ms", SET, " 50000 "),
        ("share.isolation.level", SET, "read_committed"),
    ]
    assert await change(gateway, (GROUP, "g", requested), dry=True) == ["NONE"]
    assert await group_configs(gateway, "g") == {}
    assert await change(gateway, (GROUP, "g", requested)) == ["NONE"]
    assert await group_configs(gateway, "g") == {
        "consumer.session.timeout.ms": "50000",
        "share.isolation.level": "read_committed",
    }
    assert await alter(gateway, (GROUP, "g", {"streams.num.standby.replicas": "1"})) == ["NONE"]
    assert await group_configs(gateway, "g") == {"streams.num.standby.replicas": "1"}
    listed = await gateway.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest([GROUP]))
    assert [(one.resource_type, one.resource_name) for one in listed.config_resources] == [(GROUP, "g")]
    assert await alter(gateway, (GROUP, "g", {})) == ["NONE"]
    listed = await gateway.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest([GROUP]))
    assert listed.config_resources == []


@pytest.mark.parametrize(
    ("name", "one", "error"),
    [
        ("g", ("consumer.session.timeout.ms", SET, "44999"), "INVALID_CONFIG"),
        ("g", ("consumer.session.timeout.ms", APPEND, "1"), "INVALID_CONFIG"),
        ("g", ("consumer.session.timeout.ms", 8, "1"), "UNKNOWN_SERVER_ERROR"),
        ("g", ("consumer.session.timeout.ms", SET, None), "INVALID_REQUEST"),
        ("g", ("no.such", SET, "1"), "INVALID_CONFIG"),
        ("", ("consumer.session.timeout.ms", SET, "50000"), "INVALID_REQUEST"),
    ],
)
async def test_a_change_of_a_group_that_is_refused_changes_nothing(
    gateway: InMemoryGateway, name: str, one: Change, error: str
) -> None:
    assert await change(gateway, (GROUP, name, [("share.delivery.count.limit", SET, "7"), one])) == [error]
    assert await group_configs(gateway, "g") == {}


async def test_configs_of_brokers_and_groups_outlive_the_gateway(tmp_path: Path) -> None:
    on_disk = {"storage.metadata": "", "storage.data": "", "storage.data_dir": str(tmp_path)}
    async with in_memory_gateway(on_disk) as running:
        await running.create("t")
        assert await change(running, (BROKER, "", [("message.max.bytes", SET, "2000")])) == ["NONE"]
        assert await change(running, (GROUP, "g", [("share.delivery.count.limit", SET, "7")])) == ["NONE"]
    async with in_memory_gateway(on_disk) as running:
        assert (await in_force(running, "t"))["max.message.bytes"] == "2000"
        assert await group_configs(running, "g") == {"share.delivery.count.limit": "7"}


@pytest.mark.parametrize("kind", [0, 1, 3, LOGGER, METRICS, 99, -3])
async def test_other_resources_have_no_configs(gateway: InMemoryGateway, kind: int) -> None:
    assert await alter(gateway, (kind, "x", {"a": "1"})) == ["INVALID_REQUEST"]
    assert await change(gateway, (kind, "x", [("a", SET, "1")])) == ["INVALID_REQUEST"]


async def test_concurrent_changes_never_make_configs_that_contradict_each_other(
    gateway: InMemoryGateway,
) -> None:
    await gateway.create("t")
    results = await asyncio.gather(
        change(gateway, (TOPIC, "t", [("min.compaction.lag.ms", SET, "9")])),
        change(gateway, (TOPIC, "t", [("max.compaction.lag.ms", SET, "5")])),
    )
    assert sorted(results) == [["INVALID_CONFIG"], ["NONE"]]
    assert len(await gateway.configs("t")) == 1


@pytest.mark.parametrize(
    ("version", "types", "found"),
    [
        (0, [], []),
        (1, [TOPIC], [(TOPIC, "a"), (TOPIC, "b")]),
        (1, [BROKER, GROUP], [(BROKER, "1")]),
        (1, [], [(BROKER, "1"), (TOPIC, "a"), (TOPIC, "b")]),
        (1, [METRICS], []),
    ],
)
async def test_resources_with_configs_are_listed_by_type(
    gateway: InMemoryGateway, version: int, types: list[int], found: list[tuple[int, str]]
) -> None:
    await gateway.create("a")
    await gateway.create("b")
    response = await gateway.ask(ApiKey.LIST_CONFIG_RESOURCES, version, ListConfigResourcesRequest(types))
    assert response.error_code == 0
    assert [(one.resource_type, one.resource_name) for one in response.config_resources] == found


async def test_resources_of_an_unknown_type_cannot_be_listed(gateway: InMemoryGateway) -> None:
    response = await gateway.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest([TOPIC, 3]))
    assert names_of([response.error_code]) == ["UNSUPPORTED_VERSION"]
    assert response.config_resources == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("background.threads", "The gateway has no config background.threads."),
        ("num.partitions", "set it at its start (broker.num.partitions)"),
        ("group.max.size", "set it at its start (groups.group.max.size)"),
        ("quota.window.num", "set it at its start (quotas.quota.window.num)"),
    ],
)
def test_the_refusal_of_a_config_that_is_not_dynamic_names_its_setting(name: str, reason: str) -> None:
    edit = ResourceEdit(BROKER, "1", [ConfigEdit(name, SET, "1")])
    refused = plan_broker({}, edit, {})
    assert isinstance(refused, Refused)
    assert refused.error == "INVALID_REQUEST"
    assert reason in refused.message


def described(times: int, names: Sequence[str], keys: list[str] | None = None) -> DescribeConfigsRequest:
    resources = [DescribeConfigsResource(TOPIC, name, keys) for name in names]
    return DescribeConfigsRequest(resources * times, include_synonyms=True)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_all_topics_that_are_named_once_are_described_and_repeats_up_to_a_bound(version: int) -> None:
    """As an admin client requests the configs of a whole cluster."""
    settings = {"limits.response_bytes": str(64 * 1024), "limits.partitions": "1000"}
    async with in_memory_gateway(settings) as gateway:
        names = [f"topic-{number}" for number in range(100)]
        for name in names:
            configs = {"retention_ms": name.removeprefix("topic-")} if name.endswith("7") else {}
            await gateway.create(name, 1, **configs)
        alone = [
            (await gateway.ask(ApiKey.DESCRIBE_CONFIGS, version, described(1, [name]))).results[0]
            for name in names
        ]
        assert all(len(result.configs) > 30 and not result.error_code for result in alone)
        every = await gateway.ask(ApiKey.DESCRIBE_CONFIGS, version, described(1, [*names, "not-there"]))
        assert every.results[:-1] == alone
        assert names_of([every.results[-1].error_code]) == ["UNKNOWN_TOPIC_OR_PARTITION"]
        twice = await gateway.ask(ApiKey.DESCRIBE_CONFIGS, version, described(2, names))
        assert twice.results[:100] == alone
        errors = names_of([result.error_code for result in twice.results[100:]])
        complete = errors.count("NONE")
        assert 10 < complete < 90 and errors == ["NONE"] * complete + ["INVALID_REQUEST"] * (100 - complete)


async def test_named_once_all_configs_together_take_half_the_memory_of_large_requests() -> None:
    settings = {"limits.response_bytes": "4096", "limits.request_memory_bytes": str(1024 * 1024)}
    async with in_memory_gateway(settings) as gateway:
        groups = [DescribeConfigsResource(GROUP, f"group-{number}", None) for number in range(2_000)]
        request = DescribeConfigsRequest(groups, True, True)
        response = await gateway.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)
        errors = names_of([result.error_code for result in response.results])
        complete = errors.count("NONE")
        assert errors == ["NONE"] * complete + ["INVALID_REQUEST"] * (2_000 - complete)
        texts = [text for c in response.results[0].configs for text in (c.name, c.value, c.documentation)]
        assert 200_000 < complete * sum(map(len, texts)) < 512 * 1024
        assert gateway.running.services.scheduler.held_bytes == 0
