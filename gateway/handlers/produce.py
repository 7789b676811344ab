"""Produce (key 0): https://kafka.apache.org/protocol.html#The_Messages_Produce."""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from gateway.context import Reply, RequestContext
from gateway.handlers.throttling import throttle_produce
from gateway.produce.accumulator import PendingBatch, Waiter
from gateway.produce.admission import (
    ACKS,
    TopicRules,
    check,
    find_topic,
    is_transactional,
    merged,
    refused_as_internal,
    unknown_topic,
)
from gateway.produce.refusals import Refusal
from gateway.wire.connection import CloseConnection
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
from ledger.errors import StoreError
from ledger.partitions import PartitionLog
from ledger.producers import TOO_MANY_PRODUCERS
from ledger.topics import Topic
from ledger.types import Buffer

log = structlog.get_logger(__name__)

NOTHING = -1
CROWDED_MS = 1_000
"""How long a client is not listened to whose new producer was refused."""
TAKEN_AT_ONCE: Final = 50
UNITS_A_PARTITION: Final = 10
SHORTEST_WAIT_S = 1.0
"""Kafka's timeout covers the wait for replicas, not the local append; here all is in one."""


class _Produced(NamedTuple):
    """One partition's way: either a batch under way, or what was refused at the door."""

    number: int
    outcome: PendingBatch | Refusal
    log: PartitionLog | None = None


def start(context: RequestContext, body: memoryview, reply: Reply) -> "ProduceCall":
    """Take every batch of a known topic into the accumulator before this returns, so that the batches of a
    connection get their offsets in the order in which they were sent. Raises Malformed."""
    if context.handler_time is not None:
        context.handler_time.start()
    lines = context.services.produce_lines
    try:
        if lines.has(context.connection_id):
            raise NeedsSlices
        request = decode_small_produce(context.header.api_version, body)
    except NeedsSlices:
        if context.handler_time is not None:
            context.handler_time.stop()
        return LongProduceCall(context, body, reply)
    call = ProduceCall(context, request, reply, len(body))
    try:
        call.take_up()
    except BaseException:
        call.cancel()
        raise
    if context.handler_time is not None:
        context.handler_time.stop()
    return call


class ProduceCall(Waiter):
    """One Produce request under way. It is answered by who settles the last of its partitions, or at its
    deadline."""

    __slots__ = (
        "_body_bytes",
        "_context",
        "_deadline",
        "_looking",
        "_produced",
        "_reply",
        "_request",
        "_tick",
    )

    def __init__(
        self, context: RequestContext, request: ProduceRequest, reply: Reply, body_bytes: int
    ) -> None:
        super().__init__((context.connection_id, context.peer_host))
        self._body_bytes = body_bytes
        self._context = context
        self._request = request
        self._reply: Reply | None = reply
        self._produced: Sequence[Sequence[_Produced]] = ()
        self._deadline = _deadline(context, request)
        self._tick = 0
        """When the deadlines of the room think of it, or 0."""
        self._looking: asyncio.Task[None] | None = None

    def take_up(self) -> None:
        context, request = self._context, self._request
        # Held until all partitions are taken up, so that the request is not done after its first.
        self.remaining += 1
        request.topics = merged(request.topics)
        refusal = _refuse_all(request)
        if refusal is not None:
            self._produced = [
                [_Produced(p.index, refusal) for p in topic.partitions] for topic in request.topics
            ]
        else:
            version, topics = context.header.api_version, context.services.shard.state.topics
            self._produced = [
                _take_up(context, asked, find_topic(topics, version, asked), self) for asked in request.topics
            ]
            if any(_may_be_unknown(partitions) for partitions in self._produced):
                self._looking = asyncio.create_task(self._look_again())
                return
        self._wait()

    def is_waiting(self) -> bool:
        # Who sends with acks=0 may close and count on it; nobody else can know what became of a batch.
        return not (self.given_up or (self._request.acks != 0 and self._context.is_lost()))

    @property
    def _version(self) -> int:
        return self._context.header.api_version

    def settle(self) -> None:
        self._finish()

    def expire(self) -> None:
        self._finish()

    def cancel(self) -> None:
        """What is in no draft yet will not be stored; what is in one is, and nobody is told."""
        self._reply = None
        if self._looking is not None:
            self._looking.cancel()
        self._finish()

    async def _look_again(self) -> None:
        """Before a topic is said to be unknown: make sure that its creation is not merely still unseen."""
        shard, version = self._context.services.shard, self._context.header.api_version
        try:
            await shard.barrier(self._deadline)
            self._produced = [
                self._retried(asked, before, find_topic(shard.state.topics, version, asked))
                for asked, before in zip(self._request.topics, self._produced, strict=True)
            ]
        except (StoreError, TimeoutError) as error:
            log.warning("produce.barrier_failed", error=str(error))
        except Exception as error:
            reply, self._reply = self._reply, None
            if reply is not None:
                reply.fail(error)
        self._wait()

    def _retried(
        self, asked: ProduceTopic, before: Sequence[_Produced], topic: Topic | None
    ) -> Sequence[_Produced]:
        retry = topic is not None and all(_may_be_unknown([partition]) for partition in before)
        return _take_up(self._context, asked, topic, self) if retry else before

    def _wait(self) -> None:
        """All partitions are taken up."""
        if self.remaining > 1:
            self._tick = self._context.services.produce.deadlines.add(self._deadline, self)
        self.resolved()

    def _finish(self) -> None:
        # Batches that no draft has taken yet must not be stored after this answer.
        self.given_up = True
        if self._tick:
            self._context.services.produce.deadlines.leave(self._tick, self)
        reply, self._reply = self._reply, None
        # Its batches hold on to this request, so it lets go of them: the memory of their frame must not wait
        # for a collection of garbage.
        produced, self._produced = self._produced, ()
        if reply is None:
            return
        # Who settles a batch goes on with others, whatever becomes of this answer: those are stored too.
        try:
            self._tell(reply, produced)
        except Exception:
            log.exception("produce.not_answered")

    def _tell(self, reply: Reply, produced: Sequence[Sequence[_Produced]]) -> None:
        try:
            answers = [[_partition_answer(partition) for partition in partitions] for partitions in produced]
            response = _response(self._context, self._request, answers, self._body_bytes)
            buffers = None if response is None else [encode_produce_response(self._version, response)]
        except Exception as error:
            reply.fail(error)
        else:
            reply.answer(buffers)


