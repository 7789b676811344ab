"""The power-cut tool itself: it must see every effect, and forget exactly what was not synced."""

import itertools
import sqlite3
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.powercut import (
    Event,
    Kind,
    Survival,
    Tree,
    UntraceableEffect,
    cut_time_ns,
    read_trace,
    replayed,
    sync_points,
    trees_at,
    write_tree,
)
from tests.faults.recording import Recording

PRELUDE = """
import os, sqlite3, sys, threading, time
os.chdir(os.environ["DRAGOMAN_TEST_POWERCUT_ROOT"])
def sync(path):
    fd = os.open(path, os.O_RDONLY); os.fsync(fd); os.close(fd)
"""

WRITE_SOME = """
with open("a", "wb") as f:
    f.write(b"first"); f.flush(); os.fdatasync(f.fileno()); sync(".")
    f.write(b"second")
"""

SQLITE = """
db = sqlite3.connect("a.db", isolation_level=None)
assert db.execute("pragma journal_mode = wal").fetchone() == ("wal",)
db.execute("pragma synchronous = {synchronous}")
db.execute("pragma wal_autocheckpoint = 20")
db.execute("create table t (x integer primary key, y blob)")
for x in range(120):
    db.execute("insert into t values (?, ?)", (x, bytes(1500)))
    with open(os.environ["ACKS"], "a") as acks:
        print(time.monotonic_ns(), x, file=acks)
"""


def run(recording: Recording, script: str, ignore_sync: str = "") -> list[Event]:
    return recording.run([sys.executable, "-c", PRELUDE + textwrap.dedent(script)], ignore_sync)


def after(recording: Recording, script: str, ignore_sync: str = "") -> Tree:
    """What the script leaves behind when the power fails after its last step."""
    return replayed(run(recording, script, ignore_sync)).tree(Survival.NOTHING)


def test_bytes_survive_up_to_the_last_sync(recording: Recording) -> None:
    assert after(recording, WRITE_SOME) == {"a": b"first"}


SYNCED_WRITES = """
fd = os.open("a", os.O_RDWR | os.O_CREAT); sync("."); os.posix_fallocate(fd, 0, 8)
os.pwrite(fd, b"xxxxxx", 1)
os.pwritev(fd, [b"AB", b"C"], 3, os.RWF_DSYNC)
os.pwrite(fd, b"z", 4)
"""


def test_of_a_synced_write_its_own_bytes_survive_and_the_size_of_the_file(recording: Recording) -> None:
    events = run(recording, SYNCED_WRITES)
    disk = replayed(events)
    assert disk.tree(Survival.NOTHING) == {"a": b"\0\0\0ABC\0\0"}
    assert disk.whole_tree() == {"a": b"\0xxAzCx\0"}
    found = {disk.tree(Survival.RANDOM, seed)["a"] for seed in range(50)}
    assert all(data is not None and data[3:6] in (b"ABC", b"AzC") for data in found) and len(found) > 1


def test_a_synced_write_behind_the_end_survives_with_its_size(recording: Recording) -> None:
    script = """
    fd = os.open("a", os.O_RDWR | os.O_CREAT); sync("."); os.posix_fallocate(fd, 0, 4)
    os.pwritev(fd, [b"A"], 6, os.RWF_DSYNC); os.posix_fallocate(fd, 0, 8); os.ftruncate(fd, 5); os.fsync(fd)
    """
    cuts = dict(trees_at(run(recording, script), range(100), Survival.NOTHING))
    assert {tree.get("a") for tree in cuts.values()} - {None} == {b"", b"\0" * 6 + b"A", b"\0" * 5}


def test_a_file_that_was_never_synced_is_empty_even_if_its_name_survived(recording: Recording) -> None:
    assert after(recording, "open('a', 'wb').write(b'x'); sync('.')") == {"a": b""}


def test_a_file_in_a_directory_that_was_never_synced_vanishes(recording: Recording) -> None:
    assert after(recording, "open('a', 'wb').write(b'x'); sync('a')") == {}


def test_nothing_counts_when_syncs_are_ignored(recording: Recording) -> None:
    events = run(recording, WRITE_SOME, ignore_sync="1")
    assert replayed(events).tree(Survival.NOTHING) == {}
    assert len(sync_points(events)) == 2


@pytest.mark.parametrize(
    ("ignored", "left"),
    [("files", {"a": b""}), ("directories", {}), ("a", {"a": b""}), ("b", {"a": b"first"})],
)
def test_syncs_of_files_of_directories_or_by_name_can_be_ignored_alone(
    recording: Recording, ignored: str, left: Tree
) -> None:
    assert after(recording, WRITE_SOME, ignored) == left


def test_a_rename_is_undone_until_its_directory_is_synced(recording: Recording) -> None:
    script = "open('a', 'wb').write(b'x'); sync('a'); sync('.'); os.rename('a', 'b')"
    assert after(recording, script) == {"a": b"x"}


def test_a_rename_survives_the_sync_of_its_directory(recording: Recording) -> None:
    script = "open('a', 'wb').write(b'x'); sync('a'); os.rename('a', 'b'); sync('.')"
    assert after(recording, script) == {"b": b"x"}


