"""Metadata records of consumer groups and their offsets, and their bytes.

A group is written whole each time. Bodies above 16 KiB are deflated in the journal (level 1), never in the
image: its rows must be the same whatever zlib a gateway has.
"""

import struct
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ledger.errors import StoreDamaged
from ledger.fields import ABSENT, U32, FieldReader, encode_text
from ledger.groups.state import Group, Member, OffsetKey, OffsetRow
from ledger.records import RecordFormat, at_once
from ledger.types import TopicId

MAX_GROUP_BYTES = 1 << 20
"""Of the fields of one group; Kafka's bound is the default max.message.bytes of its offsets topic."""
MAX_METADATA_BYTES = 65_535
MIN_DEFLATED_BYTES = 16 * 1024
MEMBERS_AT_ONCE = 100
"""Encoded or decoded in one step."""

_DEFLATED = 1
_SYNCED = 1
_GROUP = struct.Struct(">BiI")
_MEMBER = struct.Struct(">iiII")
"""With the length of its id, which follows."""
_TOPIC = struct.Struct(">16sI")
OFFSET = struct.Struct(">IqiqH")
OFFSET_KEY = struct.Struct(">16sI")


@dataclass(frozen=True, slots=True)
class GroupStored:
    """All of a group but its offsets. `body` is what it is encoded to, where that was found out already: a
    large group takes long."""

    group: Group
    body: bytes | None = field(default=None, compare=False, repr=False)


class EncodedGroup(NamedTuple):
    """The record of a group with its body, and the size of the fields of the group."""

    record: GroupStored
    size: int


class OffsetsCommitted(NamedTuple):
    """Offsets of a group, committed at the time of the entry."""

    group_id: str
    rows: Sequence[OffsetRow]


@dataclass(frozen=True, slots=True)
class OffsetsRemoved:
    """These offsets of a group are forgotten."""

    group_id: str
    keys: Sequence[OffsetKey]


@dataclass(frozen=True, slots=True)
class GroupRemoved:
    """The group is gone, with what offsets it had left."""

    group_id: str


def encode_group(group: Group) -> bytes:
    """The fields of a group without `changed_ms`, never deflated."""
    return b"".join(_fields(group))


def _fields(group: Group) -> Iterator[bytes]:
    """The same in pieces, of MEMBERS_AT_ONCE members each but for the first."""
    head = _GROUP.pack(_SYNCED if group.synced else 0, group.generation, len(group.members))
    names = encode_text(group.group_id), encode_text(group.protocol_type)
    yield b"".join((head, *names, encode_text(group.protocol), encode_text(group.leader)))
    for at in range(0, len(group.members), MEMBERS_AT_ONCE):
        parts: list[bytes] = []
        for member in group.members[at : at + MEMBERS_AT_ONCE]:
            _add_member(parts, member)
        yield b"".join(parts)


def _add_member(parts: list[bytes], member: Member) -> None:
    # Without a call for each field: a group may have thousands of members.
    size_of = U32.pack
    member_id, client_id, host = (
        member.member_id.encode(),
        member.client_id.encode(),
        member.client_host.encode(),
    )
    numbers = member.session_timeout_ms, member.rebalance_timeout_ms, len(member.protocols), len(member_id)
    parts += (
        _MEMBER.pack(*numbers),
        member_id,
        encode_text(member.instance_id),
        size_of(len(client_id)),
        client_id,
        size_of(len(host)),
        host,
        size_of(len(member.assignment)),
        member.assignment,
    )
    for name, subscription in member.protocols:
        text = name.encode()
        parts += (size_of(len(text)), text, size_of(len(subscription)), subscription)


def decode_group(data: memoryview, changed_ms: int = 0) -> Group:
    """The reverse of `encode_group`."""
    return at_once(_decoding_group(data, changed_ms))


