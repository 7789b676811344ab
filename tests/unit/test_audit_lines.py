"""Objects of an audit on their way to a job, and what is found in them on its way back."""

import io
import json

import pytest

from ledger.auditing.batches import AuditedRun
from ledger.auditing.damages import Damage, DamageKind, Place
from ledger.auditing.markers import MergedMarker
from ledger.auditing.tasks import MAX_DAMAGES, ObjectResult, ObjectTask
from ledger.types import TopicId
from pipeline.audit_lines import encoded_tasks, read_tasks, result_fields, result_of
from pipeline.jobs import audit

TOPIC = TopicId(bytes(range(16)))
RUNS = [AuditedRun(7, 100, 50, 0, 3, 1, True), AuditedRun(7, 150, 60, 4, 9, 2, False)]
TASKS = [
    ObjectTask("wal/0/a.wal", 4096, RUNS, {1: Place("t", TOPIC, 0), 2: Place("t", TOPIC, 5, True)}, []),
    ObjectTask("wal/0/gone.wal", None, RUNS[:1], {1: Place("ü", TOPIC, 0)}, []),
    ObjectTask("seg/a", 9, RUNS[1:], {2: Place("t", TOPIC, 5)}, [MergedMarker(2, 9, 2**62 - 1, 4)]),
]


def test_tasks_come_out_of_the_pipe_as_they_went_in() -> None:
    pipe = io.BytesIO(b"".join(encoded_tasks(TASKS)))
    assert list(read_tasks(pipe)) == TASKS


@pytest.mark.parametrize("cut", [1, 3, 4, 20])
def test_a_pipe_that_ends_within_a_task_is_no_end_of_the_list(cut: int) -> None:
    data = b"".join(encoded_tasks(TASKS[:1]))
    with pytest.raises(EOFError, match="cut off"):
        list(read_tasks(io.BytesIO(data + data[:cut])))


def test_results_are_the_same_after_json() -> None:
    result = ObjectResult(2, 3, 4, 500, error="")
    result.report(Damage(DamageKind.GAP, "what", "remedy", "t", 1, 2, 3, "wal/0/a.wal", 4))
    result.report(Damage(DamageKind.STRAY_OBJECT, "what", "remedy"))
    result.unnamed[DamageKind.WRONG_COUNT] = 9
    assert result_of(json.loads(json.dumps(result_fields(result)))) == result


def test_damages_beyond_the_bound_are_counted() -> None:
    result = ObjectResult()
    for _ in range(MAX_DAMAGES + 3):
        result.report(Damage(DamageKind.GAP, "", ""))
    assert len(result.damages) == MAX_DAMAGES and result.unnamed == {DamageKind.GAP: 3}


def test_waves_hold_a_few_groups_and_lose_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "GROUP_BYTES", 1000)
    monkeypatch.setattr(audit, "GROUP_RUNS", 5)
    tasks = [ObjectTask(str(number), 300, RUNS, {}) for number in range(23)]
    waves = list(audit.waves_of(iter(tasks), 2))
    assert [task for wave in waves for group in wave for task in group] == tasks
    assert [[len(group) for group in wave] for wave in waves] == [[3, 3], [3, 3], [3, 3], [3, 2]]
    assert list(audit.waves_of(iter([]), 2)) == []
