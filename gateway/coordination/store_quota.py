"""The quota of the metadata store: what a gateway does before it is used up.

In an etcd that is full nothing can be written, so nothing can be freed either. From 60 % on the operator is
warned; from 80 % on snapshots are made early, so that the journal is pruned, and there are no new topics and
partitions; from 95 % on records and all that grows are refused, which leaves the rest for deletions.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from gateway.telemetry.logs import QuietLog
from ledger.errors import StoreError
from ledger.ports import MeteredStore, StoreUsage

log = structlog.get_logger(__name__)

WARN_SHARE: Final = 0.6
SHORT_SHARE: Final = 0.8
CRITICAL_SHARE: Final = 0.95
MEASURE_S: Final = 10.0
RECLAIM_S: Final = 60.0
"""Between two attempts, while the store is short of space."""
LOG_PERIOD_S: Final = 3600.0
RUNBOOK: Final = 'docs/operations.md, "etcd is out of space"'


@dataclass(frozen=True, slots=True)
class Quota:
    """Of the metadata store."""

    size_bytes: int
    """0: it has none."""
    is_short: bool = False
    """Most of it is used: snapshots are made early, since the journal before them is pruned."""


NO_QUOTA: Final = Quota(0)


class StoreQuota:
    """Without a store that has a quota, it never refuses anything."""

    def __init__(self, store: MeteredStore | None, quota_bytes: int = 0) -> None:
        """`quota_bytes`: as the operator says; 0: as the store says."""
        self._store = store
        self._quota_bytes = quota_bytes
        self._usage: StoreUsage | None = None
        self.held_refusal: Callable[[], str] = lambda: ""
        """Why that is so earlier: the journal cannot be pruned."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after each measurement."""
        self._quiet = QuietLog(LOG_PERIOD_S, keyed_by=("effect",))
        self._is_reclaimed = False
        """Whether the space of all deletions is free; what an earlier process has left is not known."""
        self._reclaimed_at = -math.inf
        """Loop time of the last attempt."""

    @property
    def usage(self) -> StoreUsage | None:
        """As measured last, with the quota that counts."""
        return self._usage

    @property
    def topic_refusal(self) -> str:
        """Why there are no new topics and partitions; empty if there are."""
        return self._refusal(SHORT_SHARE, "no new topics and partitions")

    @property
    def refusal(self) -> str:
        """Why nothing is taken that makes the ledger grow."""
        return self.held_refusal() or self._refusal(CRITICAL_SHARE, "what is left is kept for deletions")

    @property
    def full(self) -> str:
        """Why nothing at all can be written."""
        return self._usage.full if self._usage is not None else ""

    def for_snapshots(self) -> Quota:
        if self._usage is None:
            return NO_QUOTA
        return Quota(self._usage.quota_bytes, is_short=self._share >= SHORT_SHARE)

    async def measure(self) -> None:
        if self._store is None:
            return
        try:
            found = await self._store.usage()
        except StoreError as error:
            # The last measurement counts on. Operations that fail are in the log and in /readyz.
            self._quiet.warning("metadata.usage_unknown", error=str(error))
            return
        quota = self._quota_bytes or found.quota_bytes
        self._usage = replace(found, quota_bytes=quota)
        self._warn(self._usage)
        self.on_change()

    async def reclaim(self) -> None:
        """After deletions, of which the space is not free by itself."""
        if self._store is None:
            return
        self._is_reclaimed = False
        self._reclaimed_at = asyncio.get_running_loop().time()
        if why_not := await self._store.reclaim():
            self._quiet.warning("metadata.not_compacted", error=why_not)
        else:
            self._is_reclaimed = True

    async def reclaim_if_short(self) -> None:
        """What an attempt after the last deletions has left, or an earlier process. Once little is taken, no
        snapshot is due any more, after which it would be done."""
        now = asyncio.get_running_loop().time()
        is_due = not self._is_reclaimed and now >= self._reclaimed_at + RECLAIM_S
        if is_due and self._share >= SHORT_SHARE:
            await self.reclaim()

    @property
    def share(self) -> float:
        """Of the quota, what is used; 0 without one."""
        return self._share

    @property
    def _share(self) -> float:
        """Of the quota: what is used, or nearly all of it once the file has grown so far. A file below that
        has free pages, which are used first."""
        if self._usage is None or not self._usage.quota_bytes:
            return 0.0
        used, file = (
            size / self._usage.quota_bytes for size in (self._usage.used_bytes, self._usage.file_bytes)
        )
        return max(used, SHORT_SHARE) if file >= CRITICAL_SHARE else used

    def _refusal(self, share: float, effect: str) -> str:
        if self._usage is None or self._share < share:
            return ""
        usage = self._usage
        return (
            f"the metadata store uses {usage.used_bytes} bytes of its quota of {usage.quota_bytes}, and its "
            f"file has {usage.file_bytes}: {effect} ({RUNBOOK})"
        )

    def _warn(self, usage: StoreUsage) -> None:
        if usage.full or max(usage.used_bytes, usage.file_bytes) < WARN_SHARE * usage.quota_bytes:
            return
        self._quiet.warning(
            "metadata.quota",
            used=usage.used_bytes,
            file=usage.file_bytes,
            quota=usage.quota_bytes,
            effect="none yet" if self._share < SHORT_SHARE else "early snapshots, no new topics",
            remedy=RUNBOOK,
            setting="storage.etcd_quota_bytes",
        )
