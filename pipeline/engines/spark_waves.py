"""Runs one Spark job after the other, and does something else meanwhile: renews a pin, and finds out that a
cluster carries out nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from pipeline.engines.spark_context import explained
from pipeline.rounds import JobError

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

Item = TypeVar("Item")

LOOK_S: Final = 5.0
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
            if not job.done():
                # Of a Spark that has died there is nothing to cancel.
                with suppress(Exception):
                    self._context.cancelAllJobs()

    def _is_busy(self) -> bool:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numActiveTasks for stage in stages)
