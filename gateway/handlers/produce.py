"""Produce (0), v0-13.

https://kafka.apache.org/protocol.html#The_Messages_Produce. v0-2 are advertised, but never served.

v3: TransactionalId, record batches (KIP-98). v7: zstd. v8: errors of records (KIP-467). v9: flexible. v10:
CurrentLeader (KIP-951). v11: TRANSACTION_ABORTABLE (KIP-890). v12: the partition is added to the transaction
(KIP-890, transaction version 2). v13: topic ids.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from gateway.completion import Completion
from gateway.produce.accumulator import PendingBatch, ProduceCompletion
from gateway.produce.refusals import Refusal
from gateway.produce.validation import (
    TopicPolicy,
    check,
    find_topic,
    merged,
    merging,
    refuse_all,
    refused_as_internal,
    transaction_of,
    unknown_topic,
)
from gateway.requests.context import RequestContext
from gateway.requests.throttling import throttle_produce
from gateway.requests.tracing import begin_trace
from gateway.response import Buffers
from gateway.telemetry.traces import CANCELLED
from gateway.wire.connection import CloseConnection
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode, NeedsSlices
from gateway.wire.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
    RecordError,
    decode_small_produce,
    decoding_produce,
    encode_produce_response,
    encoding_produce_response,
)
from ledger.errors import ErrorName, StoreError
from ledger.partitions.producers import TOO_MANY_PRODUCERS
from ledger.partitions.state import PartitionLog
from ledger.topics.state import Topic

log = structlog.get_logger(__name__)

NO_OFFSET = -1
CROWDED_MS = 1_000
"""How long a connection is muted whose new producer was refused."""
ENQUEUED_AT_ONCE: Final = 50
UNITS_A_PARTITION: Final = 10
SHORTEST_WAIT_S = 1.0
"""Kafka's timeout covers the wait for replicas, not the local append; here it covers both."""

CONFIG_ERRORS: Final = frozenset(
    {ErrorName.MESSAGE_TOO_LARGE, ErrorName.INVALID_TIMESTAMP, ErrorName.INVALID_RECORD}
)
"""Errors that depend on the configs of a topic, which another gateway may have changed."""
UNPROVED: Final = Refusal(ErrorName.KAFKA_STORAGE_ERROR, "the journal did not answer in time")


class _Produced(NamedTuple):
    """One partition of the request: its batch under way, or why it was refused at once."""

    partition_index: int
    outcome: PendingBatch | Refusal
    log: PartitionLog | None = None


def start(context: RequestContext, body: memoryview, completion: Completion[Buffers | None]) -> "ProduceCall":
    """Puts every batch of a known topic into the accumulator before it returns, so that the batches of a
    connection get their offsets in the order in which they were sent. Raises Malformed."""
    if context.handler_time is not None:
        context.handler_time.start()
    order = context.services.produce_order
    try:
        if order.has(context.connection_id):
            raise NeedsSlices
        request = decode_small_produce(context.header.api_version, body)
    except NeedsSlices:
        if context.handler_time is not None:
            context.handler_time.stop()
        return LongProduceCall(context, body, completion)
    call = ProduceCall(context, request, completion, len(body))
    try:
        call.enqueue()
    except BaseException:
        call.cancel()
        raise
    if context.handler_time is not None:
        context.handler_time.stop()
    return call


