"""DescribeAcls, API key 29: versions 1 to 3, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DescribeAclsRequest:
    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0


@dataclass(slots=True)
class AclDescription:
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


@dataclass(slots=True)
class DescribeAclsResource:
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    acls: list[AclDescription] = field(default_factory=list)


@dataclass(slots=True)
class DescribeAclsResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = field(default_factory=list)


REQUEST = Schema(
    DescribeAclsRequest,
    (1, 3),
    2,
    {
        DescribeAclsRequest: (
            Field("resource_type_filter", "int8", (1, 3)),
            Field("resource_name_filter", "string", (1, 3), nullable=(1, 3)),
            Field("pattern_type_filter", "int8", (1, 3), default=3),
            Field("principal_filter", "string", (1, 3), nullable=(1, 3)),
            Field("host_filter", "string", (1, 3), nullable=(1, 3)),
            Field("operation", "int8", (1, 3)),
            Field("permission_type", "int8", (1, 3)),
        ),
    },
)


RESPONSE = Schema(
    DescribeAclsResponse,
    (1, 3),
    2,
    {
        AclDescription: (
            Field("principal", "string", (1, 3)),
            Field("host", "string", (1, 3)),
            Field("operation", "int8", (1, 3)),
            Field("permission_type", "int8", (1, 3)),
        ),
        DescribeAclsResource: (
            Field("resource_type", "int8", (1, 3)),
            Field("resource_name", "string", (1, 3)),
            Field("pattern_type", "int8", (1, 3), default=3),
            Field("acls", AclDescription, (1, 3), array=True),
        ),
        DescribeAclsResponse: (
            Field("throttle_time_ms", "int32", (1, 3)),
            Field("error_code", "int16", (1, 3)),
            Field("error_message", "string", (1, 3), nullable=(1, 3)),
            Field("resources", DescribeAclsResource, (1, 3), array=True),
        ),
    },
)
