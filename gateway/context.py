"""What a handler gets with a request: who asks, over which listener, and the rooms it may use."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from gateway.config import Settings
from gateway.coordination.shard import Shard
from gateway.fetch.budget import Hold, give_back_at_once
from gateway.fetch.offsets import OffsetsRoom
from gateway.fetch.room import FetchRoom
from gateway.groups.offsets import CommittedOffsets
from gateway.groups.room import GroupsRoom
from gateway.listeners import Listener
from gateway.produce.admission import RuleBook
from gateway.produce.producer_ids import ProducerIds
from gateway.produce.room import ProduceRoom
from gateway.quotas.room import QuotasRoom
from gateway.requests.encoded import EncodedResponses
from gateway.requests.lines import ConnectionLines
from gateway.requests.response_size import ResponseSize
from gateway.requests.slicing import CHECK_EVERY, Owner, Slices, SliceScheduler
from gateway.security.door import network_of
from gateway.telemetry.handler_time import HandlerTime
from gateway.telemetry.metrics import Metrics
from gateway.topics.configs_room import ConfigsRoom
from gateway.topics.room import TopicsRoom
from gateway.wire.apis import ApiKey
from gateway.wire.header import RequestHeader
from ledger.types import Buffer

Decoded = TypeVar("Decoded")

NAMES_ALL_PARTITIONS: Final = frozenset(
    {
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.FETCH,
    }
)
"""What clients and Kafka's tools send for all partitions at once, each partition with a topic of its own."""
BYTES_A_BYTE: Final = 64
"""The most memory that a byte of a request is decoded to."""
BYTES_AN_ELEMENT: Final = 300
"""The same of an element, which may be shorter than it costs."""


@dataclass(frozen=True, slots=True)
class Services:
    """The rooms and facts that all connections share."""

    settings: Settings
    shard: Shard
    produce: ProduceRoom
    produce_rules: RuleBook
    fetch: FetchRoom
    offsets: OffsetsRoom
    topics: TopicsRoom
    configs: ConfigsRoom
    groups: GroupsRoom
    group_offsets: CommittedOffsets
    quotas: QuotasRoom
    producer_ids: ProducerIds
    cluster_id: str
    node_id: int
    metrics: Metrics
    clock: Callable[[], int]
    """Unix time in ms."""
    served: Mapping[int, tuple[int, int]]
    """Lowest and highest version of each API that this gateway answers, as ApiVersions tells them."""
    scheduler: SliceScheduler = field(default_factory=SliceScheduler)
    """Heavy requests share the event loop by it."""
    produce_lines: ConnectionLines = field(default_factory=ConnectionLines)
    encoded: EncodedResponses = field(default_factory=EncodedResponses)
    """What many clients ask for, encoded."""


class Reply(Protocol):
    """Who waits for the answer to a request that has no task."""

    def answer(self, buffers: Sequence[Buffer] | None) -> None:
        """The buffers of the answer, or None where the protocol has none."""
        ...

    def fail(self, error: Exception) -> None:
        """There will be no answer: Malformed, CloseConnection, or a bug."""
        ...


class MessageReply(Protocol):
    """The same, for a handler that gives the response message."""

    def answer(self, response: object) -> None:
        """Never raises."""
        ...

    def fail(self, error: Exception) -> None:
        """As of `Reply`."""
        ...


class Cancellable(Protocol):
    """A request under way that has no task."""

    def cancel(self) -> object:
        """Nobody waits for the answer any more, and the reply is not told."""
        ...


@dataclass(slots=True)
class RequestContext:
    """One request's surroundings. `error` is what the request is counted under; handlers may set it."""

    header: RequestHeader
    listener: Listener
    peer_host: str
    principal: str
    received_at: float
    """Loop time."""
    services: Services
    connection_id: int
    mute: Callable[[float], None]
    """Take up no further request of this connection for so many seconds."""
    is_lost: Callable[[], bool] = lambda: False
    """Whether the connection is gone, so that no answer will reach anybody."""
    handler_time: HandlerTime | None = None
    """Taken while somebody has a quota of it."""
    error: str = "NONE"
    hold: Hold = give_back_at_once
    """Keeps what an answer takes of a budget until it is sent."""
    _slices: Slices | None = None

    @property
    def slices(self) -> Slices:
        """How this request shares the event loop where it is heavy; made at first use."""
        slices = self._slices
        if slices is None:
            owner = Owner(self.connection_id, network_of(self.peer_host))
            longest_s = self.services.settings.limits.request_timeout_ms / 1000
            slices = Slices(self.services.scheduler, owner, self.received_at + longest_s)
            self._slices = slices
        return slices

    def response_size(self) -> ResponseSize:
        """The bound on a response that may be longer than its request."""
        return ResponseSize(self.services.settings.limits.response_bytes)

    @property
    def most_elements(self) -> int:
        """How many elements the request may have."""
        limits = self.services.settings.limits
        named = 2 * limits.partitions if self.header.api_key in NAMES_ALL_PARTITIONS else 0
        return limits.request_elements + named

    async def decoded(self, decoding: Callable[[int], Generator[int, None, Decoded]], size: int) -> Decoded:
        """A request of so many bytes that is not decoded at once. `decoding` is given the most elements that
        it may have."""
        slices, limits, most = self.slices, self.services.settings.limits, self.most_elements
        slices.bytes = min(size * BYTES_A_BYTE, most * BYTES_AN_ELEMENT) + limits.response_bytes
        return await slices.drive_heavy(decoding(most))

    @property
    def is_heavy(self) -> bool:
        """Whether it has counted more than is worked off at once."""
        return self._slices is not None and self._slices.weight >= CHECK_EVERY

    def leave(self) -> None:
        """Gives back the memory of a heavy request: it is done, or waits for other clients."""
        if self._slices is not None:
            self._slices.leave()

    @property
    def user(self) -> str:
        """The name of the principal, without its type, as quotas know it."""
        return self.principal.partition(":")[2]

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    def deadline(self, timeout_ms: int) -> float:
        """Loop time at which a wait of so long ends, shortened to what the gateway allows."""
        longest = self.services.settings.limits.request_timeout_ms
        return self.received_at + min(max(timeout_ms, 0), longest) / 1000

    def change_deadline(self, timeout_ms: int) -> float:
        """Of a change of topics: the journal gets its own time at least, as Kafka's controller once it has
        begun."""
        return max(self.deadline(timeout_ms), self.journal_deadline())

    def journal_deadline(self) -> float:
        """Loop time for waits on the journal, where the request says nothing."""
        return self.deadline(self.services.settings.ledger.commit_timeout_ms)
