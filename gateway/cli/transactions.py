"""`dragoman transactions ...`: list, describe and abort transactions of any Kafka endpoint (KIP-664)."""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from gateway.cli.client import ClientError
from gateway.cli.contact import Contact
from gateway.cli.endpoint import LEADER_WAIT_S, RETRY_S, Endpoint, Refusal
from gateway.cli.exits import Exit
from gateway.cli.output import (
    UsageError,
    counted,
    escaped,
    print_json,
    print_table,
    print_text,
    raise_failures,
    shown_time,
    talk,
)
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_producers import DescribeProducersRequest, TopicRequest
from gateway.wire.messages.generated.describe_transactions import DescribeTransactionsRequest
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.list_transactions import ListTransactionsRequest
from gateway.wire.messages.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

ONGOING: Final = "Ongoing"
STATES: Final = (
    "Empty",
    ONGOING,
    "CompleteCommit",
    "CompleteAbort",
    "PrepareCommit",
    "PrepareAbort",
    "PrepareEpochFence",
    "Dead",
)
"""As Kafka spells them, capitals too. A gateway has the first four."""
ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
NOTHING: Final = "-"
NO_START: Final = -1
MAX_ID_SHOWN: Final = 100
"""Characters of a transactional id in a table; --json has all of them."""
FIRST_VERSION_WITH_DURATIONS: Final = 1
FIRST_VERSION_WITH_PATTERNS: Final = 2


@dataclass(frozen=True, slots=True)
class TransactionLine:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`started_ms`: when the last transaction began, open or not; None if there was none. `partitions` are
    those of the open one."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What is None or empty lets everything pass. `longer_than_ms`: since the last transaction began, open or
    not; an id that has had none passes, as in Kafka."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    longer_than_ms: int | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class OpenInPartition:
    """A transaction that is open in a partition, from its first offset there."""

    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp_ms: int


def list_transactions(contact: Contact, options: ListOptions, as_json: bool) -> Exit:
    with Endpoint(contact) as endpoint:
        lines = found_transactions(endpoint, options)
    if as_json:
        print_json(lines)
        return Exit.OK
    rows = [(_shortened(line.transactional_id), line.producer_id, line.state) for line in lines]
    print_table(("transactional id", "producer id", "state"), rows)
    if not lines:
        talk(_NONE_MATCHES if options != ListOptions() else _NONE_THERE)
    return Exit.OK


_NONE_MATCHES: Final = "No transactional id matches these filters."
_NONE_THERE: Final = (
    "There is no transactional id; one begins when a producer with a transactional.id starts."
)


def _shortened(transactional_id: str) -> str:
    """One id of any length must not pad the rows of all others."""
    shown = escaped(transactional_id)
    return shown if len(shown) <= MAX_ID_SHOWN else f"{shown[:MAX_ID_SHOWN]}..."


def found_transactions(endpoint: Endpoint, options: ListOptions) -> list[TransactionLine]:
    """Of all nodes, in the order of their ids. Refusal, UsageError."""
    request = ListTransactionsRequest(
        list(options.states),
        list(options.producer_ids),
        -1 if options.longer_than_ms is None else options.longer_than_ms,
        options.pattern,
    )
    lowest = FIRST_VERSION_WITH_DURATIONS if options.longer_than_ms is not None else 0
    if options.pattern is not None:
        lowest = FIRST_VERSION_WITH_PATTERNS
    found: list[TransactionLine] = []
    for node in endpoint.nodes():
        response = endpoint.ask(ApiKey.LIST_TRANSACTIONS, request, node, lowest)
        if response.error_code:
            raise Refusal("transactions cannot be listed", response.error_code)
        if response.unknown_state_filters:
            unknown = ", ".join(response.unknown_state_filters)
            raise UsageError(f"there is no state {unknown}; states are {', '.join(STATES)}")
        found += [
            TransactionLine(each.transactional_id, each.producer_id, each.transaction_state)
            for each in response.transaction_states
        ]
    return sorted(found, key=lambda line: line.transactional_id)


def describe(contact: Contact, names: Sequence[str], as_json: bool) -> Exit:
    """Those that are there, then a sentence for each that is not."""
    found: list[TransactionDescription] = []
    failures: list[Refusal] = []
    with Endpoint(contact) as endpoint:
        for name in names:
            try:
                found.append(describe_transaction(endpoint, name))
            except Refusal as error:
                failures.append(error)
    if as_json:
        print_json(found)
    else:
        _print_all(found)
    raise_failures(failures)
    return Exit.OK


