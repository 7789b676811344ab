"""What every client library can do in these tests, and the values that go in and come out."""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

CREATE_TIME = 0
CLIENT_TIMEOUT_S = 60.0


class Codec(enum.StrEnum):
    """By the names that all libraries share; `number` is what a batch's attributes say."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"

    @property
    def number(self) -> int:
        return list(Codec).index(self)


Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Received:
    offset: int
    timestamp_type: int
    record: Record


@dataclass(frozen=True, slots=True)
class Earliest:
    pass


@dataclass(frozen=True, slots=True)
class Latest:
    pass


@dataclass(frozen=True, slots=True)
class FromOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class FromTimestamp:
    """The first record at or after this time; the partition's end when there is none."""

    timestamp_ms: int


Start = Earliest | Latest | FromOffset | FromTimestamp


class TopicExists(Exception):
    """The endpoint returned TOPIC_ALREADY_EXISTS."""


class Ability(enum.Enum):
    """What some libraries lack altogether."""

    CREATE_TOPICS = enum.auto()
    CONSUME = enum.auto()
    SET_TIMESTAMPS = enum.auto()


Limits = Mapping[Ability, str]
"""What a library lacks, with the reason that a skipped test shows."""
NO_LIMITS: Limits = MappingProxyType({})


class ClientUnderTest(Protocol):
    """One client library. No groups: partitions are assigned by hand.

    Everything gives up after CLIENT_TIMEOUT_S with an exception. What has a body here is so with most
    libraries.
    """

    name: str
    can_be_idempotent: bool = True
    cannot: Limits = NO_LIMITS

    def create_topic(self, topic: str, partitions: int) -> None:
        """Errors: TopicExists."""
        ...

    def partition_count(self, topic: str) -> int: ...

    def can_send(self, record: Record) -> bool:
        """False for what the library itself refuses to send."""
        return True

    def as_delivered(self, record: Record) -> Record:
        """What the library's consumer makes of a record: some cannot show all that is in it."""
        return record

    def produce(self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool) -> list[int]:
        """Send all with acks=all; the acked offset of each record, in the order of `records`."""
        ...

    def consume(
        self,
        topic: str,
        partitions: Sequence[int],
        start: Start,
        count: int,
        on_positioned: Callable[[], object] | None = None,
    ) -> list[Received]:
        """The next `count` records of all `partitions` together, each partition's in the order of arrival.

        `on_positioned` is called once the start is fixed at an offset, before anything is read.
        """
        ...

    def end_offset(self, topic: str, partition: int) -> int: ...
