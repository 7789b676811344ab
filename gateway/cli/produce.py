"""`dragoman produce`: lines of stdin become records."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from gateway.cli.client import ClientError
from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint, Refusal, TopicInfo, Unreachable
from gateway.cli.exits import Exit
from gateway.cli.output import OutputError, UsageError, counted, discard_stdout, print_line, talk
from gateway.cli.partitioner import Partitioner
from gateway.cli.record_input import BadLine, Given, Parser, lines_of, parser_for, raw
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.header import Codec
from ledger.batch.records import NO_PRODUCER, Producer, Record, RecordHeader, build_batch

ACKS_ALL: Final = -1
TIMEOUT_MS: Final = 10_000
PATIENCE_S: Final = 30.0
INTERRUPTED_PATIENCE_S: Final = 2.0
RETRY_S: Final = 0.2
MAX_BATCH_RECORDS: Final = 5_000
MAX_BATCH_BYTES: Final = 512 * 1024
MAX_SEQUENCE: Final = 0x7FFFFFFF
NO_KEY: Final = '; keys come from --key-separator TEXT, or from the field "key" with --format json'
TOO_LARGE: Final = "; how large one may be is the topic config max.message.bytes"


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """`key_separator`: the text between key and value of a line; empty for lines without keys. `null`: the
    text that means a null key or value."""

    topic: str
    key_separator: str = ""
    codec: str = "none"
    partitions: Sequence[int] = ()
    headers: Sequence[str] = ()
    idempotent: bool = True
    as_json: bool = False
    format: str = "lines"
    null: str | None = None


@dataclass(slots=True)
class _Batch:
    """`sequence` is assigned once, so that a batch that is sent again is recognised and stored once."""

    first_line: int
    base_timestamp: int
    records: list[Record] = field(default_factory=list)
    size: int = 0
    sequence: int | None = None


def produce(contact: Contact, options: ProduceOptions) -> Exit:
    """Send the lines of stdin until it ends, each acknowledged with acks=all."""
    codec = _codec(options.codec)
    headers = _headers(options.headers)
    parse = parser_for(options.format, options.key_separator, options.null)
    if sys.stdin is None:
        raise UsageError("stdin is closed: records are read from there, one a line")
    with Endpoint(contact) as endpoint:
        topic = endpoint.topics([options.topic], create=True)[options.topic]
        for partition in options.partitions:
            if not 0 <= partition < len(topic.leaders):
                raise UsageError(
                    f"--partition {partition}: {topic.name} has partitions 0 to {len(topic.leaders) - 1}"
                )
        if sys.stdin.isatty():
            talk(f"Each line you type becomes a record of {topic.name}; Ctrl-D ends.")
        with _progress() as progress:
            task = progress.add_task("", total=None)
            sender = Sender(
                endpoint,
                topic,
                codec,
                options.idempotent,
                options.as_json,
                lambda sent: progress.update(task, description=counted(sent, "record")),
            )
            partitioner = Partitioner(len(topic.leaders), options.partitions)
            _send_lines(_Batches(sender, partitioner, headers, bool(options.partitions)), parse)
        talk(f"Produced {counted(sender.sent, 'record')} to {topic.name}{_spread(sender)}.")
    return Exit.OK


class _Batches:
    """Collects records into a batch for each partition. All are sent when one is full, and when stdin has no
    further line yet."""

    def __init__(
        self,
        sender: "Sender",
        partitioner: Partitioner,
        headers: tuple[RecordHeader, ...],
        partitions_are_given: bool,
    ) -> None:
        self.sender = sender
        self.lines = 0
        """How many were read."""
        self._partitioner = partitioner
        self._headers = headers
        self._partitions_are_given = partitions_are_given
        self._batches: dict[int, _Batch] = {}

    def add(self, given: Given | None) -> None:
        """BadLine if the topic does not have its partition."""
        batch = None if given is None else self._add(given)
        self.lines += 1
        if batch is not None and (batch.size >= MAX_BATCH_BYTES or len(batch.records) >= MAX_BATCH_RECORDS):
            self.flush()

    def _add(self, given: Given) -> _Batch:
        partition = self._partition(given)
        now_ms = time.time_ns() // 1_000_000
        timestamp = now_ms if given.timestamp_ms is None else given.timestamp_ms
        batch = self._batches.setdefault(partition, _Batch(self.lines + 1, timestamp))
        record = Record(
            len(batch.records),
            timestamp - batch.base_timestamp,
            given.key,
            given.value,
            given.headers + self._headers,
        )
        batch.records.append(record)
        batch.size += len(given.value or b"") + len(given.key or b"")
        batch.size += sum(len(header.key) + len(header.value or b"") for header in given.headers)
        return batch

    def _partition(self, given: Given) -> int:
        if given.partition is None or self._partitions_are_given:
            return self._partitioner.choose(given.key)
        if given.partition >= self.sender.partitions:
            raise BadLine(
                f"names partition {given.partition}, but there are 0 to {self.sender.partitions - 1}: "
                "leave the field out, so that the key decides, or use --partition"
            )
        return given.partition

    def flush(self) -> None:
        """Send all batches. ClientError, OutputError."""
        for partition, batch in list(self._batches.items()):
            base_offset = self.sender.send(partition, batch)
            del self._batches[partition]
            self.sender.report(partition, base_offset, len(batch.records))
        self._partitioner.next_batch()

    def finish_interrupted(self) -> None:
        """Send the batches, unless that could store one of them twice."""
        self.sender.patience_s = INTERRUPTED_PATIENCE_S
        try:
            if self.sender.is_idempotent or all(batch.sequence is None for batch in self._batches.values()):
                self.flush()
        except (ClientError, OutputError) as error:
            talk(f"dragoman: {error}")

    def acknowledged(self) -> str:
        """A clause that names the last line up to which all are acknowledged."""
        waiting = [batch.first_line for batch in self._batches.values()]
        last = min(waiting) - 1 if waiting else self.lines
        if not last:
            lines = "no line is acknowledged"
        else:
            lines = "line 1 is acknowledged" if last == 1 else f"lines 1 to {last} are acknowledged"
        more = self.sender.sent - last
        return lines if more <= 0 else f"{lines}, and {counted(more, 'record')} of the lines after it"


def _send_lines(batches: _Batches, parse: Parser) -> None:
    """Raises ClientError with the last line up to which all are acknowledged. Prints that line before it
    raises KeyboardInterrupt."""
    try:
        _read_lines(batches, parse)
    except ClientError as error:
        raise ClientError(f"{error}; {batches.acknowledged()}") from error
    except OutputError as error:
        raise OutputError(f"{error}; {batches.acknowledged()}") from error
    except KeyboardInterrupt:
        batches.finish_interrupted()
        talk(f"Interrupted: {batches.acknowledged()}.")
        raise


def _read_lines(batches: _Batches, parse: Parser) -> None:
    try:
        for line in lines_of(sys.stdin.fileno()):
            if line is None:
                batches.flush()
            else:
                batches.add(parse(line))
    except BadLine as error:
        # The lines before it are sent nevertheless.
        bad = batches.lines + 1
        batches.flush()
        raise ClientError(f"line {bad} {error}") from None
    except OSError as error:
        batches.flush()
        raise ClientError(f"cannot read stdin: {error.strerror or error}") from error
    batches.flush()


class Sender:
    """Sends one batch at a time and repeats it until it is acknowledged, refused, or patience ends."""

    def __init__(
        self,
        endpoint: Endpoint,
        topic: TopicInfo,
        codec: Codec,
        idempotent: bool,
        as_json: bool,
        on_sent: Callable[[int], object] = lambda sent: None,
    ) -> None:
        self._endpoint = endpoint
        self._topic = topic
        self._codec = codec
        self._as_json = as_json
        self._on_sent = on_sent
        self._producer = _new_producer(endpoint) if idempotent else NO_PRODUCER
        self._sequences: dict[int, int] = {}
        self.patience_s = PATIENCE_S
        self.sent = 0
        self.ends: dict[int, int] = {}
        """The offset of the last acknowledged record of each partition."""

    @property
    def is_idempotent(self) -> bool:
        return self._producer is not NO_PRODUCER

    @property
    def partitions(self) -> int:
        return len(self._topic.leaders)

    def send(self, partition: int, batch: _Batch) -> int:
        """Returns the offset of its first record. ClientError if the batch was refused, or its outcome stays
        unknown."""
        count = len(batch.records)
        if batch.sequence is None:
            batch.sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = (batch.sequence + count) & MAX_SEQUENCE
        producer = self._producer
        if self.is_idempotent:
            producer = producer._replace(base_sequence=batch.sequence)
        data = build_batch(batch.records, self._codec, base_timestamp=batch.base_timestamp, producer=producer)
        base_offset = self._deliver(partition, data, batch.records)
        self.sent += count
        self.ends[partition] = base_offset + count - 1
        return base_offset

    def report(self, partition: int, base_offset: int, count: int) -> None:
        """Print what was sent, if --json is given. OutputError."""
        self._on_sent(self.sent)
        if not self._as_json:
            return
        line = {
            "topic": self._topic.name,
            "partition": partition,
            "base_offset": base_offset,
            "records": count,
        }
        try:
            print_line(line)
        except BrokenPipeError:
            # The reader of stdout has closed it; the records are sent nevertheless.
            discard_stdout()

    def _deliver(self, partition: int, data: bytes, records: Sequence[Record]) -> int:
        topic = TopicProduceData(self._topic.name, partition_data=[PartitionProduceData(partition, data)])
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        deadline = time.monotonic() + self.patience_s
        while True:
            try:
                response = self._endpoint.ask(
                    ApiKey.PRODUCE, request, self._topic.leaders[partition], 3
                ).responses[0]
                result = response.partition_responses[0]
                if not result.error_code or result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    return int(result.base_offset)
                failure: ClientError = _refused(f"{self._topic.name}-{partition}", result, records)
                may_repeat = isinstance(failure, Refusal) and failure.error.retriable
            except Unreachable:
                raise
            except ClientError as error:
                # Without a producer id a repeat may be stored twice.
                failure, may_repeat = error, self.is_idempotent
            if not may_repeat or time.monotonic() > deadline:
                raise failure
            time.sleep(RETRY_S)
            self._find_leader()

    def _find_leader(self) -> None:
        try:
            self._topic = self._endpoint.topics([self._topic.name])[self._topic.name]
        except ClientError:
            return  # the next attempt reports the error


def _refused(where: str, result: Any, records: Sequence[Record]) -> Refusal:
    """Of a response to these records. What was wrong with one of them says more than that something was."""
    reason = result.error_message
    for wrong in result.record_errors[:1]:
        reason = (wrong.batch_index_error_message or reason or "").rstrip(".")
        has_key = wrong.batch_index >= len(records) or records[wrong.batch_index].key is not None
        if result.error_code == ErrorCode.INVALID_RECORD and not has_key:
            reason += NO_KEY
    if result.error_code == ErrorCode.MESSAGE_TOO_LARGE:
        reason = (reason or "a batch is too large") + TOO_LARGE
    return Refusal(f"records for {where} were refused", result.error_code, reason)


def _new_producer(endpoint: Endpoint) -> Producer:
    """Waits for a broker that is only just starting. Refusal."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        response = endpoint.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(None, TIMEOUT_MS))
        if not response.error_code:
            return Producer(response.producer_id, response.producer_epoch, 0)
        refusal = Refusal("no producer id was assigned; --no-idempotent needs none", response.error_code)
        if not refusal.error.retriable or time.monotonic() > deadline:
            raise refusal
        time.sleep(RETRY_S)


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
        headers.append(RecordHeader(name, raw(value)))
    return tuple(headers)


def _progress() -> Progress:
    """Shown only on a terminal, and not while records are typed there."""
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
