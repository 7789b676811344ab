"""Batches that have to be opened: only topics whose configs ask for it pay for this.

Keys are looked at where `cleanup.policy` has compact, timestamps where a lower bound is set, and batches are
packed anew where `compression.type` names another codec than the producer's. Pure; the room runs it in a
thread, with decompressed bytes bounded.
"""

from dataclasses import dataclass
from typing import Final

from gateway.produce.refusals import MOST_TOLD, Refusal
from ledger.batch.compression import compress, decompress
from ledger.batch.header import (
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchError,
    BatchHeader,
    CheckedBatch,
    Codec,
    seal,
)
from ledger.batch.records import parse_records

NO_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True)
class Inspection:
    """What to look for inside a batch. None and False: not at all."""

    keys_required: bool = False
    earliest_ms: int | None = None
    """No record may be older (unix ms)."""
    latest_ms: int | None = None
    codec: Codec | None = None
    """The codec that the topic keeps its batches in."""
    max_decompressed_bytes: int = 64 * 1024 * 1024
    max_batch_bytes: int = 2**31 - 1


def inspect(batch: CheckedBatch, wanted: Inspection) -> CheckedBatch | Refusal:
    """The batch to store, or why it is refused."""
    header, data = batch
    try:
        records = decompress(header.codec, data[HEADER_BYTES:], wanted.max_decompressed_bytes)
        refusal = _check_records(records, header, wanted)
    except BatchError as error:
        return Refusal(error.refusal.value, error.reason, in_log=True)
    if refusal is not None:
        return refusal
    if wanted.codec is None or wanted.codec is header.codec:
        return batch
    recoded = recode(header, records, wanted.codec)
    if len(recoded.data) > wanted.max_batch_bytes:
        return Refusal("MESSAGE_TOO_LARGE", "the batch is too large in the codec of the topic")
    return recoded


def _check_records(records: memoryview, header: BatchHeader, wanted: Inspection) -> Refusal | None:
    """Tells every record that is wrong, up to MOST_TOLD."""
    if not (wanted.keys_required or wanted.earliest_ms is not None or wanted.latest_ms is not None):
        return None
    error, told = "", list[tuple[int, str]]()
    for index, record in enumerate(parse_records(records, header.record_count)):
        timestamp = header.base_timestamp + record.timestamp_delta
        if wanted.keys_required and record.key is None:
            error = error or "INVALID_RECORD"
            told.append((index, "a compacted topic takes only records with a key"))
        elif not _is_timely(timestamp, wanted):
            error = "INVALID_TIMESTAMP"
            told.append((index, f"timestamp {timestamp} is outside the bounds of the topic"))
        if len(told) == MOST_TOLD:
            break
    return Refusal(error, "One or more records have been rejected", told, in_log=True) if error else None


def _is_timely(timestamp: int, wanted: Inspection) -> bool:
    too_old = wanted.earliest_ms is not None and timestamp < wanted.earliest_ms
    too_new = wanted.latest_ms is not None and timestamp > wanted.latest_ms
    return timestamp == NO_TIMESTAMP or not (too_old or too_new)


def recode(header: BatchHeader, records: memoryview, codec: Codec) -> CheckedBatch:
    """The same records under another codec; offsets, timestamps and sequences stay."""
    payload = compress(codec, records)
    packed = header._replace(
        batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(payload),
        attributes=header.attributes & ~CODEC_MASK | codec,
    )
    data = bytearray(HEADER.pack(*packed))
    data += payload
    seal(data)
    return CheckedBatch(packed, memoryview(data).toreadonly())
