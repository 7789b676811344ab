"""The job `audit`: reads the objects of an audit on Spark. `dragoman audit` does everything else.

`options` has `objects`, the path of a named pipe with the tasks (`pipeline.audit_lines`), and `data_url`.
`result` is what was found in one object, in the order of the tasks; `summary` is empty.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ledger.auditing.tasks import ObjectResult, ObjectTask
from ledger.errors import StoreError
from pipeline.audit_lines import read_tasks, result_fields
from pipeline.engines.audit_tasks import AuditExecutor
from pipeline.engines.process import SPARK, JobRequest, RequestError, Say, spark_of
from pipeline.rounds import JobError

if TYPE_CHECKING:
    from pyspark import SparkContext

GROUP_BYTES: Final = 64 * 1024 * 1024
GROUP_RUNS: Final = 5_000
"""Of a Spark task: small enough to be spread, and to be repeated where one fails."""
GROUPS_A_SLOT: Final = 4
"""In a wave; the driver holds its tasks, and no record batch."""
LOOK_S: Final = 5.0
IDLE_S: Final = 300.0
"""After which a job gives up whose cluster carries out nothing."""

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
    with closing(_Waves(context, executor)) as waves:
        for wave in waves_of(tasks, GROUPS_A_SLOT * context.defaultParallelism):
            for result in waves.carry_out(wave):
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


class _Waves:
    """Carries out waves on a Spark cluster."""

    def __init__(self, context: "SparkContext", executor: AuditExecutor) -> None:
        self._context = context
        self._executor = executor
        self._pool = ThreadPoolExecutor(1)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def carry_out(self, wave: Sequence[Group]) -> Iterator[ObjectResult]:
        """In the order of the tasks."""
        from pipeline.engines.spark_context import explained

        rdd = self._context.parallelize(wave, len(wave)).mapPartitions(self._executor.audit)
        job, idle_s = self._pool.submit(rdd.collect), 0.0
        try:
            while not wait([job], LOOK_S).done:
                idle_s = 0.0 if self._is_busy() else idle_s + LOOK_S
                if idle_s >= IDLE_S:
                    raise JobError(
                        f"the Spark cluster has carried out nothing for {IDLE_S:g} s: does it have free "
                        "workers with the cores and the memory that the job asks for?"
                    )
            for results in job.result():
                yield from results
        except Exception as error:
            if sentence := explained(error):
                raise JobError(sentence) from error
            raise
        finally:
            if not job.done():
                # Of a Spark that has died there is nothing to cancel.
                with suppress(Exception):
                    self._context.cancelAllJobs()

    def _is_busy(self) -> bool:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numActiveTasks for stage in stages)
