"""ListGroups, API key 16: versions 0 to 5, flexible from 3.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ListGroupsRequest:
    states_filter: list[str] = field(default_factory=list)
    types_filter: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ListedGroup:
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""


@dataclass(slots=True)
class ListGroupsResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    groups: list[ListedGroup] = field(default_factory=list)


REQUEST = Schema(
    ListGroupsRequest,
    (0, 5),
    3,
    {
        ListGroupsRequest: (
            Field("states_filter", "string", (4, 5), array=True),
            Field("types_filter", "string", (5, 5), array=True),
        ),
    },
)


RESPONSE = Schema(
    ListGroupsResponse,
    (0, 5),
    3,
    {
        ListedGroup: (
            Field("group_id", "string", (0, 5)),
            Field("protocol_type", "string", (0, 5)),
            Field("group_state", "string", (4, 5)),
            Field("group_type", "string", (5, 5)),
        ),
        ListGroupsResponse: (
            Field("throttle_time_ms", "int32", (1, 5)),
            Field("error_code", "int16", (0, 5)),
            Field("groups", ListedGroup, (0, 5), array=True),
        ),
    },
)
