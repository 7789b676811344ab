"""Are the offsets of a partition in exactly one run each?"""

from collections.abc import Iterator

from ledger.auditing.damages import REPORT, RESTORE_METADATA, Damage, DamageKind, Place
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog


def check_offsets(place: Place, log: PartitionLog) -> Iterator[Damage]:
    """Damages of the runs from the log start offset to the high watermark. Nothing is read."""
    if log.log_start > log.high_watermark:
        yield _damage(
            DamageKind.GAP,
            f"the log start offset is above the high watermark, {log.high_watermark}",
            place,
            log.log_start,
            log.log_start,
        )
        return
    expected, before, is_dense = log.log_start, -1, True
    for run in log.runs():
        if run.base <= expected or not place.compacts or (is_dense and run.dense):
            yield from _check_run(place, run, expected, before)
        before, is_dense = max(before, run.last), run.dense
        expected = max(expected, run.last + 1)
    if expected < log.high_watermark:
        yield _gap(place, expected, log.high_watermark - 1)
    elif expected > log.high_watermark:
        what = f"a run has offsets from the high watermark on, which is {log.high_watermark}"
        yield _damage(DamageKind.OVERLAP, what, place, log.high_watermark, expected - 1)


def _check_run(place: Place, run: Run, expected: int, before: int) -> Iterator[Damage]:
    """`expected`: the next offset that a reader needs; `before`: the last one of all earlier runs."""
    if run.last < run.base:
        what = f"a run ends at offset {run.last}, before it begins"
        yield _damage(DamageKind.OVERLAP, what, place, run.base, run.base)
    elif run.base <= before:
        what = "these offsets are in two runs"
        yield _damage(DamageKind.OVERLAP, what, place, run.base, min(before, run.last))
    elif run.base > expected:
        yield _gap(place, expected, run.base - 1)


def _gap(place: Place, first: int, last: int) -> Damage:
    return _damage(DamageKind.GAP, "these offsets are in no run", place, first, last)


def _damage(kind: DamageKind, what: str, place: Place, first: int, last: int) -> Damage:
    remedy = RESTORE_METADATA if kind is DamageKind.GAP else f"{RESTORE_METADATA}; {REPORT}"
    return Damage(kind, what, remedy, place.topic, place.partition, first, last)
