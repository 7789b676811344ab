"""DisklessCommitFile (95), v0.

KIP-1164: number the batches of an object that is stored already. A repeat, by object key and byte offset,
gets its first result. Nothing of the object is read: a sender that may use this listener is trusted with it.

| error | of | what the sender does |
| --- | --- | --- |
| INVALID_REQUEST | every batch | nothing: the request cannot be as it is |
| KAFKA_STORAGE_ERROR | every batch | repeats; if the object is too old, stores it again |
| REQUEST_TIMED_OUT | every batch | repeats: the outcome is unknown |
| others | one batch | as in Produce |
"""

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from gateway.internal.shard_access import ShardAccess
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.internal.diskless_commit_file import (
    CommitFileBatch,
    CommitFileBatchResponse,
    DisklessCommitFileRequest,
    DisklessCommitFileResponse,
)
from ledger.batch.header import HEADER_BYTES
from ledger.errors import ErrorName
from ledger.keys import created_ms
from ledger.partitions.producers import add_sequence
from ledger.partitions.requests import CommitBatch, CommitFile, Committed, FileCommit, StaleObject
from ledger.requests import Refused
from ledger.types import NO_PRODUCER_ID, TopicId

WRITE_AHEAD_MULTI_SEGMENT: Final = 1
MAX_BATCHES: Final = 3_000
"""An entry has no more, whatever the store."""
MAX_FILE_BYTES: Final = 2**31 - 1
"""Positions in this API have 32 bits."""
MAX_AHEAD_MS: Final = 3_600_000
"""A key from further ahead would stay above the orphan floor for that long."""
MAGIC: Final = 2
LOG_APPEND_TIME: Final = 1
NOT_GIVEN: Final = -1
_TIMESTAMP_TYPE_BIT: Final = 3
_UNSUPPORTED_ATTRIBUTES: Final = 0x30
"""Transactional and control batches."""
_KEY: Final = re.compile(r"wal/(?P<shard>[0-9]{1,10})/[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", re.ASCII)
_STALE: Final = Refused(
    ErrorName.KAFKA_STORAGE_ERROR, "the object is too old or closed: store it again under a new key"
)


async def handle(
    access: ShardAccess, context: RequestContext, request: DisklessCommitFileRequest
) -> DisklessCommitFileResponse:
    slices = context.slices
    batches: list[CommitBatch] = []
    wrong = _wrong_with(access, request)
    if not wrong:
        async for batch in slices.paced(request.batches):
            wrong = wrong or _wrong_with_batch(batch, request.file_size)
            batches.append(_batch(batch))
        wrong = wrong or _overlap(batches)
    if wrong:
        results: Sequence[object] = [Refused(ErrorName.INVALID_REQUEST, wrong)] * len(request.batches)
    elif not batches:
        results = []
    else:
        commit = CommitFile(request.object_key, request.file_size, slices.keep(batches))
        results = _results(await access.submit(commit, context.deadline(request.timeout_ms)), len(batches))
    pairs = zip(request.batches, results, strict=True)
    responses = [_response(batch, result) async for batch, result in slices.paced(pairs)]
    return DisklessCommitFileResponse(batches=slices.keep(responses))


def _wrong_with(access: ShardAccess, request: DisklessCommitFileRequest) -> str:
    """In words; empty if nothing is."""
    key, shard = _KEY.fullmatch(request.object_key), access.shard
    if key is None or int(key["shard"]) != shard.journal.shard:
        return f"the object key must be wal/{shard.journal.shard}/ and a UUIDv7"
    try:
        ahead_ms = created_ms(request.object_key) - shard.now_ms()
    except ValueError:
        return "the object key carries no creation time: it must end with a UUIDv7"
    if ahead_ms > MAX_AHEAD_MS:
        return f"the object key is {ahead_ms // 1000} s ahead of the ledger's time"
    if request.object_format != WRITE_AHEAD_MULTI_SEGMENT:
        return f"object format {request.object_format} is not known, only {WRITE_AHEAD_MULTI_SEGMENT}"
    if not 0 < request.file_size <= MAX_FILE_BYTES:
        return f"a file of {request.file_size} bytes"
    if len(request.batches) > MAX_BATCHES:
        return f"{len(request.batches)} batches, at most {MAX_BATCHES} are committed together"
    return ""


def _wrong_with_batch(batch: CommitFileBatch, file_size: int) -> str:
    count = batch.last_offset - batch.base_offset + 1
    is_inside = batch.byte_offset >= 0 and batch.byte_offset + batch.size <= file_size
    if batch.magic != MAGIC:
        return f"a batch of magic {batch.magic}"
    if batch.size < HEADER_BYTES or not is_inside:
        return f"a batch of {batch.size} bytes at {batch.byte_offset} in a file of {file_size}"
    if not 0 < count < 2**31 or batch.record_count not in (NOT_GIVEN, count):
        return f"a batch of offsets {batch.base_offset} to {batch.last_offset}"
    if batch.timestamp_type not in (0, LOG_APPEND_TIME) or batch.batch_max_timestamp < -1:
        return f"timestamp {batch.batch_max_timestamp} of type {batch.timestamp_type}"
    if batch.attributes != NOT_GIVEN:
        if batch.attributes >> _TIMESTAMP_TYPE_BIT & 1 != batch.timestamp_type:
            return "attributes with another timestamp type"
        if batch.attributes & _UNSUPPORTED_ATTRIBUTES:
            return "a batch of a transaction"
    return _wrong_with_producer(batch, count)


def _wrong_with_producer(batch: CommitFileBatch, count: int) -> str:
    producer = batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence
    if batch.producer_id == NO_PRODUCER_ID:
        return "" if producer == (-1, -1, -1, -1) else "an epoch or sequences without a producer"
    is_valid = min(producer) >= 0 and add_sequence(batch.base_sequence, count - 1) == batch.last_sequence
    return "" if is_valid else f"producer, epoch and sequences {producer} of {count} records"


def _overlap(batches: Sequence[CommitBatch]) -> str:
    end = 0
    for batch in sorted(batches, key=attrgetter("start")):
        if batch.start < end:
            return f"two batches share the byte at {batch.start}"
        end = batch.start + batch.size
    return ""


def _batch(batch: CommitFileBatch) -> CommitBatch:
    attributes = batch.attributes
    return CommitBatch(
        TopicId(batch.topic_id),
        batch.partition_index,
        batch.byte_offset,
        batch.size,
        batch.last_offset - batch.base_offset + 1,
        batch.batch_max_timestamp,
        attributes if attributes != NOT_GIVEN else batch.timestamp_type << _TIMESTAMP_TYPE_BIT,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
    )


def _results(result: object, count: int) -> Sequence[object]:
    """One for each batch."""
    match result:
        case FileCommit(results=results):
            return results
        case StaleObject():
            return [_STALE] * count
        case Refused(error=ErrorName.COORDINATOR_NOT_AVAILABLE, message=message):
            return [Refused(ErrorName.KAFKA_STORAGE_ERROR, message)] * count
    return [result] * count


def _response(batch: CommitFileBatch, result: object) -> CommitFileBatchResponse:
    if isinstance(result, Committed):
        is_stamped = batch.timestamp_type == LOG_APPEND_TIME
        return CommitFileBatchResponse(
            assigned_base_offset=result.base_offset,
            log_append_time=batch.batch_max_timestamp if is_stamped else -1,
            log_start_offset=result.log_start,
            is_duplicate=result.duplicate,
        )
    assert isinstance(result, Refused), result
    return CommitFileBatchResponse(ERROR_CODES[result.error], result.message or None)
