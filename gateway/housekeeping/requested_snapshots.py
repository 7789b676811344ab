"""Snapshots that an operator requests while the gateway runs, and holds of the objects that they name."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from gateway.coordination.blob_keys import applied_of
from gateway.coordination.holds import hold_everything, hold_limits
from gateway.coordination.shard import Shard
from gateway.host import RandomBytes, random_bytes
from gateway.housekeeping.checkpoint import Checkpointer
from ledger.errors import StoreError
from ledger.ports import Blobs

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RequestedSnapshot:
    """`hold` is empty, and `held_until_ms` 0, if nothing is held for it."""

    key: str
    cluster_id: str
    entries: int
    entry_time_ms: int
    topics: int
    hold: str
    held_until_ms: int


class RequestedSnapshots:
    """Of one shard, which this gateway owns."""

    def __init__(
        self,
        shard: Shard,
        checkpointer: Checkpointer,
        blobs: Blobs,
        clock: Callable[[], int],
        random: RandomBytes = random_bytes,
    ) -> None:
        self._shard = shard
        self._checkpointer = checkpointer
        self._blobs = blobs
        self._clock = clock
        self._random = random

    async def take(self, place: str, hold_ms: int) -> RequestedSnapshot:
        """A snapshot of the last entry, or of a later one. `place`: of the backup that it is for. Errors:
        StoreError."""
        everything = None
        if hold_ms:
            # Before the state is looked at: what becomes garbage from here on stays.
            everything = await hold_everything(
                self._blobs, self._shard.journal.shard, place, self._clock(), self._random
            )
        since_ms = self._shard.state.entry_time_ms
        try:
            key = await self._checkpointer.snapshot_now()
            hold, until_ms = "", 0
            if everything is not None:
                until_ms = self._clock() + hold_ms
                # Of a state that is no older than the snapshot, since a time that is no later.
                limits = since_ms, self._shard.state.objects.next_number, until_ms
                held = await hold_limits(self._blobs, self._shard.journal.shard, limits, place, everything)
                hold = held.name
        except BaseException:
            if everything is not None:
                with suppress(StoreError):
                    await self._blobs.delete([everything.key])
            raise
        return self._described(key, hold, until_ms)

    def _described(self, key: str, hold: str, until_ms: int) -> RequestedSnapshot:
        state = self._shard.state
        entries, topics = applied_of(key), len(state.topics.by_id)
        log.info("snapshot.requested", key=key, entries=entries, hold=hold)
        return RequestedSnapshot(key, state.cluster_id, entries, state.entry_time_ms, topics, hold, until_ms)
