"""Consumer groups of real clients: members come and go, the gateway is restarted and killed, and every record
is worked on once."""

import os
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import pytest
from _pytest.mark.structures import ParameterSet
from confluent_kafka import Producer

from gateway.addresses import Address
from gateway.cli.client import Client
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.describe_groups import DescribedGroup, DescribeGroupsRequest
from gateway.wire.messages.generated.leave_group import LeaveGroupRequest, MemberIdentity
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from gateway.wire.messages.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.e2e.conftest import Endpoint
from tests.e2e.group_members import LIBRARIES, Crowd, crowd, why_no_members
from tests.support.gateway import running_gateway
from tests.support.kafka import running_kafka
from tests.support.topics import create_topics

AT_KAFKA = os.environ.get("DRAGOMAN_TEST_TARGET", "gateway") == "kafka"
PARTITIONS = 20
MEMBERS, GUESTS = 10, 2
ROUND = 400
TOPIC, GROUP = "work", "workers"
SETTINGS = {"group.initial.rebalance.delay.ms": "500", "group.min.session.timeout.ms": "1000"}
COOPERATIVE = ("confluent", "java", "franz-go")
COOPERATIVE_IN_EVERY_RUN = ("confluent",)
REMOVED_IN_EVERY_RUN = ("confluent", "java", "sarama")
"""Members of every library come and go, over restarts and a kill, in every run."""
# They join again when a connection is refused even once, at Kafka too; kafkajs does so now and then.
# Sarama does so at Kafka alone, whose coordinator refuses heartbeats while it loads.
ONLY_AT_KAFKA = ("sarama",) if AT_KAFKA else ()
MOVED_BY_RESTARTS = ("kafka-go", "franz-go", "kafkajs", *ONLY_AT_KAFKA)
# A commit goes over the connection that the restart has broken; it is not repeated, but the records are.
READ_AGAIN_AFTER_RESTARTS = ("kafka-go", "sarama")
QUIET_S = 3.0
ATTEMPTS, HEARD_S = 5, 10.0
COMMITTED_S = 30.0
LATEST = -1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Endpoint]:
    """A gateway, or Apache Kafka when DRAGOMAN_TEST_TARGET=kafka; the test's own, since it restarts it."""
    running: AbstractContextManager[Endpoint]
    if AT_KAFKA:
        running = running_kafka(SETTINGS)
    else:
        options = [word for name, value in SETTINGS.items() for word in ("--set", f"groups.{name}={value}")]
        running = running_gateway(tmp_path / "gateway", options)
    with running as started:
        create_topics(started.bootstrap, {TOPIC: PARTITIONS})
        yield started


@pytest.fixture
def group(server: Endpoint, tmp_path: Path) -> Iterator[Crowd]:
    with crowd(tmp_path, server.bootstrap, GROUP, TOPIC) as made:
        yield made


def send(server: Endpoint, count: int = ROUND) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5, "log_level": 0})
    for number in range(count):
        producer.produce(TOPIC, value=b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def wait_until_stable(group: Crowd, *names: str) -> None:
    """Every partition has one owner, and every process some."""
    group.until(
        lambda: (
            len(group.owners()) == PARTITIONS and {name for name, _ in group.owners().values()} == {*names}
        ),
        f"all partitions with {names}",
    )


def all_read(group: Crowd, count: int) -> None:
    group.until(lambda: len(group.read()) >= count, f"{count} records")


def committed(server: Endpoint) -> dict[int, int]:
    topics = [OffsetFetchRequestTopics(TOPIC, partition_indexes=list(range(PARTITIONS)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=topics)])
    with Client(Address(server.host, server.port)) as client:
        (response,) = client.ask(ApiKey.OFFSET_FETCH, 8, request).groups
    return {part.partition_index: part.committed_offset for part in response.topics[0].partitions}


def log_ends(server: Endpoint) -> dict[int, int]:
    parts = [ListOffsetsPartition(i, timestamp=LATEST) for i in range(PARTITIONS)]
    request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(TOPIC, parts)])
    with Client(Address(server.host, server.port)) as client:
        response = client.ask(ApiKey.LIST_OFFSETS, 4, request)
    return {part.partition_index: part.offset for part in response.topics[0].partitions}


def state_of(server: Endpoint) -> str:
    return str(described(server).group_state)


def described(server: Endpoint) -> DescribedGroup:
    with Client(Address(server.host, server.port)) as client:
        (response,) = client.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest([GROUP])).groups
    return cast(DescribedGroup, response)


def put_out(server: Endpoint) -> None:
    """Take all members from the group, as an administrator can; they hear of it by their next request."""
    members = [MemberIdentity(member.member_id) for member in described(server).members]
    with Client(Address(server.host, server.port)) as client:
        response = client.ask(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(GROUP, members=members))
    assert {member.error_code for member in response.members} == {0}


