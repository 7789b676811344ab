"""`dragoman groups` as an operator uses it, against a gateway and, with DRAGOMAN_TEST_TARGET=kafka, Kafka."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.e2e.conftest import Endpoint
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.command import run_here

STAMP_MS = 1_700_000_000_000
RECORDS = 10


def run(endpoint: Endpoint, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_here(endpoint, "groups", *arguments)


def json_of(endpoint: Endpoint, *arguments: str) -> Any:
    done = run(endpoint, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def filled(endpoint: Endpoint, topic: str) -> str:
    """A topic of two partitions: ten records a second apart in the first, none in the other."""
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap})
    # The stamps are years old: Kafka looks for what retention ends half a minute after its start.
    kept = NewTopic(topic, 2, config={"retention.ms": "-1"})
    admin.create_topics([kept])[topic].result(CLIENT_TIMEOUT_S)
    producer = Producer({"bootstrap.servers": endpoint.bootstrap})
    for i in range(RECORDS):
        producer.produce(topic, b"%d" % i, partition=0, timestamp=STAMP_MS + i * 1000)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    return topic


@contextmanager
def consumer(endpoint: Endpoint, group: str, **configs: str | int) -> Iterator[Consumer]:
    settings = {
        "bootstrap.servers": endpoint.bootstrap,
        "group.id": group,
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
    }
    reader = Consumer({**settings, **configs})
    try:
        yield reader
    finally:
        reader.close()


def commit(endpoint: Endpoint, group: str, topic: str, *offsets: int) -> None:
    """As a consumer that assigns partitions itself: one offset a partition."""
    with consumer(endpoint, group) as reader:
        places = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
        reader.commit(offsets=places, asynchronous=False)


def committed(endpoint: Endpoint, group: str, topic: str) -> list[int]:
    with consumer(endpoint, group) as reader:
        requested = [TopicPartition(topic, partition) for partition in (0, 1)]
        return [place.offset for place in reader.committed(requested, CLIENT_TIMEOUT_S)]


@contextmanager
def living(endpoint: Endpoint, group: str, topic: str) -> Iterator[Consumer]:
    """A member that has its partitions."""
    with consumer(endpoint, group, **{"client.id": "reader"}) as reader:
        reader.subscribe([topic])
        for _ in range(RECORDS):
            message = reader.poll(CLIENT_TIMEOUT_S)
            assert message is not None and message.error() is None
        yield reader


def test_a_simple_group_is_listed_described_and_deleted(endpoint: Endpoint, filled: str) -> None:
    group = f"simple-{filled}"
    commit(endpoint, group, filled, 3)
    listed = {line["group"]: line for line in json_of(endpoint, "list", "--state", "Empty")}
    assert listed[group]["state"] == "Empty" and listed[group]["type"] == "classic"
    (described,) = json_of(endpoint, "describe", group)
    assert described["members"] == []
    assert described["offsets"] == [
        {
            "topic": filled,
            "partition": 0,
            "offset": 3,
            "log_end": RECORDS,
            "lag": RECORDS - 3,
            "member_id": None,
            "metadata": "",
        }
    ]
    shown = run(endpoint, "describe", group).stdout.splitlines()
    assert shown[0] == f"{group}: Empty, 0 members, lag {RECORDS - 3}"
    assert shown[2].split() == [filled, "0", "3", "10", "7", "-"]
    assert run(endpoint, "delete", group, "--yes").returncode == 0
    gone = run(endpoint, "describe", group)
    assert gone.returncode == 1 and gone.stdout == "" and "GROUP_ID_NOT_FOUND" in gone.stderr


def test_a_list_says_that_its_filter_leaves_no_group(endpoint: Endpoint, filled: str) -> None:
    commit(endpoint, f"empty-{filled}", filled, 3)
    listed = run(endpoint, "list", "--state", "CompletingRebalance")
    assert (listed.returncode, listed.stderr) == (0, "No group matches these filters.\n")


def test_members_are_shown_with_what_they_read(endpoint: Endpoint, filled: str) -> None:
    group = f"living-{filled}"
    with living(endpoint, group, filled) as reader:
        reader.commit(asynchronous=False)
        (described,) = json_of(endpoint, "describe", group)
        (member,) = described["members"]
        assert described["state"] == "Stable" and described["protocol"] == "range"
        assert member["client_id"] == "reader" and member["host"] == "127.0.0.1"
        assert member["partitions"] == [[filled, 0], [filled, 1]]
        lines = {line["partition"]: line for line in described["offsets"]}
        assert lines[0]["lag"] == 0 and lines[0]["member_id"] == member["member_id"]
        assert lines[1]["offset"] is None and lines[1]["lag"] is None
        shown = run(endpoint, "describe", group, "--members").stdout
        assert f"{filled}-0, {filled}-1" in shown


def test_a_living_group_is_neither_reset_nor_deleted(endpoint: Endpoint, filled: str) -> None:
    group = f"busy-{filled}"
    with living(endpoint, group, filled) as reader:
        reader.commit(asynchronous=False)
        reset = run(endpoint, "reset-offsets", group, "--to", "earliest", "--execute")
        assert reset.returncode == 1 and "stop its consumers first" in reset.stderr
        deleted = run(endpoint, "delete", group, "--yes")
        assert deleted.returncode == 1 and "NON_EMPTY_GROUP" in deleted.stderr
        assert committed(endpoint, group, filled)[0] == RECORDS


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to", "earliest"], [0, 0]),
        (["--to", "latest"], [10, 0]),
        (["--to", "current"], [4, 0]),
        (["--to", "7"], [7, 0]),
        (["--to", "700"], [10, 0]),
        (["--to", "-2"], [8, 0]),
        (["--shift", "-3"], [1, 0]),
        (["--shift", "-30"], [0, 0]),
        (["--shift", "2"], [6, 0]),
        # The record with the stamp of 6 s, and none so late in the other partition.
        (["--to", "2023-11-14T22:13:26"], [6, 0]),
    ],
)
def test_a_group_that_has_stopped_continues_where_it_was_reset_to(
    endpoint: Endpoint, filled: str, where: list[str], expected: list[int]
) -> None:
    group = f"reset-{filled}"
    commit(endpoint, group, filled, 4)
    planned = json_of(endpoint, "reset-offsets", group, "--topic", filled, *where)
    assert not planned["executed"]
    assert [line["new_offset"] for line in planned["offsets"]] == expected
    assert [line["offset"] for line in planned["offsets"]] == [4, None]
    assert committed(endpoint, group, filled)[0] == 4
    assert json_of(endpoint, "reset-offsets", group, "--topic", filled, *where, "--execute")["executed"]
    assert committed(endpoint, group, filled) == expected


def test_partitions_can_be_named_and_all_read_topics_are_meant_else(endpoint: Endpoint, filled: str) -> None:
    group = f"named-{filled}"
    commit(endpoint, group, filled, 4, 0)
    planned = json_of(endpoint, "reset-offsets", group, "--topic", f"{filled}:0", "--to", "earliest")
    assert [(line["partition"], line["new_offset"]) for line in planned["offsets"]] == [(0, 0)]
    planned = json_of(endpoint, "reset-offsets", group, "--to", "latest")
    assert [(line["partition"], line["new_offset"]) for line in planned["offsets"]] == [(0, 10), (1, 0)]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["reset-offsets", "g"], "--to WHERE or --shift N"),
        (["reset-offsets", "g", "--to", "latest", "--shift", "1"], "--to WHERE or --shift N"),
        (["reset-offsets", "g", "--topic", "{topic}", "--to", "yesterday"], "--to yesterday: expected"),
        (["reset-offsets", "g", "--topic", "{topic}:x", "--to", "latest"], "NAME:0,2"),
        (["reset-offsets", "g", "--topic", "{topic}:9", "--to", "latest"], "it has 2 partitions"),
    ],
)
def test_a_command_that_does_not_fit_says_what_to_write(
    endpoint: Endpoint, filled: str, arguments: list[str], complaint: str
) -> None:
    done = run(endpoint, *[argument.replace("{topic}", filled) for argument in arguments])
    assert done.returncode == 2 and complaint in done.stderr and done.stdout == ""


def test_there_is_nothing_to_reset_where_nothing_was_committed(endpoint: Endpoint, filled: str) -> None:
    done = run(endpoint, "reset-offsets", f"nobody-{filled}", "--to", "latest", "--execute")
    assert done.returncode == 0 and "name topics with --topic" in done.stderr


def test_lags_are_summed_for_each_group(endpoint: Endpoint, filled: str) -> None:
    group = f"sum-{filled}"
    commit(endpoint, group, filled, 3, 0)
    listed = {line["group"]: line["lag"] for line in json_of(endpoint, "list", "--lag")}
    assert listed[group] == RECORDS - 3
    (described,) = json_of(endpoint, "describe", group)
    assert described["lag"] == RECORDS - 3
    rows = [line.split() for line in run(endpoint, "list", "--lag").stdout.splitlines()]
    assert rows[0][-1] == "lag" and [group, str(RECORDS - 3)] in [[row[0], row[-1]] for row in rows]
    plain = {line["group"]: line["lag"] for line in json_of(endpoint, "list")}
    assert plain[group] is None


def test_a_group_is_set_to_where_another_one_is(endpoint: Endpoint, filled: str) -> None:
    first, second = f"first-{filled}", f"second-{filled}"
    commit(endpoint, first, filled, 6, 0)
    planned = json_of(endpoint, "reset-offsets", second, "--to-group", first)
    assert [(line["offset"], line["new_offset"]) for line in planned["offsets"]] == [(None, 6), (None, 0)]
    only = ("reset-offsets", second, "--to-group", first, "--topic", f"{filled}:0", "--execute")
    assert run(endpoint, *only).returncode == 0
    assert committed(endpoint, second, filled)[0] == 6 and committed(endpoint, second, filled)[1] < 0
    missing = run(endpoint, "reset-offsets", second, "--to-group", f"no-{filled}", "--execute")
    assert missing.returncode == 1 and "has committed no offset" in missing.stderr


def test_a_group_is_set_back_to_what_describe_printed(
    endpoint: Endpoint, filled: str, tmp_path: Path
) -> None:
    group, file = f"file-{filled}", tmp_path / "offsets.json"
    commit(endpoint, group, filled, 6, 0)
    file.write_text(run(endpoint, "describe", group, "--json").stdout)
    commit(endpoint, group, filled, 9, 0)
    set_back = ("reset-offsets", group, "--to-file", str(file))
    plan = run(endpoint, *set_back, "--json").stdout
    assert committed(endpoint, group, filled) == [9, 0]
    assert run(endpoint, *set_back, "--execute").returncode == 0
    assert committed(endpoint, group, filled) == [6, 0]
    # The plan is such a file too.
    commit(endpoint, group, filled, 1, 0)
    file.write_text(plan)
    assert run(endpoint, *set_back, "--execute").returncode == 0
    assert committed(endpoint, group, filled) == [6, 0]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "no JSON"),
        ("7", "expected what dragoman groups describe --json prints"),
        ('[{"group": "a", "offsets": []}, {"group": "b", "offsets": []}]', "several groups (a, b)"),
        ('[{"topic": "t", "partition": 0, "offset": "9"}]', "is not a topic, a partition and an offset"),
        ('[{"topic": "t", "partition": 0, "offset": -9}]', "is not a topic, a partition and an offset"),
        (
            '[{"topic": "t", "partition": 0, "offset": 1}, {"topic": "t", "partition": 0, "offset": 2}]',
            "t-0 is in it twice",
        ),
    ],
    ids=["broken", "number", "several", "text", "negative", "twice"],
)
def test_a_file_that_has_no_offsets_of_a_group_is_refused(
    endpoint: Endpoint, tmp_path: Path, content: str, complaint: str
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(content)
    done = run(endpoint, "reset-offsets", "g", "--to-file", str(file), "--execute")
    assert done.returncode == 2 and complaint in done.stderr and "Traceback" not in done.stderr