class ProduceCall(ProduceCompletion):
    """One Produce request under way. It is complete when the last of its batches has a result, or at its
    deadline."""

    __slots__ = (
        "_body_bytes",
        "_completion",
        "_context",
        "_deadline",
        "_produced",
        "_request",
        "_retrying",
        "_tick",
    )

    def __init__(
        self,
        context: RequestContext,
        request: ProduceRequest,
        completion: Completion[Buffers | None],
        body_bytes: int,
    ) -> None:
        super().__init__((context.connection_id, context.peer_host))
        traces = context.services.produce.traces
        if traces is not None:
            self.trace, completion = begin_trace(traces, "Produce", context, body_bytes, completion)
        self._body_bytes = body_bytes
        self._context = context
        self._request = request
        self._completion: Completion[Buffers | None] | None = completion
        self._produced: Sequence[Sequence[_Produced]] = ()
        self._deadline = _deadline(context, request)
        self._tick = 0
        """Of the service's deadlines, or 0."""
        self._retrying: asyncio.Task[None] | None = None

    def enqueue(self) -> None:
        context, request = self._context, self._request
        # One more until all partitions are enqueued, so that the request is not done after its first.
        self.remaining += 1
        self.transaction = transaction_of(request, self._version)
        request.topics = merged(request.topics)
        refusal = refuse_all(request)
        if refusal is not None:
            self._produced = [
                [_Produced(p.index, refusal) for p in topic.partitions] for topic in request.topics
            ]
        else:
            version, topics = context.header.api_version, context.services.shard.state.topics
            self._produced = [
                _enqueue_topic(context, requested, find_topic(topics, version, requested), self)
                for requested in request.topics
            ]
            for partitions in self._produced:
                if _has_unknown(partitions):
                    self._retrying = asyncio.create_task(self._retry_unknown())
                    return
        self._wait()

    def wants_result(self) -> bool:
        # A client that sends with acks=0 may close and count on it; no other can know what became of a batch.
        return not (self.is_done or (self._request.acks != 0 and self._context.is_lost()))

    @property
    def _version(self) -> int:
        return self._context.header.api_version

    def cancel(self) -> None:
        """Batches that are in no draft yet are not stored. Those in a draft are, without a response."""
        if self.trace is not None:
            self.trace.end(CANCELLED)
        self._completion = None
        if self._retrying is not None:
            self._retrying.cancel()
        self.set_result(None)

    async def _retry_unknown(self) -> None:
        """Before the response calls a topic unknown: confirm that by a barrier, since its creation may not
        have been applied here yet."""
        shard, version = self._context.services.shard, self._context.header.api_version
        try:
            await shard.barrier(self._deadline)
            self._produced = [
                self._retried(requested, before, find_topic(shard.state.topics, version, requested))
                for requested, before in zip(self._request.topics, self._produced, strict=True)
            ]
        except (StoreError, TimeoutError) as error:
            log.warning("produce.barrier_failed", error=str(error))
            self._produced = [[_unproved(p) for p in partitions] for partitions in self._produced]
        except Exception as error:
            completion, self._completion = self._completion, None
            if completion is not None:
                completion.set_exception(error)
        self._wait()

    def _retried(
        self, requested: ProduceTopic, before: Sequence[_Produced], topic: Topic | None
    ) -> Sequence[_Produced]:
        retry = topic is not None and all(_has_unknown([partition]) for partition in before)
        return _enqueue_topic(self._context, requested, topic, self) if retry else before

    def _wait(self) -> None:
        """All partitions are enqueued."""
        if self.remaining > 1:
            self._tick = self._context.services.produce.deadlines.add(self._deadline, self)
        self.count_down()

    def set_exception(self, error: Exception, /) -> None:
        """The deadline has passed: the response has the results that are known."""
        self.set_result(None)

    def set_result(self, result: None, /) -> None:
        # Batches that no draft has taken yet must not be stored after this response.
        self.is_done = True
        if self._tick:
            self._context.services.produce.deadlines.remove(self._tick, self)
        completion, self._completion = self._completion, None
        # Its batches refer to this request, so it drops its reference to them: the memory of their frame must
        # not wait for a garbage collection.
        produced, self._produced = self._produced, ()
        if completion is None:
            return
        if not self._context.services.shard.is_exclusive and any(map(_has_refutable, produced)):
            self._retrying = asyncio.create_task(self._prove(completion, produced))
        else:
            self._send(completion, produced)

    async def _prove(
        self, completion: Completion[Buffers | None], produced: Sequence[Sequence[_Produced]]
    ) -> None:
        """Respond once it is proved that no other gateway has changed the configs that refused a batch."""
        try:
            await self._context.services.shard.barrier(self._deadline)
        except (StoreError, TimeoutError) as error:
            log.warning("produce.barrier_failed", error=str(error))
            produced = [[_unproved(p) for p in partitions] for partitions in produced]
        self._send(completion, produced)

    def _send(self, completion: Completion[Buffers | None], produced: Sequence[Sequence[_Produced]]) -> None:
        # The caller completes other batches afterwards, even if this response cannot be sent.
        try:
            self._respond(completion, produced)
        except Exception:
            log.exception("produce.not_answered")

    def _respond(
        self, completion: Completion[Buffers | None], produced: Sequence[Sequence[_Produced]]
    ) -> None:
        try:
            responses = [
                [_partition_response(partition) for partition in partitions] for partitions in produced
            ]
            response = _response(self._context, self._request, responses, self._body_bytes)
            buffers = None if response is None else [encode_produce_response(self._version, response)]
        except Exception as error:
            completion.set_exception(error)
        else:
            completion.set_result(buffers)


