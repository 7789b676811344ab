"""What the process keeps in memory goes into huge pages, and what is mostly empty does not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli import huge_pages
from gateway.cli.huge_pages import huge_page_bytes
from tests.support.versions import ROOT

PIECES = 8
IN_MEMORY = """
import asyncio, ctypes, mmap, sys
from gateway.cli.huge_pages import MADV_COLLAPSE, huge_page_bytes, use_huge_pages
share, size = float(sys.argv[1]), huge_page_bytes()
memory = mmap.mmap(-1, (PIECES + 1) * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
pages = range(0, len(memory), mmap.PAGESIZE)
written = [at for at in pages if at % (100 * mmap.PAGESIZE) < share * 100 * mmap.PAGESIZE]
for at in written:
    memory[at : at + 8] = at.to_bytes(8, "big")
def measured():
    lines = open("/proc/self/smaps_rollup").read().splitlines()[1:]
    found = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines}
    return found["AnonHugePages:"], found["Rss:"]
huge, resident = measured()
counted = asyncio.run(use_huge_pages(size)) * size
huge_then, resident_then = measured()
assert all(memory[at : at + 8] == at.to_bytes(8, "big") for at in written)
first = -(-ctypes.addressof(ctypes.c_char.from_buffer(memory)) // size) * size
is_there = not ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), MADV_COLLAPSE)
print(huge_then - huge, resident_then - resident, counted, int(is_there))
""".replace("PIECES", str(PIECES))

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has them")


def measured(share: float) -> list[int]:
    """Of a process that has written to this share of its pages: huge pages and memory that came, and huge
    pages as counted, each in bytes; and whether the system makes huge pages at a request."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", IN_MEMORY, str(share)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, timeout=60)
    return [int(word) for word in done.stdout.split()]


@linux_only
@pytest.mark.parametrize("share", [1.0, 0.8])
def test_what_is_in_memory_is_in_huge_pages_then(share: float) -> None:
    size = huge_page_bytes()
    huge, came, counted, is_there = measured(share)
    if not size or not is_there:
        assert (huge, counted) == (0, 0)
        return
    assert PIECES * size <= huge <= counted
    assert came <= (1.0 - share) * huge + 2 * size


@linux_only
def test_what_is_mostly_empty_is_left_as_it_is() -> None:
    size = huge_page_bytes()
    huge, came, _, _ = measured(0.3)
    # The interpreter's own memory is among what is measured.
    assert huge < PIECES * size or not size
    assert came < PIECES * size // 2 or not size


def test_a_system_without_huge_pages_or_with_very_large_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huge_pages, "SIZE", tmp_path / "size")
    assert huge_page_bytes() == 0
    for text, found in (("2097152\n", 2 * 1024 * 1024), ("536870912\n", 0), ("none", 0)):
        (tmp_path / "size").write_text(text)
        assert huge_page_bytes() == (found if sys.platform == "linux" else 0)


async def test_a_system_that_does_not_say_what_is_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huge_pages, "MAPS", tmp_path / "maps")
    monkeypatch.setattr(huge_pages, "STATM", tmp_path / "statm")
    assert await huge_pages.use_huge_pages(2 * 1024 * 1024) == 0
    assert huge_pages.resident_bytes() == 0
