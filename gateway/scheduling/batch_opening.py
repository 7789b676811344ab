"""Opening batches: reading their records in worker threads, in slices, with a fair share for each client.

Python parses a record in about a microsecond, and a batch of 70 KB may hold millions. So no batch is opened
without a pause: works are queued by connection and topic, and the next slice is always of the connection that
has had the least CPU time (weighted fair queueing: all connections of one address together weigh as much as
one of another address; the topics of a connection are served round-robin). A new connection is served before
those that had a slice. Bytes that a slice unpacked are released before a slice of another work.

Batches that are short when unpacked are opened by two threads, in slices of 10 ms. Long ones, which are rare
and take memory, are opened by a third, in slices of 50 ms. A slice that had to unpack first may continue for
the time that this took.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from heapq import heappop, heappush
from typing import Final, Protocol

from gateway.host import Seconds, ThreadPool, cpu_s, thread_pool
from gateway.scheduling.client_network import network_of
from gateway.scheduling.slices import Owner

SHORT_SLOTS: Final = 2
LONG_SLOTS: Final = 1
"""Slices at a time."""
SHORT_SLICE_S: Final = 0.010
LONG_SLICE_S: Final = 0.050
MAX_REMEMBERED: Final = 10_000
"""Connections without work whose charged time is kept."""


class Work(Protocol):
    """One batch to be opened. Used by one thread at a time."""

    @property
    def is_long(self) -> bool:
        """It belongs into the queue of long batches. This may become true in a step."""
        ...

    def unpack(self) -> bool:
        """In a worker thread, before each step: unpack the records, unless they are. False if only this shows
        that the work is long: it is unpacked again in that queue."""
        ...

    def step(self, is_over: Callable[[], bool]) -> bool:
        """In a worker thread: continue until `is_over`, checked about every millisecond. True when done."""
        ...

    def release(self) -> None:
        """Another work is next: release what can be unpacked again."""
        ...


class NotWanted(Exception):
    """The caller of this work is gone."""


class _Job:
    __slots__ = ("done", "is_wanted", "owner", "topic", "work")

    def __init__(
        self,
        owner: Owner,
        topic: object,
        work: Work,
        is_wanted: Callable[[], bool] | None,
        done: "asyncio.Future[None]",
    ) -> None:
        self.owner = owner
        self.topic = topic
        self.work = work
        self.is_wanted = is_wanted
        self.done = done

    @property
    def is_dropped(self) -> bool:
        return self.done.done() or (self.is_wanted is not None and not self.is_wanted())


class BatchOpener:
    """Runs works. Used by one event loop; `unpack` and `step` run in its threads."""

    def __init__(self, threads: ThreadPool = thread_pool, cpu: Seconds = cpu_s) -> None:
        """`cpu` is the CPU time of the thread that calls it."""
        self._threads = threads(SHORT_SLOTS + LONG_SLOTS, "open-batches")
        step = partial(_step, cpu)
        self._long = _FairQueue(self._threads, step, LONG_SLOTS, LONG_SLICE_S, None)
        self._short = _FairQueue(self._threads, step, SHORT_SLOTS, SHORT_SLICE_S, self._long)

    async def run(
        self, owner: Owner, topic: object, work: Work, is_wanted: Callable[[], bool] | None = None
    ) -> None:
        """Returns when the work is done. Raises the error of its step, and NotWanted if `is_wanted` returns
        False before a slice. When this is cancelled, the work ends with its slice."""
        done = asyncio.get_running_loop().create_future()
        (self._long if work.is_long else self._short).add(_Job(owner, topic, work, is_wanted, done))
        await done

    def drop_unwanted(self) -> None:
        """End works that wait for a slice and are not wanted any more: what they hold is released."""
        self._short.drop_unwanted()
        self._long.drop_unwanted()

    @property
    def waiting(self) -> int:
        """Works that are not done, as a gauge."""
        return len(self._short) + len(self._long)

    def close(self) -> None:
        """Cancel all works."""
        self._short.close()
        self._long.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Flow:
    """The works of one connection: topics round-robin, the works of each in order."""

    __slots__ = ("host", "is_queued", "jobs", "served", "tag", "topics")

    def __init__(self, host: str, tag: float) -> None:
        self.host = host
        self.tag = tag
        self.served = 0.0
        self.jobs = 0
        """Jobs that are not done."""
        self.topics: OrderedDict[object, deque[_Job]] = OrderedDict()
        """Jobs that wait for a slice."""
        self.is_queued = False

    def take(self) -> _Job:
        """The next job. Further jobs of its topic come after those of the other topics."""
        topic, jobs = self.topics.popitem(last=False)
        job = jobs.popleft()
        if jobs:
            self.topics[topic] = jobs
        return job

    def put_back(self, job: _Job) -> None:
        """A job that had a slice is the next of its topic again."""
        jobs = self.topics.pop(job.topic, deque())
        jobs.appendleft(job)
        self.topics[job.topic] = jobs


class _FairQueue:
    """A queue of works, `slots` of which have a slice at a time. A slice is charged in full when it begins,
    and by its true length when it is over."""

    def __init__(
        self,
        threads: Executor,
        step: Callable[[Work, float], tuple[bool, float]],
        slots: int,
        slice_s: float,
        long: "_FairQueue | None",
    ) -> None:
        self._threads = threads
        self._step = step
        self._slots = slots
        self._slice_s = slice_s
        self._long = long
        self._flows: dict[Owner, _Flow] = {}
        self._heap: list[tuple[float, float, int, _Flow]] = []
        self._hosts: dict[str, int] = {}
        """How many connections of each address have work here."""
        self._now = 0.0
        """The tag of the newest slice."""
        self._count = self._jobs = 0
        self._running: dict[_Job, _Flow] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return self._jobs

    def add(self, job: _Job) -> None:
        if self._is_closed:
            job.done.cancel()
            return
        owner = Owner(job.owner.connection_id, network_of(job.owner.host))
        flow = self._flows.get(owner)
        if flow is None:
            flow = self._flows[owner] = _Flow(owner.host, self._now)
        if not flow.jobs:
            self._hosts[flow.host] = self._hosts.get(flow.host, 0) + 1
        flow.jobs += 1
        self._jobs += 1
        flow.topics.setdefault(job.topic, deque()).append(job)
        self._queue(flow)
        self._next()

    def drop_unwanted(self) -> None:
        for flow in list(self._flows.values()):
            for topic, jobs in list(flow.topics.items()):
                dropped, kept = list[_Job](), deque[_Job]()
                for job in jobs:
                    (dropped if job.is_dropped else kept).append(job)
                if kept:
                    flow.topics[topic] = kept
                else:
                    del flow.topics[topic]
                for job in dropped:
                    self._end(flow, job, NotWanted())

    def close(self) -> None:
        self._is_closed = True
        for flow in self._flows.values():
            for jobs in flow.topics.values():
                for job in jobs:
                    job.done.cancel()
        for job in self._running:
            job.done.cancel()
        self._heap.clear()
        self._flows.clear()

    def _queue(self, flow: _Flow) -> None:
        if flow.is_queued or not flow.topics:
            return
        flow.is_queued = True
        flow.tag = max(flow.tag, self._now)
        self._count += 1
        # By its tag after a slice; among equals the connection that has had less time is first.
        after = flow.tag + self._slice_s * self._hosts[flow.host]
        heappush(self._heap, (after, flow.served, self._count, flow))

    def _next(self) -> None:
        while len(self._running) < self._slots and self._heap:
            flow = heappop(self._heap)[3]
            flow.is_queued = False
            if not flow.topics:
                continue  # its works were dropped meanwhile
            job = flow.take()
            if job.is_dropped:
                self._end(flow, job, NotWanted())
            else:
                self._now = max(self._now, flow.tag)
                charge = self._slice_s * self._hosts[flow.host]
                flow.tag += charge
                self._running[job] = flow
                step = asyncio.get_running_loop().run_in_executor(
                    self._threads, self._step, job.work, self._slice_s
                )
                step.add_done_callback(partial(self._stepped, job, charge))
            self._queue(flow)

    def _stepped(self, job: _Job, charged: float, step: "asyncio.Future[tuple[bool, float]]") -> None:
        if self._is_closed or step.cancelled():
            return
        flow = self._running.pop(job)
        error = step.exception()
        if error is not None:
            self._end(flow, job, error)
        else:
            is_done, seconds = step.result()
            charge = seconds * self._hosts[flow.host]
            flow.tag += charge - charged
            flow.served += charge
            if is_done:
                self._end(flow, job, None)
            elif job.is_dropped:
                self._end(flow, job, NotWanted())
            elif self._long is not None and job.work.is_long:
                self._leave(flow)
                self._long.add(job)
            else:
                flow.put_back(job)
                if self._jobs > self._slots:
                    job.work.release()
        self._queue(flow)
        self._next()

    def _end(self, flow: _Flow, job: _Job, error: BaseException | None) -> None:
        self._leave(flow)
        if job.done.done():
            return
        if error is None:
            job.done.set_result(None)
        else:
            job.done.set_exception(error)

    def _leave(self, flow: _Flow) -> None:
        """One of its works has left this queue."""
        self._jobs -= 1
        flow.jobs -= 1
        if flow.jobs:
            return
        left = self._hosts[flow.host] - 1
        if left:
            self._hosts[flow.host] = left
        else:
            del self._hosts[flow.host]
        if not self._hosts:
            # No connection waits, so no charge matters any more.
            self._flows.clear()
            self._now = 0.0
        elif len(self._flows) > MAX_REMEMBERED:
            self._flows = {owner: kept for owner, kept in self._flows.items() if kept.jobs}


def _step(cpu: Seconds, work: Work, slice_s: float) -> tuple[bool, float]:
    """In a worker thread. Whether the work is done, and the CPU time that this took."""
    began = cpu()
    is_done = False
    if work.unpack():
        unpacked = cpu()
        # So that at least half of the time goes into the step.
        end = unpacked + max(slice_s, unpacked - began)
        is_done = work.step(lambda: cpu() >= end)
    return is_done, cpu() - began
