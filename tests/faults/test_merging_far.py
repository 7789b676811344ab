"""Merging by the gateway itself where there is no data directory: over a bucket, killed with its host."""

import json
import time
from pathlib import Path
from typing import Final

import pytest

from tests.faults.load import Load, problems, read_all
from tests.support.far_stores import BUCKET_ALONE, FarGateway, FarPlace
from tests.support.topics import create_topics

TOPICS: Final = {"far": 4}
RECORDS: Final = 3_000
MERGED_S: Final = 120.0
START_S: Final = 60.0
MOST_RSS_BYTES: Final = 256 * 1024 * 1024
OLD_ENOUGH_S: Final = 11.0
"""Younger runs are left alone."""


def wait_for_job(gateway: FarGateway) -> dict[str, object]:
    """What the first job says at its end."""
    deadline = time.monotonic() + MERGED_S
    while True:
        for line in gateway.log_path.read_text().splitlines():
            if '"merging.ended"' in line:
                return dict(json.loads(line))
        assert time.monotonic() < deadline, gateway.log_tail()
        time.sleep(0.2)


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("far", [BUCKET_ALONE], indirect=True)
def test_objects_of_a_bucket_are_merged_by_the_gateway_and_read_the_same(
    far: FarPlace, tmp_path: Path
) -> None:
    options = ["--set", "storage.inline_bytes=0", "--set", "housekeeping.merge_runs=0"]
    gateway = FarGateway(far, tmp_path / "gateway", options)
    try:
        gateway.start(START_S)
        create_topics(gateway.bootstrap, TOPICS)
        load = Load(gateway.bootstrap, "p0", "far", 4, pause_s=0.002, max_records=RECORDS).start()
        load.complete(180.0)
        before = read_all(gateway.bootstrap, TOPICS)
        assert load.failures == [] and problems(before, load.acks) == []
        time.sleep(OLD_ENOUGH_S)
        gateway.kill9()
        gateway.options[-1] = "housekeeping.merge_runs=5"
        gateway.start(START_S)
        done = wait_for_job(gateway)
        assert int(str(done["runs"])) > 30 and not done["damages"], done
        assert int(str(done["max_rss_bytes"])) < MOST_RSS_BYTES, done
        assert read_all(gateway.bootstrap, TOPICS) == before
        # The host is thrown away: another finds everything in the bucket.
        gateway.kill9()
        gateway.options[-1] = "housekeeping.merge_runs=0"
        gateway.start(START_S)
        assert read_all(gateway.bootstrap, TOPICS) == before
    finally:
        gateway.stop()
