"""docs/examples/spark: a structured stream with a checkpoint, from one topic to another, and a batch."""

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.client_confluent import ConfluentClient
from tests.e2e.conftest import Endpoint
from tests.e2e.example import Application, copied_example
from tests.support.client import Codec, Earliest, Record
from tests.support.spark import SPARK_KAFKA_JARS, why_no_kafka_connector

WAIT_S: Final = 120.0
PARTITIONS: Final = 2
A_TRIGGER: Final = 500
SPOKEN: Final = "spark-example-spoken"
SHOUTED: Final = "spark-example-shouted"
# Short programs: what starts quickly matters more than what runs quickly.
JVM: Final = "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
OPTIONS: Final = ("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", JVM)

Submit = Callable[..., Application]


@pytest.fixture
def submit(endpoint: Endpoint, tmp_path: Path) -> Iterator[Submit]:
    """Starts `shout.py` with some arguments as spark-submit does."""
    reason = why_no_kafka_connector()
    if reason is not None:
        pytest.skip(reason)
    example = copied_example("spark", tmp_path, {"127.0.0.1:9092": endpoint.bootstrap})
    jars = ",".join(str(jar) for jar in sorted(SPARK_KAFKA_JARS.fetched().iterdir()))
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    home = Path(spec.origin).parent
    environment = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    started: list[Application] = []

    def start(*what: str) -> Application:
        program = [str(home / "bin" / "spark-submit"), *OPTIONS, "--jars", jars, "shout.py"]
        started.append(Application([*program, *what, "--directory", str(tmp_path)], example, environment))
        started[-1].start()
        return started[-1]

    yield start
    for application in started:
        application.kill9()


def test_a_stream_that_is_killed_continues_from_its_checkpoint_and_a_batch_reads_it_all(
    submit: Submit, endpoint: Endpoint, tmp_path: Path
) -> None:
    client = ConfluentClient(endpoint.bootstrap)
    for topic in (SPOKEN, SHOUTED):
        client.create_topic(topic, PARTITIONS)
    speak(client, range(4 * A_TRIGGER))

    stream = submit("stream")
    stream.wait_until(lambda: shouted(client) >= 3 * A_TRIGGER, WAIT_S)
    stream.kill9()
    speak(client, range(4 * A_TRIGGER, 6 * A_TRIGGER))
    submit("catch-up", "batch").finish(WAIT_S)
    heard = [value for partition in range(PARTITIONS) for value in values(client, SHOUTED, partition)]
    assert sorted(set(heard)) == sorted(f"LINE {number}" for number in range(6 * A_TRIGGER))
    # At least once: what was under way at the kill may have come twice, and nothing else.
    assert len(heard) <= 7 * A_TRIGGER

    for topic in (SPOKEN, SHOUTED):
        for partition in range(PARTITIONS):
            assert batch_of(tmp_path / "batch", topic, partition) == values(client, topic, partition)


def speak(client: ConfluentClient, numbers: range) -> None:
    # Older records would fall under retention.ms, within half a minute at Apache Kafka.
    now_ms = int(time.time() * 1000)
    records = [Record(n % PARTITIONS, now_ms, str(n).encode(), f"line {n}".encode()) for n in numbers]
    client.produce(SPOKEN, records, Codec.LZ4, idempotent=True)


def shouted(client: ConfluentClient) -> int:
    return sum(client.end_offset(SHOUTED, partition) for partition in range(PARTITIONS))


def values(client: ConfluentClient, topic: str, partition: int) -> list[str]:
    """All of a partition, by offset."""
    count = client.end_offset(topic, partition)
    received = client.consume(topic, [partition], Earliest(), count)
    return [(one.record.value or b"").decode() for one in received]


def batch_of(directory: Path, topic: str, partition: int) -> list[str]:
    """What Spark has written of a partition, by offset."""
    files = (directory / topic).glob("*.json")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    ordered = sorted((row["offset"], row["value"]) for row in rows if row["partition"] == partition)
    assert [offset for offset, _ in ordered] == list(range(len(ordered)))
    return [value for _, value in ordered]
