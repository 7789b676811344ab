"""What can fail: exceptions of a broken store, and the names of refusals, which are values."""

from enum import StrEnum


class StoreError(Exception):
    """A backing store failed. The message names the store, what was tried, and the remedy."""


class StoreUnavailable(StoreError):
    """The call failed and certainly had no effect; trying again later may succeed."""


class OutcomeUnknown(StoreError):
    """The call may or may not have had its effect."""


class AlreadyExists(StoreError):
    """A create-only put met a key that is there."""


class NotFound(StoreError):
    """The object or range is not there."""


class StoreDamaged(StoreError):
    """Bytes that were durable do not read back as written: a wrong CRC, a torn or foreign structure."""


class StoreTooNew(StoreError):
    """The store was written in a format version that this build does not know."""


class StoreLocked(StoreError):
    """Another process holds the store; the message names it."""


class StoreUnfit(StoreError):
    """The store does not keep a promise on which the ledger rests; the message names the promise."""


class ErrorName(StrEnum):
    """Kafka's names of the errors with which requests are refused, so that the ledger need not know the wire.
    `gateway.wire.errors.ERROR_CODES` has the code of each."""

    UNKNOWN_SERVER_ERROR = "UNKNOWN_SERVER_ERROR"
    NONE = "NONE"
    OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
    CORRUPT_MESSAGE = "CORRUPT_MESSAGE"
    UNKNOWN_TOPIC_OR_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"
    REQUEST_TIMED_OUT = "REQUEST_TIMED_OUT"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    OFFSET_METADATA_TOO_LARGE = "OFFSET_METADATA_TOO_LARGE"
    COORDINATOR_NOT_AVAILABLE = "COORDINATOR_NOT_AVAILABLE"
    NOT_COORDINATOR = "NOT_COORDINATOR"
    INVALID_TOPIC_EXCEPTION = "INVALID_TOPIC_EXCEPTION"
    NOT_ENOUGH_REPLICAS = "NOT_ENOUGH_REPLICAS"
    INVALID_REQUIRED_ACKS = "INVALID_REQUIRED_ACKS"
    ILLEGAL_GENERATION = "ILLEGAL_GENERATION"
    INCONSISTENT_GROUP_PROTOCOL = "INCONSISTENT_GROUP_PROTOCOL"
    INVALID_GROUP_ID = "INVALID_GROUP_ID"
    UNKNOWN_MEMBER_ID = "UNKNOWN_MEMBER_ID"
    INVALID_SESSION_TIMEOUT = "INVALID_SESSION_TIMEOUT"
    REBALANCE_IN_PROGRESS = "REBALANCE_IN_PROGRESS"
    INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
    TOPIC_ALREADY_EXISTS = "TOPIC_ALREADY_EXISTS"
    INVALID_PARTITIONS = "INVALID_PARTITIONS"
    INVALID_REPLICATION_FACTOR = "INVALID_REPLICATION_FACTOR"
    INVALID_REPLICA_ASSIGNMENT = "INVALID_REPLICA_ASSIGNMENT"
    INVALID_CONFIG = "INVALID_CONFIG"
    INVALID_REQUEST = "INVALID_REQUEST"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = "UNSUPPORTED_FOR_MESSAGE_FORMAT"
    POLICY_VIOLATION = "POLICY_VIOLATION"
    OUT_OF_ORDER_SEQUENCE_NUMBER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    INVALID_PRODUCER_EPOCH = "INVALID_PRODUCER_EPOCH"
    INVALID_TXN_STATE = "INVALID_TXN_STATE"
    CLUSTER_AUTHORIZATION_FAILED = "CLUSTER_AUTHORIZATION_FAILED"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    KAFKA_STORAGE_ERROR = "KAFKA_STORAGE_ERROR"
    NON_EMPTY_GROUP = "NON_EMPTY_GROUP"
    GROUP_ID_NOT_FOUND = "GROUP_ID_NOT_FOUND"
    TOPIC_DELETION_DISABLED = "TOPIC_DELETION_DISABLED"
    UNSUPPORTED_COMPRESSION_TYPE = "UNSUPPORTED_COMPRESSION_TYPE"
    MEMBER_ID_REQUIRED = "MEMBER_ID_REQUIRED"
    GROUP_MAX_SIZE_REACHED = "GROUP_MAX_SIZE_REACHED"
    FENCED_INSTANCE_ID = "FENCED_INSTANCE_ID"
    NO_REASSIGNMENT_IN_PROGRESS = "NO_REASSIGNMENT_IN_PROGRESS"
    GROUP_SUBSCRIBED_TO_TOPIC = "GROUP_SUBSCRIBED_TO_TOPIC"
    INVALID_RECORD = "INVALID_RECORD"
    THROTTLING_QUOTA_EXCEEDED = "THROTTLING_QUOTA_EXCEEDED"
    UNKNOWN_TOPIC_ID = "UNKNOWN_TOPIC_ID"
    INVALID_UPDATE_VERSION = "INVALID_UPDATE_VERSION"
