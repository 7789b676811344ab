"""What a handler gets with a request: its client, its listener, its limits, and the services."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from gateway.addresses import Listener
from gateway.configs.service import ConfigService
from gateway.coordination.ledger import Ledger
from gateway.fetch.list_offsets import ListOffsetsService
from gateway.fetch.service import FetchService
from gateway.groups.coordinator import GroupCoordinator
from gateway.groups.offset_manager import OffsetManager
from gateway.groups.transactional_offsets import TransactionalOffsets
from gateway.produce.producer_ids import ProducerIds
from gateway.produce.service import ProduceService
from gateway.produce.validation import TopicPolicies
from gateway.quotas.manager import ClientQuotaManager
from gateway.requests.arrival_order import ArrivalOrder
from gateway.requests.response_cache import EncodedResponses
from gateway.requests.response_size import ResponseSize
from gateway.scheduling.client_network import network_of
from gateway.scheduling.freeing import Kept
from gateway.scheduling.slices import CHECK_EVERY, Owner, Slices, SliceScheduler
from gateway.settings import Settings
from gateway.telemetry.handler_time import HandlerTime
from gateway.telemetry.metrics import Metrics
from gateway.topics.service import TopicService
from gateway.transactions.coordinator import TransactionCoordinator
from gateway.wire.apis import ApiKey
from gateway.wire.errors import Malformed, TooManyElements
from gateway.wire.header import RequestHeader
from ledger.errors import ErrorName

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
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)
"""Requests that clients and Kafka's tools send for all partitions at once, each with a topic of its own."""
BYTES_A_BYTE: Final = 64
"""The decoded form of a request takes at most this memory for each of its bytes."""
BYTES_AN_ELEMENT: Final = 300
"""The same for each of its elements."""
MEMORY_WAIT_S: Final = 10.0
"""A heavy request waits for memory for at least this time, even if it has waited for other things before."""


@dataclass(frozen=True, slots=True)
class Services:
    """The services and facts that all connections share."""

    settings: Settings
    shard: Ledger
    produce: ProduceService
    topic_policies: TopicPolicies
    fetch: FetchService
    offsets: ListOffsetsService
    topics: TopicService
    configs: ConfigService
    groups: GroupCoordinator
    group_offsets: OffsetManager
    transactions: TransactionCoordinator
    transactional_offsets: TransactionalOffsets
    quotas: ClientQuotaManager
    producer_ids: ProducerIds
    cluster_id: str
    node_id: int
    metrics: Metrics
    clock: Callable[[], int]
    """Unix time in ms."""
    served: Mapping[int, tuple[int, int]]
    """Lowest and highest version of each API that this gateway serves, as ApiVersions reports them."""
    scheduler: SliceScheduler = field(default_factory=SliceScheduler)
    """Shares the event loop and memory between heavy requests."""
    produce_order: ArrivalOrder = field(default_factory=ArrivalOrder)
    encoded: EncodedResponses = field(default_factory=EncodedResponses)
    """Responses that many clients request: Metadata of all topics."""
    encoded_topics: EncodedResponses = field(default_factory=EncodedResponses)
    """Metadata of some topics with very many partitions. Apart, as there are more of these."""


class RequestContext(msgspec.Struct):
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
    """Accept no further request of this connection for this number of seconds."""
    is_lost: Callable[[], bool] = lambda: False
    """Whether the connection is gone, so that a response cannot be sent."""
    handler_time: HandlerTime | None = None
    """Measured while any client has a quota of it."""
    error: str = ErrorName.NONE
    _slices: Slices | None = None

    @property
    def slices(self) -> Slices:
        """How this request shares the event loop where it is heavy; made at first use."""
        slices = self._slices
        if slices is None:
            owner = Owner(self.connection_id, network_of(self.peer_host))
            longest_s = self.services.settings.limits.request_timeout_ms / 1000
            deadline = self.received_at + longest_s
            slices = Slices(self.services.scheduler, owner, deadline, min(longest_s, MEMORY_WAIT_S))
            self._slices = slices
        return slices

    def response_size(self) -> ResponseSize:
        """The bound on a response that may be longer than its request."""
        return ResponseSize(self.services.settings.limits.response_bytes)

    @property
    def max_elements(self) -> int:
        """How many elements the request may have."""
        limits = self.services.settings.limits
        named = 2 * limits.partitions if self.header.api_key in NAMES_ALL_PARTITIONS else 0
        return limits.request_elements + named

    async def decoded(
        self, decoding: Callable[[int, Kept], Generator[int, None, Decoded]], size: int
    ) -> Decoded:
        """Decodes a request of `size` bytes in slices. `decoding` gets the number of elements that it may
        have, and the list in which to keep what is freed in slices."""
        slices, limits, max_items = self.slices, self.services.settings.limits, self.max_elements
        slices.bytes = min(size * BYTES_A_BYTE, max_items * BYTES_AN_ELEMENT) + limits.response_bytes
        try:
            return await slices.drive_heavy(decoding(max_items, slices.kept))
        except TooManyElements as error:
            raise Malformed(f"{error}: {self._bounds_of_elements}") from error

    @property
    def _bounds_of_elements(self) -> str:
        """Which settings allow more, for the log."""
        named = " + 2 x limits.partitions" if self.header.api_key in NAMES_ALL_PARTITIONS else ""
        return f"raise limits.request_elements{named}"

    @property
    def is_heavy(self) -> bool:
        """Whether it has counted more units than are processed at once."""
        return self._slices is not None and self._slices.weight >= CHECK_EVERY

    def leave(self) -> None:
        """Releases the memory of a heavy request that waits for other clients."""
        if self._slices is not None:
            self._slices.leave()

    def end(self) -> None:
        """The same when the request is done."""
        if self._slices is not None:
            self._slices.end()

    @property
    def user(self) -> str:
        """The name of the principal, without its type, as quotas know it."""
        return self.principal.partition(":")[2]

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    def deadline(self, timeout_ms: int) -> float:
        """Loop time at which a wait of `timeout_ms` ends, bounded by limits.request_timeout_ms."""
        longest = self.services.settings.limits.request_timeout_ms
        return self.received_at + min(max(timeout_ms, 0), longest) / 1000

    def change_deadline(self, timeout_ms: int) -> float:
        """The deadline of a change of topics. The journal gets its own time at least, as Kafka's controller
        takes it once it has begun."""
        return max(self.deadline(timeout_ms), self.journal_deadline())

    def journal_deadline(self) -> float:
        """Loop time at which a wait for the journal ends, for requests without a timeout of their own."""
        return self.deadline(self.services.settings.ledger.commit_timeout_ms)
