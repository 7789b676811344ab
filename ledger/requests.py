"""What the owner of a shard is asked, and what it answers. Refusals are values.

`weight` is an upper bound of the journal bytes that a request may need; the driver fills an entry by it.
Error names are Kafka's (`TOPIC_ALREADY_EXISTS`), so that the ledger need not know the wire.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from ledger.records import BATCH, FRAME, RUN
from ledger.types import TopicId

_SMALL = 64
MAX_CONFIG_BYTES = 128 * 1024
"""Of all configs of one topic, names and values."""


@dataclass(frozen=True, slots=True)
class Refused:
    """No record was written. `error` is the name of Kafka's error code."""

    error: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class BecomeOwner:
    """Begin a new epoch; `cluster_id` is taken only by a journal that is still empty."""

    gateway: int
    incarnation: bytes
    cluster_id: str
    weight: int = 2 * _SMALL


@dataclass(frozen=True, slots=True)
class Owner:
    epoch: int


@dataclass(frozen=True, slots=True)
class CreateTopic:
    name: str
    topic_id: TopicId
    partitions: int
    configs: Mapping[str, str]

    @property
    def weight(self) -> int:
        pairs = sum(len(key) + len(value) for key, value in self.configs.items())
        return _SMALL + 4 * (len(self.name) + pairs) + 8 * len(self.configs)


@dataclass(frozen=True, slots=True)
class Created:
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Let a topic grow to `total` partitions."""

    topic_id: TopicId
    total: int
    weight: int = _SMALL


@dataclass(frozen=True, slots=True)
class Grown:
    partitions: int


class ConfigOp(Enum):
    """KIP-339; APPEND and SUBTRACT work on comma-separated lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """`value` is a checked value, or for a list operation its items; for DELETE it is not looked at."""

    op: ConfigOp
    name: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class AlterTopicConfigs:
    """Change some configs of a topic. `replace`: what is not named goes back to its default.
    `list_defaults`: what a list that is not set holds, for APPEND and SUBTRACT."""

    topic_id: TopicId
    changes: Sequence[ConfigChange]
    replace: bool = False
    list_defaults: Mapping[str, str] = field(default_factory=dict)

    @property
    def weight(self) -> int:
        # The record holds all configs of the topic, not only those that change.
        return _SMALL + MAX_CONFIG_BYTES


@dataclass(frozen=True, slots=True)
class Altered:
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    topic_id: TopicId
    weight: int = _SMALL


@dataclass(frozen=True, slots=True)
class Deleted:
    pass


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """One batch of a stored draft, and what the ledger needs of its header."""

    topic_id: TopicId
    partition: int
    start: int
    size: int
    record_count: int
    max_timestamp: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


@dataclass(frozen=True, slots=True)
class CommitFile:
    """Number the batches that lie in one object (KIP-1164 DisklessCommitFile)."""

    locator: str
    object_bytes: int
    batches: Sequence[CommitBatch]

    @property
    def weight(self) -> int:
        return FRAME.size + _SMALL + 4 * len(self.locator) + len(self.batches) * (RUN.size + BATCH.size)


@dataclass(frozen=True, slots=True)
class Committed:
    """`duplicate`: these offsets were given to the same batch before."""

    base_offset: int
    log_start: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class FileCommit:
    """One answer a batch, in request order."""

    results: Sequence[Committed | Refused]


@dataclass(frozen=True, slots=True)
class StaleObject:
    """The object is below the orphan floor or closed: store the draft again under a new key."""


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """Raise the log start offset; offset -1 means the high watermark."""

    topic_id: TopicId
    partition: int
    offset: int
    weight: int = _SMALL


@dataclass(frozen=True, slots=True)
class LowWatermark:
    offset: int


@dataclass(frozen=True, slots=True)
class ReserveProducerIds:
    count: int
    weight: int = _SMALL


@dataclass(frozen=True, slots=True)
class Reserved:
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class DrainRuns:
    """Let go of up to `limit` runs that nobody can read any more."""

    limit: int

    @property
    def weight(self) -> int:
        return _SMALL * max(self.limit, 1)


@dataclass(frozen=True, slots=True)
class ExpireProducers:
    """Forget up to `limit` producers that have been silent since before `before_ms`."""

    before_ms: int
    limit: int

    @property
    def weight(self) -> int:
        return _SMALL + 12 * self.limit


@dataclass(frozen=True, slots=True)
class ForgetObjects:
    """The bytes of these closed objects were deleted."""

    objects: Sequence[int]

    @property
    def weight(self) -> int:
        return _SMALL + 4 * len(self.objects)


@dataclass(frozen=True, slots=True)
class RaiseFloor:
    floor_ms: int
    weight: int = _SMALL


@dataclass(frozen=True, slots=True)
class Done:
    """`count` things were done; 0 means that nothing was left to do."""

    count: int


Request: TypeAlias = (
    BecomeOwner
    | CreateTopic
    | AddPartitions
    | AlterTopicConfigs
    | DeleteTopic
    | CommitFile
    | DeleteRecords
    | ReserveProducerIds
    | DrainRuns
    | ExpireProducers
    | ForgetObjects
    | RaiseFloor
)
Answer: TypeAlias = (
    Owner
    | Created
    | Grown
    | Altered
    | Deleted
    | FileCommit
    | StaleObject
    | LowWatermark
    | Reserved
    | Done
    | Refused
)
