"""Metadata (3), v0-13.

This gateway leads every partition, at the address of the listener that received the request. The leader epoch
is always 0.

v0: an empty array means all topics. v1: null means all topics, racks, ControllerId, IsInternal. v2:
ClusterId. v3: throttle time. v4: AllowAutoTopicCreation. v5: OfflineReplicas. v6: throttled after the
response. v7: LeaderEpoch. v8: authorized operations (KIP-430). v9: flexible. v10: TopicId in the response.
v11: no operations of the cluster (KIP-700). v12: topics by id (KIP-516). v13: a top-level error.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from gateway.quotas.mutations import QUOTA_EXCEEDED
from gateway.requests.audit import audited, new_topic_fields
from gateway.requests.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS
from gateway.requests.context import RequestContext
from gateway.requests.response_cache import Encoded
from gateway.requests.throttling import mutation_quota
from gateway.scheduling.slices import Slices
from gateway.topics.creation import NewTopic
from gateway.topics.service import TopicKey
from gateway.wire.apis import ApiKey
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages import codec
from gateway.wire.messages.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from gateway.wire.primitives import ZERO_UUID
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.topics.state import INTERNAL_TOPICS, Topic, check_topic_name
from ledger.types import TopicId

LEADER_EPOCH: Final = 0
FIRST_VERSION_WITH_NULLABLE_NAME: Final = 12
FIRST_VERSION_WITH_THROTTLE_TIME: Final = 3
ALWAYS_STRICT: Final = 0
UNKNOWN_TO_BROKERS: Final = (ErrorName.INVALID_TOPIC_EXCEPTION, ErrorName.INVALID_REQUEST)
"""Why a topic with a valid name is not created: it collides with another, or is reserved. At Kafka only the
controller knows."""
MAX_KEPT_TOPICS: Final = 16
MIN_KEPT_PARTITIONS: Final = 2_000
"""A response of few topics with many partitions is kept: clients request it every few minutes."""


async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse | Encoded:
    error = await _check(context, request)
    if error is not ErrorCode.NONE:
        return await _refused(context, request, error)
    if request.topics is None or (context.header.api_version == 0 and not request.topics):
        return await _encoded(context, request, (), context.services.topics.all)
    if len(request.topics) <= MAX_KEPT_TOPICS:
        known = await _known(context, request.topics)
        if sum(len(topic.partitions) for topic in known.values()) >= MIN_KEPT_PARTITIONS:
            return await _encoded(context, request, tuple(known), known.values)
    return _response(context, request, await _topics(context, request, request.topics))


async def _known(context: RequestContext, requested: Sequence[MetadataRequestTopic]) -> dict[TopicKey, Topic]:
    """The requested topics, each once, if all of them are known; else none."""
    keys, service = await _keys(requested, context.slices), context.services.topics
    known = {key: topic for key in keys if (topic := service.get(key)) is not None}
    return known if len(known) == len(keys) else {}


async def _encoded(
    context: RequestContext,
    request: MetadataRequest,
    keys: tuple[TopicKey, ...],
    described_topics: Callable[[], Iterable[Topic]],
) -> Encoded:
    """The response is the same for all clients of a listener until a topic is created, deleted or grown.
    Without `keys` it is that of all topics."""
    version, services = context.header.api_version, context.services

    async def make() -> bytes:
        # As the topics are now or later, never as they were before the request arrived.
        operations = _topic_operations(request)
        described = _Described(context, operations)
        topics = [await described.topic(topic) async for topic in context.slices.paced(described_topics())]
        # To be freed in slices.
        context.slices.keep(described.partitions)
        response = _response(context, request, topics)
        return await context.slices.drive(codec.encoding_response(ApiKey.METADATA, version, response))

    key = (
        keys,
        context.services.shard.state.topics.version,
        version,
        (context.listener.host, context.listener.port),
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
    )
    kept = services.encoded_topics if keys else services.encoded
    return Encoded(await kept.get(key, make), version >= FIRST_VERSION_WITH_THROTTLE_TIME)


def _response(
    context: RequestContext, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    services, listener = context.services, context.listener
    wants_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[MetadataResponseBroker(services.node_id, listener.host, listener.port)],
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_REQUESTED,
    )


def _topic_operations(request: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_REQUESTED


async def _check(context: RequestContext, request: MetadataRequest) -> ErrorCode:
    """Kafka's error for a request that does not name its topics properly; it then describes none at all."""
    version = context.header.api_version
    async for topic in context.slices.paced(request.topics or ()):
        by_id = topic.topic_id != ZERO_UUID
        if version < FIRST_VERSION_WITH_NULLABLE_NAME and (topic.name is None or by_id):
            return ErrorCode.INVALID_REQUEST
        if topic.name is None and not by_id:
            return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


