"""The job `audit`: reads the objects of an audit on Spark. `dragoman audit` does everything else.

`options` has `objects`, the path of a named pipe with the tasks (`pipeline.audit_lines`), and `data_url`.
`result` is what was found in one object, in the order of the tasks; `summary` is empty.
"""

from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ledger.auditing.tasks import ObjectResult, ObjectTask
from ledger.errors import StoreError
from pipeline.audit_lines import read_tasks, result_fields
from pipeline.engines.audit_tasks import AuditExecutor
from pipeline.engines.process import SPARK, JobRequest, RequestError, Say, spark_of
from pipeline.engines.spark_waves import SparkWaves

if TYPE_CHECKING:
    from pyspark import SparkContext

GROUP_BYTES: Final = 64 * 1024 * 1024
GROUP_RUNS: Final = 5_000
"""Of a Spark task: small enough to be spread, and to be repeated where one fails."""
GROUPS_A_SLOT: Final = 4
"""In a wave; the driver holds its tasks, and no record batch."""

Group = list[ObjectTask]


def run(request: JobRequest, say: Say) -> None:
    """Errors: JobError, NotInstalled, StoreError, RequestError."""
    if request.engine != SPARK:
        raise RequestError("an audit has no other engine than spark: without one the command reads by itself")
    executor = AuditExecutor(str(request.options["data_url"]), request.far)
    with spark_of(request) as context, Path(request.options["objects"]).open("rb") as pipe:
        for result in audited(context, executor, read_tasks(pipe)):
            say("result", result_fields(result))
    say("summary", {})


def audited(
    context: "SparkContext", executor: AuditExecutor, tasks: Iterator[ObjectTask]
) -> Iterator[ObjectResult]:
    """The result of each task, in their order. Errors: JobError, StoreError."""
    with closing(SparkWaves(context)) as waves:
        for wave in waves_of(tasks, GROUPS_A_SLOT * context.defaultParallelism):
            rdd = context.parallelize(wave, len(wave)).mapPartitions(executor.audit)
            found: list[list[ObjectResult]] = waves.collect(rdd)
            for result in chain.from_iterable(found):
                if result.error:
                    raise StoreError(result.error)
                yield result


def waves_of(tasks: Iterator[ObjectTask], max_groups: int) -> Iterator[list[Group]]:
    """Groups of about GROUP_BYTES or GROUP_RUNS, at most `max_groups` at a time."""
    wave: list[Group] = []
    group, size, runs = Group(), 0, 0
    for task in tasks:
        group.append(task)
        size, runs = size + (task.size or 0), runs + len(task.runs)
        if size >= GROUP_BYTES or runs >= GROUP_RUNS:
            wave.append(group)
            group, size, runs = Group(), 0, 0
        if len(wave) == max_groups:
            yield wave
            wave = []
    if group:
        wave.append(group)
    if wave:
        yield wave
