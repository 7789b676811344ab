"""Metadata, versions 0-13. The gateway that is asked leads every partition, at the address of the listener
over which it is asked; the leader epoch is 0 for ever."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from gateway.context import RequestContext
from gateway.handlers.auditing import audited, new_topic_fields
from gateway.handlers.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from gateway.handlers.throttling import mutation_quota
from gateway.quotas.mutations import QUOTA_EXCEEDED
from gateway.requests.encoded import Encoded
from gateway.requests.slicing import Slices
from gateway.topics.creation import NewTopic
from gateway.wire.apis import ApiKey
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
from ledger.requests import Refused
from ledger.topics import INTERNAL_TOPICS, Topic, check_topic_name
from ledger.types import TopicId

LEADER_EPOCH: Final = 0
NULLABLE_NAME_FROM: Final = 12
FIRST_WITH_THROTTLE_TIME: Final = 3
ALWAYS_STRICT: Final = 0

Key = str | TopicId


async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse | Encoded:
    error = await _check(context, request)
    if error is not ErrorCode.NONE:
        return await _refused(context, request, error)
    if request.topics is None or (context.header.api_version == 0 and not request.topics):
        return await _all_topics(context, request)
    return _response(context, request, await _topics(context, request, request.topics))


async def _all_topics(context: RequestContext, request: MetadataRequest) -> Encoded:
    """The same for every client of a listener until a topic comes, goes or grows."""
    version, room = context.header.api_version, context.services.topics

    async def make() -> bytes:
        # As the topics are now, or later: never as they were before the request came.
        operations = _topic_operations(request)
        described = _Described(context, operations)
        topics = [await described.topic(topic) async for topic in context.slices.paced(room.all())]
        response = _response(context, request, topics)
        return await context.slices.drive(codec.encoding_response(ApiKey.METADATA, version, response))

    key = (
        context.services.shard.state.topics.version,
        version,
        (context.listener.host, context.listener.port),
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
    )
    return Encoded(await context.services.encoded.get(key, make), version >= FIRST_WITH_THROTTLE_TIME)


def _response(
    context: RequestContext, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    services, listener = context.services, context.listener
    asks_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[MetadataResponseBroker(services.node_id, listener.host, listener.port)],
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if asks_operations else NOT_ASKED,
    )


def _topic_operations(request: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED


async def _check(context: RequestContext, request: MetadataRequest) -> ErrorCode:
    """Kafka's answer to a request that names a topic in no proper way; it then describes nothing at all."""
    version = context.header.api_version
    async for topic in context.slices.paced(request.topics or ()):
        by_id = topic.topic_id != ZERO_UUID
        if version < NULLABLE_NAME_FROM and (topic.name is None or by_id):
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
    context: RequestContext, request: MetadataRequest, asked: Sequence[MetadataRequestTopic]
) -> list[MetadataResponseTopic]:
    room, slices, operations = context.services.topics, context.slices, _topic_operations(request)
    keys = await _keys(asked, slices)
    legal = [
        key async for key in slices.paced(keys) if not isinstance(key, str) or check_topic_name(key) is None
    ]
    deadline = context.journal_deadline()
    may_deny = await room.prove_unknown(legal, deadline, slices)
    refused: dict[str, Refused] = {}
    if (
        may_deny
        and request.allow_auto_topic_creation
        and context.services.settings.broker.auto_create_topics_enable
    ):
        missing = [key async for key in slices.paced(legal) if isinstance(key, str) and room.get(key) is None]
        refused = await room.create_missing(missing, deadline, partial(_create, context))
    answers, described = [], _Described(context, operations)
    async for key in slices.paced(keys):
        topic = room.get(key)
        if topic is not None:
            answers.append(await described.topic(topic))
        else:
            answers.append(_denied(key, may_deny, refused))
            if isinstance(key, str):
                answers[-1].topic_authorized_operations = operations
    return answers


async def _create(context: RequestContext, topic: NewTopic, deadline: float) -> Topic | Refused:
    exceeded = mutation_quota(context, ALWAYS_STRICT).take(topic.partitions)
    if exceeded is not None:
        return exceeded
    creation = context.services.topics.create(topic, deadline)
    return await audited(context, creation, "topic.created", **new_topic_fields(topic))


async def _keys(topics: Sequence[MetadataRequestTopic], slices: Slices) -> list[Key]:
    """Names or ids asked for, each once, in order. If there is an id, names do not count (KIP-516)."""
    ids: dict[TopicId, None] = {}
    names: dict[str, None] = {}
    async for topic in slices.paced(topics):
        if topic.topic_id != ZERO_UUID:
            ids[TopicId(topic.topic_id)] = None
        elif not ids:
            names[topic.name or ""] = None
    return list(ids) if ids else list(names)


class _Described:
    """The topics of one response. Partitions of the same number look the same in all of them, and are the
    same object."""

    def __init__(self, context: RequestContext, operations: int) -> None:
        self._slices = context.slices
        self._node_id = context.services.node_id
        self._operations = operations
        self._partitions: list[MetadataResponsePartition] = []

    async def topic(self, topic: Topic) -> MetadataResponseTopic:
        count, known, nodes = len(topic.partitions), self._partitions, [self._node_id]
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
        # Slicing the list costs little, encoding it later costs as much as it is long.
        self._slices.is_due(count >> 3)
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=known[:count],
            topic_authorized_operations=self._operations,
        )


def _denied(key: Key, may_deny: bool, refused: dict[str, Refused]) -> MetadataResponseTopic:
    if not isinstance(key, str):
        error = ErrorCode.UNKNOWN_TOPIC_ID if may_deny else ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponseTopic(error, name=None, topic_id=key)
    if check_topic_name(key) is not None:
        return MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name=key)
    if not may_deny:
        return MetadataResponseTopic(ErrorCode.LEADER_NOT_AVAILABLE, name=key)
    return MetadataResponseTopic(_error_of(refused.get(key)), name=key)


def _error_of(refused: Refused | None) -> ErrorCode:
    """A topic that could not be created is unknown; where time may help, clients are told to try again."""
    if refused is None or refused is QUOTA_EXCEEDED:
        # As in Kafka, whose broker asks its controller for the topic and answers without waiting for it.
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refused.error in ("REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR"):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode[refused.error]
