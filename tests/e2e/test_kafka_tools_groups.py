"""Kafka's own tools for consumer groups say and do the same at a gateway and at Apache Kafka."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.e2e.conftest import Endpoint
from tests.e2e.kafka_tools import SideBySide, Tool, without_reason
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.kafka import KafkaServer
from tests.support.tool_runner import ToolRunner

RECORDS = 10
STAMP_MS = 1_700_000_000_000
MEMBER_ID = re.compile(r"([\w-]+?)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SPACES = re.compile(r"  +")
FIGURE = re.compile(r"\d+(\.\d+)?")


@pytest.fixture
def both(tool_runner: ToolRunner, kafka_oracle: KafkaServer, endpoint: Endpoint) -> SideBySide:
    return SideBySide(tool_runner, kafka_oracle, endpoint)


@pytest.fixture
def read(both: SideBySide, topic: str) -> str:
    """A topic at both, ten records a second apart in the first of its two partitions."""
    for target in (both.kafka, both.endpoint):
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        # Its records are years old, and would fall under retention within half a minute at Apache Kafka.
        kept = NewTopic(topic, 2, config={"retention.ms": "-1"})
        admin.create_topics([kept])[topic].result(CLIENT_TIMEOUT_S)
        producer = Producer({"bootstrap.servers": target.bootstrap})
        for i in range(RECORDS):
            producer.produce(topic, b"%05d" % i, partition=0, timestamp=STAMP_MS + i * 1000)
        assert producer.flush(CLIENT_TIMEOUT_S) == 0
    return topic


def consumer(target: Endpoint, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
    )


def commit(both: SideBySide, group: str, topic: str, offset: int) -> None:
    for target in (both.kafka, both.endpoint):
        reader = consumer(target, group)
        place = TopicPartition(topic, 0, offset)
        reader.commit(offsets=[place], asynchronous=False)
        reader.close()


@contextmanager
def living(both: SideBySide, group: str, topic: str) -> Iterator[None]:
    """One member at each, which has read and committed everything."""
    with ExitStack() as stack:
        for target in (both.kafka, both.endpoint):
            reader = consumer(target, group)
            stack.callback(reader.close)
            reader.subscribe([topic])
            for _ in range(RECORDS):
                message = reader.poll(CLIENT_TIMEOUT_S)
                assert message is not None and message.error() is None
            reader.commit(asynchronous=False)
        yield


def columns(line: str) -> str | None:
    """Widths go with the length of what is in them."""
    return SPACES.sub(" ", MEMBER_ID.sub(r"\1-<id>", line)).strip()


def test_kafka_consumer_groups_lists_describes_resets_and_deletes_a_group_that_stopped(
    both: SideBySide, read: str
) -> None:
    group = f"stopped-{read}"
    commit(both, group, read, 4)
    of_group, of_topic = ("--group", group), ("--topic", read)

    def own(line: str) -> str | None:
        return columns(line) if group in line else None

    def groups(*arguments: str) -> list[str]:
        return list(both.run(Tool.CONSUMER_GROUPS, *arguments, compared=columns).lines)

    listed = both.run(Tool.CONSUMER_GROUPS, "--list", "--state", "Empty", compared=own)
    assert listed.lines == [f"{group} Empty"]
    described = groups("--describe", *of_group)
    assert f"{group} {read} 0 4 10 6 - - -" in described
    assert any(line.split()[-2:] == ["Empty", "0"] for line in groups("--describe", *of_group, "--state"))
    planned = groups("--reset-offsets", *of_group, *of_topic, "--to-earliest", "--dry-run")
    assert f"{group} {read} 0 0" in planned
    groups("--reset-offsets", *of_group, "--all-topics", "--shift-by", "3", "--execute")
    assert f"{group} {read} 0 7 10 3 - - -" in groups("--describe", *of_group)
    groups("--reset-offsets", *of_group, *of_topic, "--to-datetime", "2023-11-14T22:13:22.000", "--execute")
    assert f"{group} {read} 0 2 10 8 - - -" in groups("--describe", *of_group)
    deleted = groups("--delete-offsets", *of_group, "--topic", f"{read}:0")
    assert any("Successful" in line for line in deleted)
    commit(both, group, read, 1)
    assert any("was successful" in line for line in groups("--delete", *of_group))
    gone = both.run(Tool.CONSUMER_GROUPS, "--describe", *of_group, compared=without_reason)
    assert any("GroupIdNotFoundException" in line for line in gone.lines)


def test_kafka_consumer_groups_shows_members_and_lets_a_living_group_alone(
    both: SideBySide, read: str
) -> None:
    group = f"living-{read}"
    of_group = ("--group", group)

    def groups(*arguments: str) -> list[str]:
        return list(both.run(Tool.CONSUMER_GROUPS, *arguments, compared=columns).lines)

    with living(both, group, read):
        described = groups("--describe", *of_group)
        assert f"{group} {read} 0 10 10 0 reader-<id> /127.0.0.1 reader" in described
        members = groups("--describe", *of_group, "--members", "--verbose")
        assert f"{group} reader-<id> /127.0.0.1 reader 2 - {read}:0,1 - -" in members
        states = groups("--describe", *of_group, "--state")
        assert any("Stable 1" in line for line in states)
        refused = groups("--reset-offsets", *of_group, "--all-topics", "--to-earliest", "--execute")
        assert "is inactive, but the current state is Stable" in refused[0]
        assert "GroupNotEmptyException" in groups("--delete", *of_group)[1]
        kept = groups("--delete-offsets", *of_group, "--topic", read)
        assert sum("GroupSubscribedToTopicException" in line for line in kept) == 2


def test_consumer_perf_and_the_verifiable_consumer_read_in_groups(both: SideBySide, read: str) -> None:
    perf = ("--topic", read, "--num-records", str(RECORDS), "--group", f"perf-{read}", "--timeout", "20000")
    measured = both.run(Tool.CONSUMER_PERF, *perf, compared=lambda line: FIGURE.sub("#", line))
    assert "data.consumed.in.nMsg" in measured.lines[0]
    verified = both.run(
        Tool.VERIFIABLE_CONSUMER,
        *("--topic", read, "--group-id", f"verified-{read}", "--reset-policy", "earliest"),
        *("--max-messages", str(RECORDS)),
        compared=event,
    )
    returned = [json.loads(line) for line in verified.lines]
    assert {"startup_complete", "partitions_assigned", "records_consumed", "offsets_committed"} <= {
        one["name"] for one in returned
    }
    assert sum(one["count"] for one in returned if one["name"] == "records_consumed") == RECORDS


def event(line: str) -> str | None:
    said = json.loads(line)
    return json.dumps({key: said[key] for key in said if key != "timestamp"})
