"""The reserve: records stop while there is room for what frees some, and drafts are counted between looks."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.coordination.free_space import (
    DRAFT_OVERHEAD_BYTES,
    MAX_FAILED_MEASUREMENTS,
    MAX_RESERVE_BYTES,
    MIB,
    DiskFull,
    FreeSpace,
    MadeAhead,
)

TOTAL = 1000 * MIB
RESERVE = 50 * MIB


class FakeDisk:
    is_gone = False

    def __init__(self, free: int, total: int = TOTAL) -> None:
        self.free = free
        self.total = total

    def __call__(self, path: Path) -> os.statvfs_result:
        if self.is_gone:
            raise OSError("gone")
        status = SimpleNamespace(f_frsize=1, f_bavail=self.free, f_blocks=self.total)
        return status  # type: ignore[return-value]


def looked(disk: FakeDisk, reserve_bytes: int = -1) -> FreeSpace:
    space = FreeSpace([Path("/data")], reserve_bytes, disk)
    space.measure()
    return space


def take(space: FreeSpace, size: int) -> bool:
    """Whether a draft of this size found room."""
    try:
        with space.writing(size - DRAFT_OVERHEAD_BYTES):
            return True
    except DiskFull:
        return False


@pytest.mark.parametrize(
    ("total", "reserve"), [(24 * MIB, 24 * MIB // 20), (TOTAL, RESERVE), (1 << 40, MAX_RESERVE_BYTES)]
)
def test_the_reserve_is_64_mib_or_a_twentieth_of_the_file_system(total: int, reserve: int) -> None:
    space = looked(FakeDisk(total, total))
    assert space.least is not None and space.least.reserve_bytes == reserve


def test_no_records_are_taken_below_the_reserve_and_again_when_some_more_is_free() -> None:
    disk = FakeDisk(RESERVE + MIB)
    space = looked(disk)
    assert not space.is_full
    seen = []
    for free in (RESERVE, RESERVE + MIB, RESERVE + RESERVE // 4, RESERVE + RESERVE // 4 + 1):
        disk.free = free
        space.measure()
        seen.append(space.is_full)
    assert seen == [True, True, True, False]


def test_the_refusal_names_the_directory_the_bytes_and_the_setting() -> None:
    refusal = looked(FakeDisk(RESERVE)).refusal
    assert "/data" in refusal and str(RESERVE) in refusal and "storage.reserve_bytes" in refusal


def test_drafts_are_counted_until_the_disk_is_measured_again() -> None:
    disk = FakeDisk(RESERVE + 10 * MIB)
    space = looked(disk)
    assert [take(space, 4 * MIB) for _ in range(3)] == [True, True, False]
    assert space.is_full
    # What was written was not that much after all, as the disk says.
    disk.free = RESERVE + 9 * MIB
    space.measure()
    assert not take(space, 10 * MIB)
    disk.free = RESERVE + 40 * MIB
    space.measure()
    assert not space.is_full and take(space, 10 * MIB)


def test_a_draft_under_way_while_the_disk_is_measured_still_counts() -> None:
    space = looked(FakeDisk(RESERVE + 10 * MIB))
    with space.writing(6 * MIB):
        space.measure()
        assert not take(space, 6 * MIB)


def test_what_is_left_is_for_deletions_once_half_of_the_reserve_is_used() -> None:
    disk = FakeDisk(RESERVE // 2)
    space = looked(disk)
    assert space.is_full and not space.is_critical
    disk.free -= 1
    space.measure()
    assert space.is_critical


@pytest.mark.parametrize("space", [FreeSpace(()), FreeSpace([Path("/data")], 0, FakeDisk(0))])
def test_without_a_reserve_nothing_is_refused(space: FreeSpace) -> None:
    space.measure()
    assert not space.is_full and not space.is_critical and take(space, 1 << 40)


def test_a_disk_that_cannot_be_measured_refuses_nothing() -> None:
    def fails(path: Path) -> os.statvfs_result:
        raise OSError("gone")

    space = FreeSpace([Path("/data")], -1, fails)
    space.measure()
    assert not space.is_full and take(space, 1 << 40)


def test_a_full_disk_that_cannot_be_measured_any_more_refuses_for_a_while_only() -> None:
    disk = FakeDisk(RESERVE // 4)
    space, seen = looked(disk), list[tuple[bool, bool]]()
    space.on_change = lambda: seen.append((space.is_full, space.is_critical))
    disk.is_gone = True
    for _ in range(MAX_FAILED_MEASUREMENTS + 1):
        space.measure()
    assert seen == [(True, True)] * MAX_FAILED_MEASUREMENTS + [(False, False)]
    assert take(space, 1 << 40)
    disk.is_gone = False
    space.measure()
    assert space.is_full and space.is_critical


def test_a_measurement_that_fails_lets_no_draft_use_the_reserve() -> None:
    disk = FakeDisk(RESERVE + 10 * MIB)
    space = looked(disk)
    assert take(space, 4 * MIB)
    disk.is_gone = True
    space.measure()
    assert [take(space, 4 * MIB) for _ in range(2)] == [True, False]
    space.measure()
    assert not take(space, 4 * MIB)


# Files that were made ahead


def with_ahead(disk: FakeDisk, ahead: list[int], directory: Path = Path("/data")) -> FreeSpace:
    space = FreeSpace([Path("/data")], -1, disk, MadeAhead(directory, lambda: ahead[0]))
    space.measure()
    return space


def test_what_was_made_ahead_counts_as_free_for_records() -> None:
    disk, ahead = FakeDisk(RESERVE), [10 * MIB]
    space = with_ahead(disk, ahead)
    assert [take(space, 4 * MIB) for _ in range(3)] == [True, True, False]
    ahead[0] = 2 * MIB
    space.measure()
    assert space.is_full and str(RESERVE + 2 * MIB) in space.refusal
    ahead[0] = RESERVE
    space.measure()
    assert not space.is_full


def test_the_half_for_deletions_may_have_been_made_ahead() -> None:
    disk, ahead = FakeDisk(0), [RESERVE // 2]
    space = with_ahead(disk, ahead)
    assert space.is_full and not space.is_critical
    ahead[0] -= 1
    space.measure()
    assert space.is_critical


def test_whatever_was_made_ahead_there_is_space_for_a_snapshot() -> None:
    disk, ahead = FakeDisk(RESERVE // 2), [10 * RESERVE]
    space = with_ahead(disk, ahead)
    assert space.is_full and not space.is_critical
    assert f"{RESERVE} bytes are free" in space.refusal
    assert space.spares(RESERVE // 4)
    disk.free = RESERVE
    space.measure()
    assert not space.is_full


def test_what_is_no_record_needs_bytes_that_are_really_free() -> None:
    space = with_ahead(FakeDisk(10 * MIB), [RESERVE - 11 * MIB])
    assert space.is_full
    assert space.spares(9 * MIB)
    assert not space.spares(10 * MIB)


def test_files_on_another_disk_are_not_counted(tmp_path: Path) -> None:
    assert not with_ahead(FakeDisk(RESERVE + MIB), [MIB], tmp_path / "none").ahead_in(Path("/data"))
    here = with_ahead(FakeDisk(RESERVE + MIB), [MIB], tmp_path)
    assert (here.ahead_in(tmp_path), here.ahead_in(Path("/proc"))) == (MIB, 0)