def refused(server: Endpoint, group: Crowd, names: list[str]) -> int:
    """Put the members out and send, until a commit is refused. Returns how often that was needed.

    Members that hear of it by a heartbeat first, as on a busy machine, have nothing to commit.
    """
    for sent in range(1, ATTEMPTS + 1):
        put_out(server)
        send(server)
        deadline = time.monotonic() + HEARD_S
        while time.monotonic() < deadline:
            if group.refusals():
                return sent
            time.sleep(0.05)
        wait_until_stable(group, *names)
    pytest.fail(f"no commit was refused in {ATTEMPTS} attempts")


def marked(library: str, in_every_run: Collection[str]) -> list[pytest.MarkDecorator]:
    return [] if library in in_every_run else [pytest.mark.full]


def cases() -> list[ParameterSet]:
    eager = [pytest.param(library, "eager", id=f"{library}-eager") for library in LIBRARIES]
    return eager + [
        pytest.param(
            *(library, "cooperative"),
            id=f"{library}-cooperative",
            marks=marked(library, COOPERATIVE_IN_EVERY_RUN),
        )
        for library in COOPERATIVE
    ]


def all_committed(server: Endpoint) -> None:
    deadline = time.monotonic() + COMMITTED_S
    while (found := committed(server)) != (ends := log_ends(server)):
        assert time.monotonic() < deadline, f"{found} is committed of {ends}"
        time.sleep(0.05)


@pytest.mark.parametrize(("library", "strategy"), cases())
def test_members_come_and_go_and_so_does_the_gateway(
    library: str, strategy: str, server: Endpoint, group: Crowd
) -> None:
    reason = why_no_members(library)
    if reason is not None:
        pytest.skip(reason)
    hosts = group.start(library, MEMBERS, strategy)
    wait_until_stable(group, hosts.name)
    send(server)
    guests = group.start(library, GUESTS, strategy)
    wait_until_stable(group, hosts.name, guests.name)
    send(server)
    all_read(group, 2 * ROUND)

    before = group.changes()
    server.restart()
    send(server)
    all_read(group, 3 * ROUND)
    if library == "franz-go":
        # Its members join again after the kill, and read again what they had reported but not committed.
        all_committed(server)
    server.kill9()
    server.restart()
    send(server)
    all_read(group, 4 * ROUND)
    time.sleep(QUIET_S)
    if library in MOVED_BY_RESTARTS:
        wait_until_stable(group, hosts.name, guests.name)
    else:
        assert group.changes() == before, "a restart of the server has moved partitions"

    guests.stop()
    wait_until_stable(group, hosts.name)
    send(server)
    all_read(group, 5 * ROUND)
    hosts.stop()
    assert not group.failures()
    assert not group.overlaps()
    twice = [record for record, times in group.read().items() if times > 1]
    if library not in READ_AGAIN_AFTER_RESTARTS:
        assert not twice, f"{len(twice)} records were worked on more than once"
    assert committed(server) == log_ends(server)
    assert state_of(server) == "Empty"


@pytest.mark.parametrize(
    "library",
    ["confluent", "java", *(pytest.param(name, marks=pytest.mark.full) for name in ("sarama", "franz-go"))],
)
def test_static_members_are_restarted_and_no_other_member_is_affected(
    library: str, server: Endpoint, group: Crowd
) -> None:
    reason = why_no_members(library)
    if reason is not None:
        pytest.skip(reason)
    stay = group.start(library, 2, instances="stay")
    first = group.start(library, 2, instances="go")
    wait_until_stable(group, stay.name, first.name)
    send(server)
    all_read(group, ROUND)
    time.sleep(QUIET_S)
    returned = len([event for event in stay.events if event.partitions])
    theirs = {partition for partition, (name, _) in group.owners().items() if name == first.name}
    first.stop()
    again = group.start(library, 2, instances="go")
    group.until(
        lambda: {p for p, (name, _) in group.owners().items() if name == again.name} == theirs,
        "the same partitions for the same instances",
    )
    send(server)
    all_read(group, 2 * ROUND)
    assert len([event for event in stay.events if event.partitions]) == returned
    assert not group.failures()
    assert set(group.read().values()) == {1}


@pytest.mark.parametrize(
    "library", [pytest.param(name, marks=marked(name, REMOVED_IN_EVERY_RUN)) for name in LIBRARIES]
)
def test_a_removed_member_commits_nothing_and_joins_again(
    library: str, server: Endpoint, group: Crowd
) -> None:
    reason = why_no_members(library)
    if reason is not None:
        pytest.skip(reason)
    members = group.start(library, 3)
    wait_until_stable(group, members.name)
    send(server)
    all_read(group, ROUND)
    sent = refused(server, group, [members.name])
    group.until(lambda: committed(server) == log_ends(server), "commits of rejoined members")
    all_read(group, (1 + sent) * ROUND)
    wait_until_stable(group, members.name)
