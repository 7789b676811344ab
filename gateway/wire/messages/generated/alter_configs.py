"""AlterConfigs, API key 33: versions 0 to 2, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class AlterableConfig:
    name: str = ""
    value: str | None = ""


@dataclass(slots=True)
class AlterConfigsResource:
    resource_type: int = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = field(default_factory=list)


@dataclass(slots=True)
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""


@dataclass(slots=True)
class AlterConfigsResponse:
    throttle_time_ms: int = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)


REQUEST = Schema(
    AlterConfigsRequest,
    (0, 2),
    2,
    {
        AlterableConfig: (
            Field("name", "string", (0, 2)),
            Field("value", "string", (0, 2), nullable=(0, 2)),
        ),
        AlterConfigsResource: (
            Field("resource_type", "int8", (0, 2)),
            Field("resource_name", "string", (0, 2)),
            Field("configs", AlterableConfig, (0, 2), array=True),
        ),
        AlterConfigsRequest: (
            Field("resources", AlterConfigsResource, (0, 2), array=True),
            Field("validate_only", "bool", (0, 2)),
        ),
    },
)


RESPONSE = Schema(
    AlterConfigsResponse,
    (0, 2),
    2,
    {
        AlterConfigsResourceResponse: (
            Field("error_code", "int16", (0, 2)),
            Field("error_message", "string", (0, 2), nullable=(0, 2)),
            Field("resource_type", "int8", (0, 2)),
            Field("resource_name", "string", (0, 2)),
        ),
        AlterConfigsResponse: (
            Field("throttle_time_ms", "int32", (0, 2)),
            Field("responses", AlterConfigsResourceResponse, (0, 2), array=True),
        ),
    },
)
