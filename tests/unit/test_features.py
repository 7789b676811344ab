"""The features that ApiVersions reports promise nothing that is not built."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from gateway.addresses import Address
from gateway.assembly import RunningGateway, running_gateway
from gateway.cli.client import Client
from gateway.config import load_settings
from gateway.handlers.api_versions import (
    EPOCH_BEFORE_TRANSACTIONS,
    FEATURES,
    FEATURES_BEFORE_TRANSACTIONS,
    FEATURES_EPOCH,
)
from gateway.router import HANDLERS
from gateway.wire.apis import RANGES, ApiKey
from gateway.wire.messages.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ledger.records import LEVEL_WITH_TRANSACTIONS

IN_MEMORY = {
    "listeners.listen": "PLAINTEXT://127.0.0.1:0",
    "admin.listen": "",
    "storage.metadata": "memory:",
    "storage.data": "memory:",
    "storage.allow_unsafe_acks": "true",
}
NEEDED = [
    ("group.version", 1, [(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0), (ApiKey.CONSUMER_GROUP_DESCRIBE, 0)]),
    ("streams.version", 1, [(ApiKey.STREAMS_GROUP_HEARTBEAT, 0), (ApiKey.STREAMS_GROUP_DESCRIBE, 0)]),
    ("share.version", 1, [(ApiKey.SHARE_GROUP_HEARTBEAT, 1), (ApiKey.SHARE_FETCH, 1)]),
    ("transaction.version", 2, [(ApiKey.END_TXN, 5), (ApiKey.TXN_OFFSET_COMMIT, 5), (ApiKey.PRODUCE, 12)]),
]
KNOWN_EPOCHS = {1: "e9b4f9f3", 2: "83cfeda0"}


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[RunningGateway]:
    async with running_gateway(load_settings(IN_MEMORY, {})) as running:
        yield running


async def api_versions(gateway: RunningGateway, version: int) -> ApiVersionsResponse:
    def exchange() -> ApiVersionsResponse:
        with Client(Address("127.0.0.1", gateway.bound[0].port), timeout=60.0) as client:
            response = client.ask(ApiKey.API_VERSIONS, version, ApiVersionsRequest("test", "1"))
        assert isinstance(response, ApiVersionsResponse)
        return response

    return await asyncio.to_thread(exchange)


async def test_api_versions_reports_each_feature_and_which_are_in_force(gateway: RunningGateway) -> None:
    response = await api_versions(gateway, 4)
    assert {f.name: (f.min_version, f.max_version) for f in response.supported_features} == {
        name: (level, level) for name, level in FEATURES.items()
    }
    assert [(f.name, f.max_version_level) for f in response.finalized_features] == [
        ("metadata.version", 30),
        ("transaction.version", 2),
    ]
    assert response.finalized_features_epoch == FEATURES_EPOCH


async def test_clients_that_refuse_ranges_from_0_see_none(gateway: RunningGateway) -> None:
    response = await api_versions(gateway, 3)
    assert [f.name for f in response.supported_features] == ["metadata.version"]
    assert response.finalized_features_epoch == FEATURES_EPOCH


async def test_a_ledger_of_an_older_level_has_no_transactions() -> None:
    older = {**IN_MEMORY, "ledger.feature_level": LEVEL_WITH_TRANSACTIONS - 1}
    async with running_gateway(load_settings(older, {})) as running:
        response = await api_versions(running, 4)
    assert {f.name: f.max_version for f in response.supported_features} == FEATURES_BEFORE_TRANSACTIONS
    assert [f.name for f in response.finalized_features] == ["metadata.version"]
    # A client that has seen it believes the gateway once the level is raised.
    assert response.finalized_features_epoch == EPOCH_BEFORE_TRANSACTIONS < FEATURES_EPOCH


@pytest.mark.parametrize("feature, level, apis", NEEDED)
def test_a_feature_is_in_force_only_where_its_apis_are_served(
    feature: str, level: int, apis: Sequence[tuple[ApiKey, int]]
) -> None:
    is_answered = all(key in HANDLERS and version <= RANGES[key][1] for key, version in apis)
    assert FEATURES[feature] < level or is_answered


def test_the_epoch_grows_with_every_change_of_a_level() -> None:
    # A client that has seen a higher epoch believes no lower one: add a row, never change one.
    for features, epoch in (
        (FEATURES, FEATURES_EPOCH),
        (FEATURES_BEFORE_TRANSACTIONS, EPOCH_BEFORE_TRANSACTIONS),
    ):
        fingerprint = hashlib.sha256(repr(sorted(features.items())).encode()).hexdigest()[:8]
        assert KNOWN_EPOCHS[epoch] == fingerprint
    assert max(KNOWN_EPOCHS) == FEATURES_EPOCH
