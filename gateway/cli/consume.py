"""`dragoman consume`: records become lines on stdout. No consumer group takes part."""

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from gateway.cli.client import ClientError
from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint, Refusal, TopicInfo, Unreachable
from gateway.cli.exits import Exit
from gateway.cli.offsets import EARLIEST, LATEST, list_offsets, starting_offsets
from gateway.cli.output import UsageError, counted, stdout_bytes, talk, writing
from gateway.cli.record_input import raw, unescaped
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from ledger.batch.header import (
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchError,
    verify_crc,
)
from ledger.batch.records import Record, read_batch
from ledger.types import Buffer

MAX_WAIT_MS: Final = 500
FETCH_BYTES: Final = 8 * 1024 * 1024
PARTITION_BYTES: Final = 1024 * 1024
DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
PATIENCE_S: Final = 30.0
"""How long to retry after a gateway that responded before fails: it may be restarting."""
RETRY_S: Final = 0.2


class Format(StrEnum):
    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """`count` None: no bound. `to_end`: stop at the end as it was at the start."""

    topic: str
    start: str = "earliest"
    partitions: Sequence[int] = ()
    count: int | None = None
    to_end: bool = False
    format: Format = Format.VALUE
    key_separator: str = "\t"
    null: str = ""
    """Printed for a null key or value."""


@dataclass(frozen=True, slots=True)
class Consumed:
    partition: int
    offset: int
    timestamp_ms: int
    record: Record


def parse_format(text: str) -> Format:
    try:
        return Format(text)
    except ValueError:
        raise UsageError(f"--format {text}: expected one of {', '.join(Format)}") from None


def consume(contact: Contact, options: ConsumeOptions) -> Exit:
    """Print records until there are enough, or until interrupted."""
    with Endpoint(contact) as endpoint:
        topic = endpoint.topics([options.topic])[options.topic]
        starts = _chosen(topic, options, starting_offsets(endpoint, topic, options.start))
        if options.start.isdecimal():
            starts = _within_records(endpoint, topic, starts)
        ends = list_offsets(endpoint, topic, LATEST) if options.to_end else None
        printed = 0
        try:
            for consumed in fetched(endpoint, topic, starts, ends):
                if options.count is not None and printed >= options.count:
                    break
                _print(topic.name, consumed, options)
                printed += 1
                if printed == options.count:
                    break
        finally:
            talk(f"Consumed {counted(printed, 'record')} of {topic.name}.")
    return Exit.OK


def _chosen(topic: TopicInfo, options: ConsumeOptions, starts: Mapping[int, int]) -> dict[int, int]:
    for partition in options.partitions:
        if partition not in starts:
            raise UsageError(
                f"--partition {partition}: {topic.name} has partitions 0 to {len(topic.leaders) - 1}"
            )
    return {partition: starts[partition] for partition in options.partitions or starts}


def _within_records(endpoint: Endpoint, topic: TopicInfo, starts: Mapping[int, int]) -> dict[int, int]:
    """The offsets, moved to the nearest record where a partition does not have them; as given if none has."""
    firsts, ends = list_offsets(endpoint, topic, EARLIEST), list_offsets(endpoint, topic, LATEST)
    if not any(firsts[part] <= at <= ends[part] for part, at in starts.items()):
        return dict(starts)
    return {part: min(max(at, firsts[part]), ends[part]) for part, at in starts.items()}


def fetched(
    endpoint: Endpoint, topic: TopicInfo, starts: Mapping[int, int], ends: Mapping[int, int] | None
) -> Iterator[Consumed]:
    """Records from these offsets on, for ever or up to `ends`. Refusal, ClientError."""
    positions = dict(starts)
    patience = _Patience()
    while True:
        if ends is not None:
            positions = {part: at for part, at in positions.items() if at < ends[part]}
        if not positions:
            return
        for leader in sorted({topic.leaders[partition] for partition in positions}):
            mine = {part: at for part, at in positions.items() if topic.leaders[part] == leader}
            failure = None
            try:
                fetched = _fetch(endpoint, topic, leader, mine)
            except ClientError as error:
                fetched, failure = [], error
            for data in fetched:
                partition = data.partition_index
                if data.error_code:
                    failure = _refusal(endpoint, topic, partition, positions[partition], data.error_code)
                    continue
                end = None if ends is None else ends[partition]
                yield from _records(topic, data, positions, end)
            if failure is None:
                patience.renew()
                continue
            patience.wait_after(failure)
            topic = _with_leaders(endpoint, topic)
            break


