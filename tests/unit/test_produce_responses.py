"""Produce requests that share a draft: a response that fails does not affect the other requests."""

import asyncio

from gateway.handlers import produce
from gateway.requests.context import RequestContext
from gateway.response import Buffers
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
from tests.support.in_memory import InMemoryGateway, in_memory_gateway

VERSION = 8
WAIT_S = 60.0


class ResponseFuture:
    """A completion. One that is broken raises when it is called."""

    def __init__(self, is_broken: bool = False) -> None:
        self.body: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.is_broken = is_broken

    def done(self) -> bool:
        return self.body.done()

    def set_result(self, buffers: Buffers | None, /) -> None:
        self.body.set_result(b"".join(buffers or ()))
        if self.is_broken:
            raise RuntimeError("the connection fails")

    def set_exception(self, error: Exception, /) -> None:
        self.body.set_exception(error)


def send(gateway: InMemoryGateway, completion: ResponseFuture) -> None:
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
    produce.start(context, memoryview(body), completion)


async def test_a_response_that_fails_fails_no_other_of_the_same_draft() -> None:
    async with in_memory_gateway() as gateway:
        await gateway.create("t")
        completions = [ResponseFuture(), ResponseFuture(is_broken=True), ResponseFuture(), ResponseFuture()]
        for completion in completions:
            send(gateway, completion)
        bodies = await asyncio.wait_for(
            asyncio.gather(*[completion.body for completion in completions]), WAIT_S
        )
        responses = [codec.decode_response(ApiKey.PRODUCE, VERSION, memoryview(body)) for body in bodies]
        results = [result_of(response) for response in responses]
        assert results == [(0, offset) for offset in range(len(completions))]


def result_of(response: ProduceResponse) -> tuple[int, int]:
    """Error code and base offset."""
    (partition,) = response.responses[0].partition_responses
    return partition.error_code, partition.base_offset
