"""Checks what AlterClientQuotas may change (KIP-546, KIP-612). Pure; the ledger makes it durable.

Kafka's checks in its order: keys given twice, entities given twice, the entity's types and names, their
combination, and then each value. Unlike Kafka it refuses NaN, which every rate exceeds, and infinity.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gateway.quotas.lookup import CLIENT_ID, IP, USER, parse_address
from gateway.wire.primitives import run_out
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.settings.records import encode_entity
from ledger.settings.requests import MAX_QUOTA_BYTES
from ledger.settings.state import QuotaEntity

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"

MAX_ENTITY_BYTES: Final = MAX_QUOTA_BYTES // 2
"""All quotas of the entity and the record around them need less than the other half."""
MAX_SORTED: Final = 1_000
"""Types of an entity."""
FRACTION: Final = 1e-6
"""Kafka accepts a value this close to a whole number."""


class ValueType(Enum):
    """The type that Kafka's configs give a quota. The member's value is the largest that is allowed."""

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
    """One entry of a request. A value of None removes the key."""

    entity: QuotaEntity
    ops: Sequence[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class CheckedEdit:
    """The result for an entity, and its changes. As in Kafka, an entity given twice is refused, but the
    changes of its first entry are made."""

    entity: QuotaEntity
    changes: Mapping[str, float | None]
    refused: Refused | None


def entity_of(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """If a type is given twice the last one counts, as in Kafka."""
    given = dict(parts).items()
    # There are three types: a longer list is refused in whatever order it is.
    return tuple(sorted(given) if len(given) <= MAX_SORTED else given)


def check_edits(edits: Sequence[QuotaEdit]) -> list[CheckedEdit]:
    """One result for each entity, in order of first mention."""
    return run_out(checking_edits(edits))


def checking_edits(edits: Sequence[QuotaEdit]) -> Generator[int, None, list[CheckedEdit]]:
    """The same in slices: yields the units of work done."""
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
    return _invalid(f"The entity {_spelled(entity)}, or one of its quota keys, was given more than once.")


def _spelled(entity: QuotaEntity) -> str:
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
        # Kafka also takes host names, and resolves them once, when the quota is set.
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
    if not math.isfinite(value):
        # Nothing can be compared with NaN: it passes the checks above.
        return _invalid(f"Quota {key} must be a finite number")
    if kind is not ValueType.DOUBLE and value % 1.0 > FRACTION:
        return _invalid(f"{key} cannot be a fractional value.")
    return None


def _article(kind: ValueType) -> str:
    return f"an {kind.name}" if kind is ValueType.INT else f"a {kind.name}"


def _invalid(reason: str) -> Refused:
    return Refused(ErrorName.INVALID_REQUEST, reason)
