"""IncrementalAlterConfigs, API key 44: versions 0 to 1, flexible from 1.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class AlterableConfig:
    name: str = ""
    config_operation: int = 0
    value: str | None = ""


@dataclass(slots=True)
class AlterConfigsResource:
    resource_type: int = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = field(default_factory=list)


@dataclass(slots=True)
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""


@dataclass(slots=True)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)


REQUEST = Schema(
    IncrementalAlterConfigsRequest,
    (0, 1),
    1,
    {
        AlterableConfig: (
            Field("name", "string", (0, 1)),
            Field("config_operation", "int8", (0, 1)),
            Field("value", "string", (0, 1), nullable=(0, 1)),
        ),
        AlterConfigsResource: (
            Field("resource_type", "int8", (0, 1)),
            Field("resource_name", "string", (0, 1)),
            Field("configs", AlterableConfig, (0, 1), array=True),
        ),
        IncrementalAlterConfigsRequest: (
            Field("resources", AlterConfigsResource, (0, 1), array=True),
            Field("validate_only", "bool", (0, 1)),
        ),
    },
)


RESPONSE = Schema(
    IncrementalAlterConfigsResponse,
    (0, 1),
    1,
    {
        AlterConfigsResourceResponse: (
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1)),
            Field("resource_type", "int8", (0, 1)),
            Field("resource_name", "string", (0, 1)),
        ),
        IncrementalAlterConfigsResponse: (
            Field("throttle_time_ms", "int32", (0, 1)),
            Field("responses", AlterConfigsResourceResponse, (0, 1), array=True),
        ),
    },
)
