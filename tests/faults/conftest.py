"""Fixtures of the fault suites."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.recording import Recording, ShimUnavailable, new_recording, shim
from tests.faults.small_disk import CannotMount, SmallDisk, small_disk

MEMORY = Path("/dev/shm")


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: syncs cost nothing there, and are recorded all the same."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="dragoman-test-", dir=MEMORY) as directory:
        yield Path(directory)


@pytest.fixture
def recording(scratch: Path) -> Recording:
    try:
        shim()
    except ShimUnavailable as reason:
        pytest.skip(str(reason))
    return new_recording(scratch)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        with small_disk(tmp_path / "disk") as mounted:
            yield mounted
    except CannotMount as reason:
        pytest.skip(str(reason))
