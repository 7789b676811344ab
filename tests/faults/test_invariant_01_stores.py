"""Invariant 1 below the gateway: what an embedded store has acknowledged survives a loss of power."""

import hashlib
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapters.blobs.files import FileBlobs
from adapters.metadata.sqlite import SqliteMetadata
from adapters.segments.wal import WalSegments
from ledger.errors import NotFound, StoreError
from ledger.types import Position
from tests.faults.powercut import Survival, cut_time_ns, replayed, sample, sync_points, trees_at, write_tree
from tests.faults.recording import Recording

ROOT = Path(__file__).parents[2]
MAX_CUTS = 30
SEEDS = 30

PRELUDE = """
import asyncio, hashlib, json, os, random, sys, time
sys.path.insert(0, os.environ["REPOSITORY"])
acks = open(os.environ["ACKS"], "w")
dice = random.Random(1)
def ack(name, value):
    at_ns = time.monotonic_ns()
    digest = hashlib.sha256(value).hexdigest() if value is not None else None
    print(json.dumps([at_ns, name, digest]), file=acks)
os.chdir(os.environ["DRAGOMAN_TEST_POWERCUT_ROOT"])
"""

METADATA = """
from adapters.metadata.sqlite import SqliteMetadata
async def main():
    for life in range(3):
        store = SqliteMetadata("metadata.db")
        head = await store.get("head")
        for n in range(60):
            key, value = f"journal/{life}/{n:04d}", dice.randbytes(dice.randint(1, 40_000))
            assert type(await store.put(key, value, None)).__name__ == "Won"
            ack(key, value)
            put = await store.put("head", key.encode(), head.version if head else None)
            head = await store.get("head")
        if life == 1:
            await store.delete([f"journal/0/{n:04d}" for n in range(10)])
            for n in range(10): ack(f"journal/0/{n:04d}", None)
        await store.close()
asyncio.run(main())
"""

SEGMENTS = """
from adapters.segments.wal import WalSegments
from ledger.types import DraftBatch
async def main():
    for life in range(3):
        store = WalSegments("data", roll_bytes=100_000)
        for n in range(40):
            batches = [dice.randbytes(dice.randint(61, 5000)) for _ in range(3)]
            drafts = [DraftBatch(bytes(16), n % 3, data, 1) for data in batches]
            placed = await store.write(drafts, 1_700_000_000_000 + n)
            for start, draft in zip(placed.starts, drafts):
                ack(json.dumps([placed.locator, start, len(draft.data)]), draft.data)
        await store.close()
asyncio.run(main())
"""

BLOBS = """
from adapters.blobs.files import FileBlobs
async def main():
    store = FileBlobs("blobs")
    for n in range(40):
        key, value = f"snapshot/{n % 7}/{n:04d}", dice.randbytes(dice.randint(0, 20_000))
        await store.put(key, [value[:100], value[100:]])
        ack(key, value)
    await store.delete(["snapshot/0/0000", "snapshot/1/0001"])
    ack("snapshot/0/0000", None); ack("snapshot/1/0001", None)
    await store.close()
asyncio.run(main())
"""

Read = Callable[[Path, Sequence[str]], Awaitable[list[bytes | None]]]


async def read_metadata(root: Path, names: Sequence[str]) -> list[bytes | None]:
    store = SqliteMetadata(root / "metadata.db")
    found = [await store.get(name) for name in names]
    await store.close()
    return [value.value if value is not None else None for value in found]


async def read_segments(root: Path, names: Sequence[str]) -> list[bytes | None]:
    store = WalSegments(root / "data")
    found = await store.read([Position(*json.loads(name)) for name in names])
    await store.close()
    return [bytes(data) if data is not None else None for data in found]


async def read_blobs(root: Path, names: Sequence[str]) -> list[bytes | None]:
    store, found = FileBlobs(root / "blobs"), list[bytes | None]()
    for name in names:
        try:
            found.append(await store.get(name))
        except NotFound:
            found.append(None)
    await store.close()
    return found


@dataclass(frozen=True, slots=True)
class Case:
    script: str
    read: Read


CASES = {
    "sqlite": Case(METADATA, read_metadata),
    "wal": Case(SEGMENTS, read_segments),
    "file": Case(BLOBS, read_blobs),
}


def answered_before(lines: Sequence[str], time_ns: int) -> dict[str, str | None]:
    """Name -> digest of its bytes, None = deleted; a name whose next result is still to come is unsure."""
    known: dict[str, str | None] = {}
    for line in lines:
        at_ns, name, digest = json.loads(line)
        if at_ns < time_ns:
            known[name] = digest
        else:
            known.pop(name, None)
    return known


