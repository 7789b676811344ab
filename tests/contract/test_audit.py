"""`dragoman audit` over real stores: what is whole is clean, and each damage is named with its place."""

import asyncio
import json
import shutil
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.cli.audit import AuditOptions, LedgerAudit, audit
from gateway.cli.exits import Exit
from gateway.cli.output import UsageError
from gateway.config import load_settings
from gateway.offline.audit import Findings
from gateway.settings import Settings
from ledger.auditing.damages import DamageKind
from ledger.errors import StoreLocked, StoreUnavailable
from ledger.partitions.aborted import AbortedTransaction
from ledger.partitions.records import RecordsDeleted
from ledger.ports import SegmentStore
from ledger.topics.records import TopicDeleted
from ledger.types import StoredObject
from tests.support.audit_damages import DAMAGES, Seed, make_gap
from tests.support.audited import OBJECTS, RECORDS, TOPIC, AuditedLedger, built
from tests.support.s3_servers import S3Server
from tests.support.versions import ROOT

Run = Callable[..., tuple[Exit, Any]]


@pytest.fixture(params=["file", "s3"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    given: dict[str, object] = {"storage.data_dir": str(tmp_path / "data")}
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("moto_s3")
        url = server.url(f"audit-{uuid.uuid4().hex}")
        given |= {"storage.metadata": url, "storage.data": url}
    return load_settings(given, {})


@pytest.fixture
def local(tmp_path: Path) -> Settings:
    return load_settings({"storage.data_dir": str(tmp_path / "data")}, {})


def seed(settings: Settings, make: Seed | None = None) -> Any:
    async def build() -> object:
        async with built(settings) as ledger:
            return None if make is None else await make(ledger)

    return asyncio.run(build())


@pytest.fixture
def run_audit(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(settings: Settings, **options: Any) -> tuple[Exit, Any]:
        code = audit(settings, AuditOptions(as_json=True, **options))
        # The log is in front of it: without `serve` or a command line it goes to stdout.
        # After lines of the log, or without them: another test may have sent those elsewhere.
        said = f"\n{capsys.readouterr().out}"
        return code, json.loads("{" + said.partition("\n{")[2])

    return run


def test_a_whole_ledger_is_clean(settings: Settings, run_audit: Run) -> None:
    seed(settings)
    code, said = run_audit(settings)
    assert said["damages"] == []
    assert code is Exit.OK
    totals = said["totals"]
    assert totals["partitions"] == 2
    assert totals["batches"] == totals["runs"] == 2 * OBJECTS
    assert totals["records"] == totals["offsets"] == 2 * OBJECTS * RECORDS
    assert totals["objects"]["live"] == OBJECTS


def test_a_ledger_with_merged_runs_is_clean(settings: Settings, run_audit: Run) -> None:
    locator = seed(settings, AuditedLedger.merge)
    code, said = run_audit(settings)
    assert (code, said["damages"]) == (Exit.OK, [])
    assert said["totals"]["records"] == said["totals"]["offsets"] == 2 * OBJECTS * RECORDS
    assert said["totals"]["runs"] == OBJECTS + 1
    assert locator.startswith("seg/")
    assert said["totals"]["objects"]["live"] == OBJECTS + 1


@pytest.mark.parametrize("version", ["v1", "v3", "v4", "v5"])
def test_directories_of_older_versions_are_clean(tmp_path: Path, run_audit: Run, version: str) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(ROOT / f"tests/fixtures/data_directory_{version}/directory", data_dir)
    code, said = run_audit(load_settings({"storage.data_dir": str(data_dir)}, {}))
    assert (code, said["damages"]) == (Exit.OK, [])
    assert said["totals"]["records"] == 100
    assert [note for note in said["notes"] if "the same as the journal" in note]


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_named(settings: Settings, run_audit: Run, name: str) -> None:
    make, expected = DAMAGES[name]
    seed(settings, make)
    code, said = run_audit(settings)
    assert code is Exit.FINDINGS
    found = [damage for damage in said["damages"] if expected.items() <= damage.items()]
    assert len(found) == 1, said["damages"]
    assert found[0]["what"] and found[0]["remedy"]
    # The second partition of a missing object is the only further damage that any of these makes.
    others = [damage for damage in said["damages"] if damage["kind"] != expected["kind"]]
    assert others == []


def test_a_settled_ledger_is_read_whole(settings: Settings, run_audit: Run) -> None:
    seed(settings, AuditedLedger.settle)
    code, said = run_audit(settings)
    assert (code, said["damages"]) == (Exit.OK, [])
    assert (said["totals"]["settled"], said["totals"]["objects"]["live"]) == (1, OBJECTS + 1)
    assert said["totals"]["objects"]["stray"] == 0


@pytest.mark.parametrize("name", ["flipped byte", "short index", "no meta"])
def test_a_damaged_settled_ledger_is_named(settings: Settings, run_audit: Run, name: str) -> None:
    async def make(ledger: AuditedLedger) -> str:
        keys, blobs = await ledger.settle(), ledger.stores.blobs
        log, index = await blobs.get(keys.log_key), await blobs.get(keys.index_key)
        match name:
            case "flipped byte":
                key, data = keys.log_key, log[:-30] + bytes([log[-30] ^ 1]) + log[-29:]
            case "short index":
                key, data = keys.index_key, index[:-1]
            case _:
                await blobs.delete([keys.meta_key])
                return keys.meta_key
        await blobs.delete([key])
        await blobs.put(key, [data])
        return key

    key = seed(settings, make)
    code, said = run_audit(settings)
    (damage,) = said["damages"]
    assert (code, damage["kind"], damage["object"]) == (Exit.FINDINGS, "settled ledger", key)
    assert (damage["topic"], damage["partition"]) == ("orders", 0)
    assert damage["remedy"].startswith("no record is lost")
    assert said["totals"]["records"] == 2 * OBJECTS * RECORDS


def test_the_objects_of_damages_are_named(settings: Settings, run_audit: Run) -> None:
    async def make(ledger: AuditedLedger) -> str:
        await ledger.flip_byte()
        return (await ledger.locators())[1]

    locator = seed(settings, make)
    _, said = run_audit(settings)
    (damage,) = said["damages"]
    assert damage["object"] == locator
    assert damage["position"] > 0


def test_repair_deletes_stray_objects_alone(settings: Settings, run_audit: Run) -> None:
    stray = seed(settings, AuditedLedger.strayed)
    code, said = run_audit(settings, repair=True)
    assert code is Exit.OK
    assert said["repaired"] == [stray]
    code, said = run_audit(settings)
    assert (code, said["damages"]) == (Exit.OK, [])
    assert said["totals"]["objects"]["live"] == OBJECTS


def test_a_damaged_ledger_deletes_nothing(settings: Settings, run_audit: Run) -> None:
    async def make(ledger: AuditedLedger) -> None:
        await ledger.strayed()
        await make_gap(ledger)

    seed(settings, make)
    code, said = run_audit(settings, repair=True)
    assert code is Exit.FINDINGS
    assert said["repaired"] == []
    assert {damage["kind"] for damage in said["damages"]} == {"gap", "stray object"}
    assert said["notes"][-1].startswith("repair: nothing is deleted")


def test_a_byte_outside_of_every_batch_is_found_by_the_frame(settings: Settings, run_audit: Run) -> None:
    seed(settings, lambda ledger: ledger.flip_byte(at=40))
    _, said = run_audit(settings)
    (damage,) = said["damages"]
    assert damage["kind"] == "damaged frame"
    assert said["totals"]["records"] == 2 * OBJECTS * RECORDS


def test_one_topic_may_be_read_alone(local: Settings, run_audit: Run) -> None:
    seed(local)
    code, said = run_audit(local, topics=["orders"])
    assert (code, said["totals"]["partitions"]) == (Exit.OK, 2)
    with pytest.raises(UsageError, match="no topic absent"):
        audit(local, AuditOptions(["absent"]))


def test_topics_are_not_repaired_alone(local: Settings) -> None:
    with pytest.raises(UsageError, match="--repair"):
        audit(local, AuditOptions(["orders"], repair=True))


def test_what_a_deleted_topic_had_is_not_read(local: Settings, run_audit: Run) -> None:
    async def make(ledger: AuditedLedger) -> None:
        await ledger.append([TopicDeleted(TOPIC)])
        await ledger.flip_byte()

    seed(local, make)
    code, said = run_audit(local)
    assert (code, said["damages"]) == (Exit.OK, [])
    assert said["totals"]["objects"]["unread"] == OBJECTS


def test_an_image_that_says_something_else_is_named(local: Settings, run_audit: Run) -> None:
    async def make(ledger: AuditedLedger) -> None:
        recovered = await ledger.recovered()
        recovered.state.topics.by_name["orders"].partitions[1].log_start = 2
        await ledger.write_image(recovered.state, recovered.nonce)

    seed(local, make)
    code, said = run_audit(local)
    (damage,) = said["damages"]
    assert (code, damage["kind"]) == (Exit.FINDINGS, "image")
    assert damage["what"].endswith("differs from the journal in offsets of orders-1")


def test_a_snapshot_that_says_something_else_is_named(settings: Settings, run_audit: Run) -> None:
    async def make(ledger: AuditedLedger) -> str:
        recovered = await ledger.recovered()
        recovered.state.next_producer_id = 5
        key = await ledger.put_snapshot(recovered)
        # So that the state is that of the journal again: one more entry, and an older snapshot to begin from.
        await ledger.append([])
        return key

    key = seed(settings, make)
    code, said = run_audit(settings)
    (damage,) = said["damages"]
    assert (code, damage["kind"]) == (Exit.FINDINGS, "snapshot")
    assert key in damage["what"]
    assert "the numbers of the whole ledger" in damage["what"]


def test_a_store_that_is_in_use_is_left_alone(local: Settings) -> None:
    """One sentence, that of every command on a data directory."""

    def while_open(_: AuditedLedger) -> Awaitable[None]:
        return asyncio.to_thread(refused)

    def refused() -> None:
        with pytest.raises(StoreLocked):
            audit(local, AuditOptions())

    seed(local, while_open)


def test_a_store_out_of_reach_is_no_damage(tmp_path: Path, moto_s3: S3Server) -> None:
    url = moto_s3.url().replace(moto_s3.endpoint, "http://127.0.0.1:1")
    settings = load_settings(
        {"storage.data_dir": str(tmp_path), "storage.metadata": url, "storage.data": url}, {}
    )
    with pytest.raises(StoreUnavailable):
        audit(settings, AuditOptions())


@pytest.mark.parametrize("is_alone", [False, True])
def test_an_aborted_transaction_without_its_marker_is_named(
    local: Settings, run_audit: Run, is_alone: bool
) -> None:
    """By a snapshot; also where no journal is left that it is compared with."""

    async def make(ledger: AuditedLedger) -> None:
        await ledger.strayed()
        recovered = await ledger.recovered()
        log = recovered.state.topics.by_name["orders"].partitions[1]
        log.transactional().aborted.append(AbortedTransaction(RECORDS, 7, 1, RECORDS + 1))
        await ledger.put_snapshot(recovered)
        if is_alone:
            await ledger.stores.journal.raise_start(recovered.state.applied)

    seed(local, make)
    code, said = run_audit(local, repair=True)
    assert (code, said["repaired"]) == (Exit.FINDINGS, [])
    (damage,) = [one for one in said["damages"] if one["kind"] == "transaction"]
    place = damage["topic"], damage["partition"], damage["offset"], damage["object"]
    assert place == ("orders", 1, RECORDS, None)
    assert damage["what"].endswith("ends here, where the ledger has records")
    kinds = {one["kind"]: one["what"] for one in said["damages"]}
    assert kinds.keys() - {"transaction", "stray object"} == (set() if is_alone else {"snapshot"})
    assert is_alone or "an aborted transaction of orders-1" in kinds["snapshot"]


class DeletedMeanwhile:
    """A segment store whose gateway deletes records and their object when its objects are listed."""

    def __init__(self, segments: SegmentStore, delete: Callable[[], Awaitable[None]]) -> None:
        self._segments = segments
        self._delete: Callable[[], Awaitable[None]] | None = delete
        self.capabilities = segments.capabilities
        self.read = segments.read

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        delete, self._delete = self._delete, None
        if delete is not None:
            await delete()
        return await self._segments.objects(after, limit)


@pytest.mark.parametrize(
    ("log_start", "found"), [(RECORDS, set()), (0, {DamageKind.MISSING_OBJECT})], ids=["gone", "needed"]
)
def test_what_a_gateway_deletes_meanwhile_is_no_damage(
    tmp_path: Path, moto_s3: S3Server, log_start: int, found: set[DamageKind]
) -> None:
    url = moto_s3.url(f"audit-{uuid.uuid4().hex}")
    given = {"storage.data_dir": str(tmp_path), "storage.metadata": url, "storage.data": url}
    settings = load_settings(given, {})

    async def beside(ledger: AuditedLedger) -> set[DamageKind]:
        locator = (await ledger.locators())[0]

        async def delete() -> None:
            numbers = list((await ledger.recovered()).state.logs)
            await ledger.append([RecordsDeleted(number, log_start) for number in numbers])
            await ledger.stores.segments.delete([locator])

        segments = cast("SegmentStore", DeletedMeanwhile(ledger.stores.segments, delete))
        stores, findings = replace(ledger.stores, segments=segments), Findings()
        await LedgerAudit(stores, stores.journal, None, settings, findings).run(AuditOptions())
        return {damage.kind for damage in findings.damages}

    assert seed(settings, beside) == found
