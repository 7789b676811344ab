"""Writes settled ledgers on a Spark cluster: the driver hands out what it has found, executors write it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ledger.errors import StoreError
from pipeline.engines.settling_tasks import Group, Outcome, SettlingExecutor
from pipeline.engines.spark_waves import SparkWaves
from pipeline.pins import Pin
from pipeline.settled_files import FoundPartition, WrittenSettled

if TYPE_CHECKING:
    from pyspark import SparkContext

TASKS_A_SLOT = 2


class SparkWriter:
    """A `pipeline.settling.Writer`."""

    def __init__(self, context: "SparkContext", data_url: str, far: Mapping[str, Any]) -> None:
        """`far`: settings `storage.*` of a store elsewhere that its URL does not say; no secrets."""
        self._context = context
        self._data_url = data_url
        self._far = dict(far)
        self._waves = SparkWaves(context)

    def close(self) -> None:
        """After the last wave."""
        self._waves.close()

    def write(self, found: Sequence[FoundPartition], pin: Pin) -> Iterator[tuple[int, WrittenSettled]]:
        """Errors: JobError, StoreError, and those of the pin."""
        groups = list(groups_of(found, TASKS_A_SLOT * self._context.defaultParallelism))
        executor = SettlingExecutor(self._data_url, self._far, pin.now_ms())
        rdd = self._context.parallelize(groups, len(groups)).mapPartitions(executor.write)
        outcomes: list[Outcome] = self._waves.collect(rdd, pin.keep)
        for outcome in outcomes:
            if outcome.store_error:
                raise StoreError(outcome.store_error)
            yield outcome.number, outcome.written


def groups_of(found: Sequence[FoundPartition], tasks: int) -> Iterator[Group]:
    """At most about so many groups, of about as many runs each, unless a partition has more. One partition
    is never divided: its object table is in front of its file."""
    share = -(-sum(map(_weight, found)) // max(tasks, 1))
    group: list[tuple[int, FoundPartition]] = []
    weight = 0
    for number, each in enumerate(found):
        group.append((number, each))
        weight += _weight(each)
        if weight >= share:
            yield group
            group, weight = [], 0
    if group:
        yield group


def _weight(found: FoundPartition) -> int:
    # A write takes as long as some hundreds of runs.
    return len(found.runs) + 500
