"""What executors of the Spark engine do for an audit: they read objects and check them. They know nothing of
the gateway, write nothing, and import no pyspark."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.auditing.tasks import ObjectResult, ObjectTask, audit_object
from ledger.errors import StoreError
from pipeline.carrying import JobStore
from pipeline.engines.spark_tasks import OpenStore, opened


@dataclass(frozen=True, slots=True)
class AuditExecutor:
    """How to work on a group of objects: pickled, with every Spark task. `far`: settings `storage.*` of a
    store elsewhere that its URL does not say."""

    data_url: str
    far: Mapping[str, Any]
    open_store: OpenStore = opened

    def audit(self, groups: Iterable[Sequence[ObjectTask]]) -> Iterator[list[ObjectResult]]:
        """The results of each group, in the order of its tasks."""
        for group in groups:
            try:
                with self.open_store(self.data_url, self.far) as store:
                    yield [_audited(task, store) for task in group]
            except (StoreError, ValueError) as error:
                yield [ObjectResult(error=str(error))] * len(group)


def _audited(task: ObjectTask, store: JobStore) -> ObjectResult:
    result = ObjectResult()
    reading = audit_object(task, result)
    try:
        wanted = next(reading)
        while True:
            (data,) = store.read([wanted])
            wanted = reading.send(data)
    except StopIteration:
        return result
