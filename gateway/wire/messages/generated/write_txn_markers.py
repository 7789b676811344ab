"""WriteTxnMarkers, API key 27: versions 1 to 2, flexible from 1.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class WritableTxnMarkerTopic:
    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class WritableTxnMarker:
    producer_id: int = 0
    producer_epoch: int = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = field(default_factory=list)
    coordinator_epoch: int = 0
    transaction_version: int = 0


@dataclass(slots=True)
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = field(default_factory=list)


@dataclass(slots=True)
class WritableTxnMarkerPartitionResult:
    partition_index: int = 0
    error_code: int = 0


@dataclass(slots=True)
class WritableTxnMarkerTopicResult:
    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class WritableTxnMarkerResult:
    producer_id: int = 0
    topics: list[WritableTxnMarkerTopicResult] = field(default_factory=list)


@dataclass(slots=True)
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = field(default_factory=list)


REQUEST = Schema(
    WriteTxnMarkersRequest,
    (1, 2),
    1,
    {
        WritableTxnMarkerTopic: (
            Field("name", "string", (1, 2)),
            Field("partition_indexes", "int32", (1, 2), array=True),
        ),
        WritableTxnMarker: (
            Field("producer_id", "int64", (1, 2)),
            Field("producer_epoch", "int16", (1, 2)),
            Field("transaction_result", "bool", (1, 2)),
            Field("topics", WritableTxnMarkerTopic, (1, 2), array=True),
            Field("coordinator_epoch", "int32", (1, 2)),
            Field("transaction_version", "int8", (2, 2)),
        ),
        WriteTxnMarkersRequest: (
            Field("markers", WritableTxnMarker, (1, 2), array=True),
        ),
    },
)


RESPONSE = Schema(
    WriteTxnMarkersResponse,
    (1, 2),
    1,
    {
        WritableTxnMarkerPartitionResult: (
            Field("partition_index", "int32", (1, 2)),
            Field("error_code", "int16", (1, 2)),
        ),
        WritableTxnMarkerTopicResult: (
            Field("name", "string", (1, 2)),
            Field("partitions", WritableTxnMarkerPartitionResult, (1, 2), array=True),
        ),
        WritableTxnMarkerResult: (
            Field("producer_id", "int64", (1, 2)),
            Field("topics", WritableTxnMarkerTopicResult, (1, 2), array=True),
        ),
        WriteTxnMarkersResponse: (
            Field("markers", WritableTxnMarkerResult, (1, 2), array=True),
        ),
    },
)
