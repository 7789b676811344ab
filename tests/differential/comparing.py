"""Where two responses differ, and which of that is allowed."""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gateway.wire.apis import ApiKey

MAX_ALLOWED = 25
ABSENT = "absent"


class Kind(Enum):
    """What may differ, and how far."""

    ID = "id"
    """Both give one, and the exchange knows neither by name; neither is the zero id nor -1."""
    HOST = "host"
    TIMESTAMP = "timestamp"
    THROTTLE = "throttle"
    TEXT = "text"
    """Texts for people; either may be null."""
    UNKNOWN_SIZE = "unknown size"
    """The gateway gives -1, which says that a size is not known."""
    PART = "part"
    """A list that may be longer in Kafka's response: each item of the gateway's is in it."""
    LIE = "lie"
    """Everything about a batch with a lie inside and a right CRC."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`path` names fields from the message on, list places as `[]`."""

    exchange: str
    api: ApiKey
    path: str
    place: str
    kafka: Any
    gateway: Any

    def __str__(self) -> str:
        return f"{self.api.name} {self.place}: Kafka {self.kafka!r}, gateway {self.gateway!r}"


@dataclass(frozen=True, slots=True)
class Allowed:
    api: str
    field: str
    kind: Kind
    reason: str
    exchanges: str = "*"

    def concerns(self, exchange: str) -> bool:
        return fnmatchcase(exchange, self.exchanges)

    def covers(self, difference: Difference) -> bool:
        return (
            self.concerns(difference.exchange)
            and (self.kind is Kind.LIE or (self.api == difference.api.name and self._names(difference.path)))
            and _is_within(self.kind, difference.kafka, difference.gateway)
        )

    def _names(self, path: str) -> bool:
        """A field that begins with a star is one at any depth."""
        return path.endswith(self.field[1:]) if self.field.startswith("*") else path == self.field


def read_allowed(path: Path) -> list[Allowed]:
    """Errors: KeyError, TypeError or ValueError for an entry that is not one."""
    entries = tomllib.loads(path.read_text())["allowed"]
    allowed = [Allowed(**{**entry, "kind": Kind(entry["kind"])}) for entry in entries]
    for entry in allowed:
        ApiKey[entry.api]
        forbidden = ("error_code", "records")
        if not entry.reason or any(word in entry.field for word in forbidden):
            raise ValueError(f"not to be allowed: {entry}")
    if sum(entry.kind is Kind.LIE for entry in allowed) > 1:
        raise ValueError("one entry for lies is the most")
    return allowed


def differences(
    exchange: str, apis: Sequence[ApiKey], kafka: Sequence[Any], gateway: Sequence[Any]
) -> Iterator[Difference]:
    """Between the responses to one exchange's requests, in their order."""
    for number, (api, theirs, ours) in enumerate(zip(apis, kafka, gateway, strict=True)):
        for path, place, a, b in _compare("", "", theirs, ours):
            yield Difference(exchange, api, path, f"answer {number} {place}", a, b)


def _compare(path: str, place: str, a: Any, b: Any) -> Iterator[tuple[str, str, Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            dot = "." if path else ""
            yield from _compare(
                f"{path}{dot}{key}", f"{place}{dot}{key}", a.get(key, ABSENT), b.get(key, ABSENT)
            )
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (item_a, item_b) in enumerate(zip(a, b, strict=True)):
            yield from _compare(f"{path}[]", f"{place}[{i}]", item_a, item_b)
    elif a != b or type(a) is not type(b):
        yield path, place, a, b


def _is_within(kind: Kind, kafka: Any, gateway: Any) -> bool:
    match kind:
        case Kind.LIE:
            return True
        case Kind.TEXT:
            return all(value is None or (isinstance(value, str) and value) for value in (kafka, gateway))
        case Kind.ID:
            return all(_is_id(value) for value in (kafka, gateway))
        case Kind.TIMESTAMP | Kind.THROTTLE:
            return all(type(value) is int and value >= 0 for value in (kafka, gateway))
        case Kind.UNKNOWN_SIZE:
            return bool(gateway == -1)
        case Kind.PART:
            return isinstance(kafka, list) and all(item in kafka for item in gateway)
        case Kind.HOST:
            return all(isinstance(value, str) and value for value in (kafka, gateway))


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value) and not value.startswith("<") and value != ABSENT
    return type(value) is int and value >= 0
