"""ApiVersions, API key 18: versions 0 to 4, flexible from 3.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ApiVersionsRequest:
    client_software_name: str = ""
    client_software_version: str = ""


@dataclass(slots=True)
class ApiVersion:
    api_key: int = 0
    min_version: int = 0
    max_version: int = 0


@dataclass(slots=True)
class SupportedFeatureKey:
    name: str = ""
    min_version: int = 0
    max_version: int = 0


@dataclass(slots=True)
class FinalizedFeatureKey:
    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0


@dataclass(slots=True)
class ApiVersionsResponse:
    error_code: int = 0
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: int = 0
    supported_features: list[SupportedFeatureKey] = field(default_factory=list)
    finalized_features_epoch: int = -1
    finalized_features: list[FinalizedFeatureKey] = field(default_factory=list)
    zk_migration_ready: bool = False


REQUEST = Schema(
    ApiVersionsRequest,
    (0, 4),
    3,
    {
        ApiVersionsRequest: (
            Field("client_software_name", "string", (3, 4)),
            Field("client_software_version", "string", (3, 4)),
        ),
    },
)


RESPONSE = Schema(
    ApiVersionsResponse,
    (0, 4),
    3,
    {
        ApiVersion: (
            Field("api_key", "int16", (0, 4)),
            Field("min_version", "int16", (0, 4)),
            Field("max_version", "int16", (0, 4)),
        ),
        SupportedFeatureKey: (
            Field("name", "string", (3, 4)),
            Field("min_version", "int16", (3, 4)),
            Field("max_version", "int16", (3, 4)),
        ),
        FinalizedFeatureKey: (
            Field("name", "string", (3, 4)),
            Field("max_version_level", "int16", (3, 4)),
            Field("min_version_level", "int16", (3, 4)),
        ),
        ApiVersionsResponse: (
            Field("error_code", "int16", (0, 4)),
            Field("api_keys", ApiVersion, (0, 4), array=True),
            Field("throttle_time_ms", "int32", (1, 4)),
            Field("supported_features", SupportedFeatureKey, (3, 4), array=True, tag=0, tagged=(3, 4)),
            Field("finalized_features_epoch", "int64", (3, 4), default=-1, tag=1, tagged=(3, 4)),
            Field("finalized_features", FinalizedFeatureKey, (3, 4), array=True, tag=2, tagged=(3, 4)),
            Field("zk_migration_ready", "bool", (3, 4), tag=3, tagged=(3, 4)),
        ),
    },
)
