"""ListConfigResources, API key 74: versions 0 to 1, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ListConfigResourcesRequest:
    resource_types: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ConfigResource:
    resource_name: str = ""
    resource_type: int = 16


@dataclass(slots=True)
class ListConfigResourcesResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: list[ConfigResource] = field(default_factory=list)


REQUEST = Schema(
    ListConfigResourcesRequest,
    (0, 1),
    0,
    {
        ListConfigResourcesRequest: (
            Field("resource_types", "int8", (1, 1), array=True),
        ),
    },
)


RESPONSE = Schema(
    ListConfigResourcesResponse,
    (0, 1),
    0,
    {
        ConfigResource: (
            Field("resource_name", "string", (0, 1)),
            Field("resource_type", "int8", (1, 1), default=16),
        ),
        ListConfigResourcesResponse: (
            Field("throttle_time_ms", "int32", (0, 1)),
            Field("error_code", "int16", (0, 1)),
            Field("config_resources", ConfigResource, (0, 1), array=True),
        ),
    },
)
