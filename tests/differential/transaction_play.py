"""Plays transcripts of transactions at an endpoint: Apache Kafka, or a gateway.

Commands, one a line; `p` is a producer, `x` its transactional id, `t-0` a partition, `g` a group:

    p begins x [version=1] [timeout=1s]     InitProducerId; version 2 (KIP-890) unless it says otherwise
    p begins x again                        with the producer id and the epoch that it has (KIP-360)
    p adds t-0                              AddPartitionsToTxn
    p sends t-0 a b                         Produce of one batch
    p commits offset g t-0 5                TxnOffsetCommit, with AddOffsetsToTxn in version 1
    p commits | p aborts                    EndTxn
    p commits late epoch=0                  the same request when it comes late, of an earlier epoch
    p is at epoch 32765                     InitProducerId as often as that takes
    reader reads t-0                        what a consumer with read_committed gets
    log t-0                                 every batch, with markers
    describe x                              DescribeTransactions, of the transcript's own topics
    offset g t-0                            OffsetFetch with RequireStable
    x times out                             until its transaction is no longer open
    the server restarts                     after kill -9

and those of `tests/differential/transaction_logs.py`.

Each line of the outcome is a response, or what is read. Times are not shown: both endpoints have their own.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from ledger.batch.header import CONTROL_BIT, TRANSACTIONAL_BIT
from ledger.batch.records import Record
from tests.differential.batches import Batch
from tests.differential.conversation import Answered, Conversation, Endpoint, error_codes
from tests.differential.exchange import Call, ProducerIdOf
from tests.differential.steps import Create, wait_until
from tests.differential.transaction_logs import (
    COMMIT_MARKER,
    Logs,
    batches_of,
    shown_values,
    value_of,
)
from tests.differential.transaction_steps import (
    END_V1,
    END_V2,
    PRODUCE_V1,
    PRODUCE_V2,
    READ_COMMITTED,
    added,
    described,
    ended,
    group_offsets,
    init,
    offsets_added,
    offsets_committed,
    produced,
    read,
)
from tests.support.transcript import Block

STEPS_AT_ONCE: Final = 512
"""Requests that are sent before the first response is read."""
TIMES_OUT_S: Final = 30.0
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Server(Endpoint, Protocol):
    def kill9(self) -> None: ...

    def restart(self) -> None: ...


@dataclass(slots=True)
class Producer:
    """With the state that it received. Its producer id has the alias `name` in the conversation."""

    name: str
    transactional_id: str = ""
    bumps: bool = True
    timeout_ms: int = 60_000
    epoch: int = -1
    sequences: dict[str, int] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "name": "{" + self.transactional_id + "}",
            "producer": ProducerIdOf(self.name),
            "epoch": self.epoch,
        }

    def goes_on(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.sequences.clear()
        self.epoch = epoch


class Play:
    """One transcript from beginning to end."""

    def __init__(
        self,
        server: Server,
        prefix: str,
        is_ready: Callable[[Endpoint], bool],
        *,
        settles_later: bool = False,
    ) -> None:
        """`is_ready`: whether the server serves transactions, after its restart. `settles_later`: as Kafka,
        it answers before a transaction's markers are written and before groups hear of a deleted topic; the
        play waits for these, so that what it shows does not depend on the load of the machine."""
        self._server = server
        self._is_ready = is_ready
        self._settles_later = settles_later
        self._conversation = Conversation(server, prefix, time.time_ns() // 1_000_000)
        self._producers: dict[str, Producer] = {}
        self._labels: dict[int, str] = {}
        """By producer id, the transactional id that it belongs to."""
        self._committed_to: set[tuple[str, str]] = set()
        """Groups and partitions, as "t-0", for which offsets were committed."""
        self._lines: list[str] = []
        self._logs = Logs(self._conversation, self._labels)

    def run(self, blocks: Sequence[Block]) -> list[Block]:
        """The same blocks with their outcome."""
        played = []
        with closing(self._logs):
            for block in blocks:
                for command in block.commands:
                    self._do(command)
                    if self._settles_later:
                        self._settle(command.split())
                lines, self._lines = self._lines, []
                played.append(block.with_outcome(lines))
        return played

    def _do(self, command: str) -> None:
        lines = self._logs.do(command)
        if lines is not None:
            self._lines += lines
            return
        match command.split():
            case ["the", "server", "restarts"]:
                self._restart()
            case ["topic", topic, count, "partitions"]:
                Create(topic, int(count)).run(self._conversation)
            case ["reader", "reads", place]:
                self._say(f"reader reads {place}: {' '.join(self._committed(place)) or 'nothing'}")
            case ["log", place]:
                self._show_log(place)
            case ["describe", name]:
                self._describe(name)
            case ["offset", group, place]:
                self._say(f"offset {group} {place}: {self._offset(group, place)}")
            case [name, "times", "out"]:
                wait_until(lambda: self._state(name).transaction_state not in OPEN_STATES, TIMES_OUT_S)
                self._describe(name)
            case [name, *words]:
                options = dict(word.split("=", 1) for word in words if "=" in word)
                producer = self._producers.setdefault(name, Producer(name))
                self._act(command, producer, [word for word in words if "=" not in word], options)

    def _act(self, command: str, producer: Producer, words: Sequence[str], options: dict[str, str]) -> None:
        match words:
            case ["begins", transactional_id, *again]:
                result = self._begin(producer, transactional_id, options, again=bool(again))
            case ["adds", place]:
                result = (
                    self._ask(added(places=((place[0], (int(place[2:]),)),), **producer.fields)) or "taken"
                )
            case ["sends", place, *values]:
                result = self._send(producer, place, values, options)
            case ["commits", "offset", group, place, offset]:
                result = self._commit_offset(producer, group, place, int(offset))
            case [("commits" | "aborts") as outcome, *_]:
                result = self._end(producer, outcome == "commits", options)
            case ["is", "at", "epoch", epoch]:
                self._bump(producer, int(epoch))
                result = f"{producer.epoch}"
            case _:
                raise ValueError(f"unknown command: {command}")
        self._say(f"{command}: {result}")

    def _begin(self, producer: Producer, name: str, options: dict[str, str], *, again: bool) -> str:
        producer.transactional_id = name
        producer.bumps = options.get("version", "2") == "2"
        producer.timeout_ms = int(float(options.get("timeout", "60s").removesuffix("s")) * 1000)
        expected: dict[str, Any] = (
            {"producer": ProducerIdOf(producer.name), "epoch": producer.epoch} if again else {}
        )
        request = init(name="{" + name + "}", timeout_ms=producer.timeout_ms, **expected)
        response = self._response(Call(ApiKey.INIT_PRODUCER_ID, 5, request))
        if response.error_code:
            return ErrorCode(response.error_code).name
        return self._adopt(producer, response)

    def _adopt(self, producer: Producer, response: Any) -> str:
        """Go on with the producer id and epoch of a response."""
        producer_id = response.producer_id
        if producer_id not in self._labels:
            known = sum(
                label.partition(" ")[0] == producer.transactional_id for label in self._labels.values()
            )
            self._labels[producer_id] = producer.transactional_id + (" (its next id)" if known else "")
        if producer_id != self._conversation.producer_ids.get(producer.name):
            producer.sequences.clear()
        self._conversation.producer_ids[producer.name] = producer_id
        producer.goes_on(response.producer_epoch)
        return f"{self._labels[producer_id]}, epoch {producer.epoch}"

    def _send(self, producer: Producer, place: str, values: Sequence[str], options: dict[str, str]) -> str:
        sequence = int(options.get("sequence", producer.sequences.get(place, 0)))
        records = [Record(i, i, None, value.encode()) for i, value in enumerate(values)]
        batch = Batch(
            producer=ProducerIdOf(producer.name),
            epoch=int(options.get("epoch", producer.epoch)),
            sequence=sequence,
            flags=TRANSACTIONAL_BIT,
            records=records,
        )
        version = PRODUCE_V2 if producer.bumps else PRODUCE_V1
        name = producer.fields["name"]
        call = produced(batch, version=version, name=name, topic=place[0], partition=int(place[2:]))
        (partition,) = self._response(call).responses[0].partition_responses
        if partition.error_code:
            return ErrorCode(partition.error_code).name
        producer.sequences[place] = sequence + len(values)
        return f"at {partition.base_offset}"

    def _commit_offset(self, producer: Producer, group: str, place: str, offset: int) -> str:
        named = "{" + group + "}"
        if not producer.bumps:
            error = self._ask(offsets_added(group=named, **producer.fields))
            if error:
                return error
        version = END_V2 if producer.bumps else END_V1
        row = place[0], int(place[2:]), offset
        self._committed_to.add((group, place))
        return self._ask(offsets_committed(row, version=version, group=named, **producer.fields)) or "taken"

    def _end(self, producer: Producer, commit: bool, options: dict[str, str]) -> str:
        fields = producer.fields
        if "epoch" in options:
            fields["epoch"] = int(options["epoch"])
        response = self._response(ended(commit, version=END_V2 if producer.bumps else END_V1, **fields))
        if response.error_code:
            return ErrorCode(response.error_code).name
        if not producer.bumps:
            return "done"
        return self._adopt(producer, response)

    def _bump(self, producer: Producer, epoch: int) -> None:
        request = init(name=producer.fields["name"], timeout_ms=producer.timeout_ms)
        call = Call(ApiKey.INIT_PRODUCER_ID, 5, request)
        while producer.epoch < epoch:
            count = min(STEPS_AT_ONCE, epoch - producer.epoch)
            *_, response = self._conversation.ask_in_a_row(call, count)
            self._adopt(producer, response)

    def _restart(self) -> None:
        self._server.kill9()
        self._server.restart()
        wait_until(lambda: self._is_ready(self._server), TIMES_OUT_S)
        self._say("the server is back")

    def _describe(self, name: str) -> None:
        state = self._state(name)
        if state.error_code:
            self._say(f"{name}: {ErrorCode(state.error_code).name}")
            return
        own = self._conversation.prefix + "-"
        places = sorted(
            f"{topic.topic.removeprefix(own)}-{at}"
            for topic in state.topics
            if topic.topic.startswith(own)
            for at in topic.partitions
        )
        within = f" in {', '.join(places)}" if places else ""
        label = self._labels.get(state.producer_id, "another producer id")
        self._say(f"{name} is {state.transaction_state}{within}: {label}, epoch {state.producer_epoch}")

    def _state(self, name: str) -> Any:
        return self._response(described("{" + name + "}")).transaction_states[0]

    def _offset(self, group: str, place: str) -> str:
        call = group_offsets("{" + group + "}", topic=place[0])
        rows = self._response(call).groups[0].topics[0].partitions
        row = next(row for row in rows if row.partition_index == int(place[2:]))
        shown = ErrorCode(row.error_code).name if row.error_code else str(row.committed_offset)
        return "none" if shown == "-1" else shown

    def _settle(self, words: Sequence[str]) -> None:
        """Wait for what a command still does after its response."""
        match words:
            case ["topic", topic, "is", "deleted"]:
                # No group has an offset in it, nor one that waits for its transaction.
                committed = [one for one in self._committed_to if one[1][0] == topic]
                wait_until(lambda: all(self._offset(*one) == "none" for one in committed), TIMES_OUT_S)
            case [name, "commits" | "aborts"]:
                ended = self._producers[name].transactional_id
                wait_until(
                    lambda: not self._state(ended).transaction_state.startswith("Prepare"), TIMES_OUT_S
                )

    def _show_log(self, place: str) -> None:
        partition = self._fetched(place, 0)
        self._say(f"log {place} up to {partition.high_watermark}")
        for header, records in batches_of(partition.records):
            last = header.base_offset + header.last_offset_delta
            offsets = f"{header.base_offset}" if header.record_count == 1 else f"{header.base_offset}-{last}"
            shown = shown_values(header, records, " ")
            label = self._labels.get(header.producer_id, "another producer id")
            self._say(f"  {offsets:5} {shown:10} {label}, epoch {header.producer_epoch}")

    def _committed(self, place: str) -> Iterator[str]:
        """As a consumer reads: records of the transactions in the list are dropped, up to the marker."""
        partition = self._fetched(place, READ_COMMITTED)
        aborted = sorted(partition.aborted_transactions or (), key=lambda one: one.first_offset)
        dropped: set[int] = set()
        for header, records in batches_of(partition.records):
            while aborted and aborted[0].first_offset <= header.base_offset:
                dropped.add(aborted.pop(0).producer_id)
            if header.attributes & CONTROL_BIT:
                if bytes(records[0].key or b"") != COMMIT_MARKER:
                    dropped.discard(header.producer_id)
            elif not (header.attributes & TRANSACTIONAL_BIT and header.producer_id in dropped):
                yield from map(value_of, records)

    def _fetched(self, place: str, isolation: int) -> Any:
        call = read(isolation=isolation, topic=place[0], partition=int(place[2:]))
        (topic,) = self._response(call).responses
        return topic.partitions[0]

    def _ask(self, call: Call) -> str:
        """The first error of the response; nothing if there is none."""
        errors = [code for code in error_codes(self._response(call)) if code]
        return ErrorCode(errors[0]).name if errors else ""

    def _response(self, call: Call) -> Any:
        answer = self._conversation.ask(call)
        assert isinstance(answer, Answered), (call, answer)
        return answer.message

    def _say(self, line: str) -> None:
        self._lines.append(line)
