"""DescribeClientQuotas, API key 48: versions 0 to 1, flexible from 1.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ComponentData:
    entity_type: str = ""
    match_type: int = 0
    match: str | None = ""


@dataclass(slots=True)
class DescribeClientQuotasRequest:
    components: list[ComponentData] = field(default_factory=list)
    strict: bool = False


@dataclass(slots=True)
class EntityData:
    entity_type: str = ""
    entity_name: str | None = ""


@dataclass(slots=True)
class ValueData:
    key: str = ""
    value: float = 0.0


@dataclass(slots=True)
class EntryData:
    entity: list[EntityData] = field(default_factory=list)
    values: list[ValueData] = field(default_factory=list)


@dataclass(slots=True)
class DescribeClientQuotasResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = field(default_factory=list)


REQUEST = Schema(
    DescribeClientQuotasRequest,
    (0, 1),
    1,
    {
        ComponentData: (
            Field("entity_type", "string", (0, 1)),
            Field("match_type", "int8", (0, 1)),
            Field("match", "string", (0, 1), nullable=(0, 1)),
        ),
        DescribeClientQuotasRequest: (
            Field("components", ComponentData, (0, 1), array=True),
            Field("strict", "bool", (0, 1)),
        ),
    },
)


RESPONSE = Schema(
    DescribeClientQuotasResponse,
    (0, 1),
    1,
    {
        EntityData: (
            Field("entity_type", "string", (0, 1)),
            Field("entity_name", "string", (0, 1), nullable=(0, 1)),
        ),
        ValueData: (
            Field("key", "string", (0, 1)),
            Field("value", "float64", (0, 1)),
        ),
        EntryData: (
            Field("entity", EntityData, (0, 1), array=True),
            Field("values", ValueData, (0, 1), array=True),
        ),
        DescribeClientQuotasResponse: (
            Field("throttle_time_ms", "int32", (0, 1)),
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1)),
            Field("entries", EntryData, (0, 1), array=True, nullable=(0, 1)),
        ),
    },
)
