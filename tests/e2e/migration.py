"""An Apache Kafka with topics, records and groups, and MirrorMaker 2 between it and a gateway."""

import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.e2e.conftest import Endpoint
from tests.e2e.example import Application, copied_example
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.kafka import JVM_FLAGS, MIRROR_JARS

COMMAND: Final = [sys.executable, "-m", "gateway.cli.main"]
COMMAND_S: Final = 600.0
BEGUN_MS: Final = 1_790_000_000_000
CANARY: Final = "migration-canary"
"""Tells when a mirror back has its positions."""
PAYMENTS: Final = "payments"
"""Has transactions at the source."""
UNEQUAL: Final = (("offsets", CANARY), ("offsets", PAYMENTS))
"""Differences that stay."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIGS: Final[Sequence[Mapping[str, str]]] = (
    {"retention.ms": "-1"},
    {"retention.ms": "-1", "max.message.bytes": "2000000", "segment.bytes": "10485760"},
    {"retention.ms": "-1", "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.9"},
)

Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
"""Partition, offset, key, value, headers, timestamp."""


@dataclass(frozen=True, slots=True)
class Scale:
    topics: int
    records: int
    groups: int


def dragoman(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=COMMAND_S, check=False
    )


def fill(endpoint: Endpoint, scale: Scale) -> list[str]:
    """Topics of one to three partitions, with records of all kinds. The first topic has been trimmed."""
    names = [f"orders.{number}" for number in range(scale.topics)]
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap})
    wanted = [
        NewTopic(name, 1 + number % 3, 1, config=dict(CONFIGS[number % len(CONFIGS)]))
        for number, name in enumerate(names)
    ]
    for done in admin.create_topics(wanted).values():
        done.result(CLIENT_TIMEOUT_S)
    produce(endpoint, names, scale.records, first=0)
    trimmed = dragoman("topics", "trim", names[0], "--before", "-7", "--execute", "-b", endpoint.bootstrap)
    assert trimmed.returncode == 0, trimmed.stderr
    return names


def produce(endpoint: Endpoint, topics: Sequence[str], count: int, first: int) -> None:
    """Keys, nulls, empty values, headers and timestamps, in every codec."""
    chance = random.Random(first)
    producers = [
        Producer({"bootstrap.servers": endpoint.bootstrap, "compression.type": codec, "linger.ms": 20})
        for codec in CODECS
    ]
    for number in range(first, first + count):
        at = chance.randrange(len(topics))
        producer = producers[at % len(CODECS)]
        producer.produce(
            topics[at],
            key=b"key-%d" % (number % 50),
            value=chance.choice([b"value %d" % number, b"", None, chance.randbytes(chance.randrange(300))]),
            headers=[("n", b"%d" % number), ("none", None)] if number % 3 else [],
            timestamp=BEGUN_MS + number,
        )
        if number % 1000 == 0:
            for one in producers:
                one.poll(0)
    assert not any(producer.flush(CLIENT_TIMEOUT_S) for producer in producers)


def transact(endpoint: Endpoint, topic: str) -> None:
    """A topic with a committed, an aborted and again a committed transaction."""
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=dict(CONFIGS[0]))])[topic].result(CLIENT_TIMEOUT_S)
    producer = Producer({"bootstrap.servers": endpoint.bootstrap, "transactional.id": "payments"})
    producer.init_transactions(CLIENT_TIMEOUT_S)
    for number, end in enumerate(("commit", "abort", "commit")):
        producer.begin_transaction()
        for at in range(5):
            producer.produce(topic, b"%d" % (10 * number + at), timestamp=BEGUN_MS)
        # Stored, so that there is something to abort.
        assert producer.flush(CLIENT_TIMEOUT_S) == 0
        ended = producer.commit_transaction if end == "commit" else producer.abort_transaction
        ended(CLIENT_TIMEOUT_S)


def commit(endpoint: Endpoint, topics: Sequence[str], groups: int) -> dict[str, dict[tuple[str, int], int]]:
    """Groups that have read some topics up to somewhere. Their offsets by topic and partition."""
    chance = random.Random(7)
    committed = {}
    for number in range(groups):
        group = f"billing-{number}"
        settings = {"bootstrap.servers": endpoint.bootstrap, "group.id": group, "enable.auto.commit": False}
        reader = Consumer({**settings, "auto.offset.reset": "earliest"})
        places = []
        for topic in topics[number % 2 :: 2]:
            for partition in reader.list_topics(topic, CLIENT_TIMEOUT_S).topics[topic].partitions:
                low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), CLIENT_TIMEOUT_S)
                if high > low:
                    at = high if number == 0 else chance.randint(low + 1, high)
                    places.append(TopicPartition(topic, partition, at))
        reader.commit(offsets=places, asynchronous=False)
        reader.close()
        committed[group] = {(place.topic, place.partition): place.offset for place in places}
    return committed


def rows_of(endpoint: Endpoint, topic: str) -> dict[int, list[Row]]:
    """All records of a topic, by partition, as librdkafka reads them."""
    settings = {"bootstrap.servers": endpoint.bootstrap, "group.id": "none", "enable.auto.commit": False}
    reader = Consumer({**settings, "enable.partition.eof": False})
    rows: dict[int, list[Row]] = {}
    places, missing = [], 0
    for partition in reader.list_topics(topic, CLIENT_TIMEOUT_S).topics[topic].partitions:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), CLIENT_TIMEOUT_S)
        rows[partition] = []
        places.append(TopicPartition(topic, partition, low))
        missing += high - low
    reader.assign(places)
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    while missing:
        for record in reader.consume(min(missing, 1000), 1.0):
            assert record.error() is None, record.error()
            row = _row(record)
            rows[row[0]].append(row)
            missing -= 1
        assert time.monotonic() < deadline, f"{missing} records of {topic} are missing"
    reader.close()
    return rows


def _row(record: Any) -> Row:
    headers = tuple((name, value) for name, value in record.headers() or [])
    place = (record.partition(), record.offset())
    return (*place, record.key(), record.value(), headers, record.timestamp()[1])


def same_records(ours: Mapping[int, Sequence[Row]], theirs: Mapping[int, Sequence[Row]]) -> bool:
    """Apart from their offsets."""
    return {part: [row[2:] for row in rows] for part, rows in ours.items()} == {
        part: [row[2:] for row in rows] for part, rows in theirs.items()
    }


class Mirror:
    """MirrorMaker 2 with a file of the example; each has a directory of its own."""

    numbers = itertools.count(1)

    def __init__(self, directory: Path, properties: str, kafka: Endpoint, gateway: Endpoint) -> None:
        own = directory / f"mirror-{next(self.numbers)}"
        addresses = {"127.0.0.1:19092": kafka.bootstrap, "127.0.0.1:9092": gateway.bootstrap}
        # In one step: the address of one may be that of the other before.
        example = copied_example("mirror-maker", own, {old: f"@{at}@" for at, old in enumerate(addresses)})
        file = example / properties
        text = file.read_text()
        for at, new in enumerate(addresses.values()):
            text = text.replace(f"@{at}@", new)
        file.write_text(text)
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        self.process = Application(
            ["java", *JVM_FLAGS, "-cp", MIRROR_JARS.classpath(), main, properties], example
        )

    def __enter__(self) -> Application:
        self.process.start()
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.stop()
        self.process.kill9()


def differences(ours: Endpoint, theirs: Endpoint, *more: str) -> list[dict[str, Any]]:
    """What `dragoman doctor --against` finds."""
    done = dragoman("doctor", "-b", ours.bootstrap, "--against", theirs.bootstrap, "--json", *more)
    assert done.returncode in (0, 3), done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    assert bool(found) == (done.returncode == 3)
    return found


def until_mirrored(
    running: Application, ours: Endpoint, theirs: Endpoint, timeout_s: float, group: str | None = None
) -> None:
    """Wait until topics, configs and offsets of `theirs` are in `ours`, and this group has its offsets.
    AssertionError with what is missing."""
    deadline = time.monotonic() + timeout_s
    while found := [
        one
        for one in differences(ours, theirs)
        if one["group"] in (None, group) and (one["kind"], one["topic"]) not in UNEQUAL
    ]:
        assert time.monotonic() < deadline, f"{[one['detail'] for one in found]}: {running.log_tail()}"
        time.sleep(2.0)


def set_to_lag_of(ours: Endpoint, theirs: Endpoint, group: str) -> None:
    done = dragoman(
        *("groups", "reset-offsets", group, "--to-lag-of", theirs.bootstrap),
        *("--execute", "-b", ours.bootstrap),
    )
    assert done.returncode == 0, done.stderr


def lags(endpoint: Endpoint, group: str) -> dict[tuple[str, int], int]:
    done = dragoman("groups", "describe", group, "-b", endpoint.bootstrap, "--json")
    assert done.returncode == 0, done.stderr
    (described,) = json.loads(done.stdout)
    return {(line["topic"], line["partition"]): line["lag"] for line in described["offsets"]}
