"""Produce requests that share a draft: what becomes of one answer is nothing to the others."""

import asyncio
from collections.abc import Sequence

from gateway.context import RequestContext
from gateway.handlers import produce
from gateway.wire.apis import ApiKey
from gateway.wire.header import RequestHeader
from gateway.wire.messages import codec
from gateway.wire.messages.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ledger.batch.records import Producer, Record, build_batch
from ledger.types import Buffer
from tests.support.in_memory import InMemoryGateway, in_memory_gateway

VERSION = 8
WAIT_S = 5.0


class Answered:
    """A reply; one that is broken raises when it is told."""

    def __init__(self, is_broken: bool = False) -> None:
        self.body: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.is_broken = is_broken

    def answer(self, buffers: Sequence[Buffer] | None) -> None:
        self.body.set_result(b"".join(buffers or ()))
        if self.is_broken:
            raise RuntimeError("the connection fails")

    def fail(self, error: Exception) -> None:
        self.body.set_exception(error)


def send(gateway: InMemoryGateway, reply: Answered) -> None:
    services = gateway.running.services
    batch = bytes(build_batch([Record(0, 0, None, b"v")], base_timestamp=1, producer=Producer(-1, -1, -1)))
    topic = TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])
    body = codec.encode_request(ApiKey.PRODUCE, VERSION, ProduceRequest(None, -1, 5000, [topic]))
    context = RequestContext(
        RequestHeader(int(ApiKey.PRODUCE), VERSION, 1, "c"),
        gateway.running.listeners[0],
        "127.0.0.1",
        "User:ANONYMOUS",
        asyncio.get_running_loop().time(),
        services,
        1,
        lambda seconds: None,
    )
    produce.start(context, memoryview(body), reply)


async def test_an_answer_that_cannot_be_given_fails_none_of_the_same_draft() -> None:
    async with in_memory_gateway() as gateway:
        await gateway.create("t")
        replies = [Answered(), Answered(is_broken=True), Answered(), Answered()]
        for reply in replies:
            send(gateway, reply)
        bodies = await asyncio.wait_for(asyncio.gather(*[reply.body for reply in replies]), WAIT_S)
        responses = [codec.decode_response(ApiKey.PRODUCE, VERSION, memoryview(body)) for body in bodies]
        answers = [told_of(response) for response in responses]
        assert answers == [(0, offset) for offset in range(len(replies))]


def told_of(response: ProduceResponse) -> tuple[int, int]:
    """Error code and base offset."""
    (answer,) = response.responses[0].partition_responses
    return answer.error_code, answer.base_offset
