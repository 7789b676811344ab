"""Archives: entries of a journal in blobs, each under its own number, also where the journal has gaps."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from gateway.coordination.blob_keys import ARCHIVE_BYTES, new_archive_key
from gateway.coordination.journal import entries_that_count
from gateway.host import RandomBytes, random_bytes
from ledger.formats.inline import encode_value
from ledger.formats.snapshot import encode_archive
from ledger.ports import Blobs, Journal, StoredEntry


async def pieces(journal: Journal, first: int, end: int | None = None) -> AsyncIterator[list[StoredEntry]]:
    """Entries [first, end) in ranges without gaps, each not much above ARCHIVE_BYTES. PrunedMeanwhile as soon
    as another gateway has pruned past what is read: it has archived that."""
    size, piece = 0, list[StoredEntry]()
    async for stored in entries_that_count(journal, first):
        if end is not None and stored.number >= end:
            break
        if piece and (stored.number != piece[-1].number + 1 or size >= ARCHIVE_BYTES):
            yield piece
            size, piece = 0, []
        piece.append(stored)
        size += len(stored.data) + len(stored.batches)
    if piece:
        yield piece


def _value(stored: StoredEntry) -> bytes:
    return encode_value(stored.data, [stored.batches]) if stored.batches else stored.data


async def put_archive(
    blobs: Blobs,
    shard: int,
    piece: Sequence[StoredEntry],
    now_ms: int,
    random: RandomBytes = random_bytes,
) -> None:
    """`piece` has no gaps. Batches inside of entries are archived with them."""
    first, entries = piece[0].number, [_value(stored) for stored in piece]
    data = await asyncio.to_thread(encode_archive, first, entries)
    await blobs.put(new_archive_key(shard, first, len(entries), now_ms, random), [data])
