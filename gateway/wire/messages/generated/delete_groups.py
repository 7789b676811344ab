"""DeleteGroups, API key 42: versions 0 to 2, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DeleteGroupsRequest:
    groups_names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class DeletableGroupResult:
    group_id: str = ""
    error_code: int = 0


@dataclass(slots=True)
class DeleteGroupsResponse:
    throttle_time_ms: int = 0
    results: list[DeletableGroupResult] = field(default_factory=list)


REQUEST = Schema(
    DeleteGroupsRequest,
    (0, 2),
    2,
    {
        DeleteGroupsRequest: (
            Field("groups_names", "string", (0, 2), array=True),
        ),
    },
)


RESPONSE = Schema(
    DeleteGroupsResponse,
    (0, 2),
    2,
    {
        DeletableGroupResult: (
            Field("group_id", "string", (0, 2)),
            Field("error_code", "int16", (0, 2)),
        ),
        DeleteGroupsResponse: (
            Field("throttle_time_ms", "int32", (0, 2)),
            Field("results", DeletableGroupResult, (0, 2), array=True),
        ),
    },
)
