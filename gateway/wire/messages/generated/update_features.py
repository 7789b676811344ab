"""UpdateFeatures, API key 57: versions 0 to 2, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class FeatureUpdateKey:
    feature: str = ""
    max_version_level: int = 0
    allow_downgrade: bool = False
    upgrade_type: int = 1


@dataclass(slots=True)
class UpdateFeaturesRequest:
    timeout_ms: int = 60000
    feature_updates: list[FeatureUpdateKey] = field(default_factory=list)
    validate_only: bool = False


@dataclass(slots=True)
class UpdatableFeatureResult:
    feature: str = ""
    error_code: int = 0
    error_message: str | None = ""


@dataclass(slots=True)
class UpdateFeaturesResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[UpdatableFeatureResult] = field(default_factory=list)


REQUEST = Schema(
    UpdateFeaturesRequest,
    (0, 2),
    0,
    {
        FeatureUpdateKey: (
            Field("feature", "string", (0, 2)),
            Field("max_version_level", "int16", (0, 2)),
            Field("allow_downgrade", "bool", (0, 0)),
            Field("upgrade_type", "int8", (1, 2), default=1),
        ),
        UpdateFeaturesRequest: (
            Field("timeout_ms", "int32", (0, 2), default=60000),
            Field("feature_updates", FeatureUpdateKey, (0, 2), array=True),
            Field("validate_only", "bool", (1, 2)),
        ),
    },
)


RESPONSE = Schema(
    UpdateFeaturesResponse,
    (0, 2),
    0,
    {
        UpdatableFeatureResult: (
            Field("feature", "string", (0, 2)),
            Field("error_code", "int16", (0, 2)),
            Field("error_message", "string", (0, 2), nullable=(0, 2)),
        ),
        UpdateFeaturesResponse: (
            Field("throttle_time_ms", "int32", (0, 2)),
            Field("error_code", "int16", (0, 2)),
            Field("error_message", "string", (0, 2), nullable=(0, 2)),
            Field("results", UpdatableFeatureResult, (0, 1), array=True),
        ),
    },
)
