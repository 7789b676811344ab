"""Produce (key 0): https://kafka.apache.org/protocol.html#The_Messages_Produce."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.context import RequestContext
from gateway.produce.accumulator import PendingBatch
from gateway.produce.admission import (
    ACKS,
    TopicRules,
    check,
    find_topic,
    is_transactional,
    merged,
    unknown_topic,
)
from gateway.produce.refusals import Refusal
from gateway.produce.room import RequestWaiter
from gateway.wire.connection import CloseConnection
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
    RecordError,
    decode_produce,
    encode_produce_response,
)
from ledger.errors import StoreError
from ledger.partitions import PartitionLog
from ledger.topics import Topic
from ledger.types import Buffer

NOTHING = -1
SHORTEST_WAIT_S = 1.0
"""Kafka's timeout covers the wait for replicas, not the local append; here all is in one."""


@dataclass(frozen=True, slots=True)
class _Produced:
    """One partition's way: either a batch under way, or what was refused at the door."""

    index: int
    outcome: PendingBatch | Refusal
    log: PartitionLog | None = None


async def handle(context: RequestContext, body: memoryview) -> Sequence[Buffer] | None:
    """Up to the first wait this takes every batch of a known topic into the accumulator, so that the
    batches of a connection get their offsets in the order in which they were sent."""
    version = context.header.api_version
    request = decode_produce(version, body)
    waiter = RequestWaiter()
    # Held until all partitions are taken up, so that the request is not done after its first.
    waiter.remaining += 1
    deadline = _deadline(context, request)
    request.topics = merged(request.topics)
    refusal = _refuse_all(request)
    if refusal is not None:
        produced = [[_Produced(p.index, refusal) for p in topic.partitions] for topic in request.topics]
    else:
        found = [find_topic(context.services.shard.state.topics, version, topic) for topic in request.topics]
        produced = [
            _take_up(context, asked, topic, waiter)
            for asked, topic in zip(request.topics, found, strict=True)
        ]
        if any(_may_be_unknown(partitions) for partitions in produced):
            produced = await _look_again(context, request, produced, waiter, deadline)
    waiter.resolved()
    if not waiter.done.done():
        await _wait(waiter, deadline)
    return _answer(context, request, produced)


def _refuse_all(request: ProduceRequest) -> Refusal | None:
    if request.transactional_id is None and is_transactional(request.topics):
        reason = "a transactional batch without a transactional id"
        return Refusal("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", reason)
    if request.acks not in ACKS:
        return Refusal("INVALID_REQUIRED_ACKS", f"acks must be -1, 0 or 1, not {request.acks}")
    return None


def _deadline(context: RequestContext, request: ProduceRequest) -> float:
    longest = context.services.settings.limits.request_timeout_ms / 1000
    asked = request.timeout_ms / 1000 if request.acks == -1 else longest
    return context.received_at + min(max(asked, SHORTEST_WAIT_S), longest)


def _take_up(
    context: RequestContext, asked: ProduceTopic, topic: Topic | None, waiter: RequestWaiter
) -> list[_Produced]:
    version = context.header.api_version
    if topic is None:
        return [_Produced(partition.index, unknown_topic(version)) for partition in asked.partitions]
    rules = context.services.produce_rules.of(topic)
    return [_take_up_one(context, topic, rules, partition, waiter) for partition in asked.partitions]


def _take_up_one(
    context: RequestContext,
    topic: Topic,
    rules: TopicRules,
    partition: ProducePartition,
    waiter: RequestWaiter,
) -> _Produced:
    if not 0 <= partition.index < len(topic.partitions):
        refusal = Refusal("UNKNOWN_TOPIC_OR_PARTITION", "this server does not host this topic-partition")
        return _Produced(partition.index, refusal)
    services = context.services
    log = topic.partitions[partition.index]
    batch = check(partition.records, rules, context.header.api_version)
    if isinstance(batch, Refusal):
        return _Produced(partition.index, batch, log)
    services.metrics.produce_bytes.inc(len(batch.data))
    return _Produced(partition.index, services.produce.add(log, batch, waiter, rules), log)


def _may_be_unknown(partitions: Sequence[_Produced]) -> bool:
    return any(isinstance(p.outcome, Refusal) and p.outcome.error.startswith("UNKNOWN_") for p in partitions)


async def _look_again(
    context: RequestContext,
    request: ProduceRequest,
    produced: list[list[_Produced]],
    waiter: RequestWaiter,
    deadline: float,
) -> list[list[_Produced]]:
    """Before a topic is said to be unknown: make sure that its creation is not merely still unseen."""
    try:
        await context.services.shard.barrier(deadline)
    except (StoreError, TimeoutError):
        return produced
    topics = context.services.shard.state.topics
    again: list[list[_Produced]] = []
    for asked, before in zip(request.topics, produced, strict=True):
        topic = find_topic(topics, context.header.api_version, asked)
        retry = topic is not None and all(_may_be_unknown([partition]) for partition in before)
        again.append(_take_up(context, asked, topic, waiter) if retry else before)
    return again


async def _wait(waiter: RequestWaiter, deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await asyncio.shield(waiter.done)
    except TimeoutError:
        pass
    finally:
        # Batches that no draft has taken yet must not be stored after this answer.
        waiter.given_up = True


def _answer(
    context: RequestContext, request: ProduceRequest, produced: list[list[_Produced]]
) -> Sequence[Buffer] | None:
    answers = [[_partition_answer(partition) for partition in partitions] for partitions in produced]
    errors = [answer.error_code for topic in answers for answer in topic if answer.error_code]
    if errors:
        context.error = ErrorCode(errors[0]).name
    if request.acks == 0:
        if errors:
            # Without an answer, closing is the only way to tell the producer (as Kafka does).
            raise CloseConnection(f"a batch sent with acks=0 was refused: {context.error}")
        return None
    topics = [
        ProduceTopicResponse(asked.name, asked.topic_id, partitions)
        for asked, partitions in zip(request.topics, answers, strict=True)
    ]
    return [encode_produce_response(context.header.api_version, ProduceResponse(topics))]


def _partition_answer(produced: _Produced) -> ProducePartitionResponse:
    outcome = produced.outcome
    if isinstance(outcome, Refusal):
        return _refused(produced, outcome)
    if outcome.error:
        refusal = Refusal(outcome.error, outcome.message, outcome.record_errors, outcome.in_log)
        return _refused(produced, refusal)
    if outcome.base_offset < 0:
        return ProducePartitionResponse(
            produced.index,
            ErrorCode.REQUEST_TIMED_OUT,
            error_message="the batch was not stored within the timeout; whether it will be is not known",
        )
    return ProducePartitionResponse(
        produced.index,
        ErrorCode.NONE,
        outcome.base_offset,
        outcome.append_time_ms,
        outcome.log_start,
    )


def _refused(produced: _Produced, refusal: Refusal) -> ProducePartitionResponse:
    return ProducePartitionResponse(
        produced.index,
        ErrorCode[refusal.error],
        log_start_offset=produced.log.log_start if refusal.in_log and produced.log is not None else NOTHING,
        record_errors=[RecordError(at, reason) for at, reason in refusal.records],
        error_message=refusal.message or None,
    )