class LongProduceCall(ProduceCall):
    """A request with very many partitions, or one after such a request of the same connection. Tasks of its
    own decode it, enqueue its batches and encode its response, in slices."""

    __slots__ = ("_body", "_task")

    def __init__(
        self, context: RequestContext, body: memoryview, completion: Completion[Buffers | None]
    ) -> None:
        super().__init__(context, ProduceRequest(None, -1, 0, []), completion, len(body))
        self._body = body
        self.remaining += 1
        order, connection_id = context.services.produce_order, context.connection_id
        order.enter(connection_id)
        self._task = self._started(self._run())
        # Also if it is cancelled before it begins.
        self._task.add_done_callback(lambda _: order.leave(connection_id))

    def cancel(self) -> None:
        self._task.cancel()
        super().cancel()

    async def _run(self) -> None:
        context = self._context
        order, connection_id = context.services.produce_order, context.connection_id
        try:
            async with order.lock(connection_id):
                if order.has_failed(connection_id):
                    raise CloseConnection("a request before this one failed")
                await self._enqueue_in_slices()
            if any([_has_unknown(partitions) async for partitions in context.slices.paced(self._produced)]):
                await self._retry_unknown()
                return
        except Exception as error:
            # Before the next request of the connection is accepted: a batch must not be stored without the
            # one before it.
            order.fail(connection_id)
            completion, self._completion = self._completion, None
            if completion is not None:
                completion.set_exception(error)
        finally:
            # From here on it waits only for the store.
            context.leave()
        self._wait()

    async def _enqueue_in_slices(self) -> None:
        context, version = self._context, self._version
        try:
            request = decode_small_produce(version, self._body)
        except NeedsSlices:
            request = await context.decoded(partial(decoding_produce, version, self._body), len(self._body))
        self._request, self._deadline = request, _deadline(context, request)
        self.transaction = transaction_of(request, self._version)
        slices = context.slices
        request.topics = slices.keep(await slices.drive(merging(request.topics)))
        refusal = refuse_all(request)
        topics = context.services.shard.state.topics
        enqueued = list[Sequence[_Produced]]()
        # In place, so that the enqueued batches are known if the request ends meanwhile.
        self._produced = enqueued
        async for requested in slices.paced(request.topics):
            produced = list[_Produced]()
            enqueued.append(produced)
            for start in range(0, len(requested.partitions), ENQUEUED_AT_ONCE):
                part = requested.partitions[start : start + ENQUEUED_AT_ONCE]
                if slices.is_due(UNITS_A_PARTITION * len(part)):
                    await slices.next_slice()
                if refusal is not None:
                    produced += [_Produced(partition.index, refusal) for partition in part]
                else:
                    some = ProduceTopic(requested.name, requested.topic_id, part)
                    produced += _enqueue_topic(context, some, find_topic(topics, version, requested), self)

    def _respond(
        self, completion: Completion[Buffers | None], produced: Sequence[Sequence[_Produced]]
    ) -> None:
        self._task = self._started(self._respond_in_slices(completion, produced))

    def _started(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        watch = self._context.handler_time
        return asyncio.create_task(work if watch is None else _awaited(watch.timed(work)))

    async def _respond_in_slices(
        self, completion: Completion[Buffers | None], produced: Sequence[Sequence[_Produced]]
    ) -> None:
        slices = self._context.slices
        try:
            responses = [
                [_partition_response(partition) async for partition in slices.paced(partitions)]
                async for partitions in slices.paced(produced)
            ]
            response = _response(self._context, self._request, responses, self._body_bytes)
            buffers: Buffers | None = None
            if response is not None:
                buffers = [await slices.drive(encoding_produce_response(self._version, response))]
        except Exception as error:
            completion.set_exception(error)
        else:
            completion.set_result(buffers)
        finally:
            self._context.end()


async def _awaited(work: Awaitable[None]) -> None:
    await work


def _deadline(context: RequestContext, request: ProduceRequest) -> float:
    longest = context.services.settings.limits.request_timeout_ms / 1000
    timeout_s = request.timeout_ms / 1000 if request.acks == -1 else longest
    return context.received_at + min(max(timeout_s, SHORTEST_WAIT_S), longest)


def _enqueue_topic(
    context: RequestContext, requested: ProduceTopic, topic: Topic | None, completion: ProduceCompletion
) -> list[_Produced]:
    header = context.header
    refusal = refused_as_internal(requested.name if topic is None else topic.name, header.client_id)
    if refusal is None and topic is not None:
        policy = context.services.topic_policies.of(topic)
        return [
            _enqueue_partition(context, topic, policy, partition, completion)
            for partition in requested.partitions
        ]
    refusal = refusal or unknown_topic(header.api_version)
    return [_Produced(partition.index, refusal) for partition in requested.partitions]


def _enqueue_partition(
    context: RequestContext,
    topic: Topic,
    policy: TopicPolicy,
    partition: ProducePartition,
    completion: ProduceCompletion,
) -> _Produced:
    made = topic.partitions.made
    if not 0 <= partition.index < len(made):
        refusal = Refusal(
            ErrorName.UNKNOWN_TOPIC_OR_PARTITION, "this server does not host this topic-partition"
        )
        return _Produced(partition.index, refusal)
    services = context.services
    log = made[partition.index] or topic.partitions[partition.index]
    batch = check(partition.records, policy, context.header.api_version)
    if isinstance(batch, Refusal):
        return _Produced(partition.index, batch, log)
    return _Produced(partition.index, services.produce.add(log, batch, completion, policy), log)


def _has_refutable(partitions: Sequence[_Produced]) -> bool:
    return any(p.outcome.error in CONFIG_ERRORS for p in partitions)


def _unproved(produced: _Produced) -> _Produced:
    """What is refused by the state at hand is refused retriably instead."""
    is_refutable = _has_refutable([produced]) or _has_unknown([produced])
    return produced._replace(outcome=UNPROVED) if is_refutable else produced


def _has_unknown(partitions: Sequence[_Produced]) -> bool:
    for _, outcome, _ in partitions:
        if isinstance(outcome, Refusal) and outcome.error.startswith("UNKNOWN_"):
            return True
    return False


def _response(
    context: RequestContext,
    request: ProduceRequest,
    responses: Sequence[Sequence[ProducePartitionResponse]],
    body_bytes: int,
) -> ProduceResponse | None:
    if context.handler_time is not None:
        context.handler_time.start()
    errors = _errors(responses)
    if errors:
        context.error = ErrorCode(errors[0]).name
    throttle_ms = throttle_produce(context, body_bytes, has_response=request.acks != 0)
    if ERROR_CODES[TOO_MANY_PRODUCERS] in errors and throttle_ms < CROWDED_MS:
        throttle_ms = CROWDED_MS
        context.mute(CROWDED_MS / 1000)
    if request.acks == 0:
        if errors:
            # Without a response the producer sees only the end of its connection, as in Kafka.
            raise CloseConnection(f"a batch sent with acks=0 was refused: {context.error}")
        return None
    topics = [
        ProduceTopicResponse(requested.name, requested.topic_id, partitions)
        for requested, partitions in zip(request.topics, responses, strict=True)
    ]
    return ProduceResponse(topics, throttle_ms)


def _errors(responses: Sequence[Sequence[ProducePartitionResponse]]) -> list[int]:
    errors = list[int]()
    for topic in responses:
        for part in topic:
            if part.error_code:
                errors.append(part.error_code)
    return errors


def _partition_response(produced: _Produced) -> ProducePartitionResponse:
    outcome = produced.outcome
    if isinstance(outcome, Refusal):
        return _refused(produced, outcome)
    if outcome.error is not None:
        refusal = Refusal(outcome.error, outcome.message, outcome.record_errors, outcome.in_log)
        return _refused(produced, refusal)
    if outcome.base_offset < 0:
        return ProducePartitionResponse(
            produced.partition_index,
            ErrorCode.REQUEST_TIMED_OUT,
            error_message="the batch was not stored within the timeout; whether it will be is not known",
        )
    return ProducePartitionResponse(
        produced.partition_index,
        ErrorCode.NONE,
        outcome.base_offset,
        outcome.append_time_ms,
        outcome.log_start,
    )


def _refused(produced: _Produced, refusal: Refusal) -> ProducePartitionResponse:
    return ProducePartitionResponse(
        produced.partition_index,
        ERROR_CODES[refusal.error],
        log_start_offset=produced.log.log_start if refusal.in_log and produced.log is not None else NO_OFFSET,
        record_errors=[RecordError(at, reason) for at, reason in refusal.records],
        error_message=refusal.message or None,
    )
