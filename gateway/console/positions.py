"""Where an offset is stored: from the offset to its run, to the object that holds the run, to the bytes of
its batch."""

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.fetch.list_offsets import WINDOW_BYTES
from gateway.fetch.offset_index import SparseOffsetIndex
from gateway.fetch.reader import MissingObject, ReadRequest
from gateway.fetch.service import FetchService
from gateway.fetch.stream import BatchStream, Damaged, StoredBatch
from gateway.scheduling.slices import Owner
from ledger.batch.header import HEADER_BYTES, BatchHeader, Codec, read_header, verify_crc
from ledger.errors import StoreError
from ledger.objects.state import ADOPTED_STORE, ObjectState
from ledger.objects.uploads import ObjectKind
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog

READ_S: Final = 5.0
SHOWN_BYTES: Final = 512
"""Of a batch, as a dump."""
KINDS: Final[Mapping[int, str]] = {
    ObjectKind.WAL: "WAL object",
    ObjectKind.SEGMENT: "segment",
    ObjectKind.INLINE: "journal entry",
    ObjectKind.SETTLED: "settled ledger",
}
CODECS: Final[Mapping[int, str]] = {codec: codec.name.lower() for codec in Codec}
CODEC_BITS: Final = 0x07

Json = dict[str, object]


class Positions:
    """Look-ups in the ledger. Reads the bytes of a batch through the reader and the budget of fetches."""

    def __init__(self, fetch: FetchService) -> None:
        self._fetch = fetch
        self._index = SparseOffsetIndex()

    async def of(self, log: PartitionLog, offset: int, owner: Owner, *, shows_records: bool) -> Json:
        """Run, object and batch of an offset. `shows_records`: with a dump of the batch; without it, of its
        header alone."""
        found: Json = {
            "offset": offset,
            "logStart": log.log_start,
            "highWatermark": log.high_watermark,
            "layoutVersion": log.layout_version,
            "runs": log.run_count,
            "chunks": len(log.chunks),
        }
        run = next(log.runs_from(offset), None) if offset < log.high_watermark else None
        if run is None:
            found["reason"] = "The offset is not below the high watermark: no record has it yet."
            return found
        if offset < log.log_start:
            found["reason"] = "The offset is below the log start offset: its record was deleted."
        elif offset < run.base:
            found["reason"] = "No run holds the offset: readers go on at the next run."
        found["run"] = _run(run)
        stored = self._fetch.shard.state.objects.by_number.get(run.object_number)
        if stored is None:
            return found
        found["object"] = _object(stored)
        found["batch"] = await self._batch(log, run, max(offset, run.base), owner, shows_records)
        return found

    async def _batch(
        self, log: PartitionLog, run: Run, offset: int, owner: Owner, shows_records: bool
    ) -> Json:
        deadline = asyncio.get_running_loop().time() + READ_S
        try:
            share = await self._fetch.budget.acquire(WINDOW_BYTES, deadline, owner)
        except TimeoutError:
            return {"error": "Too many fetches are under way: try again."}
        try:
            async with asyncio.timeout_at(deadline):
                batch = await self._first_batch(log, run, offset)
        except TimeoutError:
            return {"error": f"The store has not answered within {READ_S:.0f} s."}
        except (MissingObject, Damaged, StoreError) as error:
            return {"error": f"The bytes cannot be read: {error}"}
        finally:
            share.release()
        if batch is None:
            return {"error": "The run has no batch with this offset or a later one."}
        return _batch(batch, shows_records)

    async def _first_batch(self, log: PartitionLog, run: Run, offset: int) -> StoredBatch | None:
        """The first batch of the run that ends at the offset or after it."""
        stream = BatchStream([run], offset, run.last + 1, self._index, log)
        while not stream.at_end or stream.batches:
            if stream.batches:
                batch = stream.batches[0]
                stream.note_end(batch)
                return batch
            (failure,) = await self._fetch.reader.read([ReadRequest(stream, WINDOW_BYTES)], WINDOW_BYTES)
            if failure is not None:
                raise failure
        return None


def _run(run: Run) -> Json:
    return {
        "base": run.base,
        "last": run.last,
        "start": run.start,
        "size": run.size,
        "maxTimestamp": run.max_timestamp if run.max_timestamp >= 0 else None,
        "isDense": run.dense,
    }


def _object(stored: ObjectState) -> Json:
    uploader = stored.uploader
    return {
        "number": stored.number,
        "locator": stored.locator,
        "kind": KINDS.get(stored.kind, f"kind {stored.kind}"),
        "isAdopted": stored.store == ADOPTED_STORE,
        "created": stored.created_ms,
        "size": stored.size,
        "liveRuns": stored.live_runs,
        "gateway": None if uploader is None or uploader.gateway < 0 else uploader.gateway,
        "incarnation": None if uploader is None or uploader.gateway < 0 else uploader.incarnation.hex(),
    }


def _batch(batch: StoredBatch, shows_records: bool) -> Json:
    header = read_header(batch.data)
    size = len(batch.data)
    shown = bytes(batch.data[: SHOWN_BYTES if shows_records else HEADER_BYTES])
    return {
        "start": batch.end_position - size,
        "end": batch.end_position,
        "size": size,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "storedBaseOffset": header.base_offset,
        "crcMatches": verify_crc(batch.data),
        "headerBytes": HEADER_BYTES,
        "dump": shown.hex(),
        "isCut": len(shown) < size,
        **header_fields(header),
    }


def header_fields(header: BatchHeader) -> Json:
    """What a batch says of its records."""
    return {
        "records": header.record_count,
        "codec": CODECS.get(header.attributes & CODEC_BITS, "unknown"),
        "timestampType": "CreateTime" if header.timestamp_type == 0 else "LogAppendTime",
        "baseTimestamp": header.base_timestamp,
        "maxTimestamp": header.max_timestamp,
        "crc": f"{header.crc:08x}",
        "attributes": header.attributes,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "producerId": header.producer_id if header.has_producer_id else None,
        "producerEpoch": header.producer_epoch if header.has_producer_id else None,
        "baseSequence": header.base_sequence if header.has_producer_id else None,
    }