class LongProduceCall(ProduceCall):
    """One of very many partitions, or behind such a one of its connection: it is decoded, taken up and
    answered in slices, by tasks of its own."""

    __slots__ = ("_body", "_task")

    def __init__(self, context: RequestContext, body: memoryview, reply: Reply) -> None:
        super().__init__(context, ProduceRequest(None, -1, 0, []), reply, len(body))
        self._body = body
        self.remaining += 1
        lines, connection_id = context.services.produce_lines, context.connection_id
        lines.enter(connection_id)
        self._task = self._begun(self._run())
        # Also if it is cancelled before it begins.
        self._task.add_done_callback(lambda _: lines.leave(connection_id))

    def cancel(self) -> None:
        self._task.cancel()
        super().cancel()

    async def _run(self) -> None:
        context = self._context
        lines, connection_id = context.services.produce_lines, context.connection_id
        try:
            async with lines.turn(connection_id):
                if lines.is_broken(connection_id):
                    raise CloseConnection("a request before this one failed")
                await self._take_up_in_slices()
            if any(
                [_may_be_unknown(partitions) async for partitions in context.slices.paced(self._produced)]
            ):
                await self._look_again()
                return
        except Exception as error:
            # Before the next in the line goes on: a batch without the one before it must not be stored.
            lines.break_off(connection_id)
            reply, self._reply = self._reply, None
            if reply is not None:
                reply.fail(error)
        finally:
            # What it waits for now is the store.
            context.leave()
        self._wait()

    async def _take_up_in_slices(self) -> None:
        context, version = self._context, self._version
        try:
            request = decode_small_produce(version, self._body)
        except NeedsSlices:
            request = await context.decoded(partial(decoding_produce, version, self._body), len(self._body))
        self._request, self._deadline = request, _deadline(context, request)
        request.topics = merged(request.topics)
        refusal = _refuse_all(request)
        topics, slices = context.services.shard.state.topics, context.slices
        taken = list[Sequence[_Produced]]()
        # In place, so that what is taken up is seen if the request ends meanwhile.
        self._produced = taken
        async for asked in slices.paced(request.topics):
            produced = list[_Produced]()
            taken.append(produced)
            for start in range(0, len(asked.partitions), TAKEN_AT_ONCE):
                part = asked.partitions[start : start + TAKEN_AT_ONCE]
                if slices.is_due(UNITS_A_PARTITION * len(part)):
                    await slices.turn()
                if refusal is not None:
                    produced += [_Produced(partition.index, refusal) for partition in part]
                else:
                    some = ProduceTopic(asked.name, asked.topic_id, part)
                    produced += _take_up(context, some, find_topic(topics, version, asked), self)

    def _tell(self, reply: Reply, produced: Sequence[Sequence[_Produced]]) -> None:
        self._task = self._begun(self._tell_in_slices(reply, produced))

    def _begun(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        watch = self._context.handler_time
        return asyncio.create_task(work if watch is None else _awaited(watch.timed(work)))

    async def _tell_in_slices(self, reply: Reply, produced: Sequence[Sequence[_Produced]]) -> None:
        slices = self._context.slices
        try:
            answers = [
                [_partition_answer(partition) async for partition in slices.paced(partitions)]
                async for partitions in slices.paced(produced)
            ]
            response = _response(self._context, self._request, answers, self._body_bytes)
            buffers: Sequence[Buffer] | None = None
            if response is not None:
                buffers = [await slices.drive(encoding_produce_response(self._version, response))]
        except Exception as error:
            reply.fail(error)
        else:
            reply.answer(buffers)
        finally:
            self._context.leave()


async def _awaited(work: Awaitable[None]) -> None:
    await work


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
    context: RequestContext, asked: ProduceTopic, topic: Topic | None, waiter: Waiter
) -> list[_Produced]:
    header = context.header
    refusal = refused_as_internal(asked.name if topic is None else topic.name, header.client_id)
    if refusal is None and topic is not None:
        rules = context.services.produce_rules.of(topic)
        return [_take_up_one(context, topic, rules, partition, waiter) for partition in asked.partitions]
    refusal = refusal or unknown_topic(header.api_version)
    return [_Produced(partition.index, refusal) for partition in asked.partitions]