async def lost_answers(
    case: Case,
    recording: Recording,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    survival: Survival,
    ignore_sync: str = "",
) -> list[str]:
    """What the store had acknowledged and does not hold any more, over power cuts at its sync points."""
    monkeypatch.setenv("ACKS", str(directory / "acks"))
    monkeypatch.setenv("REPOSITORY", str(ROOT))
    events = recording.run([sys.executable, "-c", PRELUDE + case.script], ignore_sync)
    lines = (directory / "acks").read_text().splitlines()
    points = sync_points(events)
    cuts = [*sample(points, MAX_CUTS), len(events)]
    lost: list[str] = []
    for cut, tree in trees_at(events, cuts, survival):
        root = directory / f"cut{cut}"
        write_tree(tree, root)
        known = answered_before(lines, cut_time_ns(events, cut))
        try:
            found = await case.read(root, list(known))
        except StoreError as error:
            lost.append(f"cut {cut}: {error}")
            continue
        digests = [hashlib.sha256(data).hexdigest() if data is not None else None for data in found]
        pairs = zip(known.items(), digests, strict=True)
        lost += [f"cut {cut}: {name}" for (name, digest), actual in pairs if actual != digest]
    return lost


@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_whatever_a_store_has_acknowledged_survives_a_power_cut(
    case: Case,
    survival: Survival,
    recording: Recording,
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await lost_answers(case, recording, scratch, monkeypatch, survival) == []


@pytest.mark.parametrize("ignore_sync", ["1", "files", "directories"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_without_its_syncs_a_store_would_lose_what_it_has_acknowledged(
    case: Case, ignore_sync: str, recording: Recording, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = await lost_answers(case, recording, scratch, monkeypatch, Survival.NOTHING, ignore_sync)
    assert len(lost) > 10


UNSYNCED_METADATA = """
from adapters.metadata.sqlite import SqliteMetadata
async def main():
    store = SqliteMetadata("metadata.db")
    for n in range(20): await store.put(f"{os.getpid()}/{n}", b"value", None)
    os._exit(0)
asyncio.run(main())
"""

READ_METADATA = """
from adapters.metadata.sqlite import SqliteMetadata
async def main():
    store = SqliteMetadata("metadata.db")
    for key, found in await store.scan(""): ack(key, found.value)
    acks.flush()
    os._exit(0)
asyncio.run(main())
"""

UNSYNCED_BLOBS = """
from adapters.blobs.files import FileBlobs
async def main():
    store = FileBlobs("blobs")
    for n in range(10): await store.put(f"{os.getpid()}/{n}/{n}", [b"value"])
    os._exit(0)
asyncio.run(main())
"""

READ_BLOBS = """
from adapters.blobs.files import FileBlobs
async def main():
    store = FileBlobs("blobs")
    for found in await store.list(""): ack(found.key, await store.get(found.key))
    acks.flush()
    os._exit(0)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("write", "unsynced", "look", "read", "count"),
    [
        (UNSYNCED_METADATA, "files", READ_METADATA, read_metadata, 40),
        (UNSYNCED_BLOBS, "directories", READ_BLOBS, read_blobs, 20),
    ],
    ids=["sqlite", "file"],
)
async def test_whatever_a_store_lets_read_after_kill_9_survives_a_power_cut(
    write: str,
    unsynced: str,
    look: str,
    read: Read,
    count: int,
    recording: Recording,
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process killed before its sync leaves what can be read but is not durable yet. Who reads it
    after the restart builds on it, so opening must have made it durable."""
    monkeypatch.setenv("ACKS", str(scratch / "acks"))
    monkeypatch.setenv("REPOSITORY", str(ROOT))
    recording.run([sys.executable, "-c", PRELUDE + write])
    recording.run([sys.executable, "-c", PRELUDE + write], unsynced)
    events = recording.run([sys.executable, "-c", PRELUDE + look])
    known = answered_before((scratch / "acks").read_text().splitlines(), cut_time_ns(events, len(events)))
    assert len(known) == count
    write_tree(replayed(events).tree(Survival.NOTHING), scratch / "cut")
    assert None not in await read(scratch / "cut", list(known))


async def test_power_that_fails_while_a_store_is_opened_after_kill_9_takes_nothing_away(
    recording: Recording, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that cuts the WAL to nothing may leave its first frames: pages as they were once, which
    hide newer ones of the database."""
    monkeypatch.setenv("ACKS", str(scratch / "acks"))
    monkeypatch.setenv("REPOSITORY", str(ROOT))
    begun = len(recording.run([sys.executable, "-c", PRELUDE + UNSYNCED_METADATA]))
    events = recording.run([sys.executable, "-c", PRELUDE + READ_METADATA])
    known = answered_before((scratch / "acks").read_text().splitlines(), cut_time_ns(events, len(events)))
    assert len(known) == 20
    lost: list[str] = []
    for seed in range(SEEDS):
        for cut, tree in trees_at(events, range(begun, len(events) + 1), Survival.RANDOM, seed * len(events)):
            root = scratch / f"{seed}-{cut}"
            write_tree(tree, root)
            try:
                missing = (await read_metadata(root, list(known))).count(None)
            except StoreError as error:
                lost.append(f"seed {seed}, cut {cut}: {error}")
            else:
                lost += [f"seed {seed}, cut {cut}: {missing} are missing"] if missing else []
    assert lost == []
