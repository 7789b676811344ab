"""Figures as they are collected over the rounds, and the lines of the report made of them. Pure.

A figure is named `case.figure`; `UNITS` has its unit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from bench.goals import GOALS, Goal, Of
from bench.stats import Summary, median_ratio, summarize

KAFKA, DRAGOMAN = "kafka", "dragoman"
BESIDE_SYNCED = "_synced"
"""At the end of a case's name: Kafka is one that syncs each batch before it acknowledges it."""
UNITS: Mapping[str, str] = MappingProxyType(
    {
        "mb_s": "MB/s",
        "cpu_s_gb": "CPU s/GB",
        "cpu_us_request": "CPU us/request",
        "cpu_us_batch": "CPU us/batch",
        "cpu_us_commit": "CPU us/commit",
        "commits_s": "commits/s",
        "transactions_s": "transactions/s",
        "cpu_us_transaction": "CPU us/transaction",
        "system_cpu_us_transaction": "CPU us/transaction",
        "cpu_percent": "% of a core",
        "system_cpu_s_gb": "CPU s/GB",
        "system_cpu_us_request": "CPU us/request",
        "system_cpu_us_commit": "CPU us/commit",
        "system_cpu_percent": "% of a core",
        "cpu_to_plain": "x",
        "requests_s": "requests/s",
        "batches_s": "batches/s",
        "kib_connection": "KiB/connection",
        "bytes_run": "bytes/run",
        "usd_gib": "USD/GiB",
        "local_cpu_s_gb": "CPU s/GB",
        "gateway_cpu_s_gb": "CPU s/GB",
        "catchup_cpu_s_gb": "CPU s/GB",
        "index_kb_gb": "kB/GB",
        "find_p99_ms": "ms",
        "puts_s": "PUTs/s",
        "entries_s": "entries/s",
    }
)
_UNITS_BY_ENDING: Mapping[str, str] = MappingProxyType(
    {"_ms": "ms", "_s": "s", "_mb": "MB", "_us_batch": "us/batch"}
)


def unit_of(figure: str) -> str:
    """The unit of `case.figure`; growth and other ratios have `x`."""
    name = figure.partition(".")[2]
    known = UNITS.get(name) or next((UNITS[key] for key in UNITS if name.startswith(f"{key}_")), None)
    endings = (unit for ending, unit in _UNITS_BY_ENDING.items() if name.endswith(ending))
    return known or next(endings, "x")


@dataclass(frozen=True, slots=True)
class Line:
    """One figure in the report."""

    figure: str
    unit: str
    kafka: Summary | None
    dragoman: Summary | None
    ratio: float | None
    goal: Goal | None

    @property
    def is_met(self) -> bool | None:
        """None without a goal, or without the figures that it needs."""
        value = self._judged()
        return None if self.goal is None or value is None else self.goal.is_met(value)

    def _judged(self) -> float | None:
        if self.goal is not None and self.goal.of is Of.RATIO:
            return self.ratio
        return self.dragoman.median if self.dragoman is not None else None


@dataclass(slots=True)
class Results:
    """Values by figure and server, in the order of the rounds."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    others_percent: list[float] = field(default_factory=list)

    def add(self, case: str, server: str, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self.values.setdefault(f"{case}.{name}", {}).setdefault(server, []).append(value)

    def lines(self) -> Iterator[Line]:
        for figure, servers in self.values.items():
            kafka, dragoman = servers.get(KAFKA, []), servers.get(DRAGOMAN, [])
            yield Line(
                figure,
                unit_of(figure),
                summarize(kafka) if kafka else None,
                summarize(dragoman) if dragoman else None,
                median_ratio(dragoman, kafka),
                GOALS.get(figure),
            )


def growth(values: Mapping[int, float]) -> dict[str, float]:
    """How much more each size costs than the smallest."""
    first = values[min(values)]
    return {f"growth_{size}": value / first for size, value in values.items() if size != min(values)}


def case_of(figure: str) -> str:
    return figure.partition(".")[0]


def selected(names: Sequence[str], only: Sequence[str], known: Sequence[str] = ()) -> bool:
    """Whether a case of these names is selected: by a whole name that is known, otherwise by its beginning.
    An empty selection has all."""
    return not only or any(
        name == word or (word not in known and name.startswith(word)) for word in only for name in names
    )
