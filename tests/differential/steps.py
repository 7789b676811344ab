"""What exchanges need beforehand. A step that an endpoint does not comply with fails the exchange."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest
from gateway.wire.messages.generated.fetch import FetchPartition as FetchedPartition
from gateway.wire.messages.generated.fetch import FetchRequest, FetchTopic
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.differential.batches import Batch, Batches
from tests.differential.conversation import Answered, Conversation, error_codes
from tests.differential.exchange import Call

SETTLE_S: Final = 20.0
SETTLE_STEP_S: Final = 0.01
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
EARLIEST: Final = -2


@dataclass(frozen=True, slots=True)
class Create:
    """A topic, led and ready for records when this is done."""

    topic: str = "t"
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)

    def run(self, conversation: Conversation) -> None:
        configs = [CreatableTopicConfig(name, value) for name, value in self.configs.items()]
        requested = CreatableTopic("{" + self.topic + "}", self.partitions, 1, configs=configs)
        call = Call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([requested]))
        (created,) = response_of(conversation, call).topics
        if self.topic in conversation.topic_ids:
            conversation.remember_former(self.topic)
        conversation.topic_ids[self.topic] = created.topic_id
        # Kafka creates in its controller; its broker hears of it a little later.
        wait_until(lambda: _is_led(conversation, self.topic, self.partitions))


@dataclass(frozen=True, slots=True)
class Delete:
    """Of a topic, by name; gone from metadata when this is done."""

    topic: str = "t"

    def run(self, conversation: Conversation) -> None:
        request = DeleteTopicsRequest(topic_names=["{" + self.topic + "}"], timeout_ms=10_000)
        response_of(conversation, Call(ApiKey.DELETE_TOPICS, 5, request))
        wait_until(lambda: _is_led(conversation, self.topic, 1, UNKNOWN_TOPIC_OR_PARTITION))


@dataclass(frozen=True, slots=True)
class Send:
    """Batches into a partition, each in a request of its own and in a later millisecond than the last.

    Two batches stamped by the broker within one millisecond are a tie: ListOffsets by the largest
    timestamp then finds the first of them, and whether there is a tie is chance at either endpoint.
    """

    batches: tuple[Batch | Batches, ...]
    topic: str = "t"
    partition: int = 0

    def run(self, conversation: Conversation) -> None:
        for batch in self.batches:
            data: Any = PartitionProduceData(self.partition, batch)  # type: ignore[arg-type]
            topic = TopicProduceData("{" + self.topic + "}", partition_data=[data])
            response_of(conversation, Call(ApiKey.PRODUCE, 7, ProduceRequest(None, -1, 10_000, [topic])))
            _wait_for_the_next_millisecond()


@dataclass(frozen=True, slots=True)
class NewProducer:
    """A producer id for idempotence."""

    producer: str = "p"

    def run(self, conversation: Conversation) -> None:
        response = response_of(conversation, Call(ApiKey.INIT_PRODUCER_ID, 1, InitProducerIdRequest(None)))
        conversation.producer_ids[self.producer] = response.producer_id


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A fetch session over the partitions of a topic, from offset 0."""

    topic: str = "t"
    partitions: int = 1
    version: int = 11
    offset: int = 0

    def run(self, conversation: Conversation) -> None:
        requested = [
            FetchedPartition(partition=i, fetch_offset=self.offset, partition_max_bytes=1 << 20)
            for i in range(self.partitions)
        ]
        topic_id = conversation.topic_id(self.topic)
        request = FetchRequest(
            session_epoch=0, topics=[FetchTopic("{" + self.topic + "}", topic_id, partitions=requested)]
        )
        response = response_of(conversation, Call(ApiKey.FETCH, self.version, request))
        assert response.session_id != 0
        conversation.session = response.session_id


@dataclass(frozen=True, slots=True)
class Done:
    """A request whose response must have no error."""

    call: Call

    def run(self, conversation: Conversation) -> None:
        response_of(conversation, self.call)


@dataclass(frozen=True, slots=True)
class AskUntilFound:
    """Metadata of a topic that creates it; Kafka denies it once or twice before it is there."""

    topic: str
    version: int = 5

    def run(self, conversation: Conversation) -> None:
        request = MetadataRequest([MetadataRequestTopic(name="{" + self.topic + "}")])
        call = Call(ApiKey.METADATA, self.version, request)

        def is_found() -> bool:
            response = conversation.ask(call)
            assert isinstance(response, Answered), response
            return all(topic.error_code == 0 for topic in response.message.topics)

        wait_until(is_found)


def response_of(conversation: Conversation, call: Call) -> Any:
    """The response to a request that must succeed."""
    response = conversation.ask(call)
    assert isinstance(response, Answered), (call, response)
    errors = list(error_codes(response.message))
    assert not any(errors), (call, response.message)
    return response.message


def _wait_for_the_next_millisecond() -> None:
    responded_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == responded_ms:
        time.sleep(0.0002)


def wait_until(condition: Callable[[], bool], timeout_s: float = SETTLE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(SETTLE_STEP_S)


def _is_led(conversation: Conversation, topic: str, partitions: int, error: int = 0) -> bool:
    """Whether ListOffsets returns this error for every partition."""
    requested = [ListOffsetsPartition(i, timestamp=EARLIEST) for i in range(partitions)]
    request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("{" + topic + "}", requested)])
    response = conversation.ask(Call(ApiKey.LIST_OFFSETS, 1, request))
    assert isinstance(response, Answered), response
    return all(code == error for code in error_codes(response.message))