def _take_up_one(
    context: RequestContext,
    topic: Topic,
    rules: TopicRules,
    partition: ProducePartition,
    waiter: Waiter,
) -> _Produced:
    if not 0 <= partition.index < len(topic.partitions):
        refusal = Refusal("UNKNOWN_TOPIC_OR_PARTITION", "this server does not host this topic-partition")
        return _Produced(partition.index, refusal)
    services = context.services
    log = topic.partitions[partition.index]
    batch = check(partition.records, rules, context.header.api_version)
    if isinstance(batch, Refusal):
        return _Produced(partition.index, batch, log)
    services.metrics.produce_bytes.value += len(batch.data)
    return _Produced(partition.index, services.produce.add(log, batch, waiter, rules), log)


def _may_be_unknown(partitions: Sequence[_Produced]) -> bool:
    return any(isinstance(p.outcome, Refusal) and p.outcome.error.startswith("UNKNOWN_") for p in partitions)


def _response(
    context: RequestContext,
    request: ProduceRequest,
    answers: Sequence[Sequence[ProducePartitionResponse]],
    body_bytes: int,
) -> ProduceResponse | None:
    if context.handler_time is not None:
        context.handler_time.start()
    errors = [answer.error_code for topic in answers for answer in topic if answer.error_code]
    if errors:
        context.error = ErrorCode(errors[0]).name
    throttle_ms = throttle_produce(context, body_bytes, is_answered=request.acks != 0)
    if ErrorCode[TOO_MANY_PRODUCERS] in errors and throttle_ms < CROWDED_MS:
        throttle_ms = CROWDED_MS
        context.mute(CROWDED_MS / 1000)
    if request.acks == 0:
        if errors:
            # Without an answer, closing is the only way to tell the producer (as Kafka does).
            raise CloseConnection(f"a batch sent with acks=0 was refused: {context.error}")
        return None
    topics = [
        ProduceTopicResponse(asked.name, asked.topic_id, partitions)
        for asked, partitions in zip(request.topics, answers, strict=True)
    ]
    return ProduceResponse(topics, throttle_ms)


def _partition_answer(produced: _Produced) -> ProducePartitionResponse:
    outcome = produced.outcome
    if isinstance(outcome, Refusal):
        return _refused(produced, outcome)
    if outcome.error:
        refusal = Refusal(outcome.error, outcome.message, outcome.record_errors, outcome.in_log)
        return _refused(produced, refusal)
    if outcome.base_offset < 0:
        return ProducePartitionResponse(
            produced.number,
            ErrorCode.REQUEST_TIMED_OUT,
            error_message="the batch was not stored within the timeout; whether it will be is not known",
        )
    return ProducePartitionResponse(
        produced.number,
        ErrorCode.NONE,
        outcome.base_offset,
        outcome.append_time_ms,
        outcome.log_start,
    )


def _refused(produced: _Produced, refusal: Refusal) -> ProducePartitionResponse:
    return ProducePartitionResponse(
        produced.number,
        ErrorCode[refusal.error],
        log_start_offset=produced.log.log_start if refusal.in_log and produced.log is not None else NOTHING,
        record_errors=[RecordError(at, reason) for at, reason in refusal.records],
        error_message=refusal.message or None,
    )
