"""The local log on a disk whose calls fail, one after the other: what was acknowledged is there, what has
certainly failed never is, and nothing is said of what may be there before that is found out."""

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.local_log.files import ActiveFile
from adapters.local_log.opening import LocalLog, open_local_log
from ledger.errors import OutcomeUnknown, StoreError, StoreUnavailable
from ledger.ports import Unknown
from tests.support.held_requests import until
from tests.support.local_logs import NOW_MS, Written, draft, entries_of, entry, killed, opened_log

ROLL_BYTES: Final = 1_100_000
CALLS: Final = (
    "open",
    "pwritev",
    "posix_fallocate",
    "fsync",
    "fdatasync",
    "rename",
    "unlink",
    "truncate",
    "writev",
)
WAIT_S: Final = 10.0
BRIEF_S: Final = 0.15
"""For an append whose outcome stays unknown."""
APPENDS: Final = 18
SIZES: Final = ((), (70_000, 100), (265_000, 7))
"""Of batches; the last are written past the page cache."""
FULL: Final = bool(os.environ.get("DRAGOMAN_TEST_FULL"))


@dataclass
class Failing:
    """Calls to the log's directory are counted; those in `which` fail."""

    directory: Path
    error: int = errno.EIO
    which: Callable[[int], bool] = lambda _: False
    has_effect: bool = False
    """A call that fails was made."""
    count: int = 0
    names: list[str] = field(default_factory=list)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in CALLS:
            patch.setattr(os, name, self._failing(name, getattr(os, name)))
        # Zeros are written ahead by another thread, so the calls would have no order.
        patch.setattr(ActiveFile, "wants_zeros", False)

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            if not self._concerns(name, arguments):
                return real(*arguments, **more)
            self.count += 1
            self.names.append(name)
            if not self.which(self.count):
                return real(*arguments, **more)
            if self.has_effect and name != "open":
                real(*arguments, **more)
            raise OSError(self.error, os.strerror(self.error))

        return call

    def _concerns(self, name: str, arguments: Sequence[Any]) -> bool:
        path = arguments[0]
        if name == "open" and arguments[1] & (os.O_WRONLY | os.O_RDWR) == 0:
            return False
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        return str(path).startswith(str(self.directory / "log"))


@dataclass
class Reported:
    """What was reported of each entry."""

    written: Written = field(default_factory=Written)
    failed: list[bytes] = field(default_factory=list)
    open: bytes | None = None
    """An append that is under way."""
    start: int = 0
    start_at_most: int = 0


async def work(log: LocalLog, reported: Reported, wait_s: float) -> None:
    """Append, with other bytes under the same number after a failure, and prune."""
    number = log_end(reported)
    for attempt in range(APPENDS):
        batches = draft(number, *SIZES[attempt % len(SIZES)])
        data = entry(number, life=attempt)
        if batches and log.journal.place(number, batches) is None:
            batches = []
        reported.open = data
        try:
            async with asyncio.timeout(wait_s):
                outcome = await log.journal.append(number, data, batches)
        except StoreUnavailable:
            reported.failed.append(data)
            reported.open = None
            continue
        except TimeoutError:
            return
        assert not isinstance(outcome, Unknown)
        reported.written.entries[number] = data
        reported.open = None
        number += 1
        if number % 8 == 0:
            await prune(log, reported, number - 4)


async def prune(log: LocalLog, reported: Reported, start: int) -> None:
    reported.start_at_most = start
    try:
        await log.journal.raise_start(start)
        reported.start = start
        await log.journal.delete(range(start))
        stored = [one.locator for one in await log.wal.objects()]
        await log.wal.delete([locator for locator in stored if not log.journal.holds(locator)])
    except (StoreUnavailable, OutcomeUnknown):
        return


def log_end(reported: Reported) -> int:
    return max(reported.written.entries, default=-1) + 1


async def run(
    directory: Path, failing: Failing, patch: pytest.MonkeyPatch, wait_s: float = WAIT_S
) -> Reported:
    """One life with failures. It is killed at its end, and what it has left is opened without."""
    reported = Reported()
    async with opened_log(directory, roll_bytes=ROLL_BYTES) as before:
        for number in range(3):
            await reported.written.append(before, number, 100)
    with patch.context() as patched:
        failing.install(patched)
        try:
            log: LocalLog | None = open_local_log(directory, roll_bytes=ROLL_BYTES, clock=lambda: NOW_MS)
        except StoreError:
            log = None
        if log is not None:
            await work(log, reported, wait_s)
            left = killed(directory)
            failing.which = lambda _: False
            await log.close()
            await verify(left, reported)
    await verify(directory, reported)
    return reported


