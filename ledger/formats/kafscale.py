"""KafScale's bucket: the names of its segments, what is found there, and what is written there (sans-I/O).

`{prefix}/{namespace}/{topic}/{partition}/segment-{base:020d}.kfs`, and `.index` next to it. The bytes are
those of `ledger/formats/segment.py`: batches carry their final base offsets, and there may be gaps between
segments. KafScale puts both files at once and without a condition, so that a process that dies leaves a
segment without an index. It never acknowledged such a segment, or will write it again. Other objects of its
bucket (`__health/...`) are no segments.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from ledger.batch.header import BatchError, verify_crc, walk
from ledger.errors import StoreDamaged
from ledger.formats.segment import (
    HEAD_BYTES,
    MAX_RUN_BYTES,
    TRAILER_BYTES,
    EncodedRun,
    SegmentBatch,
    encode_segment,
    read_head,
    read_index,
    read_trailer,
)
from ledger.merging.found import FoundRun
from ledger.merging.reads import groups_of
from ledger.partitions.runs import are_of_one_age, later_timestamp, without_timestamp
from ledger.types import Buffer

EXPORT_BYTES: Final = 64 * 1024 * 1024
_NAME: Final = "segment-"
_SEGMENT: Final = ".kfs"
_INDEX: Final = ".index"
_DIGITS: Final = 20
_MAX_I32: Final = 2**31 - 1
_MAX_OFFSET: Final = 2**63 - 1


class KafScalePartition(NamedTuple):
    """Topics are known by their names there."""

    namespace: str
    topic: str
    partition: int


class KafScaleSegment(NamedTuple):
    """A segment as a listing shows it. `index_key` is None where its index is missing."""

    partition: KafScalePartition
    base: int
    key: str
    size: int
    index_key: str | None


def segment_keys(partition: KafScalePartition, base: int, prefix: str = "") -> tuple[str, str]:
    """The keys of a segment and of its index. ValueError for a namespace or topic that no key can have."""
    namespace, topic, number = partition
    for part in (namespace, topic):
        if not part or "/" in part or part in (".", ".."):
            raise ValueError(f"{part!r} cannot be a part of a key in KafScale's layout")
    stem = f"{prefix.strip('/')}/{namespace}/{topic}/{number}/{_NAME}{base:0{_DIGITS}d}".lstrip("/")
    return stem + _SEGMENT, stem + _INDEX


def found_segments(listing: Iterable[tuple[str, int]], prefix: str = "") -> Iterator[KafScaleSegment]:
    """The segments of a listing of (key, size) in the order of the keys; one key is held at most. Those of a
    partition are adjacent and ascend. Keys that are no segments are passed by."""
    index, index_key = None, ""
    for key, size in listing:
        name = _name_of(key, prefix)
        if name is None:
            continue
        partition, base, ending = name
        if ending == _INDEX:
            # It is listed before its segment.
            index, index_key = (partition, base), key
        else:
            yield KafScaleSegment(
                partition, base, key, size, index_key if index == (partition, base) else None
            )


def adopted_runs(segment: KafScaleSegment, data: Buffer, index: Buffer | None) -> list[EncodedRun]:
    """The runs with which the ledger can name a segment where it is, from all its bytes. Runs without
    timestamps are as old as the segment. StoreDamaged, which names what is wrong, and StoreTooNew."""
    view, where = memoryview(data), segment.key
    head, trailer = read_head(view, where), read_trailer(view, where)
    body = view[HEAD_BYTES : len(view) - TRAILER_BYTES]
    if len(view) != segment.size or head.base != segment.base or crc32c(body) != trailer.crc:
        raise _damaged(where, "its size, base offset or CRC-32C is another")
    batches = list(_batches(body, head.base, head.created_ms, where))
    if not batches or batches[-1].last != trailer.last:
        raise _damaged(where, f"its batches do not end at offset {trailer.last}")
    if index is not None:
        starts = {(batch.base, batch.start) for batch in batches}
        for entry in read_index(index, f"the index of {where}").entries:
            if entry not in starts:
                raise _damaged(f"the index of {where}", f"no batch of offset {entry.offset} begins there")
    return _joined(batches)


def index_for(segment: KafScaleSegment, data: Buffer) -> bytes:
    """The index of a segment that was left without one, from all its bytes. StoreDamaged, StoreTooNew."""
    adopted_runs(segment, data, None)
    body = memoryview(data)[HEAD_BYTES : len(data) - TRAILER_BYTES]
    batches = (
        SegmentBatch(batch.base_offset, body[batch.position : batch.position + batch.size_bytes])
        for batch in walk(body)
    )
    return encode_segment(batches, segment.base, 0).index


def export_groups(runs: Iterable[FoundRun], max_bytes: int = EXPORT_BYTES) -> Iterator[Sequence[FoundRun]]:
    """Adjacent runs of a partition, those of one exported segment together. A segment is built of them as of
    the runs of a merge (`ledger.merging.merge`), and its key has the first offset."""
    return groups_of(runs, max_bytes)


def _name_of(key: str, prefix: str) -> tuple[KafScalePartition, int, str] | None:
    """Partition, base offset and ending."""
    begin = f"{prefix.strip('/')}/".lstrip("/")
    parts = key.removeprefix(begin).split("/") if key.startswith(begin) else []
    if len(parts) != 4:
        return None
    namespace, topic, number, name = parts
    stem, dot, ending = name.partition(".")
    digits = stem.removeprefix(_NAME)
    if dot + ending not in (_SEGMENT, _INDEX) or not stem.startswith(_NAME) or len(digits) != _DIGITS:
        return None
    partition, base = _number(number, _MAX_I32), _number(digits, _MAX_OFFSET)
    if partition is None or base is None or str(partition) != number:
        return None
    return KafScalePartition(namespace, topic, partition), base, dot + ending


def _number(text: str, most: int) -> int | None:
    if not text.isascii() or not text.isdigit() or int(text) > most:
        return None
    return int(text)


def _batches(body: memoryview, base: int, created_ms: int, where: str) -> Iterator[EncodedRun]:
    following = base
    try:
        for batch in walk(body):
            start, size = HEAD_BYTES + batch.position, batch.size_bytes
            if not verify_crc(body[batch.position : batch.position + size]):
                raise _damaged(where, f"the batch at byte {start} does not match its CRC")
            if batch.base_offset < following or batch.last_offset_delta < 0:
                raise _damaged(where, f"the offsets of the batch at byte {start} do not ascend")
            last = batch.base_offset + batch.last_offset_delta
            stamp = batch.max_timestamp if batch.max_timestamp >= 0 else without_timestamp(created_ms)
            yield EncodedRun(start, size, batch.base_offset, last, stamp)
            following = last + 1
    except BatchError as error:
        raise _damaged(where, error.reason) from error


def _joined(batches: Iterable[EncodedRun]) -> list[EncodedRun]:
    runs: list[EncodedRun] = []
    for batch in batches:
        run = runs[-1] if runs else None
        size = batch.size + (run.size if run is not None else 0)
        if run is None or size > MAX_RUN_BYTES or not are_of_one_age(run.max_timestamp, batch.max_timestamp):
            runs.append(batch)
            continue
        stamp = later_timestamp(run.max_timestamp, batch.max_timestamp)
        runs[-1] = run._replace(size=size, last=batch.last, max_timestamp=stamp)
    return runs


def _damaged(where: str, reason: str) -> StoreDamaged:
    return StoreDamaged(f"{where} is damaged: {reason}")
