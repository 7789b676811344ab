"""The bench's far stores: what they count, and what a GiB costs by that."""

import pytest

from adapters.segments.objects import ObjectSegments
from bench.far import NAMES, READERS, USD_A_GET, USD_A_PUT, cost
from bench.far_stores import Far, FarStores
from bench.goals import GOALS
from bench.run import NAMES as ALL_NAMES
from ledger.batch.records import Record, build_batch
from ledger.types import DraftBatch
from tests.support.journalled import topic_id
from tests.support.virtual_time import run_virtually

GIB = 1 << 30


def test_objects_cost_by_their_number_a_gib_and_the_journal_by_the_second() -> None:
    # 50 objects a second, of which every reader reads each once, and 33 entries with a read of start each.
    counts = {
        "put wal": 500,
        "get wal": 500 * READERS,
        "put journal": 330,
        "get journal-start": 330,
        "wal_bytes": 500_000_000,
        "entries": 330,
    }
    found = cost(counts, 10.0)
    objects = GIB / (GIB * 5 // 1000)
    expected = objects * (USD_A_PUT + READERS * USD_A_GET) + 33 * (USD_A_PUT + USD_A_GET)
    assert found["usd_gib"] == pytest.approx(expected)
    assert found["usd_gib"] < 0.0025
    assert found["object_mb"] == 1.0


@pytest.mark.parametrize("keeps", [True, False])
def test_the_bucket_takes_its_time_and_counts(keeps: bool) -> None:
    async def run() -> None:
        stores = FarStores(Far(30, with_etcd=False, keeps=keeps))
        segments = stores.opener().segments("s3://bench/far")
        assert isinstance(segments, ObjectSegments)
        batch = DraftBatch(topic_id(1), 0, bytes(build_batch([Record(value=b"x")])), 1)
        placement = await segments.write([batch], 1_700_000_000_000)
        assert stores.bucket.requests == {"put wal": 1}
        assert stores.bucket.wal_bytes == placement.object_bytes
        assert len(stores.bucket.objects[placement.locator]) == (placement.object_bytes if keeps else 0)

    run_virtually(run)


def test_every_far_case_has_a_goal_and_can_be_selected() -> None:
    assert {name.partition(".")[0] for name in GOALS if name.startswith("far_")} == set(NAMES)
    assert set(NAMES) <= set(ALL_NAMES)
