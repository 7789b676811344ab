"""Carries out waves of merge tasks on a Spark cluster: lays them out, and has each segment swapped in as soon
as it is there."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ledger.errors import StoreError
from pipeline.engines.spark_context import explained
from pipeline.engines.spark_layout import Layout, LayoutRule, Work, lay_out
from pipeline.engines.spark_tasks import Executor, Outcome
from pipeline.planning import PlannedTask
from pipeline.rounds import LOOKS, JobError, MergeTotals, Swaps

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

KEEP_S: Final = 5.0
CANCEL_S: Final = 1.0
"""How often jobs are cancelled that go on."""
IDLE_S: Final = 300.0
"""After which a job gives up whose cluster carries out nothing."""


@dataclass(frozen=True, slots=True)
class SparkStore:
    """The store of the gateway as executors open it. `far`: settings `storage.*` of a store elsewhere that
    its URL does not say; no secrets."""

    url: str
    far: Mapping[str, Any]


class SparkRounds:
    """Carries out the tasks of each wave on a Spark cluster. A `pipeline.rounds.Carrier`."""

    def __init__(
        self,
        context: "SparkContext",
        store: SparkStore,
        rule: LayoutRule | None = None,
        say: Callable[[MergeTotals], None] = lambda _: None,
    ) -> None:
        """`say` is called whenever something was done, and every few seconds."""
        self._context = context
        self._store = store
        self._rule = replace(rule or LayoutRule(), slots=context.defaultParallelism)
        self._say = say
        # Kept for all waves: Spark has a thread in Java for each of these.
        self._pool = ThreadPoolExecutor(2 * self._rule.slots)

    def close(self) -> None:
        """After the last wave."""
        self._pool.shutdown(cancel_futures=True)

    def carry_out(self, planned: Sequence[PlannedTask], swaps: Swaps) -> None:
        """Errors: JobError, PinLost; PeerUnavailable, PeerRefused; StoreError."""
        if not planned:
            return
        works = [
            Work(number, each.task, each.partition.looks >= LOOKS) for number, each in enumerate(planned)
        ]
        store = self._store
        executor = Executor(store.url, dict(store.far), self._rule.reads, swaps.pin.now_ms())
        for outcomes in self._results(works, executor, swaps):
            for outcome in outcomes:
                self._finish(planned[outcome.number], outcome, swaps)
                swaps.pin.keep()
                self._say(swaps.totals)

    def _finish(self, planned: PlannedTask, outcome: Outcome, swaps: Swaps) -> None:
        totals = swaps.totals
        if outcome.error:
            raise StoreError(outcome.error)
        totals.add_traffic(outcome.traffic)
        for sentence in outcome.left:
            totals.damaged(sentence)
        if outcome.missing:
            swaps.missing(planned)
        for written in outcome.written:
            if planned.is_outdated:
                totals.orphans += 1
            else:
                swaps.put_in_place(planned, written)

    def _results(self, works: Sequence[Work], executor: Executor, swaps: Swaps) -> Iterator[list[Outcome]]:
        """Those of each group as soon as it has ended."""
        groups, rdd = self._laid_out(lay_out(works, self._rule), executor)
        # A Spark job for each group, as a single one returns nothing before its last task has ended. They
        # share the first stage.
        jobs = {self._pool.submit(self._context.runJob, rdd, _all, [group]) for group in range(groups)}
        try:
            for done in self._as_completed(jobs, swaps):
                yield from done.result()
        except Exception as error:
            if sentence := explained(error):
                raise JobError(sentence) from error
            raise
        finally:
            self._cancel(jobs)

    def _cancel(self, jobs: Collection[Future[list[list[Outcome]]]]) -> None:
        """Those that go on. One that its thread is about to submit is unknown to Spark yet, and would run to
        an end that never comes without executors: so they are cancelled until all have ended."""
        left = {job for job in jobs if not job.cancel() and not job.done()}
        while left:
            try:
                self._context.cancelAllJobs()
            except Exception:
                # Of a Spark that has died, or was stopped, nothing goes on.
                return
            left = wait(left, CANCEL_S).not_done

    def _laid_out(self, layout: Layout, executor: Executor) -> "tuple[int, RDD[list[Outcome]]]":
        count = len(layout.groups)
        if not layout.slices:
            return count, self._context.parallelize(layout.groups, count).mapPartitions(executor.carry_out)
        first = self._context.parallelize(layout.slices, len(layout.slices)).mapPartitions(executor.read)
        return count, first.partitionBy(count, _same).mapPartitions(executor.merge)

    def _as_completed(
        self, jobs: Collection[Future[list[list[Outcome]]]], swaps: Swaps
    ) -> Iterator[Future[list[list[Outcome]]]]:
        pending, idle_s = set(jobs), 0.0
        while pending:
            done, pending = wait(pending, KEEP_S, FIRST_COMPLETED)
            swaps.pin.keep()
            self._say(swaps.totals)
            idle_s = 0.0 if done or self._is_busy() else idle_s + KEEP_S
            if idle_s >= IDLE_S:
                raise JobError(
                    f"the Spark cluster has carried out nothing for {IDLE_S:g} s: does it have free workers "
                    "with the cores and the memory that the job asks for?"
                )
            yield from done

    def _is_busy(self) -> bool:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numActiveTasks for stage in stages)


def _same(group: int) -> int:
    return group


def _all(outcomes: Iterator[list[Outcome]]) -> list[list[Outcome]]:
    return list(outcomes)
