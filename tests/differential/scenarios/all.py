"""Every exchange, in the order in which it is held."""

from tests.differential.exchange import Exchange
from tests.differential.scenarios import (
    acls,
    api_versions,
    cluster,
    compressing,
    configs,
    describing,
    fetching,
    frames,
    groups_admin,
    groups_offsets,
    groups_protocol,
    metadata,
    offsets,
    partitions,
    producers,
    producing,
    quotas,
    resource_configs,
    topics,
)
from tests.differential.scenarios.transactions_all import TRANSACTIONS

EXCHANGES: list[Exchange] = [
    *api_versions.EXCHANGES,
    *metadata.EXCHANGES,
    *topics.EXCHANGES,
    *describing.EXCHANGES,
    *producing.EXCHANGES,
    *producers.EXCHANGES,
    *fetching.EXCHANGES,
    *offsets.EXCHANGES,
    *frames.EXCHANGES,
    *partitions.EXCHANGES,
    *configs.EXCHANGES,
    *cluster.EXCHANGES,
    *resource_configs.EXCHANGES,
    *groups_offsets.EXCHANGES,
    *groups_admin.EXCHANGES,
    *groups_protocol.EXCHANGES,
    *quotas.EXCHANGES,
    *acls.EXCHANGES,
    *compressing.EXCHANGES,
]
EVERY_EXCHANGE: list[Exchange] = [*EXCHANGES, *TRANSACTIONS]
