"""`dragoman consume` of several topics, in ranges, by a format string and as a member of a group: against a
gateway and, with DRAGOMAN_TEST_TARGET=kafka, Kafka."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from gateway.cli.assignments import (
    assignment,
    held_partitions,
    range_assignments,
    subscribed_topics,
    subscription,
)
from tests.e2e.conftest import Endpoint
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.command import COMMAND, WAIT_S
from tests.support.command import run_here as run


def produce(endpoint: Endpoint, topic: str, partition: int, *values: object) -> None:
    producer = Producer({"bootstrap.servers": endpoint.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=partition)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


@pytest.fixture
def filled(endpoint: Endpoint, topic: str) -> str:
    """Ten records in the first of two partitions, 0 to 9, three in the other: a, b, c."""
    assert run(endpoint, "topics", "create", topic, "-p", "2").returncode == 0
    produce(endpoint, topic, 0, *range(10))
    produce(endpoint, topic, 1, *"abc")
    return topic


@contextmanager
def reading(endpoint: Endpoint, topic: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [*COMMAND, "consume", topic, "-b", endpoint.bootstrap, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("wrong", [("--from", "foo"), ("--until", "foo"), ("--partition", "7")])
def test_where_to_read_that_cannot_be_is_the_only_thing_said(
    endpoint: Endpoint, filled: str, wrong: tuple[str, str]
) -> None:
    flag, value = wrong
    done = run(endpoint, "consume", filled, *wrong, *(() if flag == "--until" else ("--to-end",)))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"dragoman: {flag} {value}: ") and done.stderr.count("\n") == 1


def committed(endpoint: Endpoint, group: str) -> dict[int, int | None]:
    done = run(endpoint, "groups", "describe", group, "--json")
    if done.returncode:
        return {}
    (described,) = json.loads(done.stdout)
    return {line["partition"]: line["offset"] for line in described["offsets"]}


def test_several_topics_are_read_at_once(endpoint: Endpoint, filled: str) -> None:
    other = f"{filled}-other"
    run(endpoint, "topics", "create", other)
    produce(endpoint, other, 0, "x", "y")
    done = run(endpoint, "consume", filled, other, "--to-end", "--format", r"%t-%p %v\n")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and f"Consumed 15 records of {filled}, {other}." in done.stderr
    assert [line for line in lines if line.startswith(other)] == [f"{other}-0 x", f"{other}-0 y"]
    assert [line for line in lines if line.startswith(f"{filled}-1")] == [f"{filled}-1 {v}" for v in "abc"]
    twice = run(endpoint, "consume", filled, filled, "--to-end")
    assert twice.returncode == 2 and "named twice" in twice.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-p", "0", "--from", "3", "--until", "6"], "3 4 5"),
        (["-p", "0", "--until", "-8"], "0 1"),
        (["-p", "0", "--from", "8", "--until", "500"], "8 9"),
        (["-p", "0", "--from", "5", "--until", "5"], ""),
        (["-p", "0", "--until", "2001-01-01"], ""),
        (["--until", "1"], "0 a"),
        (["-p", "1", "--until", "latest"], "a b c"),
    ],
)
def test_until_ends_before_an_offset_and_waits_for_none(
    endpoint: Endpoint, filled: str, arguments: list[str], expected: str
) -> None:
    done = run(endpoint, "consume", filled, *arguments)
    assert done.returncode == 0 and sorted(done.stdout.split()) == expected.split(), done.stderr


def test_a_format_string_prints_every_part_of_a_record(endpoint: Endpoint, topic: str) -> None:
    run(endpoint, "topics", "create", topic, "--set", "retention.ms=-1")
    records: list[dict[str, Any]] = [
        {"key": "k", "value": "vü", "timestamp": 1_700_000_000_000, "headers": [("a", b"1"), ("b", None)]},
        {"timestamp": 1_700_000_000_001},
    ]
    producer = Producer({"bootstrap.servers": endpoint.bootstrap})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    form = r"%t|%p|%o|%T|%k|%K|%v|%s|%V|%S|%h|%%\t;"
    done = run(endpoint, "consume", topic, "--to-end", "--format", form, "--null", "NULL")
    assert done.stdout == (
        f"{topic}|0|0|1700000000000|k|1|vü|vü|3|3|a=1,b=NULL|%\t;"
        f"{topic}|0|1|1700000000001|NULL|-1|NULL|NULL|-1|-1||%\t;"
    )
    wrong = run(endpoint, "consume", topic, "--to-end", "--format", "%t %x")
    assert wrong.returncode == 2 and "%x is unknown; there are %t, %p" in wrong.stderr


def test_a_member_commits_what_it_has_printed_and_the_next_one_continues(
    endpoint: Endpoint, filled: str
) -> None:
    group = f"next-{filled}"
    first = run(endpoint, "consume", filled, "--group", group, "--count", "4")
    second = run(endpoint, "consume", filled, "--group", group, "--to-end")
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert len(first.stdout.split()) == 4
    everything = [str(number) for number in range(10)] + list("abc")
    assert sorted(first.stdout.split() + second.stdout.split()) == everything
    assert committed(endpoint, group) == {0: 10, 1: 3}
    (described,) = json.loads(run(endpoint, "groups", "describe", group, "--json").stdout)
    assert described["state"] == "Empty", "a member that ends leaves its group"
    assert run(endpoint, "consume", filled, "--group", group, "--to-end").stdout == ""


def test_from_says_where_a_group_without_offsets_begins(endpoint: Endpoint, filled: str) -> None:
    done = run(endpoint, "consume", filled, "-g", f"late-{filled}", "--from", "-1", "--to-end")
    assert sorted(done.stdout.split()) == ["9", "c"]


def test_members_share_the_partitions_with_a_consumer_of_librdkafka(endpoint: Endpoint, filled: str) -> None:
    group = f"shared-{filled}"
    settings = {"bootstrap.servers": endpoint.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    # The first member leads: once ours assigns the partitions, once librdkafka.
    with reading(endpoint, filled, "--group", group) as ours:
        assert ours.stdout is not None
        assert sorted(ours.stdout.readline().strip() for _ in range(13))[:3] == ["0", "1", "2"]
        other = Consumer({**settings, "enable.auto.commit": "false"})
        try:
            other.subscribe([filled])
            deadline = time.monotonic() + WAIT_S
            while len(other.assignment()) != 1:
                assert time.monotonic() < deadline
                other.poll(0.2)
            wait_until(lambda: committed(endpoint, group) == {0: 10, 1: 3})
            ours.send_signal(2)
            assert ours.wait(CLIENT_TIMEOUT_S) == 130
            while len(other.assignment()) != 2:
                assert time.monotonic() < deadline
                other.poll(0.2)
            with reading(endpoint, filled, "--group", group) as again:
                while len(other.assignment()) != 1:
                    assert time.monotonic() < deadline
                    other.poll(0.2)
                assert again.stdout is not None
                theirs = other.assignment()[0].partition
                produce(endpoint, filled, 1 - theirs, "fresh")
                assert again.stdout.readline() == "fresh\n"
        finally:
            other.close()


def test_a_member_continues_over_a_restart_and_prints_each_record_once(
    endpoint: Endpoint, filled: str
) -> None:
    group = f"restart-{filled}"
    with reading(endpoint, filled, "--group", group, "--count", "15") as ours:
        assert ours.stdout is not None
        before = [ours.stdout.readline().strip() for _ in range(13)]
        endpoint.restart()
        produce(endpoint, filled, 0, "x", "y")
        rest, talk = ours.communicate(timeout=WAIT_S)
        assert ours.returncode == 0, talk
        assert sorted(before + rest.split()) == [*map(str, range(10)), *"abcxy"]
    assert committed(endpoint, group) == {0: 12, 1: 3}


def test_a_group_decides_the_partitions(endpoint: Endpoint, filled: str) -> None:
    done = run(endpoint, "consume", filled, "--group", "g", "--partition", "0")
    assert done.returncode == 2 and "the group assigns the partitions" in done.stderr


def test_range_gives_the_first_members_one_partition_more() -> None:
    members = {"m1": ["t", "u"], "m2": ["t"], "m0": ["t"]}
    assert range_assignments(members, {"t": 5, "u": 2}) == {
        "m0": [("t", 0), ("t", 1)],
        "m1": [("t", 2), ("t", 3), ("u", 0), ("u", 1)],
        "m2": [("t", 4)],
    }
    partitions = [("t", 0), ("t", 3), ("u", 1)]
    assert held_partitions(assignment(partitions)) == partitions
    assert subscribed_topics(subscription(["t", "ü"])) == ["t", "ü"]
    assert subscribed_topics(b"\x00") == []


def transact(endpoint: Endpoint, topic: str, value: str) -> Producer:
    """A producer with a transaction that has one record, flushed."""
    settings = {"bootstrap.servers": endpoint.bootstrap, "transactional.id": f"{topic}-{value}"}
    producer = Producer(settings)
    producer.init_transactions(CLIENT_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    return producer


def test_only_what_is_committed_is_read_if_that_is_wanted(endpoint: Endpoint, topic: str) -> None:
    run(endpoint, "topics", "create", topic)
    transact(endpoint, topic, "committed").commit_transaction(CLIENT_TIMEOUT_S)
    transact(endpoint, topic, "aborted").abort_transaction(CLIENT_TIMEOUT_S)
    produce(endpoint, topic, 0, "plain")
    open_one = transact(endpoint, topic, "open")
    produce(endpoint, topic, 0, "behind")
    read = ("consume", topic, "--to-end", "--isolation-level")
    everything = ["committed", "aborted", "plain", "open", "behind"]
    assert run(endpoint, *read, "read_uncommitted").stdout.split() == everything
    waiting = run(endpoint, *read, "read_committed")
    assert waiting.stdout.split() == ["committed", "plain"]
    assert f"Records of {topic}-0 from offset 5 on wait for a transaction that is open" in waiting.stderr
    member = run(endpoint, *read, "read_committed", "--group", f"{topic}-waiting")
    assert member.stderr.splitlines()[-1] == waiting.stderr.splitlines()[-1]
    open_one.commit_transaction(CLIENT_TIMEOUT_S)
    done = run(endpoint, *read, "read_committed", "--group", f"{topic}-readers")
    assert done.stdout.split() == ["committed", "plain", "open", "behind"] and "wait for" not in done.stderr
    refused = run(endpoint, *read, "committed")
    assert refused.returncode == 2 and "read_uncommitted or read_committed" in refused.stderr
