"""The proof at the door names the promise that a store broke, and leaves nothing in it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.metadata.memory import MemoryMetadata
from adapters.proof import DELETES, prove_blobs, prove_metadata
from ledger.errors import AlreadyExists, NotFound, OutcomeUnknown, StoreUnavailable, StoreUnfit
from ledger.ports import BlobInfo, Lost, PutOutcome, Versioned, Won
from ledger.types import Buffer
from tests.support.faulty import Fault, Faults, FaultyBlobs, FaultyMetadata


class Lying(MemoryMetadata):
    """Breaks one promise."""

    def __init__(self, lie: str) -> None:
        super().__init__(exclusive=False, unique_versions=False)
        self._lie = lie

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        present = await self.get(key)
        outcome = await super().put(key, value, expect)
        match self._lie:
            case "both creates win" if expect is None and outcome == Lost():
                return Won("also")
            case "no create wins" if expect is None:
                return Lost()
            case "an old version wins" if present is not None and expect is not None and outcome == Lost():
                return Won("also")
            case "a version of nothing wins" if present is None and expect is not None:
                return Won("also")
            case "the present version loses" if expect is not None:
                return Lost()
        return outcome

    async def get(self, key: str) -> Versioned | None:
        found = await super().get(key)
        return Versioned(b"stale", "stale") if found and self._lie == "a read is stale" else found

    async def delete(self, keys: Sequence[str]) -> None:
        if self._lie != "a delete has no effect" or len(keys) > 1:
            await super().delete(keys)


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        ("both creates win", r"more than one succeeded \(If-None-Match\)"),
        ("no create wins", r"none succeeded \(If-None-Match\)"),
        ("an old version wins", r"expected an old version succeeded \(If-Match\)"),
        ("a version of nothing wins", r"absent key that expected a version succeeded \(If-Match\)"),
        ("the present version loses", "a write that expected the present version was refused"),
        ("a read is stale", "a value that was written is not what is read"),
        ("a delete has no effect", "a deleted key can still be read"),
    ],
)
async def test_each_broken_promise_of_metadata_is_named(lie: str, says: str) -> None:
    store = Lying(lie)
    with pytest.raises(StoreUnfit, match=f"^s3://bucket/ cannot be used, since it broke a promise: .*{says}"):
        await prove_metadata(store, "s3://bucket/")
    assert await store.scan("") == []


async def test_a_store_whose_old_versions_come_back_with_a_delete_is_refused() -> None:
    class ForgetsDeletes(MemoryMetadata):
        """A deleted version is still taken."""

        async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
            outcome = await super().put(key, value, expect)
            return Won("also") if "/again" in key and outcome == Lost() else outcome

    with pytest.raises(StoreUnfit, match="expected a deleted version succeeded"):
        await prove_metadata(ForgetsDeletes(exclusive=False, unique_versions=False), "the store")


class LateMetadata(MemoryMetadata):
    """A create that was sent twice comes once more after the first deletes."""

    def __init__(self, late: int) -> None:
        super().__init__(exclusive=False, unique_versions=False)
        self.late = late

    async def delete(self, keys: Sequence[str]) -> None:
        present = {key: await self.get(key) for key in keys}
        await super().delete(keys)
        for key, found in present.items():
            if len(keys) == 1 and found is not None and self.late:
                self.late -= 1
                await self.put(key, found.value, None)


class LateBlobs(MemoryBlobs):
    """The same."""

    def __init__(self, late: int) -> None:
        super().__init__()
        self.late = late

    async def delete(self, keys: Sequence[str]) -> None:
        with suppress(NotFound):
            found = await self.get(keys[0])
            await super().delete(keys)
            if len(keys) == 1 and self.late:
                self.late -= 1
                await self.put(keys[0], [found])
            return
        await super().delete(keys)


async def test_a_create_that_came_again_after_the_delete_is_no_broken_promise() -> None:
    metadata, blobs = LateMetadata(DELETES - 1), LateBlobs(DELETES - 1)
    await prove_metadata(metadata, "the store")
    await prove_blobs(blobs, "the bucket")
    assert (metadata.late, blobs.late) == (0, 0)
    assert await metadata.scan("") == [] and await blobs.list("") == []


async def test_one_that_comes_again_every_time_is() -> None:
    with pytest.raises(StoreUnfit, match="a deleted key can still be read"):
        await prove_metadata(LateMetadata(DELETES), "the store")
    with pytest.raises(StoreUnfit, match="a deleted key can still be read"):
        await prove_blobs(LateBlobs(DELETES), "the bucket")


class LyingBlobs(MemoryBlobs):
    def __init__(self, lie: str) -> None:
        super().__init__()
        self._lie = lie

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if self._lie == "no create wins":
            raise AlreadyExists("never")
        try:
            await super().put(key, parts)
        except AlreadyExists:
            if self._lie != "both creates win":
                raise

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[BlobInfo]:
        return [] if self._lie == "nothing is listed" else await super().list(prefix, after, limit)

    async def delete(self, keys: Sequence[str]) -> None:
        if self._lie != "a delete has no effect" or len(keys) > 1:
            await super().delete(keys)


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        ("both creates win", "more than one succeeded"),
        ("no create wins", "none succeeded"),
        ("nothing is listed", "a key that was written is not listed"),
        ("a delete has no effect", "a deleted key can still be read"),
    ],
)
async def test_each_broken_promise_of_blobs_is_named(lie: str, says: str) -> None:
    blobs = LyingBlobs(lie)
    with pytest.raises(StoreUnfit, match=says):
        await prove_blobs(blobs, "the store")
    assert await MemoryBlobs.list(blobs, "") == []


async def test_an_unknown_outcome_is_read_and_breaks_no_promise() -> None:
    faults = Faults(3, Fault.ANSWER_LOST, only=["put"])
    await prove_metadata(FaultyMetadata(MemoryMetadata(), faults), "the store", races=2)
    assert faults.failed
    faults = Faults(3, Fault.ANSWER_LOST, only=["put"])
    await prove_blobs(FaultyBlobs(MemoryBlobs(), faults), "the store", races=2)
    assert faults.failed


async def test_a_store_that_fails_during_the_proof_is_not_called_unfit() -> None:
    store = FaultyMetadata(MemoryMetadata(), Faults(1, Fault.ERROR_BEFORE, only=["put"]))
    with pytest.raises(StoreUnavailable):
        await prove_metadata(store, "the store")
    store = FaultyMetadata(MemoryMetadata(), Faults(1, Fault.NEVER_SENT, only=["put"], times=2))
    with pytest.raises(OutcomeUnknown):
        await prove_metadata(store, "the store")


async def test_racers_and_races_run_at_the_same_time() -> None:
    under_way: Counter[str] = Counter()
    racers: list[int] = []
    most = 0

    class Counting(MemoryMetadata):
        async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
            nonlocal most
            under_way[key] += 1
            await asyncio.sleep(0)
            racers.append(under_way[key])
            most = max(most, under_way.total())
            under_way[key] -= 1
            return await super().put(key, value, expect)

    await prove_metadata(Counting(), "the store")
    assert racers.count(2) >= 20
    assert most == 40
