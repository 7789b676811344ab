"""Image rows of groups and of their offsets."""

import struct
from collections.abc import Iterable, Sequence

from ledger.errors import StoreDamaged
from ledger.groups.records import decode_group, encode_group
from ledger.groups.state import CommittedOffset, OffsetKey
from ledger.machine import Section
from ledger.state import LedgerState
from ledger.types import TOPIC_ID_BYTES, TopicId

GROUP, OFFSET = 7, 8

_CHANGED = struct.Struct(">q")
_OFFSET = struct.Struct(">qiqqH")
_U16 = struct.Struct(">H")
_INDEX = struct.Struct(">I")


def _groups(state: LedgerState) -> Iterable[str]:
    return state.groups.by_id


def _offsets(state: LedgerState) -> Iterable[tuple[str, OffsetKey]]:
    return ((group_id, key) for group_id, held in state.groups.offsets.items() for key in held)


def _encode_group(state: LedgerState, group_id: str) -> bytes | None:
    """`i64 time of change | the fields of the group`."""
    group = state.groups.by_id.get(group_id)
    return _CHANGED.pack(group.changed_ms) + encode_group(group) if group is not None else None


def _restore_groups(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    for key, value in rows:
        (changed_ms,) = _CHANGED.unpack_from(value)
        group = decode_group(memoryview(value)[_CHANGED.size :], changed_ms)
        if group.group_id.encode() != key:
            raise StoreDamaged("the row of a group in an image names another one")
        state.groups.by_id[group.group_id] = group


def _encode_offset_key(key: tuple[str, OffsetKey]) -> bytes:
    """`u16 length | group id | topic id | u32 partition`."""
    group_id, (topic_id, partition) = key
    name = group_id.encode()
    return b"".join((_U16.pack(len(name)), name, topic_id, _INDEX.pack(partition)))


def _decode_offset_key(key: bytes) -> tuple[str, OffsetKey]:
    (size,) = _U16.unpack_from(key)
    at = _U16.size + size
    topic_end = at + TOPIC_ID_BYTES
    (partition,) = _INDEX.unpack(key[topic_end:])
    return key[_U16.size : at].decode(), (TopicId(key[at:topic_end]), partition)


def _encode_offset(state: LedgerState, key: tuple[str, OffsetKey]) -> bytes | None:
    """`i64 offset | i32 leader epoch | i64 time of the commit | i64 expire time | u16 length | metadata`."""
    group_id, offset_key = key
    held = state.groups.offsets.get(group_id)
    committed = held.get(offset_key) if held is not None else None
    if committed is None:
        return None
    offset, epoch, metadata, committed_ms, expire_ms = committed
    text = metadata.encode()
    return _OFFSET.pack(offset, epoch, committed_ms, expire_ms, len(text)) + text


def _restore_offsets(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    for key, value in rows:
        group_id, offset_key = _decode_offset_key(key)
        offset, epoch, committed_ms, expire_ms, size = _OFFSET.unpack_from(value)
        if len(value) != _OFFSET.size + size:
            raise StoreDamaged("the row of an offset in an image does not have the length it claims")
        metadata = value[_OFFSET.size :].decode()
        committed = CommittedOffset(offset, epoch, metadata, committed_ms, expire_ms)
        state.groups.put_offset(group_id, offset_key, committed)


def complete(state: LedgerState) -> None:
    state.groups.find_dead(state.topics.by_id)


SECTIONS = (
    Section(GROUP, _groups, str.encode, bytes.decode, _encode_group, _restore_groups, announced=True),
    Section(
        OFFSET,
        _offsets,
        _encode_offset_key,
        _decode_offset_key,
        _encode_offset,
        _restore_offsets,
        announced=True,
    ),
)
