"""The promises of Blobs, kept by every backend. No test needs more than S3 gives."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ledger.errors import AlreadyExists, NotFound, OutcomeUnknown, StoreUnavailable
from ledger.keys import KEY_PARTS
from ledger.ports import Blobs
from tests.contract.backends import BLOBS, DURABLE_BLOBS, acknowledgements, blobs_url, opened_blobs
from tests.contract.keys import NO_KEYS, SOUND_KEYS, keys_of_another_depth
from tests.contract.killed import killed_writer
from tests.contract.writer import content
from tests.support.faulty import Fault, Faults, FaultyBlobs

UUID = "01a1fe52-9509-79f8-8478-73dc80f921ea"


@pytest.fixture(params=BLOBS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return blobs_url(request, tmp_path)


@pytest.fixture
async def blobs(url: str) -> AsyncIterator[Blobs]:
    blobs = opened_blobs(url)
    yield blobs
    await blobs.close()


@pytest.fixture(params=DURABLE_BLOBS)
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return blobs_url(request, tmp_path)


async def keys_of(blobs: Blobs, prefix: str = "", after: str = "", limit: int = 1000) -> list[str]:
    return [info.key for info in await blobs.list(prefix, after, limit)]


async def test_the_parts_of_a_blob_come_back_as_one(blobs: Blobs) -> None:
    await blobs.put("a/b", [b"one", bytearray(b"-"), memoryview(b"xtwox")[1:4], b""])
    assert await blobs.get("a/b") == b"one-two"
    await blobs.put("empty", [])
    assert await blobs.get("empty") == b""


async def test_blobs_of_any_size_come_back_byte_for_byte(blobs: Blobs) -> None:
    large = os.urandom(9 * 1024 * 1024)
    await blobs.put(
        "large", [memoryview(large)[start : start + 4000] for start in range(0, len(large), 4000)]
    )
    assert await blobs.get("large") == large
    assert await blobs.get("large", 5_000_001, 70_000) == large[5_000_001:5_070_001]


async def test_ranges_are_exact_and_a_range_that_is_not_there_is_not_found(blobs: Blobs) -> None:
    await blobs.put("a", [b"0123456789"])
    assert await blobs.get("a", 3, 4) == b"3456"
    assert await blobs.get("a", 0, 10) == b"0123456789"
    assert await blobs.get("a", 7) == b"789"
    for start, size in [(3, 8), (10, 1), (11, None), (10**12, 1), (0, 10**12), (-1, 2), (3, -1)]:
        with pytest.raises(NotFound):
            await blobs.get("a", start, size)


async def test_a_blob_that_is_not_there_is_not_found(blobs: Blobs) -> None:
    await blobs.put("a/b", [b"x"])
    for key in ("b", "a", "a/b/c", "a/c"):
        with pytest.raises(NotFound):
            await blobs.get(key)


async def test_a_key_is_never_overwritten(blobs: Blobs) -> None:
    await blobs.put("a", [b"one"])
    with pytest.raises(AlreadyExists):
        await blobs.put("a", [b"two"])
    assert await blobs.get("a") == b"one"


async def test_exactly_one_of_many_puts_at_once_wins_and_is_whole(blobs: Blobs) -> None:
    values = [bytes([number]) * 100_000 for number in range(30)]
    results = await asyncio.gather(*(blobs.put("d/a", [v]) for v in values), return_exceptions=True)
    winners = [number for number, result in enumerate(results) if result is None]
    assert len(winners) == 1
    assert all(isinstance(result, AlreadyExists) for result in results if result is not None)
    assert await blobs.get("d/a") == values[winners[0]]
    assert await keys_of(blobs) == ["d/a"]


async def test_a_list_is_ascending_and_keeps_to_prefix_after_and_limit(blobs: Blobs) -> None:
    keys = ["a", "b-c", "b.d/x", "b/a", "b/c/0", "b/c/1", "b/c-", "b0", "c/a", "d_/x", "z-z"]
    for key in reversed(keys):
        await blobs.put(key, [key.encode()])
    keys.sort()
    assert await keys_of(blobs) == keys
    assert [info.size for info in await blobs.list("")] == [len(key.encode()) for key in keys]
    assert await keys_of(blobs, "b/") == ["b/a", "b/c-", "b/c/0", "b/c/1"]
    assert await keys_of(blobs, "b/c") == ["b/c-", "b/c/0", "b/c/1"]
    assert await keys_of(blobs, "nothing/") == []
    assert await keys_of(blobs, limit=0) == []
    for after in ["", *keys, "b/", "b/c/00", "b/z", "~"]:
        assert await keys_of(blobs, after=after) == [key for key in keys if key > after], after
        assert await keys_of(blobs, "b", after, 3) == [k for k in keys if k > after and k[0] == "b"][:3]


async def test_pages_of_a_list_join_to_the_whole(blobs: Blobs) -> None:
    keys = sorted(f"p{number % 7}/q{number % 3}/{number}" for number in range(60))
    await asyncio.gather(*(blobs.put(key, [b"x"]) for key in keys))
    found: list[str] = []
    while page := await keys_of(blobs, after=found[-1] if found else "", limit=7):
        found += page
    assert found == keys


async def test_what_jobs_write_is_listed_by_partition_from_any_key_on(blobs: Blobs) -> None:
    topics = [f"{topic:032x}" for topic in (1, 0xA, 0xA0)]
    keys = [
        f"{kind}/{topic}/{partition}/{name}.{ending}"
        for kind, name, endings in (
            ("seg", f"{7:020d}-{UUID}", ("kfs", "index")),
            ("settled", UUID, ("log", "index", "json")),
        )
        for topic in topics
        for partition in (0, 1, 10, 100, 2)
        for ending in endings
    ]
    keys = sorted([*keys, "segments", "settled-/x", "wal/0/x"])
    await asyncio.gather(*(blobs.put(key, [b"x"]) for key in keys))
    assert await keys_of(blobs) == keys
    for after in [
        "",
        *keys,
        f"seg/{topics[1]}",
        f"seg/{topics[1]}/1",
        f"seg/{topics[1]}/1/",
        "seg/~",
        "seg0",
    ]:
        for prefix in ("", "seg/", "settled/", f"seg/{topics[1]}/", f"settled/{topics[2]}/10/"):
            wanted = [key for key in keys if key > after and key.startswith(prefix)]
            assert await keys_of(blobs, prefix, after) == wanted, (prefix, after)
            assert await keys_of(blobs, prefix, after, 3) == wanted[:3], (prefix, after)
    # Directories that have become empty, in a store that has directories.
    gone = [key for key in keys if "/10" in key]
    await blobs.delete(gone)
    left = [key for key in keys if key.startswith("seg/") and key not in gone]
    for after in ["", *gone]:
        assert await keys_of(blobs, "seg/", after) == [key for key in left if key > after], after


async def test_a_delete_is_idempotent_and_touches_nothing_else(blobs: Blobs) -> None:
    for key in ("a/1", "a/2", "b"):
        await blobs.put(key, [b"x"])
    await blobs.delete(["a/1", "absent", "no/such/place", "b"])
    await blobs.delete(["a/1"])
    await blobs.delete([])
    assert await keys_of(blobs) == ["a/2"]
    with pytest.raises(NotFound):
        await blobs.get("a/1")
    await blobs.delete(["a/2"])
    assert await keys_of(blobs) == []
    await blobs.put("a/3", [b"y"])
    assert await keys_of(blobs, "a/") == ["a/3"]


async def test_keys_that_every_store_takes_are_kept_apart_and_sort_by_code_point(blobs: Blobs) -> None:
    for key in SOUND_KEYS:
        await blobs.put(key, [key.encode()])
    assert await keys_of(blobs) == sorted(SOUND_KEYS)
    assert [(await blobs.get(key)).decode() for key in SOUND_KEYS] == SOUND_KEYS


@pytest.mark.parametrize("key", NO_KEYS)
async def test_a_key_that_some_store_could_not_keep_is_refused(blobs: Blobs, key: str) -> None:
    await refuses(blobs, key)


@pytest.mark.parametrize("kind", KEY_PARTS)
async def test_no_key_can_be_a_folder_of_another(blobs: Blobs, kind: str) -> None:
    for key in keys_of_another_depth(kind):
        await refuses(blobs, key)


async def refuses(blobs: Blobs, key: str) -> None:
    with pytest.raises(ValueError):
        await blobs.put(key, [b"x"])
    with pytest.raises(ValueError):
        await blobs.get(key)
    with pytest.raises(ValueError):
        await blobs.delete([key])
    assert await keys_of(blobs) == []


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.ERROR_AFTER, Fault.NEVER_SENT, Fault.LATE])
async def test_an_unknown_outcome_is_resolved_by_putting_again(blobs: Blobs, fault: Fault) -> None:
    faulty = FaultyBlobs(blobs, Faults(1, fault, late_by=1))
    with pytest.raises(OutcomeUnknown):
        await faulty.put("a", [b"mine"])
    try:
        await faulty.put("a", [b"mine"])
    except AlreadyExists:
        assert fault is not Fault.NEVER_SENT
    assert await faulty.get("a") == b"mine"
    assert await keys_of(blobs) == ["a"]


async def test_an_error_before_the_effect_leaves_no_trace(blobs: Blobs) -> None:
    faulty = FaultyBlobs(blobs, Faults(1, Fault.ERROR_BEFORE))
    with pytest.raises(StoreUnavailable):
        await faulty.put("a", [b"mine"])
    assert await keys_of(blobs) == []


async def test_the_store_says_whether_it_is_durable(blobs: Blobs, url: str) -> None:
    assert blobs.durable_ack == (not url.startswith("memory:"))


async def test_what_was_put_is_there_after_closing_and_opening(durable_url: str) -> None:
    first = opened_blobs(durable_url)
    await first.put("a/b/c", [b"one"])
    await first.put("a/d", [b"two"])
    await first.delete(["a/d"])
    await first.close()
    second = opened_blobs(durable_url)
    assert await keys_of(second) == ["a/b/c"]
    assert await second.get("a/b/c") == b"one"
    await second.close()


async def test_what_was_put_is_there_and_nothing_is_torn_after_kill_9(durable_url: str) -> None:
    acknowledged = killed_writer("blobs", durable_url, acknowledgements(durable_url))
    blobs = opened_blobs(durable_url)
    keys = set(await keys_of(blobs, limit=1_000_000))
    assert {f"d{line['number'] % 5}/{line['number']}" for line in acknowledged} <= keys
    for key in keys:
        assert await blobs.get(key) == content(int(key.split("/")[1]))
    await blobs.close()