def test_a_rename_over_a_file_brings_the_old_one_back_until_the_directory_is_synced(
    recording: Recording,
) -> None:
    script = """
    open('a', 'wb').write(b'old'); sync('a'); sync('.')
    open('b', 'wb').write(b'new'); sync('b'); os.replace('b', 'a')
    """
    assert after(recording, script) == {"a": b"old"}


def test_a_rename_between_directories_needs_both_synced(recording: Recording) -> None:
    script = """
    os.mkdir('d'); open('a', 'wb').write(b'x'); sync('a'); sync('.')
    os.rename('a', 'd/a'); sync('d')
    """
    assert after(recording, script) == {"a": b"x", "d": None, "d/a": b"x"}


def test_a_link_survives_with_its_directory_and_a_removal_too(recording: Recording) -> None:
    script = """
    open('a', 'wb').write(b'x'); sync('a'); os.link('a', 'b'); sync('.')
    os.unlink('b')
    open('c', 'wb').close(); os.unlink('c'); os.unlink('a'); sync('.')
    """
    assert after(recording, script) == {}


def test_a_removal_is_undone_until_its_directory_is_synced(recording: Recording) -> None:
    assert after(recording, "open('a', 'wb').write(b'x'); sync('a'); sync('.'); os.unlink('a')") == {
        "a": b"x"
    }


def test_a_directory_needs_its_parent_synced(recording: Recording) -> None:
    script = "os.makedirs('d/e'); open('d/e/a', 'wb').write(b'x'); sync('d/e/a'); sync('d/e'); sync('d')"
    assert after(recording, script) == {}


def test_a_new_directory_survives_with_all_parents_synced(recording: Recording) -> None:
    script = """
    os.makedirs('d/e'); open('d/e/a', 'wb').write(b'x')
    sync('d/e/a'); sync('d/e'); sync('d'); sync('.')
    """
    assert after(recording, script) == {"d": None, "d/e": None, "d/e/a": b"x"}


def test_a_truncation_is_undone_until_synced(recording: Recording) -> None:
    script = """
    open('a', 'wb').write(b'xyz'); sync('a'); sync('.')
    open('a', 'r+b').truncate(1); open('a', 'wb')
    """
    assert after(recording, script) == {"a": b"xyz"}


def test_a_reused_inode_is_a_new_file(recording: Recording) -> None:
    script = """
    for n in range(20):
        with open(f'f{n}', 'wb') as f: f.write(b'%d' % n); f.flush(); os.fsync(f.fileno())
        os.unlink(f'f{n}')
    open('last', 'wb').write(b'x'); sync('.')
    """
    assert after(recording, script) == {"last": b""}


def test_every_way_to_write_from_python_is_recorded(recording: Recording) -> None:
    script = """
    import shutil
    fd = os.open('a', os.O_RDWR | os.O_CREAT)
    os.write(fd, b'0123456789'); os.writev(fd, [b'ab', b'cd']); os.pwrite(fd, b'P', 3)
    os.pwritev(fd, [b'Q', b'R'], 5)
    other = os.dup(fd); os.close(fd); os.write(other, b'dup')
    os.ftruncate(other, 40); os.posix_fallocate(other, 0, 50)
    third = os.dup2(other, 60); os.lseek(third, 45, 0); os.write(third, b'sixty')
    with open('b', 'ab') as f: f.write(b'one'); f.flush(); f.write(b'two')
    at = os.open('.', os.O_RDONLY)
    os.mkdir('d', dir_fd=at); os.rename('b', 'c', src_dir_fd=at, dst_dir_fd=at)
    shutil.copyfile('a', 'copy')
    os.sendfile(os.open('sent', os.O_WRONLY | os.O_CREAT), os.open('a', 0), 0, 20)
    os.copy_file_range(os.open('a', 0), os.open('ranged', os.O_RDWR | os.O_CREAT), 11)
    os.truncate('copy', 7); os.unlink('c', dir_fd=at); os.rmdir('d')
    """
    written = replayed(run(recording, script)).whole_tree()  # run() compares it with what lies on the disk
    assert sorted(written) == ["a", "copy", "ranged", "sent"]
    assert written["a"] == b"012P4QR789abcddup" + bytes(28) + b"sixty"


def test_sockets_and_files_elsewhere_are_not_recorded(recording: Recording, scratch: Path) -> None:
    script = f"""
    import socket, subprocess
    a, b = socket.socketpair(); a.send(b'x'); os.write(a.fileno(), b'y')
    open({str(scratch / "elsewhere")!r}, 'wb').write(b'x')
    f = open('in', 'wb'); subprocess.run(['true'], check=True); f.write(b'x'); f.close()
    """
    kinds = [event.kind for event in run(recording, script)]
    assert kinds == [Kind.START, Kind.CREATE, Kind.START, Kind.WRITE]


