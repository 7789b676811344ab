"""What AlterClientQuotas may change (KIP-546, KIP-612). Pure; the ledger makes it durable.

Kafka's checks in its order: keys given twice, entities given twice, the entity's types and names, their
combination, and then each value.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gateway.quotas.finding import CLIENT_ID, IP, USER, parse_address
from gateway.wire.primitives import run_out
from ledger.group_records import encode_entity
from ledger.quotas import QuotaEntity
from ledger.requests import MAX_QUOTA_BYTES, Refused

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"

MAX_ENTITY_BYTES: Final = MAX_QUOTA_BYTES // 2
"""All its quotas and the record around them need less than the other half."""
FRACTION: Final = 1e-6
"""Kafka takes a value this near to a whole number for one."""


class ValueType(Enum):
    """How Kafka's configs type a quota; the value is the largest that is allowed."""

    LONG = 2.0**63
    INT = 2.0**31 - 1
    DOUBLE = float("inf")


CLIENT_KEYS: Final[Mapping[str, ValueType]] = {
    PRODUCE: ValueType.LONG,
    FETCH: ValueType.LONG,
    REQUEST: ValueType.DOUBLE,
    MUTATION: ValueType.DOUBLE,
}
ADDRESS_KEYS: Final[Mapping[str, ValueType]] = {CONNECTION: ValueType.INT}


@dataclass(frozen=True, slots=True)
class QuotaEdit:
    """One entry of a request. Without a value the key is taken away."""

    entity: QuotaEntity
    ops: Sequence[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class CheckedEdit:
    """What is answered for an entity, and what is changed. As in Kafka, an entity given twice keeps what
    its first entry changed, and is refused all the same."""

    entity: QuotaEntity
    changes: Mapping[str, float | None]
    refused: Refused | None


def entity_of(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Of a type given twice what was said last holds, as in Kafka."""
    return tuple(sorted(dict(parts).items()))


def check_edits(edits: Sequence[QuotaEdit]) -> list[CheckedEdit]:
    """One result for each entity, in order of first mention."""
    return run_out(checking_edits(edits))


def checking_edits(edits: Sequence[QuotaEdit]) -> Generator[int, None, list[CheckedEdit]]:
    """The same in slices: yields the units of weight worked off."""
    results: dict[QuotaEntity, CheckedEdit] = {}
    for edit in edits:
        yield 1 + len(edit.entity) + len(edit.ops)
        known = results.get(edit.entity)
        if known is not None or len({key for key, _ in edit.ops}) < len(edit.ops):
            changes = known.changes if known is not None else {}
            results[edit.entity] = CheckedEdit(edit.entity, changes, _given_twice(edit.entity))
            continue
        refused = check_entity(edit.entity) or _check_values(edit)
        changes = {} if refused is not None else dict(edit.ops)
        results[edit.entity] = CheckedEdit(edit.entity, changes, refused)
    return list(results.values())


def _given_twice(entity: QuotaEntity) -> Refused:
    return _invalid(f"The entity {_shown(entity)}, or one of its quota keys, was given more than once.")


def _shown(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)


def check_entity(entity: QuotaEntity) -> Refused | None:
    """Why quotas cannot be of this entity, or None."""
    if not entity:
        return _invalid("Invalid empty client quota entity")
    kinds = dict(entity)
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            return _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            return _invalid(f"Empty {kind} not supported")
    if IP in kinds:
        return _check_address(kinds)
    if len(encode_entity(entity)) > MAX_ENTITY_BYTES:
        return _invalid(f"The names of the entity take more than {MAX_ENTITY_BYTES} bytes.")
    return None


def _check_address(kinds: Mapping[str, str | None]) -> Refused | None:
    if len(kinds) > 1:
        return _invalid("A quota of an IP address cannot be combined with one of a user or client id.")
    name = kinds[IP]
    if name is not None and parse_address(name) is None:
        # Kafka also takes host names, for the addresses that they have when it hears of the quota.
        return _invalid(f"{name} is not an IP address.")
    return None


def _check_values(edit: QuotaEdit) -> Refused | None:
    known = ADDRESS_KEYS if edit.entity[0][0] == IP else CLIENT_KEYS
    for key, value in edit.ops:
        refused = _check_value(known, key, value) if value is not None else None
        if refused is not None:
            return refused
    return None


def _check_value(known: Mapping[str, ValueType], key: str, value: float) -> Refused | None:
    if key not in known:
        return _invalid(f"Invalid configuration key {key}")
    if value <= 0.0:
        return _invalid(f"Quota {key} must be greater than 0")
    kind = known[key]
    if value > kind.value:
        return _invalid(f"Proposed value for {key} is too large for {_article(kind)}.")
    if kind is not ValueType.DOUBLE and value % 1.0 > FRACTION:
        return _invalid(f"{key} cannot be a fractional value.")
    return None


def _article(kind: ValueType) -> str:
    return f"an {kind.name}" if kind is ValueType.INT else f"a {kind.name}"


def _invalid(reason: str) -> Refused:
    return Refused("INVALID_REQUEST", reason)
