"""`dragoman cluster info|health`: who serves an endpoint, and whether clients can use all of it."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.addresses import Address
from gateway.cli.admin_pages import admin_page
from gateway.cli.client import ClientError
from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint, NotServed
from gateway.cli.exits import Exit
from gateway.cli.open_transactions import HOW_TO_LOOK, LONG_MS, OpenTransactions, open_transactions
from gateway.cli.output import counted, print_json, print_table, print_text, talk

SHOWN_PARTITIONS: Final = 5


@dataclass(frozen=True, slots=True)
class BrokerLine:
    broker: int
    address: str
    rack: str | None
    is_controller: bool


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Internal topics are not counted."""

    cluster_id: str | None
    controller: int
    brokers: Sequence[BrokerLine]
    topics: int
    partitions: int


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """`response_ms` is None if the broker does not respond at its advertised address."""

    broker: int
    address: str
    response_ms: float | None


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """`warnings`: what needs an operator although clients are served. `transactions`: None if the endpoint
    does not say which are open."""

    is_healthy: bool
    brokers: Sequence[BrokerHealth]
    findings: Sequence[str]
    warnings: Sequence[str]
    transactions: OpenTransactions | None


def info(contact: Contact, as_json: bool) -> Exit:
    with Endpoint(contact) as endpoint:
        found = _info_of(endpoint.metadata())
    if as_json:
        print_json(found)
        return Exit.OK
    print_table(
        ("cluster", found.cluster_id or "-"), [("topics", found.topics), ("partitions", found.partitions)]
    )
    print_text()
    rows = [
        (line.broker, line.address, line.rack or "-", "yes" if line.is_controller else "no")
        for line in found.brokers
    ]
    print_table(("broker", "advertised address", "rack", "controller"), rows)
    return Exit.OK


def _info_of(metadata: Any) -> ClusterInfo:
    brokers = [
        BrokerLine(
            broker.node_id,
            str(Address(broker.host, broker.port)),
            broker.rack,
            broker.node_id == metadata.controller_id,
        )
        for broker in sorted(metadata.brokers, key=lambda broker: int(broker.node_id))
    ]
    topics = [topic for topic in metadata.topics if not topic.is_internal]
    partitions = sum(len(topic.partitions) for topic in topics)
    return ClusterInfo(metadata.cluster_id, metadata.controller_id, brokers, len(topics), partitions)


def health(contact: Contact, admin: str | None, as_json: bool) -> Exit:
    """FINDINGS if clients cannot use everything. `admin`: HOST:PORT of a gateway, whose reasons and warnings
    count too."""
    with Endpoint(contact) as endpoint:
        metadata = endpoint.metadata()
        brokers = [_health_of(endpoint, broker) for broker in metadata.brokers]
        transactions, warnings = _transactions(endpoint, brokers)
    findings = [
        f"broker {broker.broker} does not respond at its advertised address {broker.address}"
        for broker in brokers
        if broker.response_ms is None
    ]
    findings += _partition_findings(metadata.topics)
    if admin is not None:
        reasons, more = _readiness(admin, contact)
        findings += reasons
        warnings += more
    found = ClusterHealth(not findings, brokers, findings, warnings, transactions)
    if as_json:
        print_json(found)
    else:
        _print_health(found)
    talk(f"{counted(len(findings), 'finding')}." if findings else "Healthy.")
    return Exit.FINDINGS if findings else Exit.OK


def _health_of(endpoint: Endpoint, broker: Any) -> BrokerHealth:
    began = time.perf_counter()
    try:
        endpoint.reach(broker.node_id)
    except ClientError:
        response_ms = None
    else:
        response_ms = round((time.perf_counter() - began) * 1000, 1)
    return BrokerHealth(broker.node_id, str(Address(broker.host, broker.port)), response_ms)


def _transactions(
    endpoint: Endpoint, brokers: Sequence[BrokerHealth]
) -> tuple[OpenTransactions | None, list[str]]:
    """Those that are open, and what to warn of."""
    if any(broker.response_ms is None for broker in brokers):
        return None, []  # it coordinates some of them
    try:
        found = open_transactions(endpoint)
    except NotServed:
        return None, []
    except ClientError as error:
        return None, [f"open transactions are unknown: {error}"]
    if not found.long:
        return found, []
    one = found.long == 1
    warning = (
        f"{counted(found.long, 'transaction')} {'has' if one else 'have'} been open for more than "
        f"{LONG_MS // 60_000} minutes, the oldest ({found.oldest}) for {_seconds(found)}: readers of "
        f"committed records wait for {'it' if one else 'them'}; see `{HOW_TO_LOOK} --longer-than {LONG_MS}`"
    )
    return found, [warning]


def _seconds(found: OpenTransactions) -> str:
    return f"{(found.oldest_ms or 0) // 1000} s"


def _partition_findings(topics: Sequence[Any]) -> list[str]:
    leaderless, under_replicated, offline = [], [], []
    for topic in topics:
        for part in topic.partitions:
            name = f"{topic.name}-{part.partition_index}"
            if part.leader_id < 0:
                leaderless.append(name)
            elif part.offline_replicas:
                offline.append(name)
            elif len(part.isr_nodes) < len(part.replica_nodes):
                under_replicated.append(name)
    return [
        *_partitions_that("have no leader", leaderless),
        *_partitions_that("have replicas that are offline", offline),
        *_partitions_that("have replicas that are not in sync", under_replicated),
    ]


def _partitions_that(what: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - SHOWN_PARTITIONS} more" if len(names) > SHOWN_PARTITIONS else ""
    return [f"partitions that {what}: {', '.join(sorted(names)[:SHOWN_PARTITIONS])}{more}"]


def _readiness(admin: str, contact: Contact) -> tuple[list[str], list[str]]:
    """Why the gateway is not ready, and what it warns of. ClientError."""
    _, body = admin_page(admin, "/readyz", contact)
    try:
        page = json.loads(body)
        reasons = [_said(one) for one in page.get("reasons", [])]
        return reasons, [_said(one) for one in page.get("warnings", [])]
    except (ValueError, AttributeError, TypeError, KeyError):
        raise ClientError(f"{admin} is not the admin address of a gateway (/readyz)") from None


def _said(one: Any) -> str:
    return f"{one['reason']}: {one['detail']}"


def _print_health(found: ClusterHealth) -> None:
    for broker in found.brokers:
        if broker.response_ms is not None:
            print_text(f"ok     broker {broker.broker} at {broker.address}: {broker.response_ms} ms")
    transactions = found.transactions
    if transactions is not None and not transactions.long:
        print_text(f"ok     open transactions: {_in_words(transactions)}")
    for finding in found.findings:
        print_text(f"FOUND  {finding}")
    for warning in found.warnings:
        print_text(f"warns  {warning}")


def _in_words(transactions: OpenTransactions) -> str:
    if transactions.oldest is None:
        return str(transactions.open)
    age = f"the oldest ({transactions.oldest}) for {_seconds(transactions)}"
    return f"{transactions.open}, {age}; see `{HOW_TO_LOOK}`"
