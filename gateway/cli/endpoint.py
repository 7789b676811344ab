"""A Kafka endpoint as the commands use it: versions both sides know, leaders, and errors as sentences.

It speaks by topic name (Produce and Fetch up to version 12), so that any Kafka from 2.8 on will do.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from gateway.addresses import Address, parse_address
from gateway.cli.client import Client, ClientError, NotConnected
from gateway.cli.contact import Contact
from gateway.cli.tls import client_context
from gateway.wire.apis import ApiKey, codec_range
from gateway.wire.errors import ErrorCode, Malformed
from gateway.wire.messages.generated.api_versions import ApiVersionsRequest
from gateway.wire.messages.generated.find_coordinator import FindCoordinatorRequest
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic

BY_NAME: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
}
"""The newest version that is used; after it requests name topics by id."""
LEADER_WAIT_S: Final = 15.0
GROUP_KEY: Final = 0
"""FindCoordinator's key type of a group."""
TRANSACTION_KEY: Final = 1
"""The same of a transactional id."""
RETRY_S: Final = 0.1
FIRST_CONTACT_S: Final = 2.0
"""How long to try an advertised address that has never responded: a restarted broker may advertise
another."""


class Unreachable(ClientError):
    """The endpoint responds, but the address that it advertises does not: a retry is of no use."""


class NotServed(ClientError):
    """The endpoint has no such API, or only versions of it that are too old."""


class Refusal(ClientError):
    """The endpoint responded with an error."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.error = _error(code)
        reason = message or _REASONS.get(self.error, "")
        super().__init__(f"{what}: {self.error.name}{f' ({reason})' if reason else ''}")


_REASONS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition; see dragoman topics list",
    ErrorCode.OFFSET_OUT_OF_RANGE: "see dragoman topics describe for the offsets there are",
    ErrorCode.TOPIC_ALREADY_EXISTS: "see dragoman topics describe",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group; see dragoman groups list",
    ErrorCode.NON_EMPTY_GROUP: "it has members; stop them first",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id; see dragoman transactions list",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern is no regular expression of RE2",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop them first",
}


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as Metadata returns it; `leaders[i]` leads partition i."""

    name: str
    topic_id: bytes
    leaders: Sequence[int]
    replicas: int
    is_internal: bool


