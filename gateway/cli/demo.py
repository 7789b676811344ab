"""Produce ten records to topic `demo` and consume them again: `dragoman demo`, `make demo`.

Written on the gateway's own codec, so that it needs no client library; it works with any Kafka 4 broker.
"""

import argparse
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from gateway.addresses import Address, parse_address
from gateway.cli.client import Client, ClientError
from gateway.cli.exits import Exit
from gateway.cli.fetching import opened_batch, whole_batches
from gateway.settings import ConfigError
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.records import Record, build_batch

TOPIC: Final = "demo"
PARTITION: Final = 0
RECORDS: Final = 10
METADATA_VERSION: Final = 12
PRODUCE_VERSION: Final = 13
FETCH_VERSION: Final = 16
TIMEOUT_MS: Final = 10_000
MAX_BYTES: Final = 1 << 20
TRIES: Final = 20
ACKS_ALL: Final = -1


@dataclass(frozen=True, slots=True)
class Consumed:
    offset: int
    timestamp_ms: int
    key: str
    value: str


def run_demo(bootstrap: Address, console: Console) -> None:
    """ClientError when a response is not as expected."""
    with Client(bootstrap) as client:
        topic_id = create_topic(client)
        console.print(f"Topic [bold]{TOPIC}[/bold] is there, its id is {uuid.UUID(bytes=topic_id)}.")
        base_offset = produce(client, topic_id)
        console.print(f"Produced {RECORDS} records, acknowledged from offset {base_offset} on. Consuming:")
        table = Table("offset", "timestamp", "key", "value")
        for record in consume(client, topic_id, base_offset):
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.timestamp_ms / 1000))
            table.add_row(str(record.offset), at, record.key, record.value)
        console.print(table)


def create_topic(client: Client) -> bytes:
    """Request Metadata of the topic, which creates it, until it has a leader. Returns its id."""
    request = MetadataRequest([MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=True)
    error = ErrorCode.NONE
    for _ in range(TRIES):
        (topic,) = client.ask(ApiKey.METADATA, METADATA_VERSION, request).topics
        error = ErrorCode(topic.error_code)
        if error is ErrorCode.NONE:
            return bytes(topic.topic_id)
        if not error.retriable:
            break
        time.sleep(0.1)
    raise ClientError(f"topic {TOPIC} could not be created: {error.name}")


def produce(client: Client, topic_id: bytes) -> int:
    """Send one batch and wait until it is durable. Returns the offset of its first record."""
    records = [
        Record(number, 0, b"key-%d" % number, b"hello number %d" % number) for number in range(RECORDS)
    ]
    batch = bytes(build_batch(records, base_timestamp=int(time.time() * 1000)))
    partition = PartitionProduceData(PARTITION, batch)
    topic = TopicProduceData(topic_id=topic_id, partition_data=[partition])
    request = ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[topic])
    response = client.ask(ApiKey.PRODUCE, PRODUCE_VERSION, request).responses[0].partition_responses[0]
    if response.error_code:
        raise ClientError(
            f"produce was refused: {ErrorCode(response.error_code).name} {response.error_message}"
        )
    return int(response.base_offset)


def consume(client: Client, topic_id: bytes, offset: int) -> list[Consumed]:
    """Fetch from an offset on until all records of the demo have come."""
    consumed: list[Consumed] = []
    for _ in range(TRIES):
        partition = FetchPartition(PARTITION, fetch_offset=offset, partition_max_bytes=MAX_BYTES)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
        )
        response = client.ask(ApiKey.FETCH, FETCH_VERSION, request)
        if response.error_code or not response.responses:
            raise ClientError(f"fetch was refused: {ErrorCode(response.error_code).name}")
        data = response.responses[0].partitions[0]
        if data.error_code:
            raise ClientError(f"fetch was refused: {ErrorCode(data.error_code).name}")
        for record in _records(data.records):
            if record.offset >= offset:
                consumed.append(record)
            if len(consumed) == RECORDS:
                return consumed
        offset = consumed[-1].offset + 1 if consumed else offset
    raise ClientError(f"only {len(consumed)} of {RECORDS} records came back")


def _records(data: bytes | memoryview | None) -> Iterator[Consumed]:
    """ClientError."""
    for batch in whole_batches(memoryview(data or b"")):
        header, records = opened_batch(f"{TOPIC}-{PARTITION}", batch, MAX_BYTES)
        for record in records:
            yield Consumed(
                header.base_offset + record.offset_delta,
                header.base_timestamp + record.timestamp_delta,
                bytes(record.key or b"").decode(errors="replace"),
                bytes(record.value or b"").decode(errors="replace"),
            )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gateway.cli.demo", description=__doc__)
    parser.add_argument(
        "--bootstrap", default="127.0.0.1:9092", metavar="HOST:PORT", help="where a gateway listens"
    )
    return end_with_demo(parser.parse_args().bootstrap)


def end_with_demo(bootstrap: str) -> Exit:
    """Run it, and say in one sentence what went wrong."""
    try:
        run_demo(parse_address(bootstrap, "--bootstrap"), Console())
    except ConfigError as error:
        return _complain(str(error), Exit.USAGE)
    except ClientError as error:
        return _complain(f"{error}; is a gateway running? Start one with: dragoman serve", Exit.FAILED)
    return Exit.OK


def _complain(sentence: str, code: Exit) -> Exit:
    print(f"demo: {sentence}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
