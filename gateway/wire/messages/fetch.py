"""Fetch, API key 1, versions 4 to 18: its structs (https://kafka.apache.org/protocol.html#The_Messages_Fetch).

Version 7 brought sessions, 12 is flexible, 13 names topics by id, 15 moved the replica into a tagged
field, 16 names node endpoints, 17 the replica's directory, 18 its high watermark. `fetch_decoding` reads
requests, `fetch_encoding` writes responses, both by hand.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from gateway.wire.errors import UnsupportedVersion
from gateway.wire.messages.absent import AbsentPartitions
from gateway.wire.messages.produce import LeaderIdAndEpoch, NodeEndpoint
from gateway.wire.primitives import ZERO_UUID
from ledger.types import Buffer

FIRST_VERSION: Final = 4
LAST_VERSION: Final = 18
FIRST_VERSION_WITH_SESSIONS: Final = 7
FIRST_FLEXIBLE: Final = 12
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
CONSUMER: Final = -1
"""The replica id of a client that is no broker."""
NO_SESSION_ID: Final = 0
SESSIONLESS_EPOCH: Final = -1
NO_HIGH_WATERMARK: Final = 2**63 - 1


class FetchPartition(msgspec.Struct):
    index: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = NO_HIGH_WATERMARK


class FetchTopic(msgspec.Struct):
    """`name` is empty from version 13 on, `topic_id` is zero before."""

    name: str
    topic_id: bytes
    partitions: list[FetchPartition]


class ForgottenTopic(msgspec.Struct):
    """Partitions that leave the session."""

    name: str
    topic_id: bytes
    partitions: list[int]


class FetchRequest(msgspec.Struct):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    """0 read_uncommitted, 1 read_committed."""
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics: list[ForgottenTopic]
    rack_id: str = ""
    cluster_id: str | None = None
    replica_id: int = CONSUMER
    replica_epoch: int = -1


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    end_offset: int
    epoch: int


class FetchPartitionResponse(msgspec.Struct):
    index: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    records: Sequence[Buffer] | None = ()
    """Written one after the other and never joined; None is null, () no bytes."""
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    snapshot_id: SnapshotId | None = None
    is_empty: bool = False
    """There is nothing but offsets, as of most partitions, which are encoded by one pack. Not on the wire."""


class FetchTopicResponse(msgspec.Struct):
    name: str
    topic_id: bytes
    partitions: Sequence[FetchPartitionResponse]


class FetchResponse(msgspec.Struct):
    topics: Sequence[FetchTopicResponse]
    error_code: int = 0
    session_id: int = NO_SESSION_ID
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()
    absent: AbsentPartitions | None = None
    """Further partitions, which do not exist. Only a response that is encoded in slices has them."""


def check_version(version: int) -> None:
    if not FIRST_VERSION <= version <= LAST_VERSION:
        raise UnsupportedVersion(f"Fetch v{version}")