def _decoding_group(data: memoryview, changed_ms: int = 0) -> Generator[int, None, Group]:
    reader = FieldReader(data)
    flags, generation, members = _GROUP.unpack(reader.take(_GROUP.size))
    group_id, protocol_type = reader.text(), reader.text()
    protocol, leader = reader.optional_text(), reader.optional_text()
    held = yield from _decoding_members(bytes(reader.rest()), members)
    synced = bool(flags & _SYNCED)
    return Group(group_id, protocol_type, generation, protocol, leader, held, synced, changed_ms)


def _decoding_members(data: bytes, count: int) -> Generator[int, None, tuple[Member, ...]]:
    """Those that fill `data`. Past its end slices are cut short, which the next length, or the end, shows."""
    members, at = list[Member](), 0
    for done in range(1, count + 1):
        member, at = _decode_member(data, at)
        members.append(member)
        if done % MEMBERS_AT_ONCE == 0:
            yield MEMBERS_AT_ONCE
    if at != len(data):
        raise StoreDamaged("the members of a group do not have the length that they claim")
    return tuple(members)


def _decode_member(data: bytes, at: int) -> tuple[Member, int]:
    """The member that begins there, and where it ends."""
    size_at = U32.unpack_from
    session_ms, rebalance_ms, protocols, size = _MEMBER.unpack_from(data, at)
    at += _MEMBER.size
    member_id = data[at : at + size].decode()
    at += size
    instance_id, at = _optional_text(data, at)
    (size,) = size_at(data, at)
    client_id = data[at + 4 : at + 4 + size].decode()
    at += 4 + size
    (size,) = size_at(data, at)
    host = data[at + 4 : at + 4 + size].decode()
    at += 4 + size
    (size,) = size_at(data, at)
    assignment = data[at + 4 : at + 4 + size]
    named, at = _decode_protocols(data, at + 4 + size, protocols)
    numbers = session_ms, rebalance_ms
    return Member(member_id, instance_id, client_id, host, *numbers, named, assignment), at


def _optional_text(data: bytes, at: int) -> tuple[str | None, int]:
    (size,) = U32.unpack_from(data, at)
    at += U32.size
    return (None, at) if size == ABSENT else (data[at : at + size].decode(), at + size)


def _decode_protocols(data: bytes, at: int, count: int) -> tuple[tuple[tuple[str, bytes], ...], int]:
    named, size_at = list[tuple[str, bytes]](), U32.unpack_from
    for _ in range(count):
        (size,) = size_at(data, at)
        name = data[at + 4 : at + 4 + size].decode()
        at += 4 + size
        (size,) = size_at(data, at)
        named.append((name, data[at + 4 : at + 4 + size]))
        at += 4 + size
    return tuple(named), at


def encoding_group(group: Group) -> Generator[int, None, EncodedGroup]:
    """Encode the record of a group, in steps of MEMBERS_AT_ONCE members; yields how many each step has."""
    deflate = zlib.compressobj(1)
    pieces, deflated = list[bytes](), [bytes([_DEFLATED])]
    for piece in _fields(group):
        pieces.append(piece)
        deflated.append(deflate.compress(piece))
        yield MEMBERS_AT_ONCE
    size = sum(map(len, pieces))
    is_small = size < MIN_DEFLATED_BYTES
    body = b"".join([b"\0", *pieces] if is_small else [*deflated, deflate.flush()])
    return EncodedGroup(GroupStored(group, body), size)


def encoded_group(group: Group) -> EncodedGroup:
    """The same at once."""
    return at_once(encoding_group(group))


def _encode_group_stored(record: GroupStored) -> bytes:
    """`u8 flags (1 deflated) | the fields of the group`."""
    body = record.body
    if body is None:
        body = encoded_group(record.group).record.body
    assert body is not None
    return body


def _decode_group_stored(body: memoryview) -> GroupStored:
    return at_once(_decoding_group_stored(body))


def _decoding_group_stored(body: memoryview) -> Generator[int, None, GroupStored]:
    if not len(body):
        raise StoreDamaged("the record of a group is empty")
    fields = memoryview(_inflated(body[1:])) if body[0] & _DEFLATED else body[1:]
    return GroupStored((yield from _decoding_group(fields)))


