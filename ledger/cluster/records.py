"""Metadata records about the cluster as a whole, and their bytes."""

import struct
from dataclasses import dataclass
from typing import Final

from ledger.errors import StoreTooNew
from ledger.fields import FieldReader, encode_text
from ledger.records import LEVEL_WITH_ORIGINS, NEWEST_LEVEL, RecordFormat

_OWNER = struct.Struct(">ii16s")
_RESTORED = struct.Struct(">qqq")
_LEVEL = struct.Struct(">H")
_TIME = struct.Struct(">q")
_JUMP = struct.Struct(">qq")
LEVEL_WITH_JUMPS: Final = 3
"""The feature level from which on the journal says by how much entry time has jumped."""
MAX_HOST_CHARS = 255
MAX_ADDRESS_CHARS = 1_000
MAX_STORE_CHARS = 100


@dataclass(frozen=True, slots=True)
class ClusterCreated:
    """The first record of a journal."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class OwnerChanged:
    """Begins every epoch."""

    epoch: int
    gateway: int
    incarnation: bytes


@dataclass(frozen=True, slots=True)
class OwnerDescribed:
    """The owner that an `OwnerChanged` of the same entry names: its machine, the addresses that it advertises
    to clients, and the identity of its metadata store, empty if that has none."""

    host: str
    address: str
    store: str


@dataclass(frozen=True, slots=True)
class TimeHeld:
    """Entry time has jumped ahead, and nothing is deleted for its age before `until_ms`. 0: the time is
    right, and so is all that was in doubt."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class TimeJumped:
    """Entry time has jumped ahead by `jump_ms`: before `until_ms` nothing is deleted for what that adds to
    its age."""

    until_ms: int
    jump_ms: int


@dataclass(frozen=True, slots=True)
class FeatureLevelRaised:
    """From the next entry on the journal may hold what this feature level allows. It never goes back."""

    level: int


@dataclass(frozen=True, slots=True)
class LedgerRestored:
    """The journal was put back from a backup of its first `entries` entries; begins a cluster epoch.

    Objects created from `kept_from_ms` to `kept_to_ms` may hold records that were acknowledged after the
    backup, so none of them is ever deleted, known to the ledger or not.
    """

    entries: int
    kept_from_ms: int
    kept_to_ms: int


def _encode_cluster(record: ClusterCreated) -> bytes:
    return record.cluster_id.encode()


def _decode_cluster(body: memoryview) -> ClusterCreated:
    return ClusterCreated(str(body, "utf-8"))


def _encode_owner(record: OwnerChanged) -> bytes:
    return _OWNER.pack(record.epoch, record.gateway, record.incarnation)


def _decode_owner(body: memoryview) -> OwnerChanged:
    return OwnerChanged(*_OWNER.unpack(body))


def _encode_described(record: OwnerDescribed) -> bytes:
    return b"".join(map(encode_text, (record.host, record.address, record.store)))


def _decode_described(body: memoryview) -> OwnerDescribed:
    reader = FieldReader(body)
    described = OwnerDescribed(reader.text(), reader.text(), reader.text())
    reader.end()
    return described


def _encode_held(record: TimeHeld) -> bytes:
    return _TIME.pack(record.until_ms)


def _decode_held(body: memoryview) -> TimeHeld:
    return TimeHeld(*_TIME.unpack(body))


def _encode_jump(record: TimeJumped) -> bytes:
    return _JUMP.pack(record.until_ms, record.jump_ms)


def _decode_jump(body: memoryview) -> TimeJumped:
    return TimeJumped(*_JUMP.unpack(body))


def _encode_restored(record: LedgerRestored) -> bytes:
    return _RESTORED.pack(record.entries, record.kept_from_ms, record.kept_to_ms)


def _decode_restored(body: memoryview) -> LedgerRestored:
    return LedgerRestored(*_RESTORED.unpack(body))


def _encode_level(record: FeatureLevelRaised) -> bytes:
    return _LEVEL.pack(record.level)


def _decode_level(body: memoryview) -> FeatureLevelRaised:
    (level,) = _LEVEL.unpack(body)
    if level > NEWEST_LEVEL:
        raise StoreTooNew(
            f"the journal has feature level {level}, and this build knows levels up to {NEWEST_LEVEL}: run "
            "the version of Dragoman that raised it, or a newer one"
        )
    return FeatureLevelRaised(level)


CLUSTER_CREATED = RecordFormat(1, ClusterCreated, _encode_cluster, _decode_cluster)
OWNER_CHANGED = RecordFormat(2, OwnerChanged, _encode_owner, _decode_owner)
LEDGER_RESTORED = RecordFormat(14, LedgerRestored, _encode_restored, _decode_restored)
FEATURE_LEVEL_RAISED = RecordFormat(21, FeatureLevelRaised, _encode_level, _decode_level)
OWNER_DESCRIBED = RecordFormat(
    22, OwnerDescribed, _encode_described, _decode_described, level=LEVEL_WITH_ORIGINS
)
TIME_HELD = RecordFormat(23, TimeHeld, _encode_held, _decode_held, level=LEVEL_WITH_ORIGINS)
TIME_JUMPED = RecordFormat(24, TimeJumped, _encode_jump, _decode_jump, level=LEVEL_WITH_JUMPS)
