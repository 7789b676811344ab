"""What happens to partitions while transactions are open in them, and what readers see of it then.

topic t is deleted
topic t grows to 2 partitions
t-0 is trimmed to 2                     DeleteRecords
retention empties t-0                   of all that is in it, and until it has done so
bounds t-0                              ListOffsets: the earliest offset, the latest by isolation
fetch t-0 from 1                        Fetch with read_committed: its fields, and what is in it
producers t-0                           DescribeProducers
a reader waits in t-0 from 3            a long poll with read_committed
the reader hears                        its response
the reader still waits                  unless there is a response after all
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from gateway.wire.messages.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ledger.batch.header import (
    CONTROL_BIT,
    LENGTH_AT,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
)
from ledger.batch.records import Record, read_batch
from tests.differential.conversation import Answered, Conversation, decode, encode
from tests.differential.exchange import Call, resolve
from tests.differential.scenarios.builders import EARLIEST, LATEST, fetch, list_offsets
from tests.differential.steps import Delete, response_of, wait_until
from tests.differential.transaction_steps import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    producers_of,
    read,
)
from tests.support.raw import Outcome, RawConnection, raw_connection

COMMIT_MARKER: Final = b"\0\0\0\1"
"""The key of the record in a marker: version 0, type 1; type 0 aborts."""
HEARD_WITHIN_S: Final = 20.0
SILENT_FOR_S: Final = 1.0
PARKED_WITHIN_S: Final = 0.3
WAITS_MS: Final = 60_000
FETCH_VERSION: Final = 11
RETENTION_MS: Final = "retention.ms"
SET, DELETE = 0, 1
"""What IncrementalAlterConfigs does with a config."""
TOPIC: Final = 2
EMPTIED_S: Final = 30.0


class Logs:
    """Of one conversation. `labels`: by producer id, what it is called in a transcript."""

    def __init__(self, conversation: Conversation, labels: Mapping[int, str]) -> None:
        self._conversation = conversation
        self._labels = labels
        self._open = ExitStack()
        self._reader: RawConnection | None = None

    def close(self) -> None:
        self._open.close()

    def do(self, command: str) -> list[str] | None:
        """The lines of its outcome; None if it is another kind of command."""
        words = command.split()
        return [] if self._is_changed(words) else self._seen(command, words)

    def _is_changed(self, words: Sequence[str]) -> bool:
        """Whether it is a command without an outcome, which is carried out."""
        match words:
            case ["topic", topic, "is", "deleted"]:
                Delete(topic).run(self._conversation)
                self._conversation.topic_ids.pop(topic)
            case ["topic", topic, "grows", "to", count, "partitions"]:
                self._grow(topic, int(count))
            case ["retention", "empties", place]:
                self._empty(place)
            case ["a", "reader", "waits", "in", place, "from", offset]:
                self._wait(place, int(offset))
            case _:
                return False
        return True

    def _seen(self, command: str, words: Sequence[str]) -> list[str] | None:
        match words:
            case [place, "is", "trimmed", "to", offset]:
                return [f"{command}: {self._trim(place, int(offset))}"]
            case ["bounds", place]:
                return [f"{place} {self._bounds(place)}"]
            case ["fetch", place, "from", offset]:
                call = read(int(offset), topic=place[0], partition=int(place[2:]))
                return [f"{command}: {self._shown(self._response(call))}"]
            case ["producers", place]:
                return list(self._producers(place))
            case ["the", "reader", "hears"]:
                return [f"the reader hears: {self._heard(HEARD_WITHIN_S)}"]
            case ["the", "reader", "still", "waits"]:
                return [f"the reader hears: {self._heard(SILENT_FOR_S)}"]
        return None

    def _grow(self, topic: str, count: int) -> None:
        grown = CreatePartitionsTopic("{" + topic + "}", count, None)
        response_of(
            self._conversation, Call(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest([grown], 10_000))
        )
        wait_until(lambda: all(isinstance(self._offset(f"{topic}-{i}", EARLIEST), int) for i in range(count)))

    def _trim(self, place: str, offset: int) -> str:
        partition = DeleteRecordsPartition(int(place[2:]), offset)
        topic = DeleteRecordsTopic("{" + place[0] + "}", [partition])
        call = Call(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest([topic], 10_000))
        (result,) = self._response(call).topics[0].partitions
        return ErrorCode(result.error_code).name if result.error_code else f"from {result.low_watermark}"

    def _empty(self, place: str) -> None:
        end = self._offset(place, LATEST)
        self._alter(place[0], SET, "1")
        wait_until(lambda: self._offset(place, EARLIEST) == end, EMPTIED_S)
        self._alter(place[0], DELETE, None)

    def _alter(self, topic: str, operation: int, value: str | None) -> None:
        configs = [AlterableConfig(RETENTION_MS, operation, value)]
        resource = AlterConfigsResource(TOPIC, "{" + topic + "}", configs)
        request = IncrementalAlterConfigsRequest([resource])
        response_of(self._conversation, Call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request))

    def _bounds(self, place: str) -> str:
        first = self._offset(place, EARLIEST)
        stable = self._offset(place, LATEST, READ_COMMITTED)
        return f"is from {first}, stable to {stable}, up to {self._offset(place, LATEST)}"

    def _offset(self, place: str, which: int, isolation: int = READ_UNCOMMITTED) -> int | str:
        request = list_offsets(which, topic=place[0], partition=int(place[2:]), isolation=isolation)
        (partition,) = self._response(Call(ApiKey.LIST_OFFSETS, 4, request)).topics[0].partitions
        offset: int = partition.offset
        return ErrorCode(partition.error_code).name if partition.error_code else offset

    def _producers(self, place: str) -> Iterator[str]:
        (partition,) = (
            self._response(producers_of(topic=place[0], partition=int(place[2:]))).topics[0].partitions
        )
        yield f"producers {place}{self._error(partition)}"
        for found in sorted(partition.active_producers, key=lambda one: self._label(one.producer_id)):
            start = found.current_txn_start_offset
            yield (
                f"  {self._label(found.producer_id)}, epoch {found.producer_epoch}, "
                f"last sequence {found.last_sequence}, "
                # A broker counts how often its coordinator was elected: only whether there was one is shown.
                f"coordinator {'unknown' if found.coordinator_epoch < 0 else 'known'}, "
                + ("nothing open" if start < 0 else f"open from {start}")
            )

    def _wait(self, place: str, offset: int) -> None:
        self._open.close()
        endpoint = self._conversation.endpoint
        self._reader = self._open.enter_context(raw_connection(endpoint.host, endpoint.port, HEARD_WITHIN_S))
        self._reader.send(encode(_WAITING, resolve(_waiting(place, offset), self._conversation), 1))
        # No response says that it waits: what comes next must not overtake it.
        time.sleep(PARKED_WITHIN_S)

    def _heard(self, within_s: float) -> str:
        assert self._reader is not None
        self._reader.sock.settimeout(within_s)
        response = self._reader.read_frame()
        if response is Outcome.SILENT:
            return "nothing"
        assert isinstance(response, bytes), response
        message, _ = decode(_WAITING, response, 1)
        self._reader = None
        return self._shown(message)

    def _shown(self, response: Any) -> str:
        partition = response.responses[0].partitions[0]
        if partition.error_code:
            return ErrorCode(partition.error_code).name
        aborted = sorted(partition.aborted_transactions or (), key=lambda one: one.first_offset)
        listed = [f"aborted {self._label(one.producer_id)} from {one.first_offset}" for one in aborted]
        batches = " ".join(
            f"{header.base_offset}:{shown_values(header, records)}"
            for header, records in batches_of(partition.records)
        )
        bounds = (
            f"from {partition.log_start_offset}, stable to {partition.last_stable_offset}, "
            f"up to {partition.high_watermark}"
        )
        return "; ".join([bounds, *listed, batches or "no batch"])

    def _label(self, producer_id: int) -> str:
        return self._labels.get(producer_id, "another producer id")

    @staticmethod
    def _error(result: Any) -> str:
        return f": {ErrorCode(result.error_code).name}" if result.error_code else ""

    def _response(self, call: Call) -> Any:
        answer = self._conversation.ask(call)
        assert isinstance(answer, Answered), (call, answer)
        return answer.message


def _waiting(place: str, offset: int) -> Any:
    return fetch(
        offset,
        topic=place[0],
        partition=int(place[2:]),
        isolation_level=READ_COMMITTED,
        max_wait_ms=WAITS_MS,
        min_bytes=1,
    )


_WAITING: Final = Call(ApiKey.FETCH, FETCH_VERSION, None)


def batches_of(data: Any) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Of the records of a fetched partition."""
    rest = memoryview(bytes(data or b""))
    while rest:
        size = int.from_bytes(rest[LENGTH_AT : LENGTH_AT + 4], "big") + LENGTH_PREFIX_BYTES
        yield read_batch(rest[:size], size)
        rest = rest[size:]


def shown_values(header: BatchHeader, records: Sequence[Record], between: str = ",") -> str:
    """The values of a batch, or which marker it is."""
    if header.attributes & CONTROL_BIT:
        return "COMMIT" if bytes(records[0].key or b"") == COMMIT_MARKER else "ABORT"
    return between.join(map(value_of, records))


def value_of(record: Record) -> str:
    return bytes(record.value or b"").decode()
