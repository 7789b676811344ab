"""The threads of a store: order, deadlines, bounds, and what is left when the caller has gone."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from adapters.threads import Overdue, StoreThreads
from ledger.errors import StoreUnavailable

WAIT_S = 10.0
SHORT_S = 0.1


@asynccontextmanager
async def held(threads: StoreThreads) -> AsyncIterator[None]:
    """The one thread does nothing else meanwhile."""
    may_go, is_busy = threading.Event(), threading.Event()

    def hold() -> None:
        is_busy.set()
        may_go.wait(WAIT_S)

    holding = asyncio.ensure_future(threads.run(hold))
    await asyncio.to_thread(is_busy.wait, WAIT_S)
    try:
        yield
    finally:
        may_go.set()
        await asyncio.gather(holding, return_exceptions=True)


async def test_one_thread_keeps_the_order_of_the_calls() -> None:
    threads, seen = StoreThreads("the store", 1), list[int]()
    async with held(threads):
        waiting = [asyncio.ensure_future(threads.run(seen.append, n)) for n in range(50)]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert seen == list(range(50))


async def test_a_thread_is_idle_when_no_call_waits_or_is_under_way_whatever_became_of_its_caller() -> None:
    threads = StoreThreads("the store", 1, SHORT_S)
    assert threads.is_idle
    async with held(threads):
        assert not threads.is_idle
        with pytest.raises(Overdue):
            await threads.run(divmod, 7, 2)
        # The call before has ended for its caller too, and not for the thread.
        assert not threads.is_idle
    assert await threads.run(divmod, 7, 2) == (3, 1)
    assert threads.is_idle
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 1, 0)
    assert threads.is_idle
    await threads.close(lambda: None)
    assert not threads.is_idle
    assert not StoreThreads("the store", 2).is_idle


async def test_several_threads_work_side_by_side() -> None:
    threads, meeting = StoreThreads("the store", 4), threading.Barrier(4, timeout=WAIT_S)
    places = await asyncio.gather(*(threads.run(meeting.wait) for _ in range(4)))
    assert sorted(places) == [0, 1, 2, 3]


async def test_what_a_call_raises_reaches_the_caller_and_the_thread_continues() -> None:
    threads = StoreThreads("the store", 1)
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 1, 0)
    assert await threads.run(divmod, 7, 2) == (3, 1)
    assert threads.run_now(divmod, 9, 2) == (4, 1)
    with pytest.raises(ZeroDivisionError):
        threads.run_now(divmod, 1, 0)


async def test_a_call_that_is_overdue_before_it_began_is_never_begun() -> None:
    threads, seen = StoreThreads("the store", 1, SHORT_S), list[str]()
    async with held(threads):
        with pytest.raises(Overdue, match=r"the store did not answer within 0\.1 s"):
            await threads.run(seen.append, "write")
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await threads.read(seen.append, "read")
    await threads.run(seen.append, "last")
    assert seen == ["last"]


async def test_a_call_that_is_cancelled_before_it_began_is_never_begun() -> None:
    threads, seen = StoreThreads("the store", 1), list[str]()
    async with held(threads):
        requested = asyncio.ensure_future(threads.run(seen.append, "cancelled"))
        await asyncio.sleep(0)
        requested.cancel()
        await asyncio.sleep(0)
    await threads.run(seen.append, "last")
    assert seen == ["last"]


async def test_calls_beyond_the_bound_are_refused_without_waiting() -> None:
    threads, seen = StoreThreads("the store", 1, max_waiting=3), list[int]()
    async with held(threads):
        waiting = [asyncio.ensure_future(threads.run(seen.append, n)) for n in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="too slow: 3 calls wait"):
            await threads.run(seen.append, 3)
    await asyncio.gather(*waiting)
    assert seen == [0, 1, 2]


async def test_closing_does_what_waits_then_the_last_call_and_ends_the_threads() -> None:
    threads, seen = StoreThreads("a store that closes", 1), list[str]()
    async with held(threads):
        (thread,) = (each for each in threading.enumerate() if each.name.startswith("a store that closes"))
        waiting = asyncio.ensure_future(threads.run(seen.append, "waiting"))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(threads.close(lambda: seen.append("last")))
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="a store that closes is closed"):
            await threads.run(seen.append, "late")
    await asyncio.gather(waiting, closing)
    await threads.close(lambda: seen.append("again"))
    assert seen == ["waiting", "last"]
    await asyncio.to_thread(thread.join, WAIT_S)
    assert not thread.is_alive()


async def test_a_store_that_hangs_does_not_keep_it_from_closing() -> None:
    threads = StoreThreads("the store", 1, SHORT_S)
    async with held(threads):
        with pytest.raises(Overdue):
            await threads.close(lambda: None)


async def test_a_deadline_holds_after_calls_that_have_ended() -> None:
    threads = StoreThreads("the store", 1, SHORT_S)
    for _ in range(3):
        await threads.run(divmod, 7, 2)
        await asyncio.sleep(SHORT_S / 2)
    loop = asyncio.get_running_loop()
    async with held(threads):
        began = loop.time()
        with pytest.raises(Overdue):
            await threads.run(divmod, 7, 2)
        assert SHORT_S - 0.01 <= loop.time() - began < WAIT_S
    await threads.close(lambda: None)


def test_a_deadline_holds_on_the_loop_after_one_that_was_closed() -> None:
    threads, may_go = StoreThreads("the store", 1, SHORT_S), threading.Event()
    gone = asyncio.new_event_loop()
    waiting = gone.create_task(threads.run(may_go.wait, WAIT_S))
    gone.run_until_complete(asyncio.sleep(0.01))
    gone.close()

    async def ask() -> None:
        with pytest.raises(Overdue):
            await asyncio.wait_for(threads.run(divmod, 7, 2), WAIT_S)

    asyncio.run(ask())
    may_go.set()
    assert not waiting.done()
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_thread_outlives_the_loop_that_called_it() -> None:
    threads, may_go = StoreThreads("the store", 1), threading.Event()

    async def ask_and_leave() -> None:
        requested = asyncio.ensure_future(threads.run(may_go.wait, WAIT_S))
        await asyncio.sleep(0.01)
        requested.cancel()

    asyncio.run(ask_and_leave())
    may_go.set()
    assert threads.run_now(divmod, 7, 2) == (3, 1)


class Draft:
    """Megabytes, in a gateway."""


def fail(draft: Draft) -> None:
    raise ZeroDivisionError


async def test_what_a_failed_call_was_given_needs_no_collection_of_garbage() -> None:
    threads, draft = StoreThreads("the store", 1), Draft()
    gone = weakref.ref(draft)
    with no_collection():
        with pytest.raises(ZeroDivisionError):
            await threads.run(fail, draft)
        del draft
        assert await asyncio.to_thread(becomes_none, gone)


async def test_a_cancelled_call_is_not_kept_for_a_store_that_hangs() -> None:
    threads = StoreThreads("the store", 1, SHORT_S)
    async with held(threads):
        with no_collection():
            gone = [await overdue_draft(threads) for _ in range(3)]
            # The loop itself may still hold what it did last.
            await asyncio.sleep(0)
            assert [draft() for draft in gone] == [None] * 3


async def overdue_draft(threads: StoreThreads) -> weakref.ref[Draft]:
    draft = Draft()
    with pytest.raises(Overdue):
        await threads.run(fail, draft)
    return weakref.ref(draft)


@contextmanager
def no_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def test_a_thread_that_waits_keeps_nothing_of_its_last_call_alive() -> None:
    class Batch:
        pass

    threads, batch = StoreThreads("the store", 1), Batch()
    gone = weakref.ref(batch)
    assert await threads.run(id, batch) == id(batch)
    del batch
    assert await asyncio.to_thread(becomes_none, gone)


def becomes_none(gone: Callable[[], object]) -> bool:
    until = time.monotonic() + WAIT_S
    while gone() is not None and time.monotonic() < until:
        time.sleep(0.001)
    return gone() is None
