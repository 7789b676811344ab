"""Bar charts as SVG, written by hand: one bar a server, a whisker from the least to the greatest value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from bench.results import Line
from bench.stats import Summary

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 760, 210, 90
BAR, GAP, HEAD = 14, 10, 56
KAFKA_COLOR, DRAGOMAN_COLOR, WHISKER_COLOR = "#8a8f98", "#2f6fb0", "#222222"

_CHARTS = (
    ("cpu.svg", "Server CPU seconds per 10^9 payload bytes (less is better)", ".cpu_s_gb"),
    ("throughput.svg", "MB/s through one client on the same cores (more is better)", ".mb_s"),
    ("memory.svg", "Peak memory in MB (less is better)", ".peak_mb"),
    ("latency.svg", "Latency in ms at 1,000 records a second (less is better)", "latency."),
    ("groups.svg", "Groups of 10 and 100: ms to form, to rebalance, and of CPU (less is better)", "group_1"),
    (
        "growth-partitions.svg",
        "CPU s/GB by partitions that exist, load on the same ten",
        "growth_partitions.cpu",
    ),
    ("growth-in-use.svg", "CPU s/GB by partitions in use, batches of 16 KiB", "growth_in_use.cpu"),
    ("growth-runs.svg", "CPU s/GB by live runs in the ledger", "growth_runs.cpu"),
)


@dataclass(frozen=True, slots=True)
class Plot:
    file: str
    title: str
    lines: Sequence[Line]

    def svg(self) -> str:
        scale = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) / max(self._greatest(), 1e-9)
        body: list[str] = []
        y = HEAD
        for line in self.lines:
            bars = [(line.kafka, KAFKA_COLOR), (line.dragoman, DRAGOMAN_COLOR)]
            present = [(summary, color) for summary, color in bars if summary is not None]
            middle = y + BAR * len(present) / 2 + 4
            body.append(_text(LABEL_WIDTH - 8, middle, label(line.figure), "end"))
            for summary, color in present:
                body += _bar(summary, y, scale, color)
                y += BAR
            y += GAP
        legend = [
            _text(8, 20, self.title, "start", "bold"),
            f'<rect x="8" y="30" width="10" height="10" fill="{KAFKA_COLOR}"/>',
            _text(22, 39, "Apache Kafka", "start"),
            f'<rect x="112" y="30" width="10" height="10" fill="{DRAGOMAN_COLOR}"/>',
            _text(126, 39, "Dragoman", "start"),
        ]
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" '
            'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        )
        return "\n".join([head, *legend, *body, "</svg>\n"])

    def _greatest(self) -> float:
        summaries = [s for line in self.lines for s in (line.kafka, line.dragoman) if s is not None]
        return max(summary.high for summary in summaries)


def plots(lines: Sequence[Line]) -> Iterator[Plot]:
    """The charts that have something to show."""
    for file, title, part in _CHARTS:
        # A part with a dot before it is a figure of any case.
        of_part = [
            line for line in lines if line.figure.startswith(part) or (part[0] == "." and part in line.figure)
        ]
        if chosen := [line for line in of_part if line.unit.startswith(("CPU s", "MB", "ms"))]:
            yield Plot(file, title, chosen)


def label(figure: str) -> str:
    """`produce_1k_p6.cpu_s_gb` as `produce 1k p6`; the figure's name where it says more than the case."""
    case, _, name = figure.partition(".")
    if case == "latency":
        return name.removesuffix("_ms").replace("_", " ")
    if case.startswith("group_"):
        return f"{case.removeprefix('group_')} members, {name.removesuffix('_ms').replace('_', ' ')}"
    if case.startswith("growth"):
        return f"{case.replace('_', ' ')} {int(name.rpartition('_')[2]):,}"
    return case.replace("_", " ")


def _bar(summary: Summary, y: float, scale: float, color: str) -> list[str]:
    width, middle = summary.median * scale, y + BAR / 2
    low, high = LABEL_WIDTH + summary.low * scale, LABEL_WIDTH + summary.high * scale
    return [
        f'<rect x="{LABEL_WIDTH}" y="{y + 1}" width="{width:.1f}" height="{BAR - 2}" fill="{color}"/>',
        f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="{WHISKER_COLOR}" stroke-width="1"/>',
        _text(max(high, LABEL_WIDTH + width) + 5, middle + 4, f"{summary.median:.3g}", "start"),
    ]


def _text(x: float, y: float, words: str, anchor: str, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'
    )