class _Patience:
    """Retries of a transient failure, for PATIENCE_S from the first one after a success."""

    def __init__(self) -> None:
        self._until: float | None = None

    def renew(self) -> None:
        self._until = None

    def wait_after(self, error: ClientError) -> None:
        """Raises the error if it is not transient, or has lasted for PATIENCE_S."""
        if isinstance(error, Unreachable) or (isinstance(error, Refusal) and not _may_pass(error.error)):
            raise error
        if self._until is None:
            self._until = time.monotonic() + PATIENCE_S
            talk(f"{error}; trying again for {PATIENCE_S:.0f} s.")
        elif time.monotonic() > self._until:
            raise ClientError(f"{error}; gave up after {PATIENCE_S:.0f} s") from error
        time.sleep(RETRY_S)


def _may_pass(error: ErrorCode) -> bool:
    """In Kafka an unknown topic is retriable too. Here the topic existed before, so it was deleted."""
    return error.retriable and error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _with_leaders(endpoint: Endpoint, topic: TopicInfo) -> TopicInfo:
    """The topic of a new Metadata response; the old one while there is no response."""
    try:
        return endpoint.topics([topic.name])[topic.name]
    except ClientError:
        return topic


def _fetch(endpoint: Endpoint, topic: TopicInfo, leader: int, positions: Mapping[int, int]) -> Sequence[Any]:
    """The response of each partition that has records or an error. ClientError."""
    partitions = [
        FetchPartition(partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
        for partition, offset in positions.items()
    ]
    request = FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(topic.name, partitions=partitions)],
    )
    response = endpoint.ask(ApiKey.FETCH, request, leader, 4)
    if response.error_code:
        raise Refusal(f"fetch of {topic.name}", response.error_code)
    return [data for topic_data in response.responses for data in topic_data.partitions]


def _refusal(endpoint: Endpoint, topic: TopicInfo, partition: int, offset: int, code: int) -> ClientError:
    what = f"fetch of {topic.name}-{partition} from offset {offset}"
    if code != ErrorCode.OFFSET_OUT_OF_RANGE:
        return Refusal(what, code)
    first = list_offsets(endpoint, topic, EARLIEST)[partition]
    end = list_offsets(endpoint, topic, LATEST)[partition]
    return Refusal(what, code, f"offsets {first} to {end} are there; choose one with --from")


def _records(topic: TopicInfo, data: Any, positions: dict[int, int], end: int | None) -> Iterator[Consumed]:
    """Records of one response from the partition's position on. Advances the position."""
    partition = data.partition_index
    for batch in whole_batches(memoryview(data.records or b"")):
        try:
            if not verify_crc(batch):
                raise ClientError(f"a batch of {topic.name}-{partition} does not match its CRC")
            header, records = read_batch(batch, DECOMPRESSED_BYTES)
        except BatchError as error:
            raise ClientError(f"a batch of {topic.name}-{partition} cannot be read: {error}") from error
        for record in () if header.attributes & CONTROL_BIT else records:
            offset = header.base_offset + record.offset_delta
            if offset < positions[partition]:
                continue
            if end is not None and offset >= end:
                break
            positions[partition] = offset + 1
            yield Consumed(partition, offset, _timestamp(header, record), record)
        last = header.base_offset + header.last_offset_delta
        positions[partition] = max(positions[partition], last + 1)


def _timestamp(header: Any, record: Record) -> int:
    if header.attributes & LOG_APPEND_TIME_BIT:
        return int(header.max_timestamp)
    return int(header.base_timestamp + record.timestamp_delta)


def whole_batches(view: memoryview) -> Iterator[memoryview]:
    """Batches of a fetch response; a broker may cut the last one off."""
    while len(view) >= HEADER_BYTES:
        size = LENGTH_PREFIX_BYTES + int.from_bytes(view[LENGTH_AT : LENGTH_AT + 4], "big")
        if size > len(view):
            return
        yield view[:size]
        view = view[size:]


def _print(topic: str, consumed: Consumed, options: ConsumeOptions) -> None:
    record = consumed.record
    if options.format is Format.JSON:
        line = json.dumps(_as_json(topic, consumed), ensure_ascii=False).encode()
    else:
        null = raw(options.null)
        line = null if record.value is None else bytes(record.value)
        if options.format is Format.KEY_VALUE:
            key = null if record.key is None else bytes(record.key)
            line = key + raw(unescaped(options.key_separator)) + line
    out = stdout_bytes()
    with writing():
        out.write(line + b"\n")
        out.flush()


def _as_json(topic: str, consumed: Consumed) -> dict[str, Any]:
    record = consumed.record
    return {
        "topic": topic,
        "partition": consumed.partition,
        "offset": consumed.offset,
        "timestamp_ms": consumed.timestamp_ms,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [
            {**_text("name", header.key.encode("utf-8", "surrogateescape")), **_text("value", header.value)}
            for header in record.headers
        ],
    }


def _text(name: str, data: Buffer | None) -> dict[str, str | None]:
    """As text where it is UTF-8, else as `<name>_base64`."""
    if data is None:
        return {name: None}
    try:
        return {name: bytes(data).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
