"""The reasons why the gateway is not ready, for /readyz."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.coordination.free_space import FreeSpace
from gateway.coordination.shard import Shard
from gateway.coordination.store_quota import StoreQuota


@dataclass(slots=True)
class Readiness:
    """`failing`: operations of the stores that fail at present, with their reasons."""

    shard: Shard
    failing: Callable[[], Mapping[str, str]]
    space: FreeSpace
    directory: Path | None = None
    """Where `min_free_bytes` must be free; None: the gateway writes to no disk."""
    min_free_bytes: int = 0
    is_draining: bool = False
    quota: StoreQuota | None = None
    warned: Sequence[Callable[[], Sequence[Mapping[str, str]]]] = ()
    """What needs an operator although clients are served, each with `reason` and `detail`."""

    def warnings(self) -> list[Mapping[str, str]]:
        return [warning for warnings in self.warned for warning in warnings()]

    def reasons(self) -> list[dict[str, str]]:
        """Each with `reason`, a fixed word, and `detail`, for people. Empty: ready."""
        reasons: dict[str, str] = {}
        if self.shard.broken is not None:
            reasons["shard_lost"] = f"shard {self.shard.journal.shard} is not owned: {self.shard.broken}"
        if entry := self.shard.journal.unknown_entry:
            reasons["journal_outcome_unknown"] = f"whether {entry} is durable"
        if failing := self.failing():
            reasons["store"] = "; ".join(f"{name}: {why}" for name, why in sorted(failing.items()))
        if self.quota is not None and self.quota.full:
            reasons["store_full"] = self.quota.full
        if (full := self._disk()) is not None:
            reasons["disk"] = full
        if self.is_draining:
            reasons["draining"] = "the gateway is shutting down"
        return [{"reason": reason, "detail": detail} for reason, detail in reasons.items()]

    def _disk(self) -> str | None:
        if self.space.refusal:
            return self.space.refusal
        if self.directory is None or not self.min_free_bytes:
            return None
        try:
            status = os.statvfs(self.directory)
        except OSError as error:
            return f"{self.directory} cannot be measured: {error.strerror}"
        free = status.f_bavail * status.f_frsize + self.space.ahead_in(self.directory)
        if free >= self.min_free_bytes:
            return None
        return f"{free} bytes are free in {self.directory}, less than storage.min_free_bytes"
