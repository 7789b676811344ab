"""Reading many positions with few reads: adjacent ones of an object are read together."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ledger.types import Position

# A piece keeps the whole read alive in memory, so reads stay of a modest size.
MAX_MERGED_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class MergedRange:
    """One read of an object, and which of the requested positions (by index) are in it, at which offset."""

    locator: str
    start: int
    size: int
    gap_bytes: int = 0
    """Of the size, what no position wants."""
    pieces: list[tuple[int, int]] = field(default_factory=list)


def merge_adjacent(positions: Sequence[Position], max_gap: int = 0) -> list[MergedRange]:
    """Ranges that cover all positions, ascending by locator and start. Between two positions at most
    `max_gap` bytes are read that none wants, and no more in all of a range than are wanted of it. A position
    with a negative start or size is in no range."""
    merged: list[MergedRange] = []
    order = sorted(range(len(positions)), key=lambda i: (positions[i].locator, positions[i].start))
    for index in order:
        position = positions[index]
        if position.start < 0 or position.size < 0:
            continue
        last = merged[-1] if merged else None
        if last is None or not _continues(last, position, max_gap):
            last = MergedRange(position.locator, position.start, 0)
            merged.append(last)
        last.gap_bytes += max(0, position.start - last.start - last.size)
        last.size = max(last.size, position.start + position.size - last.start)
        last.pieces.append((index, position.start - last.start))
    return merged


def _continues(merged: MergedRange, position: Position, max_gap: int) -> bool:
    if merged.locator != position.locator:
        return False
    gap = position.start - merged.start - merged.size
    wanted = merged.size - merged.gap_bytes + position.size
    return (
        gap <= max_gap
        and (gap <= 0 or merged.gap_bytes + gap <= wanted)
        and position.start + position.size - merged.start <= MAX_MERGED_BYTES
    )
