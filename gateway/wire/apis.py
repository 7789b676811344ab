"""The Kafka APIs: their keys, the versions a Kafka 4.3.1 broker serves, and which are flexible (KIP-482).

Keys: https://kafka.apache.org/protocol.html#protocol_api_keys. What this gateway advertises is printed from
its handler table; the ranges here are the ones a handler may claim and the codec knows.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TypeAlias


class ApiKey(IntEnum):
    """Every API key Kafka 4.3.1 gives a name, served by a broker or not."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class InternalApi(IntEnum):
    """What the internal listener serves besides ApiVersions: APIs of KIP-1164, and from 20000 on our own.
    Kafka 4.4 gives some of these keys to others, so they are never served to clients."""

    DISKLESS_COMMIT_FILE = 95
    DISKLESS_LIST_OFFSETS = 97
    DISKLESS_FIND_BATCHES = 98
    DISKLESS_DESCRIBE_FILES = 100
    JOURNAL_FOLLOW = 20001
    SEGMENTS_SWAP = 20003
    PIN = 20004
    DESCRIBE_SHARD = 20005
    SETTLED_LEDGER = 20006
    ADOPT_TOPIC = 20007
    ADOPT_RUNS = 20008
    TAKE_SNAPSHOT = 20009


AnyApi: TypeAlias = ApiKey | InternalApi

# As a Kafka 4.3.1 broker advertises them. Produce is advertised from 0, because librdkafka takes a broker
# that does not list 0-2 for one without compression; a request of such a version is refused all the same.
RANGES: Mapping[ApiKey, tuple[int, int]] = MappingProxyType(
    {
        ApiKey.PRODUCE: (0, 13),
        ApiKey.FETCH: (4, 18),
        ApiKey.LIST_OFFSETS: (1, 11),
        ApiKey.METADATA: (0, 13),
        ApiKey.OFFSET_COMMIT: (2, 10),
        ApiKey.OFFSET_FETCH: (1, 10),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.JOIN_GROUP: (0, 9),
        ApiKey.HEARTBEAT: (0, 4),
        ApiKey.LEAVE_GROUP: (0, 5),
        ApiKey.SYNC_GROUP: (0, 5),
        ApiKey.DESCRIBE_GROUPS: (0, 6),
        ApiKey.LIST_GROUPS: (0, 5),
        ApiKey.SASL_HANDSHAKE: (0, 1),
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.CREATE_TOPICS: (2, 7),
        ApiKey.DELETE_TOPICS: (1, 6),
        ApiKey.DELETE_RECORDS: (0, 2),
        ApiKey.INIT_PRODUCER_ID: (0, 5),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
        ApiKey.END_TXN: (0, 5),
        ApiKey.WRITE_TXN_MARKERS: (1, 2),
        ApiKey.TXN_OFFSET_COMMIT: (0, 5),
        ApiKey.DESCRIBE_ACLS: (1, 3),
        ApiKey.CREATE_ACLS: (1, 3),
        ApiKey.DELETE_ACLS: (1, 3),
        ApiKey.DESCRIBE_CONFIGS: (1, 4),
        ApiKey.ALTER_CONFIGS: (0, 2),
        ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
        ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
        ApiKey.SASL_AUTHENTICATE: (0, 2),
        ApiKey.CREATE_PARTITIONS: (0, 3),
        ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
        ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
        ApiKey.DELETE_GROUPS: (0, 2),
        ApiKey.ELECT_LEADERS: (0, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.OFFSET_DELETE: (0, 0),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
        ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
        ApiKey.DESCRIBE_QUORUM: (0, 2),
        ApiKey.UPDATE_FEATURES: (0, 2),
        ApiKey.DESCRIBE_CLUSTER: (0, 2),
        ApiKey.DESCRIBE_PRODUCERS: (0, 0),
        ApiKey.UNREGISTER_BROKER: (0, 0),
        ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
        ApiKey.LIST_TRANSACTIONS: (0, 2),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
        ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
        ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
        ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
        ApiKey.SHARE_FETCH: (1, 2),
        ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
        ApiKey.ADD_RAFT_VOTER: (0, 1),
        ApiKey.REMOVE_RAFT_VOTER: (0, 0),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0),
        ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
        ApiKey.WRITE_SHARE_GROUP_STATE: (0, 1),
        ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1),
        ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 0),
        ApiKey.STREAMS_GROUP_DESCRIBE: (0, 0),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
    }
)

# The lowest version that is answered, where it is not the lowest advertised.
MINIMUM_SERVED: Mapping[ApiKey, int] = MappingProxyType({ApiKey.PRODUCE: 3})

# The APIs that gateways speak among themselves: never advertised to clients.
PEER_RANGES: Mapping[ApiKey, tuple[int, int]] = MappingProxyType({ApiKey.ENVELOPE: (0, 0)})
INTERNAL_RANGES: Mapping[InternalApi, tuple[int, int]] = MappingProxyType(dict.fromkeys(InternalApi, (0, 0)))

