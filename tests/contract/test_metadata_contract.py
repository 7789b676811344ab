"""The promises of MetadataStore, kept by every backend: those of the port, and those that it declares.

No test needs more than S3 gives, unless the store declares it.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ledger.errors import OutcomeUnknown, StoreLocked, StoreUnavailable
from ledger.keys import KEY_PARTS
from ledger.ports import SCAN_BYTES, Lost, MetadataStore, PutOutcome, Unknown, Won
from tests.contract.backends import (
    DURABLE_METADATA,
    FILER,
    HASHES,
    METADATA,
    ON_S3,
    SHARED,
    acknowledgements,
    kind_of,
    metadata_url,
    opened_metadata,
)
from tests.contract.keys import NO_KEYS, SOUND_KEYS, keys_of_another_depth
from tests.contract.killed import killed_writer
from tests.contract.writer import content, key_of
from tests.support.faulty import Fault, Faults, FaultyMetadata


@pytest.fixture(params=[*METADATA, *ON_S3])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return metadata_url(request, tmp_path)


@pytest.fixture
async def store(url: str) -> AsyncIterator[MetadataStore]:
    store = opened_metadata(url)
    yield store
    await store.close()


@pytest.fixture(params=DURABLE_METADATA)
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return metadata_url(request, tmp_path)


async def put_won(store: MetadataStore, key: str, value: bytes, expect: str | None = None) -> str:
    outcome = await store.put(key, value, expect)
    assert isinstance(outcome, Won), outcome
    return outcome.version


async def test_what_was_put_is_got_with_its_version(store: MetadataStore) -> None:
    assert await store.get("a") is None
    version = await put_won(store, "a", b"one")
    found = await store.get("a")
    assert found is not None
    assert (found.value, found.version) == (b"one", version)


async def test_a_put_that_expects_no_value_loses_to_one_that_is_there(store: MetadataStore) -> None:
    version = await put_won(store, "a", b"one")
    assert await store.put("a", b"two", None) == Lost()
    found = await store.get("a")
    assert found is not None
    assert (found.value, found.version) == (b"one", version)


async def test_only_the_present_version_can_be_replaced(store: MetadataStore) -> None:
    first = await put_won(store, "a", b"one")
    second = await put_won(store, "a", b"two", first)
    assert second != first
    assert await store.put("a", b"three", first) == Lost()
    assert await store.put("absent", b"x", second) == Lost()
    assert await store.get("absent") is None
    found = await store.get("a")
    assert found is not None
    assert found.value == b"two"


async def test_a_deleted_version_cannot_be_replaced(store: MetadataStore) -> None:
    before = await put_won(store, "a", b"one")
    await store.delete(["a"])
    assert await store.put("a", b"two", before) == Lost()
    again = await put_won(store, "a", b"one")
    # Equal values may have equal versions, unless the store declares more.
    assert again != before or not store.unique_versions
    other = await put_won(store, "a", b"other", again)
    assert other not in (before, again)
    assert await store.put("a", b"two", before) == Lost()


async def test_exactly_one_of_many_puts_at_once_wins(store: MetadataStore) -> None:
    outcomes = await asyncio.gather(*(store.put("a", b"%d" % number, None) for number in range(50)))
    winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Won)]
    assert len(winners) == 1
    assert outcomes.count(Lost()) == 49
    found = await store.get("a")
    assert found is not None
    assert found.value == b"%d" % winners[0]


async def test_no_update_is_lost_when_many_compare_and_set(store: MetadataStore) -> None:
    await put_won(store, "counter", b"0")

    async def add_one() -> None:
        outcome: PutOutcome = Lost()
        while outcome == Lost():
            found = await store.get("counter")
            assert found is not None
            outcome = await store.put("counter", b"%d" % (int(found.value) + 1), found.version)

    await asyncio.gather(*(add_one() for _ in range(30)))
    found = await store.get("counter")
    assert found is not None
    assert found.value == b"30"


async def test_a_scan_is_ascending_and_keeps_to_prefix_start_and_limit(store: MetadataStore) -> None:
    keys = [f"journal/0/{number:020d}" for number in range(12)]
    for key in [*reversed(keys), "journal/00/0", "journal/-/0", "journal/1/0", "journal-start/0", "z"]:
        await put_won(store, key, key.encode())

    async def scanned(prefix: str, start: str = "", limit: int = 1000) -> list[str]:
        pairs = await store.scan(prefix, start, limit)
        assert [found.value.decode() for _, found in pairs] == [key for key, _ in pairs]
        return [key for key, _ in pairs]

    assert await scanned("journal/0/") == keys
    assert await scanned("journal/0/", limit=5) == keys[:5]
    assert await scanned("journal/0/", keys[7]) == keys[7:]
    assert await scanned("journal/0/", keys[7] + "~", 2) == keys[8:10]
    assert await scanned("journal/0/", "a") == keys
    assert await scanned("journal/0/", "journal/0/~") == []
    assert await scanned("journal/0/", limit=0) == []
    assert await scanned("nothing") == []
    assert len(await scanned("")) == 17


async def test_a_scan_ends_where_its_values_have_many_bytes_and_continues_there(store: MetadataStore) -> None:
    keys = [f"journal/0/{number}" for number in range(6)]
    value = bytes(SCAN_BYTES // 2 - 1)
    for key in keys:
        await put_won(store, key, value)
    assert [key for key, _ in await store.scan("journal/0/")] == keys[:3]
    assert [key for key, _ in await store.scan("journal/0/", limit=2)] == keys[:2]
    assert [key for key, _ in await store.scan("journal/0/", keys[2] + "~")] == keys[3:]
    await put_won(store, "journal/0/3-", bytes(SCAN_BYTES))
    assert [key for key, _ in await store.scan("journal/0/", keys[3] + "-")] == ["journal/0/3-"]


async def test_keys_that_every_store_takes_are_kept_apart_and_sort_by_code_point(
    store: MetadataStore,
) -> None:
    for key in SOUND_KEYS:
        await put_won(store, key, key.encode())
    assert [key for key, _ in await store.scan("")] == sorted(SOUND_KEYS)
    # Neither is a wildcard of SQL, which "_" would be.
    assert [key for key, _ in await store.scan("a_")] == ["a_"]
    assert [key for key, _ in await store.scan("a%")] == []


@pytest.mark.parametrize("key", NO_KEYS)
async def test_a_key_that_some_store_could_not_keep_is_refused(store: MetadataStore, key: str) -> None:
    await refuses(store, key)


@pytest.mark.parametrize("kind", KEY_PARTS)
async def test_no_key_can_be_a_folder_of_another(store: MetadataStore, kind: str) -> None:
    for key in keys_of_another_depth(kind):
        await refuses(store, key)


async def refuses(store: MetadataStore, key: str) -> None:
    with pytest.raises(ValueError):
        await store.put(key, b"", None)
    with pytest.raises(ValueError):
        await store.get(key)
    with pytest.raises(ValueError):
        await store.delete([key])
    assert await store.scan("") == []


async def test_values_of_any_size_come_back_byte_for_byte(store: MetadataStore) -> None:
    values = [b"", b"\0", bytes(range(256)) * 2048, b"\xff" * 65536]
    for number, value in enumerate(values):
        await put_won(store, f"v{number}", value)
    assert [found.value for _, found in await store.scan("v")] == values


async def test_a_delete_is_idempotent_and_touches_nothing_else(store: MetadataStore) -> None:
    for key in ("a", "b", "c"):
        await put_won(store, key, b"x")
    await store.delete(["a", "c", "absent"])
    await store.delete(["a"])
    await store.delete([])
    assert [key for key, _ in await store.scan("")] == ["b"]
    await put_won(store, "a", b"again")


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.ERROR_AFTER, Fault.NEVER_SENT])
async def test_an_unknown_outcome_is_resolved_by_reading(store: MetadataStore, fault: Fault) -> None:
    faulty = FaultyMetadata(store, Faults(1, fault))
    try:
        outcome = await faulty.put("a", b"mine", None)
        assert isinstance(outcome, Unknown)
    except OutcomeUnknown:
        assert fault is Fault.ERROR_AFTER
    found = await faulty.get("a")
    assert (found is None) == (fault is Fault.NEVER_SENT)
    # The same bytes again: they lose to themselves, or they are the first.
    again = await faulty.put("a", b"mine", None)
    assert isinstance(again, Won if found is None else Lost)


async def test_an_error_before_the_effect_leaves_no_trace(store: MetadataStore) -> None:
    faulty = FaultyMetadata(store, Faults(1, Fault.ERROR_BEFORE))
    with pytest.raises(StoreUnavailable):
        await faulty.put("a", b"mine", None)
    assert await faulty.get("a") is None


async def test_a_put_that_arrives_late_does_not_overwrite_a_newer_one(store: MetadataStore) -> None:
    faulty = FaultyMetadata(store, Faults(1, Fault.LATE, late_by=2))
    assert isinstance(await faulty.put("a", b"late", None), Unknown)
    assert await faulty.get("a") is None
    await put_won(faulty, "a", b"newer")
    found = await store.get("a")
    assert found is not None
    assert found.value == b"newer"


async def test_a_conflict_after_a_clients_own_retry_shows_ones_own_bytes(store: MetadataStore) -> None:
    faulty = FaultyMetadata(store, Faults(1, Fault.CONFLICT_AFTER_RETRY))
    assert await faulty.put("a", b"mine", None) == Lost()
    found = await faulty.get("a")
    assert found is not None
    assert found.value == b"mine"


async def test_the_store_declares_what_it_promises(store: MetadataStore, url: str) -> None:
    assert store.durable_ack == (not url.startswith(("memory", FILER)))
    assert store.unique_versions == (kind_of(url) not in HASHES)
    assert store.exclusive == (kind_of(url) not in SHARED)


async def test_a_store_that_declares_exclusive_use_is_opened_once(durable_url: str) -> None:
    store = opened_metadata(durable_url)
    if store.exclusive:
        with pytest.raises(StoreLocked):
            opened_metadata(durable_url)
    await put_won(store, "a", b"one")
    await store.close()


async def test_closing_twice_is_no_error(store: MetadataStore) -> None:
    await store.close()
    await store.close()


async def test_what_was_won_is_there_after_closing_and_opening(durable_url: str) -> None:
    first = opened_metadata(durable_url)
    version = await put_won(first, "a", b"one")
    await put_won(first, "b", b"two")
    await first.delete(["b"])
    await first.close()
    second = opened_metadata(durable_url)
    found = await second.get("a")
    assert found is not None
    assert (found.value, found.version) == (b"one", version)
    assert await second.get("b") is None
    newer = await put_won(second, "a", b"three", version)
    assert newer != version
    await second.close()


async def test_what_was_won_is_there_after_kill_9(durable_url: str) -> None:
    acknowledged = killed_writer("metadata", durable_url, acknowledgements(durable_url))
    store = opened_metadata(durable_url)
    for line in acknowledged:
        found = await store.get(key_of(line["number"]))
        assert found is not None, line
        assert (found.value, found.version) == (content(line["number"]), line["version"])
    await store.close()
