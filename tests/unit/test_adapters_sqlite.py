"""Metadata in SQLite: its file, what a failing disk makes of it, and what is refused at opening."""

import asyncio
import os
import resource
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.metadata.memory import MemoryMetadata
from adapters.metadata.sqlite import SqliteMetadata
from adapters.metadata.sqlite_file import SqliteFile
from adapters.threads import Overdue
from ledger.errors import StoreDamaged, StoreLocked, StoreTooNew, StoreUnavailable
from ledger.keys import KEY_PARTS
from ledger.ports import Lost, PutOutcome, Unknown, Versioned, Won
from tests.support.deadlines import Patience


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite3"


@contextmanager
def opened(path: Path) -> Iterator[SqliteFile]:
    file = SqliteFile(path)
    file.open()
    try:
        yield file
    finally:
        file.close()


@contextmanager
def files_no_larger_than(limit: int) -> Iterator[None]:
    """A disk that refuses the bytes of every file after `limit`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


WAIT_S = 60.0
PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,4}"
KEYS = st.from_regex(rf"{PART}(/{PART}){{0,2}}", fullmatch=True).filter(
    lambda key: key.partition("/")[0] not in KEY_PARTS
)


def value_of(found: Versioned | None) -> bytes | None:
    return None if found is None else found.value


def test_a_commit_is_synced_before_the_put_returns(path: Path) -> None:
    with opened(path) as file:
        db = file._connection()
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_scan_searches_the_key_and_sorts_nothing(path: Path) -> None:
    with opened(path) as file:
        statements: list[str] = []
        file._connection().set_trace_callback(statements.append)
        file.scan("journal/0/", "journal/0/5", 10)
        (plan,) = file._connection().execute(f"EXPLAIN QUERY PLAN {statements[0]}").fetchall()
        assert plan[3] == "SEARCH entry USING PRIMARY KEY (key>?)"


@settings(max_examples=40, deadline=None)
@given(st.lists(KEYS))
async def test_sqlite_orders_keys_as_memory_does(
    tmp_path_factory: pytest.TempPathFactory, keys: list[str]
) -> None:
    memory = MemoryMetadata()
    with opened(tmp_path_factory.mktemp("order") / "m.sqlite3") as file:
        for key in keys:
            first = file.put(key, b"", None)
            assert isinstance(first, Won) == isinstance(await memory.put(key, b"", None), Won)
        for prefix in {"", *(key[:1] for key in keys), *keys}:
            for start in ("", prefix + "a", *keys[:3]):
                expected = [key for key, _ in await memory.scan(prefix, start, 5)]
                assert [key for key, _ in file.scan(prefix, start, 5)] == expected


def test_everything_that_can_be_read_after_opening_is_in_the_synced_file(path: Path, tmp_path: Path) -> None:
    with opened(path) as file:
        assert isinstance(file.put("a", b"one", None), Won)
        # What a process leaves behind that is killed right now.
        copy = tmp_path / "copy"
        copy.mkdir()
        for left in (path, wal_of(path)):
            (copy / left.name).write_bytes(left.read_bytes())
    assert wal_of(copy / path.name).stat().st_size > 0
    alone = tmp_path / "alone"
    alone.mkdir()
    with opened(copy / path.name):
        (alone / path.name).write_bytes((copy / path.name).read_bytes())
    with opened(alone / path.name) as file:
        assert value_of(file.get("a")) == b"one"


def test_a_write_that_fails_before_the_commit_has_certainly_not_happened(path: Path) -> None:
    with opened(path) as file:
        db = file._connection()
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StoreUnavailable, match=r"metadata\.sqlite3: no space is left.*--data-dir$"):
            file.put("a", bytes(100_000), None)
        assert file.get("a") is None
        assert isinstance(file.put("a", b"small", None), Won)


def test_after_a_failed_write_the_transaction_is_not_left_open(path: Path) -> None:
    with opened(path) as file:
        db = file._connection()
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1000)
        with pytest.raises(StoreUnavailable, match="too big"):
            file.put("a", bytes(2000), None)
        assert not db.in_transaction
        assert isinstance(file.put("a", b"small", None), Won)


def test_a_write_that_fails_in_the_commit_is_unknown_and_can_be_repeated(path: Path) -> None:
    with opened(path) as file:
        assert isinstance(file.put("a", b"before", None), Won)
        with files_no_larger_than(wal_of(path).stat().st_size + 20_000):
            outcome = file.put("b", bytes(400_000), None)
            assert isinstance(outcome, Unknown), outcome
            assert "I/O error" in outcome.reason
        assert file.get("b") is None
        assert isinstance(file.put("b", bytes(400_000), None), Won)
    with opened(path) as file:
        assert value_of(file.get("b")) == bytes(400_000)


def test_a_version_is_compared_as_it_was_given(path: Path) -> None:
    with opened(path) as file:
        first = file.put("a", b"1", None)
        assert isinstance(first, Won)
        for other in (f"0{first.version}", f"{first.version}.0", " " + first.version, "x", ""):
            assert file.put("a", b"2", other) == Lost()
        assert isinstance(file.put("a", b"2", first.version), Won)


class _FailingCommit:
    """A connection whose next COMMIT fails as SQLite would fail it."""

    def __init__(self, db: sqlite3.Connection, errorname: str, happens: bool) -> None:
        self._db = db
        self._errorname = errorname
        self._happens = happens

    def execute(self, statement: str, *parameters: object) -> sqlite3.Cursor:
        if statement != "COMMIT":
            return self._db.execute(statement, *parameters)  # type: ignore[arg-type]
        if self._happens:
            self._db.execute("COMMIT")
        error = sqlite3.OperationalError("failed on purpose")
        error.sqlite_errorname = self._errorname
        raise error

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)


@pytest.mark.parametrize("happens", [False, True])
def test_a_failed_sync_in_the_commit_is_an_unknown_outcome(path: Path, happens: bool) -> None:
    with opened(path) as file:
        db = file._connection()
        file._db = _FailingCommit(db, "SQLITE_IOERR_FSYNC", happens)  # type: ignore[assignment]
        assert isinstance(file.put("a", b"x", None), Unknown)
        file._db = db
        assert (file.get("a") is not None) == happens
        again: PutOutcome = file.put("a", b"x", None)
        assert isinstance(again, Lost if happens else Won)


def test_no_space_in_the_commit_is_certain(path: Path) -> None:
    with opened(path) as file:
        db = file._connection()
        file._db = _FailingCommit(db, "SQLITE_FULL", happens=False)  # type: ignore[assignment]
        with pytest.raises(StoreUnavailable, match="no space is left"):
            file.put("a", b"x", None)
        with pytest.raises(StoreUnavailable, match="no space is left"):
            file.delete(["a"])
        file._db = db
        assert isinstance(file.put("a", b"x", None), Won)


def test_a_second_opening_is_refused_while_the_first_lasts(path: Path) -> None:
    with opened(path):
        with pytest.raises(StoreLocked, match="held by another process"):
            SqliteMetadata(path)
    with opened(path) as file:
        assert isinstance(file.put("a", b"x", None), Won)


def test_a_newer_format_is_refused_with_one_sentence(path: Path) -> None:
    with opened(path) as file:
        file.put("key", b"value", None)
        file._connection().execute("PRAGMA user_version = 3")
    with pytest.raises(
        StoreTooNew, match=r"metadata\.sqlite3 has format version 3, this build knows up to 2"
    ):
        SqliteMetadata(path)


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE theirs (x)")
    foreign.close()
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match="database of another program"):
        SqliteMetadata(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_damaged(path: Path) -> None:
    path.write_bytes(os.urandom(8192))
    with pytest.raises(StoreDamaged, match=r"metadata\.sqlite3 is damaged .*restore it from a backup$"):
        SqliteMetadata(path)


def test_a_damaged_page_is_never_read_as_absence(path: Path) -> None:
    with opened(path) as file:
        for number in range(300):
            file.put(f"k{number:03}", bytes(300), None)
    damaged = bytearray(path.read_bytes())
    damaged[4096:] = b"\xa5" * (len(damaged) - 4096)
    path.write_bytes(damaged)
    with pytest.raises(StoreDamaged, match="is damaged"), opened(path) as file:
        file.get("k100")


def test_after_an_unclean_end_the_structure_is_checked(path: Path, tmp_path: Path) -> None:
    with opened(path) as file:
        for number in range(300):
            file.put(f"k{number:03}", bytes(300), None)
    with opened(path) as file:
        file.put("new", b"x", None)
        wal = wal_of(path).read_bytes()
        damaged = bytearray(path.read_bytes())
    for page in range(4, len(damaged) // 4096):
        damaged[page * 4096 : page * 4096 + 100] = b"\xa5" * 100
    path.write_bytes(damaged)
    wal_of(path).write_bytes(wal)
    with pytest.raises(StoreDamaged, match="is damaged"):
        SqliteMetadata(path)


async def test_a_disk_that_hangs_makes_the_outcome_unknown_after_the_deadline(path: Path) -> None:
    patience = Patience()
    store = SqliteMetadata(path, threads=patience.threads)
    may_go = threading.Event()
    with patience.lost():
        blocker = asyncio.ensure_future(store._threads.run(may_go.wait, WAIT_S))
        await asyncio.sleep(0)
        assert await store.put("a", b"x", None) == Unknown(
            f"the metadata store {path} did not answer within 0.1 s"
        )
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.1 s"):
            await store.get("a")
    may_go.set()
    with pytest.raises(Overdue):
        await blocker
    assert await store.get("a") is None
    assert isinstance(await store.put("a", b"x", None), Won)
    await store.close()
    with pytest.raises(StoreUnavailable, match="is closed"):
        await store.get("a")


def test_a_file_that_was_made_for_nothing_goes_again(path: Path) -> None:
    with opened(path):
        assert path.exists()
    assert list(path.parent.iterdir()) == []
    with opened(path) as file:
        file.put("key", b"value", None)
        file.delete(["key"])
    # Versions that were given are never given again.
    assert path.exists()
    with opened(path):
        pass
    assert path.exists()


class _Overtaken(SqliteFile):
    """Another file takes its path: as soon as it can, before or after this one lets its lock go."""

    def __init__(self, path: Path, before: bool) -> None:
        super().__init__(path)
        self._before = before
        self.next = SqliteFile(path)

    def _drop(self) -> None:
        if self._before:
            self._overtake()
        super()._drop()
        if not self._before:
            self._overtake()

    def _overtake(self) -> None:
        self.next.open()
        self.next.put("key", b"value", None)


@pytest.mark.parametrize("before", [True, False])
def test_a_file_that_was_made_for_nothing_takes_nothing_of_the_next_one_with_it(
    path: Path, tmp_path: Path, before: bool
) -> None:
    file = _Overtaken(path, before)
    file.open()
    file.close()
    crashed = tmp_path / "crashed.db"
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    with opened(crashed) as found:
        assert value_of(found.get("key")) == b"value"
    file.next.close()


def flipped(path: Path, what: bytes, at: int, bit: int) -> None:
    """In the file: the byte `at` of the only place that has `what`."""
    data = bytearray(path.read_bytes())
    assert data.count(what) == 1
    data[data.index(what) + at] ^= bit
    path.write_bytes(data)


def test_a_key_that_the_disk_has_changed_is_named_at_the_next_open(path: Path) -> None:
    with opened(path) as file:
        for number in range(20):
            file.put(f"key-{number:04d}", b"value", None)
    flipped(path, b"key-0007", 5, 0x10)
    with pytest.raises(StoreDamaged, match=r"the key 'key-0 07' is after 'key-0006'"), opened(path):
        pass


def test_a_thorough_open_checks_the_structure_of_every_page(path: Path) -> None:
    with opened(path) as file:
        file.put("key", bytes(20_000), None)
    data = path.read_bytes()
    # The pages of a large value form a chain; nothing that is read at an open follows it.
    path.write_bytes(data[: -4096 * 2] + b"\0\0\0\1" + data[-4096 * 2 + 4 :])
    with opened(path):
        pass
    file = SqliteFile(path)
    with pytest.raises(StoreDamaged, match="is damaged"):
        file.open(thorough=True)


# A journal that goes on elsewhere


async def test_a_store_whose_journal_goes_on_elsewhere_is_only_opened_by_its_reader(path: Path) -> None:
    store = SqliteMetadata(path)
    assert isinstance(await store.put("a", b"1", None), Won)
    for _ in range(2):
        await store.mark_continued()
        await store.close()
        with pytest.raises(StoreUnavailable, match=rf"goes on .* --metadata file:{path.parent}"):
            SqliteMetadata(path)
        store = SqliteMetadata(path, may_be_continued=True)
        found = await store.get("a")
        assert found is not None and found.value == b"1"
    await store.close()


async def test_a_journal_that_goes_on_elsewhere_is_refused_by_a_build_that_does_not_know_it(
    path: Path,
) -> None:
    store = SqliteMetadata(path)
    assert isinstance(await store.put("a", b"1", None), Won)
    await store.mark_continued()
    await store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
    db.close()


async def test_the_last_key_of_a_prefix_is_found_between_others(path: Path) -> None:
    store = SqliteMetadata(path)
    assert await store.last("journal/0/") is None
    for number, key in enumerate(
        ["a/1", "journal-start/0", "journal/0/1", "journal/0/2", "journal/01/9", "k"]
    ):
        assert isinstance(await store.put(key, b"%d" % number, None), Won)
    found = await store.last("journal/0/")
    assert found is not None and (found[0], found[1].value) == ("journal/0/2", b"3")
    assert await store.last("journal/00/") is None
    await store.close()
