"""DescribeCluster, API key 60: versions 0 to 2, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False


@dataclass(slots=True)
class DescribeClusterBroker:
    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False


@dataclass(slots=True)
class DescribeClusterResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: int = -2147483648


REQUEST = Schema(
    DescribeClusterRequest,
    (0, 2),
    0,
    {
        DescribeClusterRequest: (
            Field("include_cluster_authorized_operations", "bool", (0, 2)),
            Field("endpoint_type", "int8", (1, 2), default=1),
            Field("include_fenced_brokers", "bool", (2, 2)),
        ),
    },
)


RESPONSE = Schema(
    DescribeClusterResponse,
    (0, 2),
    0,
    {
        DescribeClusterBroker: (
            Field("broker_id", "int32", (0, 2)),
            Field("host", "string", (0, 2)),
            Field("port", "int32", (0, 2)),
            Field("rack", "string", (0, 2), nullable=(0, 2), default=None),
            Field("is_fenced", "bool", (2, 2)),
        ),
        DescribeClusterResponse: (
            Field("throttle_time_ms", "int32", (0, 2)),
            Field("error_code", "int16", (0, 2)),
            Field("error_message", "string", (0, 2), nullable=(0, 2), default=None),
            Field("endpoint_type", "int8", (1, 2), default=1),
            Field("cluster_id", "string", (0, 2)),
            Field("controller_id", "int32", (0, 2), default=-1),
            Field("brokers", DescribeClusterBroker, (0, 2), array=True),
            Field("cluster_authorized_operations", "int32", (0, 2), default=-2147483648),
        ),
    },
)