async def verify(directory: Path, reported: Reported) -> None:
    async with opened_log(directory, roll_bytes=ROLL_BYTES) as log:
        start = await log.journal.start()
        assert reported.start <= start <= reported.start_at_most
        found = await entries_of(log, start)
        acknowledged = {number: data for number, data in reported.written.entries.items() if number >= start}
        assert {number: found.get(number) for number in acknowledged} == acknowledged
        others = {data for number, data in found.items() if number not in acknowledged}
        assert others <= {reported.open} and not others & set(reported.failed)
        end = max(found, default=log_end(reported) - 1) + 1
        await log.journal.append(end, entry(end, life=99))
    async with opened_log(directory, roll_bytes=ROLL_BYTES) as log:
        assert (await entries_of(log, start)).keys() == found.keys() | {end}


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of all calls of a life."""
    directory = tmp_path_factory.mktemp("counted") / "data"
    failing = Failing(directory)
    with pytest.MonkeyPatch.context() as patch:
        reported = asyncio.run(run(directory, failing, patch))
    assert len(reported.written.entries) == 3 + APPENDS and not reported.failed
    assert set(CALLS) <= {*failing.names}, "some call is never made"
    return failing.names


@pytest.mark.timeout(3600 if FULL else 300)
@pytest.mark.parametrize("has_effect", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
async def test_whichever_call_fails_once_the_log_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[str], error: int, has_effect: bool
) -> None:
    for at in range(1 if FULL else error % 7 + 1, len(calls) + 1, 1 if FULL else 8):
        failing = Failing(tmp_path / f"{at}", error, at.__eq__, has_effect)
        (tmp_path / f"{at}").mkdir()
        reported = await run(tmp_path / f"{at}", failing, monkeypatch)
        assert reported.open is None
        assert len(reported.failed) <= 1, f"call {at}, {calls[at - 1]}"


@pytest.mark.parametrize("has_effect", [False, True], ids=["before", "after"])
async def test_from_whichever_call_on_all_fail_nothing_that_was_reported_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[str], has_effect: bool
) -> None:
    unknown = 0
    for at in range(1, len(calls) + 1, 2 if FULL else 12):
        directory = tmp_path / f"{at}"
        directory.mkdir()
        failing = Failing(directory, errno.EIO, at.__le__, has_effect)
        reported = await run(directory, failing, monkeypatch, BRIEF_S)
        unknown += reported.open is not None
    assert unknown


async def test_an_append_whose_bytes_are_there_is_not_reported_before_a_new_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(tmp_path, has_effect=True)
    with monkeypatch.context() as patched:
        failing.install(patched)
        log = open_local_log(tmp_path, roll_bytes=ROLL_BYTES, clock=lambda: NOW_MS)
        await log.journal.append(0, entry(0))
        failing.which = lambda _: failing.names[-1] != "posix_fallocate"
        appending = asyncio.ensure_future(log.journal.append(1, entry(1)))
        await until(lambda: "entry 1" in log.journal.unknown_entry)
        assert not appending.done()
        assert not log.journal.takes(1, 1)
        # Killed now, it may be there.
        async with opened_log(killed(tmp_path), roll_bytes=ROLL_BYTES) as other:
            assert (await entries_of(other))[1] == entry(1)
        failing.which = lambda _: False
        with pytest.raises(StoreUnavailable, match="I/O error"):
            await appending
        assert not log.journal.unknown_entry
        # Reported as failed, it is not: whatever can be read in the file before.
        async with opened_log(killed(tmp_path), roll_bytes=ROLL_BYTES) as other:
            assert await entries_of(other) == {0: entry(0)}
        await log.journal.append(1, entry(1, life=1))
        await log.close()
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        assert await entries_of(log) == {0: entry(0), 1: entry(1, life=1)}


async def test_a_log_that_is_closed_while_an_outcome_is_unknown_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(tmp_path)
    with monkeypatch.context() as patched:
        failing.install(patched)
        log = open_local_log(tmp_path, roll_bytes=ROLL_BYTES, clock=lambda: NOW_MS)
        await log.journal.append(0, entry(0))
        failing.which = lambda _: failing.names[-1] != "posix_fallocate"
        appending = asyncio.ensure_future(log.journal.append(1, entry(1)))
        await until(lambda: "entry 1" in log.journal.unknown_entry)
        await log.close()
        assert isinstance(await appending, Unknown)


async def test_a_full_disk_is_a_certain_failure_and_the_log_goes_on_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(tmp_path, errno.ENOSPC)
    with monkeypatch.context() as patched:
        failing.install(patched)
        log = open_local_log(tmp_path, roll_bytes=ROLL_BYTES, clock=lambda: NOW_MS)
        written = Written()
        await written.append(log, 0, 100)
        files = set((tmp_path / "log/0").iterdir())
        failing.names.clear()
        failing.which = lambda _: failing.names[-1] == "posix_fallocate"
        for _ in range(3):
            batches = draft(1, 20_000)
            assert log.journal.place(1, batches) is not None
            with pytest.raises(StoreUnavailable, match="no space"):
                await log.journal.append(1, entry(1), batches)
        assert not log.journal.unknown_entry
        assert "pwritev" not in failing.names and set((tmp_path / "log/0").iterdir()) == files
        failing.which = lambda _: False
        await written.append(log, 1, 20_000)
        number = await filled(log, written)
        files = set((tmp_path / "log/0").iterdir())
        failing.which = lambda _: failing.names[-1] == "posix_fallocate"
        for _ in range(3):
            batches = draft(number, 200_000)
            assert log.journal.place(number, batches) is not None
            with pytest.raises(StoreUnavailable, match="no space"):
                await log.journal.append(number, entry(number), batches)
        assert set((tmp_path / "log/0").iterdir()) == files
        # What has space in the file that is there still goes into it.
        failing.which = lambda _: False
        await written.append(log, number)
        assert set((tmp_path / "log/0").iterdir()) == files
        await written.verify(log)
        await log.close()


async def filled(log: LocalLog, written: Written) -> int:
    """Append until a draft of 200 KB needs another file; the number of the next entry."""
    number = len(written.entries)
    await written.append(log, number, 1)
    first = list(written.batches)[-1].locator
    while True:
        number += 1
        placement = log.journal.place(number, draft(number, 200_000))
        assert placement is not None
        if placement.locator != first:
            return number
        await written.append(log, number, 50_000)


async def test_behind_a_header_that_may_be_there_nothing_goes_into_the_file_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(tmp_path, has_effect=True)
    with monkeypatch.context() as patched:
        failing.install(patched)
        log = open_local_log(tmp_path, roll_bytes=ROLL_BYTES, clock=lambda: NOW_MS)
        written = Written()
        number = await filled(log, written)
        failing.which = lambda _: failing.names[-1] == "pwritev"
        batches = draft(number, 200_000)
        assert log.journal.place(number, batches) is not None
        with monkeypatch.context() as stuck:
            # Not even its name can be removed.
            stuck.setattr(Path, "unlink", raising(errno.EIO))
            with pytest.raises(StoreUnavailable, match="begin"):
                await log.journal.append(number, entry(number), batches)
        failing.which = lambda _: False
        await written.append(log, number)
        async with opened_log(killed(tmp_path), roll_bytes=ROLL_BYTES) as other:
            await written.verify(other)
        await log.close()


def raising(error: int) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    return call


async def test_a_start_that_may_have_been_raised_is_not_lowered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(tmp_path)
    with monkeypatch.context() as patched:
        failing.install(patched)
        log = open_local_log(tmp_path, roll_bytes=ROLL_BYTES, clock=lambda: NOW_MS)
        for number in range(6):
            await log.journal.append(number, entry(number))
        failing.which = lambda _: failing.names[-1] == "fsync"
        with pytest.raises(OutcomeUnknown):
            await log.journal.raise_start(5)
        failing.which = lambda _: False
        async with opened_log(killed(tmp_path), roll_bytes=ROLL_BYTES) as other:
            assert await other.journal.start() == 5
        await log.journal.raise_start(3)
        assert await log.journal.start() == 5
        await log.close()
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        assert await log.journal.start() == 5


@pytest.mark.parametrize("has_effect", [False, True], ids=["before", "after"])
async def test_a_start_whose_last_frame_cannot_be_made_durable_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_effect: bool
) -> None:
    async with opened_log(tmp_path) as log:
        await log.journal.append(0, entry(0))
    for writes in (1, 2):
        failing = Failing(tmp_path, has_effect=has_effect)
        failing.which = partial(is_write, failing, writes)
        with monkeypatch.context() as patched:
            failing.install(patched)
            with pytest.raises(StoreUnavailable, match="I/O error"):
                open_local_log(tmp_path)
    async with opened_log(tmp_path) as log:
        assert await entries_of(log) == {0: entry(0)}


def is_write(failing: Failing, number: int, _: int) -> bool:
    return failing.names.count("pwritev") == number
