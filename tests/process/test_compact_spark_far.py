"""`dragoman compact segments --engine spark` over a bucket, and where credentials come from."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.process.test_compact_spark import ON_SPARK, run
from tests.support.far_stores import BUCKET_ALONE, FarGateway, FarPlace
from tests.support.small_runs import OLD_ENOUGH_S, produce_runs
from tests.support.spark import why_no_spark
from tests.support.weed import SECRET_KEY


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("far", [BUCKET_ALONE], indirect=True)
def test_over_a_bucket_credentials_come_from_the_environment(far: FarPlace, tmp_path: Path) -> None:
    if reason := why_no_spark():
        pytest.skip(reason)
    socket = tmp_path / "internal.sock"
    options = ["--set", "housekeeping.merge_runs=0", "--set", f"internal.socket={socket}"]
    # Each draft is an object, so that there is something to merge.
    options += ["--set", "storage.inline_bytes=0"]
    gateway = FarGateway(far, tmp_path / "gateway", options)
    try:
        gateway.start()
        produce_runs(gateway, "orders", 600)
        time.sleep(OLD_ENOUGH_S)
        wrong: Mapping[str, str] = {"AWS_SECRET_ACCESS_KEY": "wrong" * 8}
        command = [*far.options(), *options, *ON_SPARK]
        refused = run(gateway, *command, environment=wrong)
        assert refused.returncode == 4, refused.stderr
        (sentence,) = [line for line in refused.stderr.splitlines() if line.startswith("dragoman: ")]
        assert "credentials" in sentence
        assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET_KEY not in refused.stderr
        merged = run(gateway, *command, "--json")
        assert merged.returncode == 0, merged.stderr
        summary = json.loads(merged.stdout)["summary"]
        assert summary["runs"] == 599 and summary["dollars"] > 0.0
    finally:
        gateway.stop()
