"""`dragoman produce`: lines of stdin become records."""

import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from gateway.cli.client import ClientError
from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint, Refusal, TopicInfo
from gateway.cli.exits import Exit
from gateway.cli.output import UsageError, print_line, talk
from gateway.cli.partitioner import Partitioner
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.header import Codec
from ledger.batch.records import NO_PRODUCER, Producer, Record, RecordHeader, build_batch

ACKS_ALL: Final = -1
TIMEOUT_MS: Final = 10_000
PATIENCE_S: Final = 30.0
RETRY_S: Final = 0.2
LINGER_S: Final = 0.05
MAX_BATCH_RECORDS: Final = 5_000
MAX_BATCH_BYTES: Final = 512 * 1024
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
READ_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """`key_separator`: what stands between key and value of a line; empty for lines without keys."""

    topic: str
    key_separator: str = ""
    codec: str = "none"
    partitions: Sequence[int] = ()
    headers: Sequence[str] = ()
    idempotent: bool = True
    as_json: bool = False


@dataclass(slots=True)
class _Batch:
    records: list[Record] = field(default_factory=list)
    base_timestamp: int = 0
    size: int = 0


def produce(contact: Contact, options: ProduceOptions) -> Exit:
    """Send what comes on stdin until it ends. Every line is acknowledged by acks=all."""
    codec = _codec(options.codec)
    headers = _headers(options.headers)
    with Endpoint(contact) as endpoint:
        topic = endpoint.topics([options.topic], create=True)[options.topic]
        for partition in options.partitions:
            if not 0 <= partition < len(topic.leaders):
                raise UsageError(
                    f"--partition {partition}: {topic.name} has partitions 0 to {len(topic.leaders) - 1}"
                )
        if sys.stdin.isatty():
            talk(f"Each line you type becomes a record of {topic.name}; Ctrl-D ends.")
        sender = Sender(endpoint, topic, codec, options.idempotent, options.as_json)
        partitioner = Partitioner(len(topic.leaders), options.partitions)
        with _progress() as progress:
            task = progress.add_task("", total=None)
            _send_lines(sender, partitioner, options.key_separator.encode(), headers)
            progress.update(task, description=f"{sender.sent} records")
        talk(f"Produced {sender.sent} records to {topic.name}{_spread(sender)}.")
    return Exit.OK


def _send_lines(
    sender: "Sender", partitioner: Partitioner, separator: bytes, headers: tuple[RecordHeader, ...]
) -> None:
    """Gather lines into batches: full ones go at once, the others when no more lines are waiting."""
    batches: dict[int, _Batch] = {}
    for number, line in enumerate(lines_of(sys.stdin.fileno()), 1):
        if line is not None:
            key, value = split_line(line, separator, number)
            partition = partitioner.choose(key)
            batch = batches.setdefault(partition, _Batch())
            _add(batch, key, value, headers)
            if batch.size < MAX_BATCH_BYTES and len(batch.records) < MAX_BATCH_RECORDS:
                continue
        for partition, batch in batches.items():
            sender.send(partition, batch)
        batches.clear()
        partitioner.next_batch()
    for partition, batch in batches.items():
        sender.send(partition, batch)


def _add(batch: _Batch, key: bytes | None, value: bytes, headers: tuple[RecordHeader, ...]) -> None:
    now_ms = time.time_ns() // 1_000_000
    if not batch.records:
        batch.base_timestamp = now_ms
    delta = max(0, now_ms - batch.base_timestamp)
    batch.records.append(Record(len(batch.records), delta, key, value, headers))
    batch.size += len(value) + len(key or b"")


def split_line(line: bytes, separator: bytes, number: int) -> tuple[bytes | None, bytes]:
    """(key, value). Raises ClientError for a line without the separator."""
    if not separator:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        raise ClientError(
            f"line {number} has no {separator.decode()!r} between key and value; lines before it were sent "
            "or are lost: give every line a key, or leave --key-separator out"
        )
    return key, value


