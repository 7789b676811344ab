"""Which quotas DescribeClientQuotas returns (KIP-546). Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from gateway.quotas.lookup import CLIENT_ID, IP, USER
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.settings.state import QuotaEntity


class MatchType(IntEnum):
    """EXACT: a name. DEFAULT: the default of the type. ANY: every name and the default."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class Component:
    """The filter of one entity type. `match` is a name for EXACT, else None."""

    entity_type: str
    match_type: int
    match: str | None


_TYPES: Final = (USER, CLIENT_ID, IP)


def find_quotas(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], components: Sequence[Component], strict: bool
) -> list[tuple[QuotaEntity, Mapping[str, float]]] | Refused:
    """Entities that match all components, and with `strict` have no other types."""
    refused = _check(components)
    if refused is not None:
        return refused
    return [
        (entity, values)
        for entity, values in quotas.items()
        if (not strict or len(entity) == len(components)) and _matches(dict(entity), components)
    ]


def _matches(names: Mapping[str, str | None], components: Sequence[Component]) -> bool:
    for component in components:
        if component.entity_type not in names:
            return False
        if component.match_type != MatchType.ANY and names[component.entity_type] != component.match:
            return False
    return True


def _check(components: Sequence[Component]) -> Refused | None:
    seen: set[str] = set()
    for component in components:
        refused = _check_component(component, seen)
        if refused is not None:
            return refused
        seen.add(component.entity_type)
    if IP in seen and len(seen) > 1:
        return _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component."
        )
    return None


def _check_component(component: Component, seen: set[str]) -> Refused | None:
    kind = component.entity_type
    if not kind:
        return _invalid("Invalid empty entity type.")
    if kind in seen:
        return _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in _TYPES:
        return Refused(ErrorName.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    if component.match_type not in tuple(MatchType):
        return _invalid(f"Unknown match type {component.match_type}")
    if component.match_type == MatchType.EXACT and component.match is None:
        return _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if component.match_type != MatchType.EXACT and component.match is not None:
        kind = "DEFAULT" if component.match_type == MatchType.DEFAULT else "SPECIFIED"
        return _invalid(f"Request specified MATCH_TYPE_{kind}, but also specified a match string.")
    return None


def _invalid(reason: str) -> Refused:
    return Refused(ErrorName.INVALID_REQUEST, reason)