class Endpoint:
    """Connections to the nodes of one cluster, each made when it is first needed."""

    def __init__(self, contact: Contact, timeout: float = 15.0) -> None:
        """Errors: ConfigError, ClientError."""
        addresses = [parse_address(text, "--bootstrap") for text in contact.addresses]
        self._tls = client_context(contact)
        self._timeout = timeout
        self._nodes: dict[int, Address] = {}
        self._clients: dict[Address, Client] = {}
        self._versions: dict[Address, dict[int, tuple[int, int]]] = {}
        """Of every address that was ever connected to."""
        self._controller = -1
        self._first = self._find(contact, addresses)

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.__exit__(None, None, None)

    def ask(self, key: ApiKey, request: Any, node: int | None = None, lowest: int = 0) -> Any:
        """The response of a node (of any, if None) to a request in the newest version that both sides know.
        ClientError; Unreachable if the advertised address of the node cannot be reached."""
        address = self._first if node is None else self._nodes.get(node, self._first)
        if address not in self._versions:
            self._reach(address)
        return self._ask(address, key, request, lowest)

    def ask_controller(self, key: ApiKey, request: Any, lowest: int = 0) -> Any:
        """The response of the controller, which changes topics."""
        if self._controller < 0:
            self._refresh(MetadataRequest([]))
        return self.ask(key, request, self._controller, lowest)

    def metadata(self) -> Any:
        """The Metadata response about all brokers and topics. ClientError."""
        return self._refresh(MetadataRequest(None))

    def reach(self, node: int) -> None:
        """One request to the advertised address of a node of the last Metadata response. ClientError."""
        self._connect(self._nodes[node], FIRST_CONTACT_S).ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())

    def nodes(self) -> list[int]:
        """Ids of all nodes."""
        self._refresh(MetadataRequest([]))
        return sorted(self._nodes)

    def ask_coordinator(self, key: ApiKey, group_id: str, request: Any, lowest: int = 0) -> Any:
        """The response of the coordinator of a group. Refusal if there is none within LEADER_WAIT_S."""
        node = self._find_coordinator(GROUP_KEY, group_id, f"coordinator of group {group_id}")
        return self.ask(key, request, node, lowest)

    def ask_transaction_coordinator(self, key: ApiKey, transactional_id: str, request: Any) -> Any:
        """The same for a transactional id."""
        what = f"coordinator of transactional id {transactional_id}"
        return self.ask(key, request, self._find_coordinator(TRANSACTION_KEY, transactional_id, what))

    def _find_coordinator(self, key_type: int, name: str, what: str) -> int:
        deadline = time.monotonic() + LEADER_WAIT_S
        while True:
            found = self._coordinator(key_type, name)
            if not found.error_code:
                self._nodes[found.node_id] = Address(found.host, found.port)
                node: int = found.node_id
                return node
            if not _error(found.error_code).retriable or time.monotonic() > deadline:
                raise Refusal(what, found.error_code, found.error_message)
            time.sleep(RETRY_S)

    def topics(self, names: Sequence[str] | None = None, create: bool = False) -> dict[str, TopicInfo]:
        """Topics by name, all if None. Waits for their leaders. Refusal for one that cannot be described."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        deadline = time.monotonic() + LEADER_WAIT_S
        while True:
            response = self._refresh(MetadataRequest(wanted, allow_auto_topic_creation=create))
            failed = [topic for topic in response.topics if topic.error_code]
            leaderless = any(part.leader_id < 0 for topic in response.topics for part in topic.partitions)
            is_final = any(not _may_pass(_error(topic.error_code), create) for topic in failed)
            if (not failed and not leaderless) or is_final or time.monotonic() > deadline:
                break
            time.sleep(RETRY_S)
        for topic in failed if names is not None else ():
            raise Refusal(f"topic {topic.name}", topic.error_code)
        return {topic.name: _topic(topic) for topic in response.topics if not topic.error_code}

    def _coordinator(self, key_type: int, name: str) -> Any:
        request = FindCoordinatorRequest(name, key_type, [name])
        response = self._ask(self._first, ApiKey.FIND_COORDINATOR, request, 0 if key_type == GROUP_KEY else 1)
        return response.coordinators[0] if response.coordinators else response

    def _refresh(self, request: MetadataRequest) -> Any:
        response = self._ask(self._first, ApiKey.METADATA, request, 5)
        self._nodes = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        self._controller = response.controller_id
        return response

    def _find(self, contact: Contact, addresses: Sequence[Address]) -> Address:
        failures = []
        for address in addresses:
            try:
                self._connect(address)
                return address
            except ClientError as error:
                failures.append(error)
        hint = failures[0].hint or self._hint(contact)
        raise ClientError(f"{'; '.join(map(str, failures))}: {hint}")

    def _hint(self, contact: Contact) -> str:
        """For a server that accepted the connection and did not respond."""
        if self._tls is None:
            return "if it speaks TLS, name it --bootstrap SSL://HOST:PORT"
        if not contact.tls_cert:
            # In TLS 1.3 a server that misses a client certificate just closes the connection.
            return "is that an SSL:// listener, and does it ask for a client certificate (--tls-cert)?"
        return "does it trust the CA of this client certificate?"

    def _reach(self, advertised: Address) -> None:
        """Connect for the first time to an advertised address."""
        deadline = time.monotonic() + FIRST_CONTACT_S
        while True:
            try:
                self._connect(advertised, FIRST_CONTACT_S)
                return
            except ClientError as error:
                if time.monotonic() > deadline:
                    self._forget(self._first)
                    self._connect(self._first)
                    reason = error.reason if isinstance(error, NotConnected) else str(error)
                    raise Unreachable(
                        f"{self._first} responded, but advertises {advertised} "
                        f"(listeners.advertise), which cannot be reached: {reason}"
                    ) from error
            time.sleep(RETRY_S)

    def _connect(self, address: Address, connect_timeout: float | None = None) -> Client:
        client = self._clients.get(address)
        if client is not None:
            return client
        client = Client(address, self._timeout, self._tls, connect_timeout)
        try:
            response = client.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        except BaseException:
            client.__exit__(None, None, None)
            raise
        self._versions[address] = {
            one.api_key: (one.min_version, one.max_version) for one in response.api_keys
        }
        self._clients[address] = client
        return client

    def _ask(self, address: Address, key: ApiKey, request: Any, lowest: int) -> Any:
        client = self._connect(address)
        version = self._version(address, key, lowest)
        try:
            return client.ask(key, version, request)
        except Malformed as error:
            self._forget(address)
            raise ClientError(f"{address} sent a malformed response to {key.name}: {error}") from error
        except BaseException:
            # Also when interrupted: a late response must not be taken for the next one.
            self._forget(address)
            raise

    def _forget(self, address: Address) -> None:
        client = self._clients.pop(address, None)
        if client is not None:
            client.__exit__(None, None, None)

    def _version(self, address: Address, key: ApiKey, lowest: int) -> int:
        ours = codec_range(key)
        theirs = self._versions[address].get(int(key))
        assert ours is not None
        if theirs is None:
            raise NotServed(f"{address} does not serve {key.name}")
        version = min(ours[1], theirs[1], BY_NAME.get(key, ours[1]))
        if version < max(ours[0], theirs[0], lowest):
            raise NotServed(
                f"{address} serves {key.name} in versions {theirs[0]} to {theirs[1]} only: too old for this"
            )
        return version


def _may_pass(error: ErrorCode, create: bool) -> bool:
    return error is ErrorCode.LEADER_NOT_AVAILABLE or (create and error.retriable)


def _topic(topic: Any) -> TopicInfo:
    partitions = sorted(topic.partitions, key=lambda part: part.partition_index)
    leaders = [part.leader_id for part in partitions]
    replicas = len(partitions[0].replica_nodes) if partitions else 0
    return TopicInfo(topic.name, bytes(topic.topic_id), leaders, replicas, topic.is_internal)
