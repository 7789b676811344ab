"""A process that writes until it is killed: `python -m tests.contract.writer PORT URL`, PORT as in `WRITERS`.

Prints one JSON line for each write that was acknowledged, after the acknowledgement.
"""

import asyncio
import hashlib
import itertools
import json
import sys
from collections.abc import Awaitable, Callable

from adapters.open import open_image, open_job_segments, open_segments
from ledger.keys import segment_locator
from ledger.partitions.rows import PARTITION
from ledger.ports import Won
from ledger.rows import Row
from ledger.types import DraftBatch, TopicId
from tests.contract.backends import opened_blobs, opened_metadata

WRITERS_AT_ONCE = 8
Write = Callable[[int], Awaitable[dict[str, object]]]


def content(number: int) -> bytes:
    """Between 32 bytes and 8 KiB that only this number has."""
    return hashlib.sha256(str(number).encode()).digest() * (1 + number * 7 % 256)


def key_of(number: int) -> str:
    return f"journal/0/{number:020d}"


def batches_of(number: int) -> list[DraftBatch]:
    topic = TopicId(bytes(16))
    return [
        DraftBatch(topic, partition, content(number * 3 + partition), 1)
        for partition in range(1 + number % 3)
    ]


def rows_of(number: int) -> list[Row]:
    """All rows of the image after this write, which changes each of them."""
    return [Row(PARTITION, bytes([place]), content(number * 3 + place)) for place in range(3)]


def nonce_of(number: int) -> bytes:
    return b"%016d" % number


def metadata_writer(url: str) -> Write:
    store = opened_metadata(url)

    async def write(number: int) -> dict[str, object]:
        outcome = await store.put(key_of(number), content(number), None)
        assert isinstance(outcome, Won)
        return {"version": outcome.version}

    return write


def blobs_writer(url: str) -> Write:
    blobs = opened_blobs(url)

    async def write(number: int) -> dict[str, object]:
        await blobs.put(f"d{number % 5}/{number}", [content(number)])
        return {}

    return write


def segments_writer(url: str) -> Write:
    store = open_segments(url)

    async def write(number: int) -> dict[str, object]:
        placement = await store.write(batches_of(number), 1_700_000_000_000 + number)
        return {"locator": placement.locator, "starts": list(placement.starts)}

    return write


def segment_of(number: int) -> tuple[str, bytes]:
    """A segment that a job writes: its key and its bytes, the first 32 of which are its index."""
    random = hashlib.sha256(b"%d" % number).digest()[:10]
    locator = segment_locator(TopicId(bytes(16)), number % 3, number, 1_700_000_000_000, random)
    return locator, content(number)


def merged_writer(url: str) -> Write:
    store = open_job_segments(url)

    async def write(number: int) -> dict[str, object]:
        locator, data = segment_of(number)
        await store.write_segment(locator, [data], data[:32])
        return {}

    return write


def images_writer(url: str) -> Write:
    image = open_image(url)

    async def write(number: int) -> dict[str, object]:
        await image.write(rows_of(number), nonce_of(number))
        return {}

    return write


async def write_for_ever(write: Write) -> None:
    numbers = itertools.count()

    async def one_after_the_other() -> None:
        while True:
            number = next(numbers)
            acknowledged = await write(number)
            print(json.dumps({"number": number, **acknowledged}), flush=True)  # noqa: T201

    async with asyncio.TaskGroup() as tasks:
        for _ in range(WRITERS_AT_ONCE):
            tasks.create_task(one_after_the_other())


WRITERS = {
    "metadata": metadata_writer,
    "blobs": blobs_writer,
    "segments": segments_writer,
    "images": images_writer,
    "merged": merged_writer,
}

if __name__ == "__main__":
    asyncio.run(write_for_ever(WRITERS[sys.argv[1]](sys.argv[2])))
