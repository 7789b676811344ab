"""`dragoman quotas list|set|unset`: client quotas of any Kafka endpoint (KIP-546)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint, Refusal
from gateway.cli.exits import Exit
from gateway.cli.output import UsageError, print_json, print_table, talk
from gateway.cli.resource_configs import assignments
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from gateway.wire.messages.generated.describe_client_quotas import DescribeClientQuotasRequest

USER, CLIENT_ID, IP = "user", "client-id", "ip"
OF_ADDRESSES: Final = "connection_creation_rate"
QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    OF_ADDRESSES,
)
DEFAULT: Final = "<default>"

Entity = Mapping[str, str | None]
"""Names by type of entity; None is the default of that type."""


@dataclass(frozen=True, slots=True)
class QuotaLine:
    entity: Entity
    quotas: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class EntityFlags:
    """As they were given; the word `default` in place of a name is a flag of its own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None
    default_user: bool = False
    default_client_id: bool = False
    default_ip: bool = False


def entity_of(flags: EntityFlags) -> dict[str, str | None]:
    """UsageError for flags that contradict each other."""
    entity: dict[str, str | None] = {}
    for kind, name, is_default in (
        (USER, flags.user, flags.default_user),
        (CLIENT_ID, flags.client_id, flags.default_client_id),
        (IP, flags.ip, flags.default_ip),
    ):
        if name is not None and is_default:
            raise UsageError(f"--{kind} {name} and --default-{kind}: give one of them")
        if name is not None or is_default:
            entity[kind] = name
    if IP in entity and len(entity) > 1:
        raise UsageError("a quota of an address is of no user and no client id: give --ip alone")
    return entity


def list_quotas(contact: Contact, entity: Entity, as_json: bool) -> Exit:
    """Those of entities that have all of these parts; all if it is empty."""
    with Endpoint(contact) as endpoint:
        lines = [line for line in _all_quotas(endpoint) if entity.items() <= line.entity.items()]
    lines.sort(key=lambda line: _shown(line.entity))
    if as_json:
        print_json(lines)
        return Exit.OK
    rows = [
        (_shown(line.entity), quota, f"{value:g}" if value < 1 else f"{value:.10g}")
        for line in lines
        for quota, value in line.quotas.items()
    ]
    print_table(("entity", "quota", "value"), rows)
    if not lines:
        talk("There is no such quota; set one with: dragoman quotas set --client-id NAME QUOTA=VALUE")
    return Exit.OK


def _all_quotas(endpoint: Endpoint) -> list[QuotaLine]:
    response = endpoint.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest([], False))
    if response.error_code:
        raise Refusal("quotas cannot be listed", response.error_code, response.error_message)
    return [_line(entry) for entry in response.entries or ()]


def alter_quotas(
    contact: Contact, entity: Entity, sets: Sequence[str], unsets: Sequence[str], as_json: bool
) -> Exit:
    if not entity:
        raise UsageError(
            "say whose quota: --user, --client-id or --ip NAME, or --default-user, --default-client-id, "
            "--default-ip"
        )
    operations = _operations(entity, sets, unsets)
    parts = [AlterClientQuotasRequestEntityData(kind, name) for kind, name in entity.items()]
    request = AlterClientQuotasRequest([AlterClientQuotasRequestEntryData(parts, operations)])
    with Endpoint(contact) as endpoint:
        unknown = _unknown(endpoint, entity, unsets) if unsets else []
        (result,) = endpoint.ask_controller(ApiKey.ALTER_CLIENT_QUOTAS, request).entries
    if result.error_code:
        what = f"quotas of {_shown(entity)} stay as they are"
        raise Refusal(what, result.error_code, result.error_message or None)
    for name in unknown:
        talk(f"There is no quota {name} of {_shown(entity)}, so to unset it has no effect.")
    if sets or len(unknown) < len(unsets):
        talk(f"Changed the quotas of {_shown(entity)}.")
    if as_json:
        print_json(
            {
                "entity": entity,
                "set": {one.key: one.value for one in operations if not one.remove},
                "unset": list(unsets),
            }
        )
    return Exit.OK


def _operations(entity: Entity, sets: Sequence[str], unsets: Sequence[str]) -> list[OpData]:
    """UsageError for what is no quota of the entity, or no number."""
    operations = [OpData(name, _number(name, text)) for name, text in assignments(sets, "quota").items()]
    operations += [OpData(name, 0.0, remove=True) for name in unsets]
    for operation in operations:
        _check_quota(operation.key, entity)
    return operations


def _unknown(endpoint: Endpoint, entity: Entity, unsets: Sequence[str]) -> list[str]:
    """Quotas that this entity does not have: an endpoint reports no error if one of these is unset."""
    known = {name for line in _all_quotas(endpoint) if line.entity == entity for name in line.quotas}
    return [name for name in unsets if name not in known]


def _check_quota(name: str, entity: Entity) -> None:
    """UsageError for a quota that the entity cannot have."""
    if name not in QUOTAS:
        raise UsageError(f"quota {name}: expected one of {', '.join(QUOTAS)}")
    if IP in entity and name != OF_ADDRESSES:
        raise UsageError(f"quota {name}: an address has only {OF_ADDRESSES}")
    if IP not in entity and name == OF_ADDRESSES:
        raise UsageError(f"quota {name}: only addresses have it; give --ip or --default-ip")


def _line(entry: Any) -> QuotaLine:
    return QuotaLine(
        {part.entity_type: part.entity_name for part in entry.entity},
        {value.key: value.value for value in sorted(entry.values, key=lambda value: str(value.key))},
    )


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"quota {name}={text}: expected a number")
    return value


def _shown(entity: Entity) -> str:
    return ", ".join(
        f"{kind} {DEFAULT if name is None else name}" for kind, name in sorted(entity.items(), reverse=True)
    )
