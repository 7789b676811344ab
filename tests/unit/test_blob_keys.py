"""Keys of snapshots and archives: they sort by entry, say what they hold, and are never given twice."""

from gateway.coordination.blob_keys import (
    applied_of,
    entries_of,
    is_snapshot_key,
    new_archive_key,
    new_snapshot_key,
)
from ledger.keys import created_ms

NOW_MS = 1_700_000_000_000


def test_a_snapshot_key_says_how_many_entries_it_holds_and_when_it_was_made() -> None:
    key = new_snapshot_key(3, 1_234, NOW_MS)
    assert key.startswith("snapshot/3/00000000000000001234-")
    assert (applied_of(key), created_ms(key), is_snapshot_key(key)) == (1_234, NOW_MS, True)


def test_an_archive_key_says_which_entries_it_holds() -> None:
    key = new_archive_key(0, 7, 3, NOW_MS)
    assert key.startswith("archive/0/00000000000000000007-00000000000000000009-")
    assert (entries_of(key), created_ms(key)) == (range(7, 10), NOW_MS)


def test_keys_sort_by_entry_and_are_never_given_twice() -> None:
    keys = [new_snapshot_key(0, applied, NOW_MS) for applied in (2, 10, 10, 300)]
    assert [applied_of(key) for key in sorted(keys)] == [2, 10, 10, 300]
    assert len(set(keys)) == len(keys)


def test_a_blob_of_another_name_is_no_snapshot() -> None:
    key = new_snapshot_key(0, 5, NOW_MS)
    for other in (key[:-1], f"{key}.part", "snapshot/0/readme", "snapshot/0/5-x"):
        assert not is_snapshot_key(other)
