"""Denied requests: who was denied what, in few lines, and a count of all."""

import asyncio
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from gateway.requests import audit
from gateway.telemetry.logs import QuietLog
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_acls import AclCreation, CreateAclsRequest
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.support.in_memory import InMemoryGateway, in_memory_gateway

QUIET_S = 0.3
DISABLED = {"broker.delete.topic.enable": "false"}


@pytest.fixture(autouse=True)
def soon_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Events of other tests have no effect on these, and the next one is due soon."""
    monkeypatch.setattr(audit, "denied_log", QuietLog(QUIET_S, keyed_by=("api", "error", "principal")))
    yield


async def delete(gateway: InMemoryGateway, *names: str) -> None:
    request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], timeout_ms=5000)
    for topic in (await gateway.ask(ApiKey.DELETE_TOPICS, 6, request)).responses:
        assert topic.error_code == ErrorCode.TOPIC_DELETION_DISABLED


async def test_denied_requests_are_one_line_with_the_number_of_those_left_out() -> None:
    async with in_memory_gateway(DISABLED) as gateway:
        with capture_logs() as logs:
            await delete(gateway, "orders", "payments")
            await delete(gateway, "orders")
            await asyncio.sleep(QUIET_S)
            await delete(gateway, "orders")
        first, second = [line for line in logs if line["event"] == "request.denied"]
        assert first == {
            "event": "request.denied",
            "log_level": "warning",
            "api": "DELETE_TOPICS",
            "error": "TOPIC_DELETION_DISABLED",
            "resource": "orders",
            "reason": "Topic deletion is disabled (broker.delete.topic.enable).",
            "principal": "User:ANONYMOUS",
            "client_id": "dragoman",
            "peer": "127.0.0.1",
        }
        assert second["left_out"] == 2
        assert not [line for line in logs if line["event"] == "topic.deleted"]
        counted = {"api": "DELETE_TOPICS", "error": "TOPIC_DELETION_DISABLED"}
        value = gateway.running.services.metrics.registry.get_sample_value
        assert value("dragoman_denied_requests_total", counted) == 4


async def test_an_attempt_to_change_acls_is_denied() -> None:
    async with in_memory_gateway() as gateway:
        rule = AclCreation(2, "orders", 3, "User:mallory", "*", 3, 3)
        with capture_logs() as logs:
            response = await gateway.ask(ApiKey.CREATE_ACLS, 3, CreateAclsRequest([rule] * 3))
        assert {result.error_code for result in response.results} == {ErrorCode.SECURITY_DISABLED}
        (line,) = [line for line in logs if line["event"] == "request.denied"]
        assert (line["api"], line["error"]) == ("CREATE_ACLS", "SECURITY_DISABLED")


async def test_a_request_that_is_wrong_is_not_denied() -> None:
    async with in_memory_gateway() as gateway:
        with capture_logs() as logs:
            request = DeleteTopicsRequest([DeleteTopicState("absent")], timeout_ms=5000)
            (topic,) = (await gateway.ask(ApiKey.DELETE_TOPICS, 6, request)).responses
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not [line for line in logs if line["event"] == "request.denied"]
