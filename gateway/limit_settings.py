"""The settings `limits.*`, and what the other sections of settings need too: units, the mark of a secret, and
the error of a wrong value. A connection loads this module alone of the settings."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
SECRET: Final = "secret"
"""Key in `Meta.extra` of a setting that is never shown."""


class ConfigError(Exception):
    """A setting is unknown, of the wrong type or out of bounds; the message names what is allowed."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    frame_bytes: Annotated[
        int, Meta(ge=KIB, le=2 * GIB - 1, description="Largest request; a larger one closes its connection")
    ] = 100 * MIB
    connections: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="Client connections of all listeners; further ones are closed"),
    ] = 10_000
    address_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Client connections from one address (IPv6: one /64); further ones are closed",
        ),
    ] = 5_000
    connection_rate: Annotated[
        int,
        Meta(ge=1, le=100_000, description="New connections a second of all listeners; further ones wait"),
    ] = 1_000
    address_connection_rate: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="New connections a second from one address; further ones wait, at most 10 s long",
        ),
    ] = 500
    tls_handshake_ms: Annotated[
        int,
        Meta(ge=100, le=5 * MINUTE, description="A connection whose TLS handshake takes longer is closed"),
    ] = 10 * SECOND
    requests_in_flight: Annotated[
        int, Meta(ge=1, le=10_000, description="Unanswered requests of a connection at which reading pauses")
    ] = 100
    total_requests_in_flight: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Unanswered requests of all connections, with waiting fetches, at which reading "
            "pauses",
        ),
    ] = 100_000
    connection_bytes: Annotated[
        int,
        Meta(
            ge=64 * KIB,
            le=2 * GIB,
            description="Bytes of unanswered requests of a connection at which reading pauses",
        ),
    ] = 64 * MIB
    buffer_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=64 * GIB,
            description="Bytes of unanswered requests and unread responses of all connections at which "
            "reading pauses. Connections that hold most of them without progress are closed; at "
            "a quarter more, at once. With at least 32 KiB for each of limits.connections, "
            "small requests are still served",
        ),
    ] = 512 * MIB
    decompressed_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=2 * GIB,
            description="Largest batch, decompressed, that a topic accepts whose configs need its records "
            "(compaction, timestamp bounds, compression), and that a lookup by time opens",
        ),
    ] = 64 * MIB
    send_bytes: Annotated[
        int, Meta(ge=KIB, le=GIB, description="Unsent response bytes of a connection at which reading pauses")
    ] = 4 * MIB
    idle_ms: Annotated[
        int,
        Meta(
            ge=SECOND,
            le=24 * HOUR,
            description="A connection is closed after this time without a whole request; for a request that "
            "is being sent or a response that is being read, 1 s more for each 16 KiB",
        ),
    ] = 10 * MINUTE
    request_timeout_ms: Annotated[
        int,
        Meta(ge=SECOND, le=HOUR, description="Longest timeout of a request; a longer one is shortened"),
    ] = 2 * MINUTE
    request_elements: Annotated[
        int,
        Meta(
            ge=1_000,
            le=10_000_000,
            description="Elements of all arrays of a request together; a request with more closes its "
            "connection. Requests that name all partitions (ListOffsets, Metadata, "
            "DescribeTopicPartitions, OffsetFetch, OffsetCommit, OffsetForLeaderEpoch, Fetch, "
            "ListPartitionReassignments) may have 2 x limits.partitions more",
        ),
    ] = 50_000
    response_bytes: Annotated[
        int,
        Meta(
            ge=4 * KIB,
            le=GIB,
            description="Memory for a response to a request that names the same thing many times; what does "
            "not fit is refused. Configs of resources that are named once do not count: "
            "together they may use half of limits.request_memory_bytes, enough for 50,000 "
            "topics with synonyms",
        ),
    ] = 16 * MIB
    request_memory_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=64 * GIB,
            description="Memory of all large requests together, for the decoded requests and the responses "
            "that are being built; further ones wait, and addresses are served round-robin",
        ),
    ] = 256 * MIB
    drain_ms: Annotated[
        int, Meta(ge=0, le=10 * MINUTE, description="How long a shutdown waits for requests under way")
    ] = 20 * SECOND
    fetch_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=64 * GIB,
            description="Bytes of records that all fetches together hold, from before they are read until "
            "they are sent. Further fetches wait, with a fair share for each address and connection. "
            "An eighth is reserved for fetches of at most 64 KiB. While fetches wait for 0.5 s, a "
            "client that reads none of its responses for 1 s is closed",
        ),
    ] = 256 * MIB
    fetch_sessions: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Incremental fetch sessions that are kept")
    ] = 1000
    fetch_partitions: Annotated[
        int,
        Meta(
            ge=10_000,
            le=100_000_000,
            description="Partitions of all fetch sessions together, about 700 bytes each; the same number "
            "again for fetches under way with more than 256. Beyond that a session is made only if those end "
            "for it that were not used for two minutes, and fetches wait until those that have waited for "
            "records the longest have ended",
        ),
    ] = 500_000
    topic_partitions: Annotated[
        int, Meta(ge=1, le=100_000, description="Partitions that a topic may have")
    ] = 10_000
    partitions: Annotated[
        int, Meta(ge=1, le=10_000_000, description="Partitions that all topics together may have")
    ] = 200_000
    producers: Annotated[
        int,
        Meta(
            ge=1_000,
            le=100_000_000,
            description="Pairs of an idempotent producer and a partition that are remembered, 0.4 to 0.7 "
            "KiB of memory each, and 0.4 KiB more while a snapshot is made. Near this bound "
            "those idle for 15 minutes are forgotten; while there is none, a new pair is "
            "refused with NOT_ENOUGH_REPLICAS, which producers retry",
        ),
    ] = 500_000
    partition_producers: Annotated[
        int, Meta(ge=100, le=100_000_000, description="Producers that are remembered in one partition")
    ] = 20_000
    groups: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Consumer groups; a join to one more is refused",
        ),
    ] = 100_000
    offset_bytes: Annotated[
        int,
        Meta(
            ge=64 * KIB,
            le=1024 * GIB,
            description="Memory for offsets of all groups, committed ones and those of open transactions, "
            "each 256 bytes and its text; when it is full, an offset is accepted only where it replaces "
            "one that is not shorter",
        ),
    ] = 2 * GIB
    members_bytes: Annotated[
        int,
        Meta(
            ge=64 * KIB,
            le=64 * GIB,
            description="Bytes of all members of all groups, with their protocols and assignments; beyond "
            "that no new member is accepted",
        ),
    ] = GIB
    group_bytes: Annotated[
        int,
        Meta(
            ge=KIB,
            le=MIB,
            description="Bytes of all members of a group, with their protocols; one more is refused",
        ),
    ] = 768 * KIB
