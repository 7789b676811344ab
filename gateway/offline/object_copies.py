"""Copies objects from a segment store into blobs, under the same locators and with the same bytes.

Several at a time, with a bound on the bytes of all of them together. What the other store already has is
not copied again, so a copy that was interrupted goes on where it was.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import structlog

from gateway.host import Seconds, precise_s
from gateway.offline.move_plan import MovePlan, PlannedObject, damage_in
from ledger.errors import (
    AlreadyExists,
    NotFound,
    OutcomeUnknown,
    StoreDamaged,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
)
from ledger.formats.segment import INDEX_HEAD_BYTES, index_bytes
from ledger.keys import index_locator, is_segment
from ledger.ports import Blobs, SegmentStore
from ledger.types import Buffer, Position

log = structlog.get_logger(__name__)

TRANSFERS = 8
BYTES_IN_FLIGHT = 256 * 1024 * 1024
"""Of the objects that are being copied; one that is larger goes alone."""
ATTEMPTS = 5
FIRST_PAUSE_S = 0.5

Pause: TypeAlias = Callable[[float], Awaitable[object]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """`seconds_left` None: nothing was copied yet that would say."""

    objects: int
    all_objects: int
    size_bytes: int
    all_bytes: int
    seconds_left: float | None


@dataclass(slots=True)
class Copied:
    """What a copy has done. `damaged`: sentences, each with the locator."""

    objects: int = 0
    size_bytes: int = 0
    there: int = 0
    """Objects that the other store had already."""
    damaged: list[str] = field(default_factory=list)


class ObjectCopies:
    """One copy of the objects of a plan."""

    def __init__(
        self,
        source: SegmentStore,
        target: Blobs,
        on_progress: Callable[[Progress], None],
        precise: Seconds = precise_s,
        pause: Pause = asyncio.sleep,
        max_bytes: int = BYTES_IN_FLIGHT,
    ) -> None:
        """`pause` waits that many seconds before a call that failed is made again. `max_bytes` are being
        copied at a time."""
        self._source = source
        self._target = target
        self._on_progress = on_progress
        self._precise_s = precise
        self._pause = pause
        self._flow = _Flow(max_bytes)
        self._began_s = 0.0
        self._seen = 0
        self._seen_bytes = 0
        self._all_bytes = 0

    async def copy(self, plan: MovePlan, there: Mapping[str, int], *, damaged_too: bool) -> Copied:
        """`there`: sizes of the objects that the other store has. A damaged object is reported, and copied as
        it is only if `damaged_too`. StoreError as soon as one cannot be copied."""
        copied, waiting = Copied(), iter(plan.objects)
        self._began_s, self._all_bytes = self._precise_s(), plan.size_bytes
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(TRANSFERS, len(plan.objects))):
                    tasks.create_task(self._work(waiting, plan, there, copied, damaged_too))
        except BaseExceptionGroup as group:
            raise _first_of(group) from None
        return copied

    async def _work(
        self,
        waiting: Iterator[PlannedObject],
        plan: MovePlan,
        there: Mapping[str, int],
        copied: Copied,
        damaged_too: bool,
    ) -> None:
        for planned in waiting:
            size = there.get(planned.locator)
            if size is None:
                await self._flow.enter(planned.size)
                try:
                    await self._copy(planned, copied, damaged_too)
                finally:
                    await self._flow.leave(planned.size)
            elif size == planned.size:
                copied.there += 1
            else:
                raise _another(planned.locator)
            self._seen += 1
            self._seen_bytes += planned.size
            self._on_progress(self._progress(plan, copied))

    async def _copy(self, planned: PlannedObject, copied: Copied, damaged_too: bool) -> None:
        where = [Position(planned.locator, 0, planned.size)]
        (data,) = await self._persist(lambda: self._source.read(where))
        if data is None:
            raise StoreUnavailable(f"the object {planned.locator} disappeared while it was being moved")
        wrong = await asyncio.to_thread(damage_in, data, planned.runs)
        if wrong:
            copied.damaged.append(f"{planned.locator}: {wrong}")
            if not damaged_too:
                return
        if is_segment(planned.locator):
            await self._copy_index(index_locator(planned.locator))
        for other in planned.others:
            await self._copy_other(other, copied)
        await self._persist(lambda: self._put(planned.locator, data))
        copied.objects += 1
        copied.size_bytes += planned.size

    async def _copy_other(self, other: Position, copied: Copied) -> None:
        """Before its object, by which the next attempt tells what is there."""
        (data,) = await self._persist(lambda: self._source.read([other]))
        if data is None:
            copied.damaged.append(f"{other.locator}: it is missing, or has less than {other.size} bytes")
            return
        await self._persist(lambda: self._put(other.locator, data))

    async def _copy_index(self, key: str) -> None:
        """Before its segment, as a job writes it. A segment without one is served all the same."""
        (head,) = await self._persist(lambda: self._source.read([Position(key, 0, INDEX_HEAD_BYTES)]))
        try:
            whole = [Position(key, 0, index_bytes(head or b"", key))]
        except (StoreDamaged, StoreTooNew) as error:
            log.warning("move.index_not_copied", index=key, error=str(error))
            return
        (index,) = await self._persist(lambda: self._source.read(whole))
        if index is None:
            log.warning("move.index_not_copied", index=key, error="it is cut short")
            return
        await self._persist(lambda: self._put(key, index))

    async def _put(self, locator: str, data: Buffer) -> None:
        try:
            await self._target.put(locator, [data])
        except AlreadyExists:
            # From this move, of which an earlier attempt was interrupted.
            try:
                is_same = await self._target.get(locator) == data
            except NotFound as error:
                raise StoreUnavailable(f"{locator} is there and cannot be read: {error}") from error
            if not is_same:
                raise _another(locator) from None

    async def _persist(self, call: Callable[[], Awaitable[T]]) -> T:
        """The same call again, after pauses, while its store cannot be reached."""
        pause_s = FIRST_PAUSE_S
        for _ in range(ATTEMPTS - 1):
            try:
                return await call()
            except (StoreUnavailable, OutcomeUnknown):
                await self._pause(pause_s)
                pause_s *= 2
        return await call()

    def _progress(self, plan: MovePlan, copied: Copied) -> Progress:
        all_bytes, left_s = self._all_bytes, None
        if copied.size_bytes:
            took_s = self._precise_s() - self._began_s
            left_s = took_s * (all_bytes - self._seen_bytes) / copied.size_bytes
        return Progress(self._seen, len(plan.objects), self._seen_bytes, all_bytes, left_s)


class _Flow:
    """Lets transfers begin while the bytes of all together are within a bound."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._changed = asyncio.Condition()

    async def enter(self, size: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._bytes or self._bytes + size <= self._max_bytes)
            self._bytes += size

    async def leave(self, size: int) -> None:
        async with self._changed:
            self._bytes -= size
            self._changed.notify_all()


def _another(locator: str) -> StoreError:
    return StoreError(
        f"there is another object under {locator} already: move to a place that nothing else uses (--to-data)"
    )


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first_of(error) if isinstance(error, BaseExceptionGroup) else error
