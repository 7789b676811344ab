"""AlterClientQuotas, API key 49: versions 0 to 1, flexible from 1.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class AlterClientQuotasRequestEntityData:
    entity_type: str = ""
    entity_name: str | None = ""


@dataclass(slots=True)
class OpData:
    key: str = ""
    value: float = 0.0
    remove: bool = False


@dataclass(slots=True)
class AlterClientQuotasRequestEntryData:
    entity: list[AlterClientQuotasRequestEntityData] = field(default_factory=list)
    ops: list[OpData] = field(default_factory=list)


@dataclass(slots=True)
class AlterClientQuotasRequest:
    entries: list[AlterClientQuotasRequestEntryData] = field(default_factory=list)
    validate_only: bool = False


@dataclass(slots=True)
class AlterClientQuotasResponseEntityData:
    entity_type: str = ""
    entity_name: str | None = ""


@dataclass(slots=True)
class AlterClientQuotasResponseEntryData:
    error_code: int = 0
    error_message: str | None = ""
    entity: list[AlterClientQuotasResponseEntityData] = field(default_factory=list)


@dataclass(slots=True)
class AlterClientQuotasResponse:
    throttle_time_ms: int = 0
    entries: list[AlterClientQuotasResponseEntryData] = field(default_factory=list)


REQUEST = Schema(
    AlterClientQuotasRequest,
    (0, 1),
    1,
    {
        AlterClientQuotasRequestEntityData: (
            Field("entity_type", "string", (0, 1)),
            Field("entity_name", "string", (0, 1), nullable=(0, 1)),
        ),
        OpData: (
            Field("key", "string", (0, 1)),
            Field("value", "float64", (0, 1)),
            Field("remove", "bool", (0, 1)),
        ),
        AlterClientQuotasRequestEntryData: (
            Field("entity", AlterClientQuotasRequestEntityData, (0, 1), array=True),
            Field("ops", OpData, (0, 1), array=True),
        ),
        AlterClientQuotasRequest: (
            Field("entries", AlterClientQuotasRequestEntryData, (0, 1), array=True),
            Field("validate_only", "bool", (0, 1)),
        ),
    },
)


RESPONSE = Schema(
    AlterClientQuotasResponse,
    (0, 1),
    1,
    {
        AlterClientQuotasResponseEntityData: (
            Field("entity_type", "string", (0, 1)),
            Field("entity_name", "string", (0, 1), nullable=(0, 1)),
        ),
        AlterClientQuotasResponseEntryData: (
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1)),
            Field("entity", AlterClientQuotasResponseEntityData, (0, 1), array=True),
        ),
        AlterClientQuotasResponse: (
            Field("throttle_time_ms", "int32", (0, 1)),
            Field("entries", AlterClientQuotasResponseEntryData, (0, 1), array=True),
        ),
    },
)
