"""A data directory goes on in a local log: whatever happens between two steps, nothing acked is lost.

A real gateway works under the recorder: first with its journal in SQLite, as earlier versions had it, then
without a word about where it is, which raises the format, and then in the log. The tree of each cut is opened
as the directory says, and once more with the log, as a start that was to go on there.
"""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from adapters.metadata.sqlite_file import CONTINUED_VERSION
from adapters.open import METADATA_FILE
from gateway.datadir import VERSION_WITH_LOG, format_of
from ledger.errors import StoreError
from tests.faults.load import Ack, Load, problems
from tests.faults.powercut import (
    Survival,
    Tree,
    cut_time_ns,
    replayed,
    sample,
    sync_points,
    trees_at,
    write_tree,
)
from tests.faults.recording import Recording
from tests.faults.recovered import read_recovered
from tests.support.data_files import in_sqlite
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.local_logs import forget_boot
from tests.support.topics import create_topics

FULL = os.environ.get("DRAGOMAN_TEST_FULL") == "1"
PARTITIONS = 2
RECORDS = 30
FIRST_STEPS = 12
"""Sync points of a start that goes on in the log: all of them are cut at."""
OTHERS = 6


def produced(gateway: Gateway, name: str, records: int = RECORDS) -> list[Ack]:
    load = Load(gateway.bootstrap, name, "t", PARTITIONS, max_outstanding=8, max_records=records).start()
    load.complete()
    assert load.failures == []
    return load.acks


def found_in(directory: Path, acks: Sequence[Ack], metadata: str) -> list[str]:
    """What is wrong with the records of a directory, which is removed."""
    try:
        names, log = asyncio.run(read_recovered(directory / "data", metadata.format(directory / "data")))
        lost = [] if "t" in names or not acks else ["the topic is lost"]
        return lost + problems(log, acks)
    except StoreError as error:
        return [str(error)]
    finally:
        shutil.rmtree(directory)


def unguarded(directory: Path) -> list[str]:
    """Why an older build could go on with the journal in SQLite, although something is in the log."""
    found = [] if format_of(directory / "data") == VERSION_WITH_LOG else ["the format is not raised"]
    with sqlite3.connect(directory / "data" / METADATA_FILE) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
    db.close()
    return found if version == CONTINUED_VERSION else [*found, "the metadata store is not marked"]


@pytest.mark.timeout(3600 if FULL else 200)
def test_a_power_cut_or_a_kill_at_each_step_into_the_log_loses_no_acked_record(
    recording: Recording, gateway_factory: GatewayFactory, scratch: Path
) -> None:
    gateway = gateway_factory(env=recording.environment(), data_dir=recording.root / "data")
    older = in_sqlite(gateway.data_dir)
    gateway.options += older
    gateway.start()
    create_topics(gateway.bootstrap, {"t": PARTITIONS})
    acks = produced(gateway, "in SQLite")
    gateway.kill9()
    gateway.options[-len(older) :] = []
    begun: list[int] = []
    for life in ("still in SQLite", "in the log", "in the log again"):
        begun.append(len(recording.events()))
        gateway.start()
        acks += produced(gateway, life)
        gateway.kill9()
    assert any(gateway.data_dir.glob("log/0/*.log"))
    events = recording.events()
    points = [point for point in sync_points(events) if point >= begun[0]]
    first = [
        point for start in begun[:2] for point in [found for found in points if found >= start][:FIRST_STEPS]
    ]
    rest = [point for point in points if point not in first]
    cuts = sorted(
        {*first, *(point + 1 for point in first), *(rest if FULL else sample(rest, OTHERS)), len(events)}
    )

    def trees() -> Iterator[tuple[str, int, Tree]]:
        for survival in Survival:
            yield from ((survival.value, cut, tree) for cut, tree in trees_at(events, cuts, survival))
        # What a process leaves that is killed there.
        yield from (("all", cut, replayed(events, cut).whole_tree()) for cut in cuts)

    wrong: list[str] = []
    formats = set[int | None]()
    for survives, cut, tree in trees():
        acked = [ack for ack in acks if ack.at_ns < cut_time_ns(events, cut)]
        for metadata in ("", "file:{}"):
            directory = scratch / f"{survives}-{cut}"
            write_tree(tree, directory)
            if survives != "all":
                forget_boot(directory / "data")
            formats.add(format_of(directory / "data"))
            has_begun = any(content and name.startswith("data/log/") for name, content in tree.items())
            wrong += [f"cut {cut} ({survives}): {what}" for what in unguarded(directory) if has_begun]
            found = found_in(directory, acked, metadata)
            wrong += [f"cut {cut} ({survives}, {metadata or 'as it is'}): {what}" for what in found]
    assert wrong[:20] == []
    assert formats == {1, VERSION_WITH_LOG}
