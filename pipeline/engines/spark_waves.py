"""Runs one Spark job after the other, and does something else meanwhile: renews a pin, and finds out that a
cluster carries out nothing."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final, TypeVar

from pipeline.engines.spark_context import explained
from pipeline.rounds import JobError

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

Item = TypeVar("Item")

LOOK_S: Final = 5.0
CANCEL_S: Final = 1.0
"""How often a job is cancelled that goes on."""
IDLE_S: Final = 300.0
"""After which a job gives up whose cluster carries out nothing."""


class SparkWaves:
    """Waves of work on a Spark cluster, one at a time."""

    def __init__(self, context: "SparkContext") -> None:
        self._context = context
        self._pool = ThreadPoolExecutor(1)

    def close(self) -> None:
        """After the last wave."""
        self._pool.shutdown(cancel_futures=True)

    def collect(self, rdd: "RDD[Item]", keep: Callable[[], None] = lambda: None) -> list[Item]:
        """All that it has. `keep` is called every few seconds. Errors: JobError, and those of `keep`."""
        job, idle_s = self._pool.submit(rdd.collect), 0.0
        try:
            while not wait([job], LOOK_S).done:
                keep()
                idle_s = 0.0 if self._is_busy() else idle_s + LOOK_S
                if idle_s >= IDLE_S:
                    raise JobError(
                        f"the Spark cluster has carried out nothing for {IDLE_S:g} s: does it have free "
                        "workers with the cores and the memory that the job asks for?"
                    )
            items: list[Item] = job.result()
            return items
        except Exception as error:
            if sentence := explained(error):
                raise JobError(sentence) from error
            raise
        finally:
            self._cancel(job)

    def _cancel(self, job: "Future[list[Item]]") -> None:
        """If it goes on. One that its thread is about to submit is unknown to Spark yet, so it is cancelled
        until it has ended."""
        while not job.cancel() and not job.done():
            try:
                self._context.cancelAllJobs()
            except Exception:
                # Of a Spark that has died, or was stopped, nothing goes on.
                return
            wait([job], CANCEL_S)

    def _is_busy(self) -> bool:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numActiveTasks for stage in stages)
