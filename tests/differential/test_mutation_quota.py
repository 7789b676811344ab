"""controller_mutation_rate: the same scenes at Apache Kafka and at the gateway.

Errors must be the same, and throttle times nearly so: some time goes by between two requests of a scene.
"""

import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.header import RequestHeader, decode_response_header, encode_request_header
from gateway.wire.messages import codec
from gateway.wire.messages.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from gateway.wire.messages.generated.api_versions import ApiVersionsRequest
from gateway.wire.messages.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gateway.wire.messages.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from tests.differential.conversation import Endpoint
from tests.differential.steps import wait_until
from tests.support.gateway import Gateway, running_gateway
from tests.support.kafka import KafkaServer
from tests.support.raw import RawConnection, frame, raw_connection

pytestmark = pytest.mark.serial

WAIT_S: Final = 30.0
NEARLY_MS: Final = 900
HEARD_S: Final = 0.7
"""By then Kafka's broker and controller have heard of a quota."""
LATER_MS: Final = 10_000


@dataclass(slots=True)
class Scene:
    """One client at one endpoint, and its responses."""

    endpoint: Endpoint
    client_id: str
    seen: list[str] = field(default_factory=list)
    throttled_ms: list[int] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def ask(
        self, key: ApiKey, version: int, message: object, client_id: str | None = None, over: Any = None
    ) -> Any:
        header = RequestHeader(key, version, next(self._numbers), client_id or self.client_id)
        data = frame(encode_request_header(header) + codec.encode_request(key, version, message))
        if over is not None:
            return response_to(over, data, key, version)
        with raw_connection(self.endpoint.host, self.endpoint.port, WAIT_S) as connection:
            return response_to(connection, data, key, version)

    def quota(self, rate: float | None) -> None:
        entity = [AlterClientQuotasRequestEntityData("client-id", self.client_id)]
        op = OpData("controller_mutation_rate", rate or 0.0, rate is None)
        request = AlterClientQuotasRequest([AlterClientQuotasRequestEntryData(entity, [op])])
        (entry,) = self.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request, "operator").entries
        assert entry.error_code == 0, entry
        time.sleep(HEARD_S)

    def name(self, alias: str) -> str:
        return f"{self.client_id}-{alias}"

    def prepare(self, alias: str, partitions: int) -> None:
        """A topic that no quota counts."""
        topic = CreatableTopic(self.name(alias), partitions, 1)
        made = self.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([topic], LATER_MS), "operator")
        assert made.topics[0].error_code == 0, made
        wait_until(lambda: self.exist(alias) == [alias])

    def create(self, *topics: tuple[str, int], version: int = 7, dry: bool = False, over: Any = None) -> None:
        requested = [CreatableTopic(self.name(alias), count, 1) for alias, count in topics]
        request = CreateTopicsRequest(requested, LATER_MS, dry)
        self.note(self.ask(ApiKey.CREATE_TOPICS, version, request, over=over).topics)

    def assigned(self, alias: str, partitions: int) -> None:
        given = [CreatableReplicaAssignment(i, [1]) for i in range(partitions)]
        requested = CreatableTopic(self.name(alias), -1, -1, given)
        self.note(self.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([requested], LATER_MS)).topics)

    def delete(self, *aliases: str, version: int = 6) -> None:
        names = [self.name(alias) for alias in aliases]
        request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], names, LATER_MS)
        self.note(self.ask(ApiKey.DELETE_TOPICS, version, request).responses)

    def grow(self, *topics: tuple[str, int], version: int = 3, dry: bool = False) -> None:
        requested = [CreatePartitionsTopic(self.name(alias), count, None) for alias, count in topics]
        request = CreatePartitionsRequest(requested, LATER_MS, dry)
        self.note(self.ask(ApiKey.CREATE_PARTITIONS, version, request).results)

    def metadata(self, alias: str, create: bool) -> tuple[int, int]:
        """Error and throttle time."""
        request = MetadataRequest([MetadataRequestTopic(name=self.name(alias))], create)
        response = self.ask(ApiKey.METADATA, 12, request)
        return response.topics[0].error_code, response.throttle_time_ms

    def exist(self, *aliases: str) -> list[str]:
        return [alias for alias in aliases if self.metadata(alias, False)[0] == 0]

    def note(self, rows: Sequence[Any]) -> None:
        """The result for each topic; the throttle time was noted when it came."""
        named = sorted((row.name.removeprefix(self.client_id), row.error_code) for row in rows)
        self.seen.append(", ".join(f"{name} {ErrorCode(code).name}" for name, code in named))


def response_to(connection: RawConnection, data: bytes, key: ApiKey, version: int) -> Any:
    connection.send(data)
    response = connection.read_frame()
    assert isinstance(response, bytes), (key, response)
    _, body_at = decode_response_header(key, version, memoryview(response))
    return codec.decode_response(key, version, memoryview(response)[body_at:])


@dataclass(slots=True)
class Timed(Scene):
    """Notes throttle times, but for the operator's requests and Metadata, which is repeated."""

    def ask(
        self, key: ApiKey, version: int, message: object, client_id: str | None = None, over: Any = None
    ) -> Any:
        response = Scene.ask(self, key, version, message, client_id, over)
        if client_id is None and key is not ApiKey.METADATA:
            self.throttled_ms.append(response.throttle_time_ms)
        return response


