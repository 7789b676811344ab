"""Batches inside of journal entries, in a backup: found in its archives, and put into objects by a restore,
as the entries themselves are not put back."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import structlog

from gateway.coordination.blob_keys import entries_of
from ledger.errors import StoreDamaged, StoreError, StoreTooNew
from ledger.formats.inline import crc_at_end, decode_value
from ledger.formats.snapshot import archive_prefix, decode_archive
from ledger.inline.plan import (
    OBJECT_BYTES,
    InlineRange,
    batches_of,
    inline_ranges,
    moved,
    requests_of,
    without,
)
from ledger.inline.records import InlineMoved
from ledger.journal import MAX_ENTRY_BYTES
from ledger.keys import inline_name
from ledger.objects.rows import find_inline
from ledger.overlay import Overlay
from ledger.partitions.runs import Run
from ledger.ports import Blobs, SegmentStore
from ledger.registry import REGISTRY, encode_record
from ledger.state import LedgerState
from ledger.types import Buffer, DraftBatch

log = structlog.get_logger(__name__)

PAGE: Final = 1000
LEFT_BYTES: Final = 64 * 1024
"""Of the first entry of a restored journal, for its other records."""


def seek_lost(state: LedgerState) -> None:
    """What an earlier restore has not found may be in these archives: it is inside of entries again, until
    this restore is applied to the state."""
    state.objects.find_entries()
    find_inline(state)


async def inline_frames(source: Blobs, shard: int, state: LedgerState) -> dict[str, bytes]:
    """By locator, the batches that are inside of entries as the archives of a backup have them. Those that no
    archive has are left out."""
    wanted = {
        name.entry: stored.locator
        for stored in state.objects.inline.values()
        if (name := inline_name(stored.locator)) is not None
    }
    found: dict[str, bytes] = {}
    async for key in _keys(source, archive_prefix(shard)):
        numbers = [number for number in wanted if number in entries_of(key)]
        for number, frame in (await _frames_in(source, key, numbers)).items():
            name = inline_name(wanted[number])
            if name is not None and crc_at_end(frame) == name.crc:
                found[wanted.pop(number)] = frame
        if not wanted:
            break
    return found


async def _frames_in(source: Blobs, key: str, numbers: Sequence[int]) -> dict[int, bytes]:
    if not numbers:
        return {}
    try:
        first, entries = await asyncio.to_thread(decode_archive, await source.get(key), key)
        return {number: decode_value(entries[number - first], key).batches for number in numbers}
    except StoreTooNew:
        raise
    except StoreError as error:
        log.warning("restore.archive_unreadable", key=key, error=str(error))
        return {}


async def _keys(blobs: Blobs, prefix: str) -> AsyncIterator[str]:
    after = ""
    while page := await blobs.list(prefix, after, PAGE):
        for info in page:
            yield info.key
        after = page[-1].key


async def put_into_objects(
    state: LedgerState, frames: Mapping[str, bytes], segments: SegmentStore, now_ms: int
) -> list[InlineMoved]:
    """Write these batches into objects. Returns what the journal has to say of it, which is applied to
    `state`. StoreDamaged if that does not fit into one entry."""
    records: list[InlineMoved] = []
    size = 0
    for part in _parts(state, frames):
        batches: list[DraftBatch] = []
        firsts: list[list[int]] = []
        for each in part:
            firsts.append([])
            for run in each.runs:
                firsts[-1].append(len(batches))
                batches += batches_of(each, run, _bytes_of(state, frames, run))
        stored = await segments.write(batches, now_ms, state.feature_level)
        moves = [
            moved(each, [stored.starts[at] for at in first]) for each, first in zip(part, firsts, strict=True)
        ]
        for request in requests_of(stored.locator, stored.object_bytes, moves):
            for record in REGISTRY.decide(state, Overlay(state), request, now_ms).records:
                assert isinstance(record, InlineMoved)
                REGISTRY.apply(state, record)
                records.append(record)
                size += len(encode_record(record, state.feature_level))
    if size > MAX_ENTRY_BYTES - LEFT_BYTES:
        raise StoreDamaged(
            "too many partitions of the backup have batches inside of journal entries: start a gateway on "
            "the original until it has written a snapshot, and back that up"
        )
    return records


def _parts(state: LedgerState, frames: Mapping[str, bytes]) -> list[list[InlineRange]]:
    """What can be read, as much of it together as goes into an object."""
    parts: list[list[InlineRange]] = [[]]
    size = 0
    locator = state.objects.locator
    for number in list(state.objects.inline_runs):
        if (log_ := state.logs.get(number)) is None:
            continue
        for found in inline_ranges(state, log_):
            unread = [run for run in found.runs if locator(run.object_number) not in frames]
            for each in without(found, unread) if unread else [found]:
                if parts[-1] and size + each.size > OBJECT_BYTES:
                    parts.append([])
                    size = 0
                parts[-1].append(each)
                size += each.size
    return [part for part in parts if part]


def _bytes_of(state: LedgerState, frames: Mapping[str, bytes], run: Run) -> Buffer:
    frame = frames[state.objects.locator(run.object_number)]
    return memoryview(frame)[run.start : run.start + run.size]
