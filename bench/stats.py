"""Medians, spread and ratios of what was measured in several rounds. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Summary:
    """The median of all rounds, and the least and greatest value."""

    median: float
    low: float
    high: float
    rounds: int


def summarize(values: Sequence[float]) -> Summary:
    """Errors: ValueError without values."""
    if not values:
        raise ValueError("nothing was measured")
    return Summary(float(median(values)), float(min(values)), float(max(values)), len(values))


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The median of the ratios round by round, so that what disturbed a round disturbed both sides.
    None where either side was not measured, or theirs was zero."""
    ratios = [own / other for own, other in zip(ours, theirs, strict=False) if other]
    return float(median(ratios)) if ratios else None


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed (nearest rank).

    Errors: ValueError without values or beyond (0, 100].
    """
    if not values or not 0 < percent <= 100:
        raise ValueError(f"percentile {percent} of {len(values)} values")
    rank = -(-len(values) * percent // 100)
    return float(sorted(values)[int(rank) - 1])
