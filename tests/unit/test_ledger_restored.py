"""What a ledger that was put back from a backup remembers of that."""

from ledger.cluster.records import LedgerRestored
from ledger.cut import take_dirty_rows
from ledger.image import all_rows, restore
from ledger.journal import Entry, apply_entry
from ledger.keys import RANDOM_BYTES, uuid7
from ledger.state import LedgerState

FROM_MS, TO_MS = 1_000, 2_000


def restored_state() -> LedgerState:
    state = LedgerState()
    apply_entry(state, Entry(1, 5_000, b"", [LedgerRestored(7, FROM_MS, TO_MS)]))
    return state


def locator(created_ms: int) -> str:
    return f"wal/0/{uuid7(created_ms, bytes(RANDOM_BYTES))}.wal"


def test_every_restore_begins_a_cluster_epoch() -> None:
    assert LedgerState().cluster_epoch == 1
    assert restored_state().cluster_epoch == 2


def test_objects_between_the_backup_and_the_restore_are_kept_and_others_are_not() -> None:
    objects = restored_state().objects
    kept = {created_ms: objects.keeps(created_ms) for created_ms in (999, 1_000, 2_000, 2_001)}
    assert kept == {999: False, 1_000: True, 2_000: True, 2_001: False}


def test_garbage_from_between_the_backup_and_the_restore_is_never_due() -> None:
    objects = restored_state().objects
    objects.raise_floor(10_000)
    for created_ms in (999, 1_500):
        objects.close_if_empty(objects.register(locator(created_ms)), 3_000)
    due = [stored.created_ms for stored in objects.due_garbage(100_000, 60)]
    assert due == [999]


def test_an_image_and_a_snapshot_remember_restores() -> None:
    state = restored_state()
    for rows in (list(all_rows(state)), take_dirty_rows(state)):
        read = restore(rows)
        assert read.restores == state.restores
        assert read.objects.keeps(FROM_MS)
        assert sorted(all_rows(read)) == sorted(all_rows(state))