def describe_transaction(endpoint: Endpoint, name: str) -> TransactionDescription:
    """Refusal if there is no such transactional id."""
    request = DescribeTransactionsRequest([name])
    response = endpoint.ask_transaction_coordinator(ApiKey.DESCRIBE_TRANSACTIONS, name, request)
    (found,) = response.transaction_states
    if found.error_code:
        raise Refusal(f"transactional id {name}", found.error_code)
    started_ms = found.transaction_start_time_ms
    return TransactionDescription(
        name,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        None if started_ms < 0 else started_ms,
        {topic.topic: sorted(topic.partitions) for topic in found.topics},
    )


def _print_all(found: Sequence[TransactionDescription]) -> None:
    for at, description in enumerate(found):
        if at:
            print_text()
        _print(description)


def _print(found: TransactionDescription) -> None:
    of_open = "" if found.state in ENDED else _of_open(found)
    print_text(
        f"{found.transactional_id}: {found.state}, producer {found.producer_id} epoch "
        f"{found.producer_epoch}, timeout {found.timeout_ms} ms{of_open}"
    )
    rows = [(topic, ", ".join(map(str, indexes))) for topic, indexes in sorted(found.partitions.items())]
    if rows:
        print_table(("topic", "partitions"), rows)


def _of_open(found: TransactionDescription) -> str:
    partitions = sum(map(len, found.partitions.values()))
    began = "" if found.started_ms is None else f", began {shown_time(found.started_ms)}"
    return f"{began}, {counted(partitions, 'partition')}"


@dataclass(frozen=True, slots=True)
class AbortOptions:
    """Transactional ids, or a partition: TOPIC:N."""

    names: Sequence[str]
    partition: str | None
    start_offset: int | None
    as_json: bool

    @property
    def changes_something(self) -> bool:
        return bool(self.names) or self.start_offset is not None

    @property
    def subject(self) -> str:
        """As a question names it."""
        return ", ".join(self.names) or f"{self.partition} from offset {self.start_offset}"


def abort(contact: Contact, options: AbortOptions) -> Exit:
    """UsageError, ClientError."""
    _check_abort(options)
    if options.partition is None:
        return _abort_all(contact, options.names, options.as_json)
    return _abort_in_partition(contact, options.partition, options.start_offset, options.as_json)


def _check_abort(options: AbortOptions) -> None:
    """UsageError for flags that do not fit."""
    if options.names and options.partition is not None:
        raise UsageError("give transactional ids or --partition TOPIC:N, not both")
    if options.start_offset is not None and options.partition is None:
        raise UsageError("--start-offset needs --partition TOPIC:N")
    if not options.names and options.partition is None:
        raise UsageError("give transactional ids, or --partition TOPIC:N")


def _abort_all(contact: Contact, names: Sequence[str], as_json: bool) -> Exit:
    """Fences the producers of these ids, which aborts their open transactions."""
    failures: list[Refusal] = []
    aborted = []
    with Endpoint(contact) as endpoint:
        for name in names:
            try:
                aborted.append(_abort(endpoint, name))
            except Refusal as error:
                failures.append(error)
            else:
                talk(f"Aborted the transaction of {name}; its producer is fenced.")
    if as_json:
        print_json({"aborted": [_as_before(each) for each in aborted]})
    raise_failures(failures)
    return Exit.OK


def _as_before(found: TransactionDescription) -> dict[str, Any]:
    """What was aborted, as it was until then."""
    fields = asdict(found)
    return {"state_before" if name == "state" else name: value for name, value in fields.items()}


def _abort(endpoint: Endpoint, name: str) -> TransactionDescription:
    found = describe_transaction(endpoint, name)
    if found.state != ONGOING:
        reason = f"it is {found.state}: no transaction is open"
        raise Refusal(f"transactional id {name}", ErrorCode.INVALID_TXN_STATE, reason)
    request = InitProducerIdRequest(name, found.timeout_ms)
    deadline = time.monotonic() + LEADER_WAIT_S
    while True:
        response = endpoint.ask_transaction_coordinator(ApiKey.INIT_PRODUCER_ID, name, request)
        if not response.error_code:
            return found
        # A broker says so until the markers of the abort are written.
        is_under_way = response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        if not is_under_way or time.monotonic() > deadline:
            raise Refusal(f"the transaction of {name} was not aborted", response.error_code)
        time.sleep(RETRY_S)