def _inflated(data: memoryview) -> bytes:
    inflater = zlib.decompressobj()
    try:
        fields = inflater.decompress(data, MAX_GROUP_BYTES)
    except zlib.error as error:
        raise StoreDamaged(f"the record of a group cannot be inflated: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise StoreDamaged("the record of a group is longer than a group can be, or cut short")
    return fields


def _encode_offsets_committed(record: OffsetsCommitted) -> bytes:
    """`group id | per topic: topic id, u32 rows | per row: u32 partition, i64 offset, i32 leader epoch, i64
    expire time, u16 metadata length, metadata`."""
    name, rows = record.group_id.encode(), record.rows
    if len(rows) == 1:
        # What most are, as members commit on their own.
        topic_id, partition, offset, epoch, expire_ms, metadata = rows[0]
        text = metadata.encode()
        row = OFFSET.pack(partition, offset, epoch, expire_ms, len(text))
        return b"".join((U32.pack(len(name)), name, _TOPIC.pack(topic_id, 1), row, text))
    parts = [U32.pack(len(name)), name]
    at = 0
    while at < len(rows):
        topic_id, first = rows[at].topic_id, at
        while at < len(rows) and rows[at].topic_id == topic_id:
            at += 1
        parts.append(_TOPIC.pack(topic_id, at - first))
        for _, partition, offset, epoch, expire_ms, metadata in rows[first:at]:
            text = metadata.encode()
            parts += (OFFSET.pack(partition, offset, epoch, expire_ms, len(text)), text)
    return b"".join(parts)


def _decode_offsets_committed(body: memoryview) -> OffsetsCommitted:
    (size,) = U32.unpack_from(body)
    pos, end = U32.size + size, len(body)
    if pos > end:
        raise StoreDamaged("the group id of a record of committed offsets runs past its end")
    group_id = str(body[U32.size : pos], "utf-8")
    rows: list[OffsetRow] = []
    while pos < end:
        raw_id, count = _TOPIC.unpack_from(body, pos)
        topic_id = TopicId(raw_id)
        pos += _TOPIC.size
        for _ in range(count):
            partition, offset, epoch, expire_ms, size = OFFSET.unpack_from(body, pos)
            pos += OFFSET.size
            metadata = str(body[pos : pos + size], "utf-8") if size else ""
            pos += size
            rows.append(OffsetRow(topic_id, partition, offset, epoch, expire_ms, metadata))
    if pos != end:
        raise StoreDamaged("the record of committed offsets does not have the length it claims")
    return OffsetsCommitted(group_id, rows)


def _encode_offsets_removed(record: OffsetsRemoved) -> bytes:
    return encode_text(record.group_id) + b"".join([OFFSET_KEY.pack(*key) for key in record.keys])


def _decode_offsets_removed(body: memoryview) -> OffsetsRemoved:
    reader = FieldReader(body)
    group_id = reader.text()
    keys = [(TopicId(topic_id), partition) for topic_id, partition in OFFSET_KEY.iter_unpack(reader.rest())]
    return OffsetsRemoved(group_id, keys)


def _encode_group_removed(record: GroupRemoved) -> bytes:
    return record.group_id.encode()


def _decode_group_removed(body: memoryview) -> GroupRemoved:
    return GroupRemoved(str(body, "utf-8"))


GROUP_STORED = RecordFormat(
    15, GroupStored, _encode_group_stored, _decode_group_stored, decoding=_decoding_group_stored
)
OFFSETS_COMMITTED = RecordFormat(16, OffsetsCommitted, _encode_offsets_committed, _decode_offsets_committed)
OFFSETS_REMOVED = RecordFormat(17, OffsetsRemoved, _encode_offsets_removed, _decode_offsets_removed)
GROUP_REMOVED = RecordFormat(18, GroupRemoved, _encode_group_removed, _decode_group_removed)
