"""`dragoman doctor --against` finds each kind of difference between two endpoints, or none."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.command import run_here as run
from tests.support.gateway import Gateway

STAMP_MS = 1_790_000_000_000


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Gateway]]:
    """The one that is looked at, and the one that it is compared with."""
    both = Gateway(tmp_path_factory.mktemp("here")), Gateway(tmp_path_factory.mktemp("there"))
    for gateway in both:
        gateway.start()
    yield both
    for gateway in both:
        gateway.terminate()


@pytest.fixture
def here(gateways: tuple[Gateway, Gateway]) -> Gateway:
    return gateways[0]


@pytest.fixture
def there(gateways: tuple[Gateway, Gateway]) -> Gateway:
    return gateways[1]


def done(gateway: Gateway, *arguments: str) -> None:
    finished = run(gateway, *arguments)
    assert finished.returncode == 0, finished.stderr


Changes = dict[str, Any]


def record(**changed: Any) -> Changes:
    """As the producer takes it."""
    one = {"key": b"k", "value": b"v", "timestamp": STAMP_MS, "headers": [("h", b"1")]}
    return {**one, **changed}


def fill(gateway: Gateway, topic: str, records: Sequence[Changes]) -> None:
    done(gateway, "topics", "create", topic, "-p", "1", "--set", "retention.ms=-1")
    produce(gateway, topic, records)


def produce(gateway: Gateway, topic: str, records: Sequence[Changes]) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 0})
    for one in records:
        producer.produce(topic, partition=0, **one)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


def compared(here: Gateway, there: Gateway, topic: str) -> dict[str, Any]:
    finished = run(here, "doctor", "--against", there.bootstrap, "--topics", topic, "--records", "--json")
    assert finished.returncode in (0, 3), finished.stderr
    found: dict[str, Any] = json.loads(finished.stdout)
    assert (finished.returncode == 3) == bool(found["findings"])
    return found


def commit(gateway: Gateway, group: str, topic: str, offset: int) -> None:
    done(gateway, "groups", "reset-offsets", group, "--topic", topic, "--to", str(offset), "--execute")


def test_the_same_records_at_other_offsets_are_no_difference(here: Gateway, there: Gateway) -> None:
    fill(there, "same", [record(value=b"old"), *[record(value=b"%d" % number) for number in range(3)]])
    done(there, "topics", "trim", "same", "--before", "1", "--execute")
    fill(here, "same", [record(value=b"%d" % number) for number in range(3)])
    commit(there, "same-group", "same", 2)
    commit(here, "same-group", "same", 1)
    found = compared(here, there, "same")
    assert found["findings"] == []
    assert "records: 3 are equal" in found["notes"]
    assert "offsets: 3 in 1 partition, 1 of which begin elsewhere" in found["notes"]
    assert "groups: 1, with 1 offset as there, 0 further back" in found["notes"]


CHANGES: dict[str, Callable[[Gateway, str], None]] = {
    "partitions": lambda gateway, topic: done(gateway, "topics", "alter", topic, "-p", "2"),
    "config": lambda gateway, topic: done(gateway, "topics", "alter", topic, "--set", "segment.ms=99000"),
    "offsets": lambda gateway, topic: produce(gateway, topic, [record()]),
}


@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        ("partitions", "has 2 partitions here, 1 there"),
        ("config", "segment.ms of topic changed-config is 99000 here, 604800000 there"),
        ("offsets", "changed-offsets-0 has 2 (0 to 2) offsets here, 1 (0 to 1) there"),
    ],
)
def test_what_was_changed_at_one_of_both_is_found(
    here: Gateway, there: Gateway, kind: str, detail: str
) -> None:
    topic = f"changed-{kind}"
    for gateway in (here, there):
        fill(gateway, topic, [record()])
    CHANGES[kind](here, topic)
    findings = compared(here, there, topic)["findings"]
    (found,) = [one for one in findings if one["kind"] == kind]
    assert found["topic"] == topic and detail in found["detail"]


@pytest.mark.parametrize(
    ("name", "changed", "detail"),
    [
        ("key", {"key": None}, "has another key"),
        ("value", {"value": b"w"}, "has another value"),
        ("header", {"headers": [("h", None)]}, "has other headers"),
        (
            "time",
            {"timestamp": STAMP_MS + 1},
            f"has another timestamp ({STAMP_MS + 1} here, {STAMP_MS} there)",
        ),
    ],
)
def test_a_record_that_differs_is_named(
    here: Gateway, there: Gateway, name: str, changed: Changes, detail: str
) -> None:
    topic = f"record-{name}"
    fill(there, topic, [record(), record(), record()])
    fill(here, topic, [record(), record(**changed), record()])
    (found,) = compared(here, there, topic)["findings"]
    assert found["kind"] == "record"
    assert found["detail"] == f"{topic}-0: the record at offset 1 here {detail}"


def test_a_group_must_not_leave_out_what_it_has_not_read(here: Gateway, there: Gateway) -> None:
    fill(here, "read", [record()] * 5)
    fill(there, "read", [record()] * 7)
    done(there, "topics", "trim", "read", "--before", "2", "--execute")
    commit(there, "g-missing", "read", 5)
    for group, offset in (("g-ahead", 4), ("g-behind", 1)):
        commit(there, group, "read", 5)
        commit(here, group, "read", offset)
    found = compared(here, there, "read")
    assert {one["group"]: one["detail"] for one in found["findings"]} == {
        "g-missing": "group g-missing has no offset of read-0 here",
        "g-ahead": "group g-ahead would leave out 1 record of read-0 here",
    }
    assert "group g-behind reads 2 records of read-0 again" in found["notes"]
    for group in ("g-missing", "g-ahead", "g-behind"):
        done(here, "groups", "reset-offsets", group, "--to-lag-of", there.bootstrap, "--execute")
    again = compared(here, there, "read")
    assert again["findings"] == [] and "groups: 3, with 3 offsets as there, 0 further back" in again["notes"]


def test_a_topic_that_is_missing_is_found_and_one_that_is_here_alone_is_not(
    here: Gateway, there: Gateway
) -> None:
    done(there, "topics", "create", "only-there")
    done(there, "topics", "create", "mm2-offsets.kafka.internal")
    done(here, "topics", "create", "only-here")
    finished = run(here, "doctor", "--against", there.bootstrap)
    assert finished.returncode == 3 and "FOUND  topic only-there is missing here" in finished.stdout
    assert "only-here" not in [line.split()[2] for line in finished.stdout.splitlines() if "FOUND" in line]
    assert "topics that are here alone" in finished.stdout and "mm2-offsets" not in finished.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--topics", "a"], "need --against"),
        (["--against", "{there}", "--topics", "no-such"], "has no such topic"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused(
    here: Gateway, there: Gateway, arguments: list[str], complaint: str
) -> None:
    finished = run(here, "doctor", *[text.replace("{there}", there.bootstrap) for text in arguments])
    assert finished.returncode == 2 and complaint in finished.stderr
