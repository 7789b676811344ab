"""Metadata records of adoptions, and their bytes."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ledger.adoption.requests import DIGEST_BYTES, AdoptedSegment
from ledger.errors import StoreDamaged
from ledger.records import LEVEL_WITH_ADOPTED, RecordFormat
from ledger.swaps.requests import RUN_BYTES, SegmentRun
from ledger.types import TopicId

_TOPIC = struct.Struct(f">16s{DIGEST_BYTES}sB")
_ADOPTED = struct.Struct(">IHII")
"""Partition number, length of the place, segments, runs."""
_SEGMENT = struct.Struct(">qqH")
_RUN = struct.Struct(">IIIqqq")
assert _RUN.size == RUN_BYTES


@dataclass(frozen=True, slots=True)
class TopicAdoption:
    """The adoption of a topic from this place begins, or it ends."""

    topic_id: TopicId
    place: str
    digest: bytes
    is_open: bool


@dataclass(frozen=True, slots=True)
class RunsAdopted:
    """These runs of segments in a place are the next ones of a partition."""

    number: int
    topic_id: TopicId
    place: str
    segments: Sequence[AdoptedSegment]
    runs: Sequence[SegmentRun]


def _encode_topic(record: TopicAdoption) -> bytes:
    return _TOPIC.pack(record.topic_id, record.digest, record.is_open) + record.place.encode()


def _decode_topic(body: memoryview) -> TopicAdoption:
    topic_id, digest, is_open = _TOPIC.unpack_from(body)
    return TopicAdoption(TopicId(topic_id), str(body[_TOPIC.size :], "utf-8"), digest, bool(is_open))


def _encode_adopted(record: RunsAdopted) -> bytes:
    place = record.place.encode()
    head = _ADOPTED.pack(record.number, len(place), len(record.segments), len(record.runs))
    parts = [head, record.topic_id, place]
    for key, object_bytes, created_ms in record.segments:
        named = key.encode()
        parts += (_SEGMENT.pack(object_bytes, created_ms, len(named)), named)
    parts += [_RUN.pack(*run) for run in record.runs]
    return b"".join(parts)


def _decode_adopted(body: memoryview) -> RunsAdopted:
    number, place_bytes, segments, runs = _ADOPTED.unpack_from(body)
    pos = _ADOPTED.size + 16
    topic_id = TopicId(bytes(body[_ADOPTED.size : pos]))
    place, pos = str(body[pos : pos + place_bytes], "utf-8"), pos + place_bytes
    found: list[AdoptedSegment] = []
    for _ in range(segments):
        object_bytes, created_ms, key_bytes = _SEGMENT.unpack_from(body, pos)
        pos += _SEGMENT.size
        found.append(AdoptedSegment(str(body[pos : pos + key_bytes], "utf-8"), object_bytes, created_ms))
        pos += key_bytes
    if pos + runs * RUN_BYTES != len(body):
        raise StoreDamaged("a RunsAdopted record does not have the length it claims")
    entered = [SegmentRun(*fields) for fields in _RUN.iter_unpack(body[pos:])]
    return RunsAdopted(number, topic_id, place, found, entered)


TOPIC_ADOPTION = RecordFormat(38, TopicAdoption, _encode_topic, _decode_topic, level=LEVEL_WITH_ADOPTED)
RUNS_ADOPTED = RecordFormat(39, RunsAdopted, _encode_adopted, _decode_adopted, level=LEVEL_WITH_ADOPTED)