def _abort_in_partition(contact: Contact, partition: str, start_offset: int | None, as_json: bool) -> Exit:
    """Ends one transaction in a partition alone, if no coordinator has it open there. Without an offset it
    lists those that are open."""
    topic, index = _parsed(partition)
    with Endpoint(contact) as endpoint:
        leaders = endpoint.topics([topic])[topic].leaders
        if index >= len(leaders):
            raise Refusal(f"partition {partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        found = _open_in(endpoint, topic, index, leaders[index])
        if start_offset is None:
            _show_open(found, as_json)
            talk(_HOW_TO_END if found else f"{_NOTHING_OPEN.capitalize()}.")
            return Exit.OK
        chosen = next((each for each in found if each.start_offset == start_offset), None)
        if chosen is None:
            _show_open(found, as_json)
            raise UsageError("give one of these offsets as --start-offset" if found else _NOTHING_OPEN)
        _check_that_it_hangs(endpoint, topic, index, chosen)
        _mark(endpoint, topic, index, leaders[index], chosen)
    talk(f"Aborted the transaction of producer {chosen.producer_id} in {topic}-{index}.")
    if as_json:
        print_json({"aborted": [chosen]})
    return Exit.OK


_NOTHING_OPEN: Final = "no transaction is open in this partition"
_HOW_TO_END: Final = "With one of these offsets as --start-offset the transaction is ended in this partition."


def _parsed(partition: str) -> tuple[str, int]:
    topic, sign, number = partition.rpartition(":")
    if not sign or not topic or not number.isdecimal():
        raise UsageError(f"--partition {partition}: expected TOPIC:N")
    return topic, int(number)


def _open_in(endpoint: Endpoint, topic: str, index: int, leader: int) -> list[OpenInPartition]:
    request = DescribeProducersRequest([TopicRequest(topic, [index])])
    response = endpoint.ask(ApiKey.DESCRIBE_PRODUCERS, request, leader)
    (partition,) = response.topics[0].partitions
    if partition.error_code:
        raise Refusal(f"partition {topic}:{index}", partition.error_code, partition.error_message)
    found = [
        OpenInPartition(
            each.current_txn_start_offset,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_timestamp,
        )
        for each in partition.active_producers
        if each.current_txn_start_offset != NO_START
    ]
    return sorted(found, key=lambda each: each.start_offset)


def _show_open(found: Sequence[OpenInPartition], as_json: bool) -> None:
    if as_json:
        print_json({"open": found})
    elif found:
        head = ("start offset", "producer id", "epoch", "last record")
        rows = [
            (each.start_offset, each.producer_id, each.producer_epoch, shown_time(each.last_timestamp_ms))
            for each in found
        ]
        print_table(head, rows)


def _check_that_it_hangs(endpoint: Endpoint, topic: str, index: int, chosen: OpenInPartition) -> None:
    """ClientError if a coordinator ends this transaction, in all its partitions: without its records in this
    one half of it would be there after a commit. As kafka-transactions.sh finds those that hang."""
    for line in found_transactions(endpoint, ListOptions(producer_ids=[chosen.producer_id])):
        if line.state in ENDED:
            continue
        found = describe_transaction(endpoint, line.transactional_id)
        is_there = index in found.partitions.get(topic, ())
        if is_there and found.producer_id == chosen.producer_id and found.state not in ENDED:
            raise ClientError(
                f"the transaction does not hang: transactional id {line.transactional_id} has it open "
                f"({found.state}), and it may still be committed in its other partitions; to abort it in "
                f"all of them: dragoman transactions abort {shlex.quote(line.transactional_id)}"
            )


def _mark(endpoint: Endpoint, topic: str, index: int, leader: int, chosen: OpenInPartition) -> None:
    marker = WritableTxnMarker(
        chosen.producer_id,
        chosen.producer_epoch,
        False,
        [WritableTxnMarkerTopic(topic, [index])],
        max(chosen.coordinator_epoch, 0),
    )
    response: Any = endpoint.ask(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest([marker]), leader)
    error: int = response.markers[0].topics[0].partitions[0].error_code
    if error:
        raise Refusal(f"the transaction in {topic}-{index} was not aborted", error)