# The first flexible version of request and response; an API that is absent has none.
FIRST_FLEXIBLE: Mapping[AnyApi, int] = MappingProxyType(
    {
        **dict.fromkeys(InternalApi, 0),
        ApiKey.PRODUCE: 9,
        ApiKey.FETCH: 12,
        ApiKey.LIST_OFFSETS: 6,
        ApiKey.METADATA: 9,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.OFFSET_FETCH: 6,
        ApiKey.FIND_COORDINATOR: 3,
        ApiKey.JOIN_GROUP: 6,
        ApiKey.HEARTBEAT: 4,
        ApiKey.LEAVE_GROUP: 4,
        ApiKey.SYNC_GROUP: 4,
        ApiKey.DESCRIBE_GROUPS: 5,
        ApiKey.LIST_GROUPS: 3,
        ApiKey.API_VERSIONS: 3,
        ApiKey.CREATE_TOPICS: 5,
        ApiKey.DELETE_TOPICS: 4,
        ApiKey.DELETE_RECORDS: 2,
        ApiKey.INIT_PRODUCER_ID: 2,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
        ApiKey.ADD_PARTITIONS_TO_TXN: 3,
        ApiKey.ADD_OFFSETS_TO_TXN: 3,
        ApiKey.END_TXN: 3,
        ApiKey.WRITE_TXN_MARKERS: 1,
        ApiKey.TXN_OFFSET_COMMIT: 3,
        ApiKey.DESCRIBE_ACLS: 2,
        ApiKey.CREATE_ACLS: 2,
        ApiKey.DELETE_ACLS: 2,
        ApiKey.DESCRIBE_CONFIGS: 4,
        ApiKey.ALTER_CONFIGS: 2,
        ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
        ApiKey.DESCRIBE_LOG_DIRS: 2,
        ApiKey.SASL_AUTHENTICATE: 2,
        ApiKey.CREATE_PARTITIONS: 2,
        ApiKey.CREATE_DELEGATION_TOKEN: 2,
        ApiKey.RENEW_DELEGATION_TOKEN: 2,
        ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: 2,
        ApiKey.DELETE_GROUPS: 2,
        ApiKey.ELECT_LEADERS: 2,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
        ApiKey.ALTER_CLIENT_QUOTAS: 1,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
        ApiKey.DESCRIBE_QUORUM: 0,
        ApiKey.UPDATE_FEATURES: 0,
        ApiKey.ENVELOPE: 0,
        ApiKey.DESCRIBE_CLUSTER: 0,
        ApiKey.DESCRIBE_PRODUCERS: 0,
        ApiKey.UNREGISTER_BROKER: 0,
        ApiKey.DESCRIBE_TRANSACTIONS: 0,
        ApiKey.LIST_TRANSACTIONS: 0,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
        ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
        ApiKey.LIST_CONFIG_RESOURCES: 0,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
        ApiKey.SHARE_GROUP_HEARTBEAT: 0,
        ApiKey.SHARE_GROUP_DESCRIBE: 0,
        ApiKey.SHARE_FETCH: 0,
        ApiKey.SHARE_ACKNOWLEDGE: 0,
        ApiKey.ADD_RAFT_VOTER: 0,
        ApiKey.REMOVE_RAFT_VOTER: 0,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
        ApiKey.READ_SHARE_GROUP_STATE: 0,
        ApiKey.WRITE_SHARE_GROUP_STATE: 0,
        ApiKey.DELETE_SHARE_GROUP_STATE: 0,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 0,
        ApiKey.STREAMS_GROUP_HEARTBEAT: 0,
        ApiKey.STREAMS_GROUP_DESCRIBE: 0,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 0,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
    }
)

NEVER = 1 << 15


def codec_range(key: AnyApi) -> tuple[int, int] | None:
    """The versions (both inclusive) that the codec knows; None for an API without messages here."""
    if isinstance(key, InternalApi):
        return INTERNAL_RANGES[key]
    bounds = RANGES.get(key) or PEER_RANGES.get(key)
    if bounds is None:
        return None
    return MINIMUM_SERVED.get(key, bounds[0]), bounds[1]


def flexible(key: AnyApi, version: int) -> bool:
    """Whether messages of this version use compact encodings and tagged fields."""
    return version >= FIRST_FLEXIBLE.get(key, NEVER)


def request_header_version(key: AnyApi, version: int) -> int:
    """2 with tagged fields, else 1; known above the range too, for a too new ApiVersions has a header."""
    return 2 if flexible(key, version) else 1


def response_header_version(key: AnyApi, version: int) -> int:
    """1 with tagged fields, else 0. ApiVersions: always 0, its reader knows no versions yet (KIP-511)."""
    return 1 if key != ApiKey.API_VERSIONS and flexible(key, version) else 0
