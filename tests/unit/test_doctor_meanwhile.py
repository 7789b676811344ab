"""`dragoman doctor` next to a gateway that goes on: what that deletes meanwhile is no finding."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from adapters.journals.metadata import MetadataJournal
from gateway.config import load_settings
from gateway.offline.doctor import Diagnosis, check_objects, check_versions, state_now
from gateway.settings import Settings
from ledger.partitions.records import RecordsDeleted
from ledger.ports import MetadataStore, SegmentStore
from ledger.types import Buffer, Position, StoredObject
from tests.support.audited import RECORDS, AuditedLedger, built
from tests.support.data_files import in_sqlite


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A local log has one writer, so the journal is in a metadata store."""
    data_dir = tmp_path / "data"
    metadata = in_sqlite(data_dir)[1]
    return load_settings({"storage.data_dir": str(data_dir), "storage.metadata": metadata}, {})


class SharedJournal(MetadataJournal):
    """Of a store that other gateways write, too."""

    @property
    def exclusive(self) -> bool:
        return False


def shared(ledger: AuditedLedger) -> SharedJournal:
    store: MetadataStore = vars(ledger.stores.journal)["store"]
    return SharedJournal(store, 0)


async def delete_first_object(ledger: AuditedLedger, log_start: int) -> str:
    """As a gateway does once no run in it can be read, or, with a lower log start, as one never does."""
    locator = (await ledger.locators())[0]
    numbers = list((await ledger.recovered()).state.logs)
    await ledger.append([RecordsDeleted(number, log_start) for number in numbers])
    await ledger.stores.segments.delete([locator])
    return locator


@pytest.mark.parametrize(("log_start", "findings"), [(RECORDS, 0), (0, 1)], ids=["gone", "needed"])
async def test_an_object_that_a_gateway_has_deleted_meanwhile_is_not_missing(
    settings: Settings, log_start: int, findings: int
) -> None:
    diagnosis = Diagnosis()
    async with built(settings) as ledger:
        state = (await ledger.recovered()).state
        locator = await delete_first_object(ledger, log_start)
        now = partial(state_now, shared(ledger), ledger.stores.blobs, state)
        await check_objects(state, ledger.stores.segments, diagnosis, now)
    assert len(diagnosis.findings) == findings
    assert all(f"{locator} is missing" in finding for finding in diagnosis.findings)


async def test_without_a_later_entry_the_journal_is_not_read_again(settings: Settings) -> None:
    async with built(settings) as ledger:
        state = (await ledger.recovered()).state
        assert await state_now(shared(ledger), ledger.stores.blobs, state) is state
        await ledger.append([])
        assert (await state_now(shared(ledger), ledger.stores.blobs, state)).applied == state.applied + 1
        assert await state_now(ledger.stores.journal, ledger.stores.blobs, state) is state


class DeletedWhenListed:
    """Objects go between their listing and their first read."""

    def __init__(self, segments: SegmentStore) -> None:
        self._segments = segments

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        return await self._segments.objects(after, limit)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return [None] * len(positions)


async def test_an_object_that_goes_after_it_was_listed_is_of_no_unknown_version(settings: Settings) -> None:
    diagnosis = Diagnosis()
    async with built(settings) as ledger:
        await check_versions(DeletedWhenListed(ledger.stores.segments), diagnosis)  # type: ignore[arg-type]
    assert diagnosis.findings == []