def test_a_sync_covers_only_what_was_written_before_it_began(recording: Recording) -> None:
    events = run(recording, WRITE_SOME)
    begin = next(index for index, event in enumerate(events) if event.kind is Kind.SYNC_BEGIN)
    write = next(event for event in events if event.kind is Kind.WRITE)
    late = Event(Kind.WRITE, 0, events[begin].seq, write.ns, write.ino, 0, 0, 5, b"late", b"")
    overtaken = [*events[: begin + 1], late, *events[begin + 1 :]]
    assert replayed(overtaken).tree(Survival.NOTHING) == {"a": b"first"}
    assert replayed(overtaken[:-1]).whole_tree() == {"a": b"firstlate"}


def test_effects_of_several_threads_and_processes_come_in_one_order(recording: Recording) -> None:
    script = """
    def work(who):
        with open(f'f{who}', 'wb', buffering=0) as f:
            for n in range(200): f.write(b'%d,' % n); n % 50 or os.fsync(f.fileno())
    if os.fork() == 0: work('child'); os._exit(0)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in threads]; [t.join() for t in threads]; os.wait()
    """
    events = run(recording, script)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert all(a.ns <= b.ns for a, b in itertools.pairwise(events))
    assert sum(event.kind is Kind.WRITE for event in events) == 1000


def test_what_cannot_be_followed_is_refused(recording: Recording) -> None:
    script = """
    import mmap
    f = open('a', 'w+b'); f.truncate(4096); mmap.mmap(f.fileno(), 4096)
    """
    with pytest.raises(UntraceableEffect, match="mapping"):
        run(recording, script)


def test_a_trace_that_ends_in_the_middle_of_an_event_reads_up_to_there(recording: Recording) -> None:
    events = run(recording, WRITE_SOME)
    recording.trace.write_bytes(recording.trace.read_bytes()[:-3])
    assert read_trace(recording.trace) == events[:-1]


def test_a_torn_write_is_half_there(recording: Recording) -> None:
    assert replayed(run(recording, WRITE_SOME)).tree(Survival.TORN) == {"a": b"firstsec"}


def test_random_survival_never_touches_what_was_synced_and_loses_and_keeps_blocks(
    recording: Recording,
) -> None:
    script = """
    f = open('a', 'wb', buffering=0); f.write(b'A' * 8192); os.fsync(f.fileno()); sync('.')
    for block in range(16): f.write(bytes([65 + block]) * 4096)
    """
    disk = replayed(run(recording, script))
    survivors = [disk.tree(Survival.RANDOM, seed)["a"] for seed in range(50)]
    assert all(content is not None and content[:8192] == b"A" * 8192 for content in survivors)
    assert len(set(survivors)) > 30
    assert any(content is not None and b"\0" in content for content in survivors)
    assert disk.tree(Survival.RANDOM, 7) == disk.tree(Survival.RANDOM, 7)


def lost_rows(
    recording: Recording, scratch: Path, synchronous: str, survival: Survival, ignore: str = ""
) -> int:
    """How many committed rows are missing, summed over a power cut at every sync point."""
    acks_file = scratch / "acks"
    script = f"os.environ['ACKS'] = {str(acks_file)!r}\n" + SQLITE.format(synchronous=synchronous)
    events = run(recording, script, ignore)
    acks = [tuple(map(int, line.split())) for line in acks_file.read_text().splitlines()]
    points = sync_points(events)
    assert points and len(acks) == 120
    cuts = {*points, *(point + 1 for point in points), len(events)}
    lost = 0
    for cut, tree in trees_at(events, cuts, survival):
        lost += len(
            missing_rows(tree, scratch / f"cut{cut}", committed_before(acks, cut_time_ns(events, cut)))
        )
    return lost


def committed_before(acks: Sequence[tuple[int, ...]], time_ns: int) -> set[int]:
    return {row for at_ns, row in acks if at_ns < time_ns}


def missing_rows(tree: Tree, directory: Path, committed: set[int]) -> set[int]:
    if "a.db" not in tree:
        return committed
    write_tree(tree, directory)
    db = sqlite3.connect(directory / "a.db")
    try:
        return committed - {row for (row,) in db.execute("select x from t where y = zeroblob(1500)")}
    except sqlite3.DatabaseError as broken:
        assert "no such table" in str(broken) or not tree["a.db"]
        return committed
    finally:
        db.close()


@pytest.mark.parametrize("survival", list(Survival))
def test_sqlite_with_synchronous_full_keeps_every_committed_row_at_every_cut(
    recording: Recording, scratch: Path, survival: Survival
) -> None:
    assert lost_rows(recording, scratch, "full", survival) == 0


@pytest.mark.parametrize("synchronous", ["normal", "off"])
def test_sqlite_with_less_than_synchronous_full_loses_committed_rows(
    recording: Recording, scratch: Path, synchronous: str
) -> None:
    assert lost_rows(recording, scratch, synchronous, Survival.NOTHING) > 0


def test_sqlite_with_syncs_ignored_loses_committed_rows(recording: Recording, scratch: Path) -> None:
    assert lost_rows(recording, scratch, "full", Survival.NOTHING, ignore="1") > 0
