"""One endpoint's side of an exchange: names, ids, a connection, and the response."""

import dataclasses
import itertools
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from gateway.wire.apis import ApiKey, codec_range
from gateway.wire.errors import ErrorCode
from gateway.wire.header import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from gateway.wire.messages import codec
from gateway.wire.messages.generated.describe_transactions import DescribeTransactionsRequest
from tests.differential.exchange import Appended, Body, Call, Cut, Frame, Patched, resolve
from tests.support.raw import Outcome, RawConnection, frame, raw_connection

TIMEOUT_S: Final = 20.0
WAITED_S: Final = 1.0
REPEATED_AFTER_S: Final = 0.003
ENDING: Final = (ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID)
"""What may end a transaction."""
CLIENT_ID: Final = "differential"
JOINED: Final = "joined"
"""Alias of the member id that the exchange's own JoinGroup gave."""
GIVEN: Final = "given"
"""Alias of the producer id that the exchange's own InitProducerId or EndTxn gave."""
PROBE_ID: Final = 0x0BE
"""Correlation id of the ApiVersions after each request: its response shows that the request gets none."""


class Endpoint(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def pid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Answered:
    """`version` is the one of the body, which is 0 for an ApiVersions that is not known."""

    api: ApiKey
    version: int
    message: Any
    took_s: float


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """The connection was closed, or the request has no response and the connection continues."""

    is_closed: bool


Answer = Answered | NotAnswered


@dataclass(slots=True)
class Conversation:
    """Names and ids of one exchange at one endpoint."""

    endpoint: Endpoint
    prefix: str
    started_ms: int
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    producer_ids: dict[str, int] = field(default_factory=dict)
    member_ids: dict[str, str] = field(default_factory=dict)
    session: int | None = None
    unpacks: bool = False
    """Whether records are shown decompressed."""
    waiting: ExitStack = field(default_factory=ExitStack)
    """Connections on which requests wait; closed with the exchange."""
    _correlation: Iterator[int] = field(default_factory=lambda: itertools.count(1000))
    _connection: RawConnection | None = None

    def topic_name(self, alias: str) -> str:
        return f"{self.prefix}-{alias}"

    def topic_id(self, alias: str) -> bytes:
        """Of a topic that no step created: an id that no topic has."""
        return self.topic_ids.get(alias) or alias.encode().ljust(16, b"?")

    def remember_former(self, alias: str) -> None:
        """The topic is created again; its id, and those before, are former ones from now on."""
        former = f"former {alias}"
        if former in self.topic_ids:
            self.topic_ids[f"former {len(self.topic_ids)} {alias}"] = self.topic_ids[former]
        self.topic_ids[former] = self.topic_ids[alias]

    def producer_id(self, alias: str) -> int:
        return self.producer_ids[alias]

    def member_id(self, alias: str) -> str:
        """Of a member that never joined: an id that no member has."""
        return self.member_ids.get(alias, f"{alias}-unknown")

    def session_id(self) -> int:
        assert self.session is not None
        return self.session

    def now_ms(self) -> int:
        """When the run began, the same at both endpoints."""
        return self.started_ms

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Requests within go over one connection, as long as it stays open."""
        with raw_connection(self.endpoint.host, self.endpoint.port, TIMEOUT_S) as connection:
            self._connection = connection
            try:
                yield
            finally:
                self._connection = None

    def aside(self) -> "Conversation":
        """The same names and ids, over connections of its own, for what waits while others talk."""
        return replace(self, _connection=None)

    def ask(self, call: Call) -> Answer:
        """Send a request and, after it, an ApiVersions, so that no response is seen without a wait.

        A broker ends a transaction in steps: meanwhile producers repeat their requests, and so it is here.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self.ask_once(call)
            if not _is_repeated(answer) or time.monotonic() > deadline:
                self._await_markers(call)
                return answer
            time.sleep(REPEATED_AFTER_S)

    def ask_once(self, call: Call) -> Answer:
        """As `ask`, and whatever the response is."""
        correlation_id = next(self._correlation)
        request = resolve(call.request, self)
        sent = encode(call, request, correlation_id)
        if self._connection is None:
            with self.connected():
                return self._exchange(call, request, sent, correlation_id)
        return self._exchange(call, request, sent, correlation_id)

    def ask_in_a_row(self, call: Call, count: int) -> list[Any]:
        """Send the same request many times, then read the responses. Errors: AssertionError for an error."""
        request = resolve(call.request, self)
        ids = [next(self._correlation) for _ in range(count)]
        responses = []
        with raw_connection(self.endpoint.host, self.endpoint.port, TIMEOUT_S) as connection:
            connection.send(b"".join(encode(call, request, correlation_id) for correlation_id in ids))
            for correlation_id in ids:
                response = connection.read_frame()
                assert isinstance(response, bytes), response
                message, _ = decode(call, response, correlation_id)
                assert not any(error_codes(message)), message
                responses.append(message)
        return responses

    def _await_markers(self, call: Call) -> None:
        """After the end of a transaction: until its markers are in all partitions."""
        request = call.request.message if isinstance(call.request, Appended) else call.request
        name = getattr(request, "transactional_id", None)
        if call.api not in ENDING or not name:
            return
        state = Call(ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest([name]))
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self.aside().ask_once(state)
            assert isinstance(answer, Answered), answer
            if not answer.message.transaction_states[0].transaction_state.startswith("Prepare"):
                return
            assert time.monotonic() < deadline, f"not ended within {TIMEOUT_S} s: {answer}"
            time.sleep(REPEATED_AFTER_S)

    def leave_waiting(self, call: Call) -> None:
        """Send a request over a connection of its own and do not look for a response."""
        connection = raw_connection(self.endpoint.host, self.endpoint.port, TIMEOUT_S)
        sent = encode(call, resolve(call.request, self), next(self._correlation))
        self.waiting.enter_context(connection).send(sent)

    def _exchange(self, call: Call, request: Any, sent: bytes, correlation_id: int) -> Answer:
        assert self._connection is not None
        begun = time.monotonic()
        self._connection.send(sent)
        if isinstance(request, Frame) and request.hang_up:
            with suppress(OSError):  # a peer that has closed already
                self._connection.finish_sending()
        else:
            self._connection.send(PROBE)
        first = self._read()
        took_s = time.monotonic() - begun
        if first is None:
            return NotAnswered(is_closed=True)
        if first[:4] == PROBE_ID.to_bytes(4, "big"):
            return NotAnswered(is_closed=False)
        message, version = decode(call, first, correlation_id)
        probed = self._read()
        assert probed is None or probed[:4] == PROBE_ID.to_bytes(4, "big"), "an answer out of turn"
        return Answered(call.api, version, message, took_s)

    def _read(self) -> bytes | None:
        """None when the connection is closed. A peer that stays silent fails the exchange."""
        assert self._connection is not None
        response = self._connection.read_frame()
        assert response is not Outcome.SILENT, f"no answer within {TIMEOUT_S} s"
        return response if isinstance(response, bytes) else None


def _is_repeated(answer: Answer) -> bool:
    return isinstance(answer, Answered) and ErrorCode.CONCURRENT_TRANSACTIONS in error_codes(answer.message)


def error_codes(message: Any) -> Iterator[int]:
    """All that a message has, at any depth."""
    if isinstance(message, list):
        for item in message:
            yield from error_codes(item)
    elif dataclasses.is_dataclass(message):
        for part in dataclasses.fields(message):
            value = getattr(message, part.name)
            if part.name.endswith("error_code"):
                yield value
            yield from error_codes(value)


def encode(call: Call, request: Any, correlation_id: int) -> bytes:
    """The bytes on the connection."""
    if isinstance(request, Frame):
        return request.data
    header = encode_request_header(RequestHeader(call.api, call.version, correlation_id, CLIENT_ID))
    return frame(header + _body(call, request))


def _body(call: Call, request: Any) -> bytes:
    match request:
        case Body(data):
            return data
        case Cut(message, missing):
            return _body(call, message)[:-missing]
        case Patched(message, position, data):
            body = bytearray(_body(call, message))
            if position < 0:
                position += len(body)
            body[position : position + len(data)] = data
            return bytes(body)
        case Appended(message, data):
            return _body(call, message) + data
    return codec.encode_request(call.api, call.version, request)


def decode(call: Call, response: bytes, correlation_id: int) -> tuple[Any, int]:
    """Message and version. Errors: AssertionError for bytes that are not exactly one message."""
    version = call.version
    known = codec_range(call.api)
    if known is not None and not known[0] <= version <= known[1]:
        version = 0
    view = memoryview(response)
    found, position = decode_response_header(call.api, version, view)
    assert isinstance(call.request, Frame) or found == correlation_id, f"correlation id {found}"
    try:
        message = codec.decode_response(call.api, version, view[position:])
    except Exception as error:
        raise AssertionError(f"{call.api.name} v{version}: {error}; {response.hex()}") from error
    again = codec.encode_response(call.api, version, message)
    assert again == response[position:], f"{len(again)} of {len(response) - position} bytes are read"
    return message, version


PROBE: Final = frame(struct.pack(">hhih", ApiKey.API_VERSIONS, 0, PROBE_ID, -1))
