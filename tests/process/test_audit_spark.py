"""An audit on Spark finds what one without it finds: one Spark for all damages, and the command once."""

import asyncio
import dataclasses
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.cli.audit import AuditOptions, AuditSummary, LedgerAudit
from gateway.cli.offline_state import offline_ledger
from gateway.config import load_settings
from gateway.offline.audit import AuditEngine, Findings, TakeResult
from gateway.settings import Settings
from gateway.store_assembly import data_url_of, urls_of
from ledger.auditing.tasks import ObjectTask
from ledger.errors import StoreError
from pipeline.engines.audit_tasks import AuditExecutor
from pipeline.engines.spark_context import SparkPlace, spark_context
from pipeline.jobs import audit as job
from tests.support.audit_damages import DAMAGES
from tests.support.audited import OBJECTS, RECORDS, AuditedLedger, built
from tests.support.spark import why_no_spark

if TYPE_CHECKING:
    from pyspark import SparkContext

WAIT_S = 180.0
QUICK = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
UNREADABLE = {"overlap"}
CONF = [f"--spark-conf={name}={value}" for name, value in QUICK.items()]

pytestmark = pytest.mark.skipif(why_no_spark() is not None, reason=why_no_spark() or "")


@pytest.fixture(scope="module")
def context() -> "Iterator[SparkContext]":
    with spark_context(SparkPlace("local[2,4]", QUICK), "audit") as made:
        yield made


def settings_of(directory: Path) -> Settings:
    return load_settings({"storage.data_dir": str(directory)}, {})


def seed(settings: Settings, *seeds: Callable[[AuditedLedger], Awaitable[object]]) -> None:
    async def build() -> None:
        async with built(settings) as ledger:
            for make in seeds:
                await make(ledger)

    asyncio.run(build())


def audited(settings: Settings, engine: AuditEngine | None) -> AuditSummary:
    async def work() -> AuditSummary:
        async with offline_ledger(settings) as (stores, journal, image):
            audit = LedgerAudit(stores, journal, image, settings, Findings())
            return await audit.run(AuditOptions(), engine)

    return asyncio.run(work())


def engine_on(context: "SparkContext", settings: Settings, tasks_seen: list[ObjectTask]) -> AuditEngine:
    executor = AuditExecutor(data_url_of(urls_of(settings.storage)), {})

    async def engine(tasks: Iterator[ObjectTask], take: TakeResult) -> None:
        tasks_seen.extend(tasks)
        for task, result in zip(tasks_seen, job.audited(context, executor, iter(tasks_seen)), strict=True):
            take(task, result)

    return engine


def said(summary: AuditSummary) -> Mapping[str, Any]:
    return dataclasses.asdict(summary)


@pytest.mark.timeout(300)
def test_spark_finds_every_damage_as_the_command_alone_does(context: "SparkContext", tmp_path: Path) -> None:
    for name, (make, expected) in DAMAGES.items():
        settings = settings_of(tmp_path / name.replace(" ", "-"))
        seed(settings, make)
        tasks: list[ObjectTask] = []
        on_spark = said(audited(settings, engine_on(context, settings, tasks)))
        assert any(expected.items() <= found.items() for found in on_spark["damages"]), name
        assert on_spark == said(audited(settings, None)), name
        # A journal that cannot be applied says nothing of objects.
        assert (len(tasks) >= OBJECTS) == (name not in UNREADABLE), name


@pytest.mark.timeout(300)
def test_a_whole_ledger_with_segments_is_clean_on_spark_in_several_waves(
    context: "SparkContext", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path / "data")
    seed(settings, AuditedLedger.merge)
    # A group for each object, and two groups a wave.
    monkeypatch.setattr(job, "GROUP_RUNS", 1)
    monkeypatch.setattr(job, "GROUPS_A_SLOT", 1)
    on_spark = audited(settings, engine_on(context, settings, []))
    assert on_spark.damages == [] and on_spark.totals.records == 2 * OBJECTS * RECORDS
    assert said(on_spark) == said(audited(settings, None))


@pytest.mark.timeout(300)
def test_a_store_that_executors_cannot_read_fails_the_audit(context: "SparkContext", tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "data")
    seed(settings)
    executor = AuditExecutor("gopher://nowhere", {})

    async def engine(tasks: Iterator[ObjectTask], take: TakeResult) -> None:
        for _ in job.audited(context, executor, tasks):
            raise AssertionError("there is no such store")

    with pytest.raises(StoreError, match="gopher"):
        audited(settings, engine)


@pytest.mark.timeout(300)
def test_the_command_on_spark_says_what_it_says_without(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "data")
    seed(settings, AuditedLedger.merge, AuditedLedger.flip_byte)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gateway.cli.main", "audit", "--data-dir", str(tmp_path / "data")]
        return subprocess.run(
            [*command, "--json", *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False
        )

    alone, on_spark = run(), run("--engine", "spark", "--master", "local[2]", *CONF)
    assert (alone.returncode, on_spark.returncode) == (3, 3), on_spark.stderr
    # Progress may come before it.
    assert on_spark.stderr.endswith("1 damage.\n")
    assert json.loads(on_spark.stdout) == json.loads(alone.stdout)
    assert json.loads(alone.stdout)["totals"]["records"] > 0