async def _refused(context: RequestContext, request: MetadataRequest, error: ErrorCode) -> MetadataResponse:
    context.error = error.name
    named = request.topics or ()
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error, topic.name or "", topic.topic_id)
            async for topic in context.slices.paced(named)
        ]
    )


async def _topics(
    context: RequestContext, request: MetadataRequest, requested: Sequence[MetadataRequestTopic]
) -> list[MetadataResponseTopic]:
    service, slices, operations = context.services.topics, context.slices, _topic_operations(request)
    keys = await _keys(requested, slices)
    legal: dict[TopicKey, None] = {
        key: None
        async for key in slices.paced(keys)
        if not isinstance(key, str) or check_topic_name(key) is None
    }
    slices.keep(legal)
    deadline = context.journal_deadline()
    is_confirmed = await service.confirm_absent(legal, deadline, slices)
    refused: dict[str, Refused] = {}
    if (
        is_confirmed
        and request.allow_auto_topic_creation
        and context.services.settings.broker.auto_create_topics_enable
    ):
        missing = [
            key async for key in slices.paced(legal) if isinstance(key, str) and service.get(key) is None
        ]
        refused = await service.create_missing(missing, deadline, partial(_create, context))
    results, described = list[MetadataResponseTopic](), _Described(context, operations)
    slices.kept.append(results)
    async for key in slices.paced(keys):
        topic = service.get(key)
        if topic is not None:
            results.append(await described.topic(topic))
        else:
            results.append(_error_result(key, is_confirmed, refused))
            if isinstance(key, str):
                results[-1].topic_authorized_operations = operations
    return results


async def _create(context: RequestContext, topic: NewTopic, deadline: float) -> Topic | Refused:
    exceeded = mutation_quota(context, ALWAYS_STRICT).take(topic.partitions)
    if exceeded is not None:
        return exceeded
    creation = context.services.topics.create(topic, deadline)
    return await audited(context, creation, "topic.created", **new_topic_fields(topic))


async def _keys(topics: Sequence[MetadataRequestTopic], slices: Slices) -> dict[TopicKey, None]:
    """The requested names or ids, each once, in order. If there is an id, names do not count (KIP-516)."""
    ids: dict[TopicKey, None] = {}
    names: dict[TopicKey, None] = {}
    async for topic in slices.paced(topics):
        if topic.topic_id != ZERO_UUID:
            ids[TopicId(topic.topic_id)] = None
        elif not ids:
            names[topic.name or ""] = None
    # Dicts of str and bytes: the garbage collector visits every element of a young list, but skips these.
    return slices.keep(ids or names)


class _Described:
    """The topics of one response. Partitions of one index are equal in all of them, and the same object."""

    def __init__(self, context: RequestContext, operations: int) -> None:
        self._slices = context.slices
        self._node_id = context.services.node_id
        self._operations = operations
        self.partitions: list[MetadataResponsePartition] = []

    async def topic(self, topic: Topic) -> MetadataResponseTopic:
        count, known, nodes = len(topic.partitions), self.partitions, [self._node_id]
        async for index in self._slices.paced(range(len(known), count)):
            known.append(
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=self._node_id,
                    leader_epoch=LEADER_EPOCH,
                    replica_nodes=nodes,
                    isr_nodes=nodes,
                )
            )
        # To slice the list costs little; to encode it later costs time in proportion to its length.
        self._slices.is_due(count >> 3)
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=known[:count],
            topic_authorized_operations=self._operations,
        )


def _error_result(key: TopicKey, is_confirmed: bool, refused: dict[str, Refused]) -> MetadataResponseTopic:
    if not isinstance(key, str):
        error = ErrorCode.UNKNOWN_TOPIC_ID if is_confirmed else ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponseTopic(error, name=None, topic_id=key)
    if check_topic_name(key) is not None:
        return MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name=key)
    if not is_confirmed:
        return MetadataResponseTopic(ErrorCode.LEADER_NOT_AVAILABLE, name=key)
    return MetadataResponseTopic(_error_of(refused.get(key)), name=key)


def _error_of(refused: Refused | None) -> ErrorCode:
    """A topic that could not be created is unknown; where time may help, the error is a retriable one."""
    if refused is None or refused is QUOTA_EXCEEDED or refused.error in UNKNOWN_TO_BROKERS:
        # As in Kafka, where the broker requests the topic from the controller and does not wait for it.
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refused.error in (ErrorName.REQUEST_TIMED_OUT, ErrorName.KAFKA_STORAGE_ERROR):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ERROR_CODES[refused.error]