def lines_of(descriptor: int) -> Iterator[bytes | None]:
    """Lines without their end; None when no more has come for a while although some were given."""
    rest = b""
    unsent = False
    while True:
        if unsent and not select.select([descriptor], [], [], LINGER_S)[0]:
            yield None
            unsent = False
        part = os.read(descriptor, READ_BYTES)
        if not part:
            break
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
            unsent = True
        if len(rest) > MAX_LINE_BYTES:
            raise ClientError(f"a line is longer than {MAX_LINE_BYTES} bytes; split it")
    if rest:
        yield rest


class Sender:
    """Sends one batch at a time and repeats it until it is acknowledged, refused, or patience ends."""

    def __init__(
        self, endpoint: Endpoint, topic: TopicInfo, codec: Codec, idempotent: bool, as_json: bool
    ) -> None:
        self._endpoint = endpoint
        self._topic = topic
        self._codec = codec
        self._as_json = as_json
        self._producer = _new_producer(endpoint) if idempotent else NO_PRODUCER
        self._sequences: dict[int, int] = {}
        self.sent = 0
        self.ends: dict[int, int] = {}
        """Of each partition, the offset of the last record that was acknowledged."""

    def send(self, partition: int, batch: _Batch) -> None:
        """ClientError when the batch was refused, or its outcome stays unknown."""
        producer = self._producer
        if producer is not NO_PRODUCER:
            producer = producer._replace(base_sequence=self._sequences.get(partition, 0))
        data = build_batch(batch.records, self._codec, base_timestamp=batch.base_timestamp, producer=producer)
        base_offset = self._deliver(partition, data)
        count = len(batch.records)
        self._sequences[partition] = (self._sequences.get(partition, 0) + count) & 0x7FFFFFFF
        self.sent += count
        self.ends[partition] = base_offset + count - 1
        if self._as_json:
            print_line(
                {
                    "topic": self._topic.name,
                    "partition": partition,
                    "base_offset": base_offset,
                    "records": count,
                }
            )

    def _deliver(self, partition: int, data: bytes) -> int:
        topic = TopicProduceData(self._topic.name, partition_data=[PartitionProduceData(partition, data)])
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                answer = self._endpoint.ask(
                    ApiKey.PRODUCE, request, self._topic.leaders[partition], 3
                ).responses[0]
                result = answer.partition_responses[0]
                if not result.error_code or result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    return int(result.base_offset)
                failure: ClientError = Refusal(
                    f"records for {self._topic.name}-{partition} were not taken",
                    result.error_code,
                    result.error_message,
                )
                may_repeat = isinstance(failure, Refusal) and failure.error.retriable
            except ClientError as error:
                # Without a producer id a repeat may be stored twice.
                failure, may_repeat = error, self._producer is not NO_PRODUCER
            if not may_repeat or time.monotonic() > deadline:
                raise failure
            time.sleep(RETRY_S)
            self._find_leader()

    def _find_leader(self) -> None:
        try:
            self._topic = self._endpoint.topics([self._topic.name])[self._topic.name]
        except ClientError:
            return  # the next attempt says what is wrong


def _new_producer(endpoint: Endpoint) -> Producer:
    answer = endpoint.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(None, TIMEOUT_MS))
    if answer.error_code:
        raise Refusal("no producer id was given; --no-idempotent does without", answer.error_code)
    return Producer(answer.producer_id, answer.producer_epoch, 0)


def _codec(name: str) -> Codec:
    try:
        return Codec[name.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Codec)
        raise UsageError(f"--codec {name}: expected one of {names}") from None


def _headers(texts: Sequence[str]) -> tuple[RecordHeader, ...]:
    headers = []
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"--header {text}: expected NAME=VALUE")
        headers.append(RecordHeader(name, value.encode()))
    return tuple(headers)


def _progress() -> Progress:
    """Only on a terminal, and not while records are typed there."""
    console = Console(stderr=True)
    shown = console.is_terminal and not sys.stdin.isatty()
    return Progress(
        SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True, disable=not shown
    )


def _spread(sender: Sender) -> str:
    if not sender.ends:
        return ""
    ends = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(sender.ends.items()))
    return f", the last offsets are {{{ends}}}"