def strict_creation(scene: Scene) -> None:
    scene.quota(0.5)
    scene.create(("a", 20))
    scene.create(("b", 1))
    scene.create(("a", 1), ("not a name", 1), ("c", 1))


def creation_of_old_versions(scene: Scene) -> None:
    scene.quota(0.5)
    scene.create(("a", 20), version=5)
    scene.create(("b", 4), ("c", 2), version=4)
    scene.create(("d", 1), version=6)


def several_topics(scene: Scene) -> None:
    scene.quota(0.5)
    scene.create(("a", 3), ("b", 3), ("c", 3), ("d", 3))
    # Kafka's broker hears of a topic a little after its controller has created it.
    wait_until(lambda: scene.exist("a", "b") == ["a", "b"])
    assert scene.exist("a", "b", "c", "d") == ["a", "b"]


def what_is_refused_counts_nothing(scene: Scene) -> None:
    scene.prepare("old", 1)
    scene.quota(0.1)
    scene.create(("old", 50), ("not a name", 50), ("zero", 0))
    scene.create(("a", 1))
    scene.create(("b", 1))
    scene.create(("c", 1))


def what_is_only_validated(scene: Scene) -> None:
    scene.quota(0.1)
    scene.create(("a", 30), dry=True)
    scene.create(("b", 1))
    scene.create(("b", 1), dry=True)


def assignments(scene: Scene) -> None:
    scene.quota(0.1)
    scene.assigned("a", 5)
    scene.assigned("b", 1)


def deletion(scene: Scene) -> None:
    for alias in "abc":
        scene.prepare(alias, 4)
    scene.quota(0.5)
    scene.delete("missing", "a")
    scene.delete("b")
    scene.delete("c", version=5)
    scene.delete("c", version=4)
    scene.delete("missing")


def growth(scene: Scene) -> None:
    scene.prepare("a", 2)
    scene.prepare("b", 2)
    scene.quota(0.5)
    scene.grow(("a", 2), ("missing", 40), ("b", 1))
    scene.grow(("a", 20))
    scene.grow(("b", 3))
    scene.grow(("b", 3), version=2)
    scene.grow(("b", 4), dry=True)


def growth_that_is_only_validated(scene: Scene) -> None:
    scene.prepare("a", 2)
    scene.quota(0.1)
    scene.grow(("a", 20), dry=True)
    scene.grow(("a", 3))


def creation_by_metadata(scene: Scene) -> None:
    scene.quota(0.05)
    for alias in "ab":
        wait_until(lambda alias=alias: scene.metadata(alias, True)[0] == 0)  # type: ignore[misc]
    for alias in "cd":
        scene.seen.append(str(scene.metadata(alias, True)))
    time.sleep(HEARD_S)
    scene.seen.append(str(scene.exist("a", "b", "c", "d")))
    scene.create(("e", 1))


def no_quota_any_more(scene: Scene) -> None:
    scene.quota(0.1)
    scene.create(("a", 20))
    scene.create(("b", 1))
    scene.quota(None)
    scene.create(("b", 40))
    scene.create(("c", 1))


def a_higher_quota(scene: Scene) -> None:
    scene.quota(0.1)
    scene.create(("a", 20))
    scene.quota(10)
    scene.create(("b", 1))
    time.sleep(2.5)
    scene.create(("b", 1))


def a_throttled_connection(scene: Scene) -> None:
    scene.quota(1)
    scene.create(("a", 14))
    with raw_connection(scene.endpoint.host, scene.endpoint.port, WAIT_S) as connection:
        scene.create(("b", 1), over=connection)
        since = time.monotonic()
        scene.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("test", "1"), over=connection)
        scene.throttled_ms.append(int(1000 * (time.monotonic() - since)))


SCENES: Final = (
    strict_creation,
    creation_of_old_versions,
    several_topics,
    what_is_refused_counts_nothing,
    what_is_only_validated,
    assignments,
    deletion,
    growth,
    growth_that_is_only_validated,
    creation_by_metadata,
    no_quota_any_more,
    a_higher_quota,
    a_throttled_connection,
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running_gateway(tmp_path_factory.mktemp("mutations"), ["--node-id", "1"]) as running:
        yield running


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_creations_and_deletions_are_throttled_as_by_kafka(
    scene: Callable[[Scene], None], kafka_oracle: KafkaServer, gateway: Gateway
) -> None:
    client_id = f"m{uuid.uuid4().hex[:9]}"
    both = [Timed(endpoint, client_id) for endpoint in (kafka_oracle, gateway)]
    with ThreadPoolExecutor(2) as pool:
        for playing in [pool.submit(scene, one) for one in both]:
            playing.result(WAIT_S)
    kafka, ours = both
    assert ours.seen == kafka.seen
    assert ours.seen
    assert len(ours.throttled_ms) == len(kafka.throttled_ms)
    for theirs_ms, ours_ms in zip(kafka.throttled_ms, ours.throttled_ms, strict=True):
        assert abs(ours_ms - theirs_ms) < NEARLY_MS, (kafka.throttled_ms, ours.throttled_ms)
        assert (ours_ms == 0) == (theirs_ms == 0), (kafka.throttled_ms, ours.throttled_ms)
