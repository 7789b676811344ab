"""Fixtures of the fault suites."""

from pathlib import Path

import pytest

from tests.faults.recording import Recording, ShimUnavailable, new_recording, shim


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    try:
        shim()
    except ShimUnavailable as reason:
        pytest.skip(str(reason))
    return new_recording(tmp_path)
