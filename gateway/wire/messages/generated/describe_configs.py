"""DescribeConfigs, API key 32: versions 1 to 4, flexible from 4.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DescribeConfigsResource:
    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = field(default_factory=list)


@dataclass(slots=True)
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: bool = False
    include_documentation: bool = False


@dataclass(slots=True)
class DescribeConfigsSynonym:
    name: str = ""
    value: str | None = ""
    source: int = 0


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)
    config_type: int = 0
    documentation: str | None = ""


@dataclass(slots=True)
class DescribeConfigsResult:
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)


@dataclass(slots=True)
class DescribeConfigsResponse:
    throttle_time_ms: int = 0
    results: list[DescribeConfigsResult] = field(default_factory=list)


REQUEST = Schema(
    DescribeConfigsRequest,
    (1, 4),
    4,
    {
        DescribeConfigsResource: (
            Field("resource_type", "int8", (1, 4)),
            Field("resource_name", "string", (1, 4)),
            Field("configuration_keys", "string", (1, 4), array=True, nullable=(1, 4)),
        ),
        DescribeConfigsRequest: (
            Field("resources", DescribeConfigsResource, (1, 4), array=True),
            Field("include_synonyms", "bool", (1, 4)),
            Field("include_documentation", "bool", (3, 4)),
        ),
    },
)


RESPONSE = Schema(
    DescribeConfigsResponse,
    (1, 4),
    4,
    {
        DescribeConfigsSynonym: (
            Field("name", "string", (1, 4)),
            Field("value", "string", (1, 4), nullable=(1, 4)),
            Field("source", "int8", (1, 4)),
        ),
        DescribeConfigsResourceResult: (
            Field("name", "string", (1, 4)),
            Field("value", "string", (1, 4), nullable=(1, 4)),
            Field("read_only", "bool", (1, 4)),
            Field("config_source", "int8", (1, 4), default=-1),
            Field("is_sensitive", "bool", (1, 4)),
            Field("synonyms", DescribeConfigsSynonym, (1, 4), array=True),
            Field("config_type", "int8", (3, 4)),
            Field("documentation", "string", (3, 4), nullable=(3, 4)),
        ),
        DescribeConfigsResult: (
            Field("error_code", "int16", (1, 4)),
            Field("error_message", "string", (1, 4), nullable=(1, 4)),
            Field("resource_type", "int8", (1, 4)),
            Field("resource_name", "string", (1, 4)),
            Field("configs", DescribeConfigsResourceResult, (1, 4), array=True),
        ),
        DescribeConfigsResponse: (
            Field("throttle_time_ms", "int32", (1, 4)),
            Field("results", DescribeConfigsResult, (1, 4), array=True),
        ),
    },
)
