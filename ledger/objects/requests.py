"""Requests about stored objects. Their result is `Done`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ledger.requests import SMALL


@dataclass(frozen=True, slots=True)
class ForgetObjects:
    """The bytes of these closed objects were deleted."""

    objects: Sequence[int]
    work: ClassVar[int] = 0

    @property
    def weight(self) -> int:
        return SMALL + 8 * len(self.objects)


@dataclass(frozen=True, slots=True)
class RaiseFloor:
    floor_ms: int
    weight: int = SMALL
    work: ClassVar[int] = 0
