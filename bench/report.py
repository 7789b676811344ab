"""The results for people and machines: a table on the terminal, JSON, Markdown, and plots next to it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.plot import plots
from bench.results import DRAGOMAN, KAFKA, Line, Results, case_of
from bench.stats import Summary, summarize

MARKDOWN = "performance.md"
DIRECTORY = "performance"
COLUMNS = ("figure", "unit", "Kafka", "Dragoman", "ratio", "goal", "met")


def print_table(lines: Sequence[Line], console: Console) -> None:
    table = Table(title="median, least and greatest; ratio: median of Dragoman / Kafka round by round")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("figure", "unit") else "right")
    last_case = ""
    for line in lines:
        if last_case and case_of(line.figure) != last_case:
            table.add_section()
        last_case = case_of(line.figure)
        color = {True: "green", False: "red", None: ""}[line.is_met]
        table.add_row(*cells(line), style=color)
    console.print(table)


def cells(line: Line) -> tuple[str, ...]:
    """One row of the table."""
    met = {True: "yes", False: "NO", None: ""}[line.is_met]
    ratio = f"{line.ratio:.2f}x" if line.ratio is not None else ""
    goal = str(line.goal) if line.goal is not None else ""
    return (line.figure, line.unit, spread(line.kafka), spread(line.dragoman), ratio, goal, met)


def spread(summary: Summary | None) -> str:
    """`12.3 [11.9 - 14.0]`, or the value alone when there was but one."""
    if summary is None:
        return ""
    if summary.rounds == 1:
        return number(summary.median)
    return f"{number(summary.median)} [{number(summary.low)} - {number(summary.high)}]"


def number(value: float) -> str:
    """Three digits that count; whole from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown(
    results: Results, facts: Mapping[str, str], settings: Mapping[str, Any], page: str = "", links: str = ""
) -> str:
    """`page`: the name of a page of its own, for some cases. `links`: to such pages."""
    lines = list(results.lines())
    cases = {case_of(line.figure) for line in lines}
    notes = [note for prefixes, note in _NOTES if any(case.startswith(prefixes) for case in cases)]
    parts = [
        _PAGE_HEAD.format(page=page) if page else _HEAD,
        *notes,
        f"\n{links}\n" if links else "\n",
        "## Machine and run\n",
        _facts({**facts, **{key: str(value) for key, value in settings.items()}}),
    ]
    if results.others_percent:
        noise = summarize(results.others_percent)
        parts.append(
            f"\nOther processes took {noise.median:.0f} % of all cores while a load ran "
            f"(median; {noise.low:.0f} to {noise.high:.0f} %).\n"
        )
    parts.append("\n## Figures\n")
    parts += _figures(lines)
    if charts := list(plots(lines)):
        parts.append("\n## Plots\n")
    parts += [f"\n![{plot.title}]({_below(page)}/{plot.file})\n" for plot in charts]
    return "".join(parts)


def _figures(lines: Sequence[Line]) -> list[str]:
    """The table, without Kafka where it was not measured."""
    has_kafka = any(line.kafka is not None for line in lines)
    shown = [at for at, name in enumerate(COLUMNS) if has_kafka or name not in ("Kafka", "ratio")]
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(cells(line) for line in lines)]
    return [_row([row[at] for at in shown]) for row in rows]


def _below(page: str) -> str:
    return f"{DIRECTORY}/{page}" if page else DIRECTORY


_HEAD = """# Performance

Written by `make bench`, which measures Apache Kafka and Dragoman on one machine, alternately. Medians of all
rounds, with the least and the greatest value; the ratio is the median of Dragoman / Kafka round by round.

"""
_PAGE_HEAD = """# Performance: {page}

Written by `python -m bench.run --page {page}` with the cases below. Medians of all rounds, with the least and
the greatest value.

"""
# Each is shown with the cases whose names begin so.
_NOTES: Sequence[tuple[tuple[str, ...], str]] = (
    (
        ("produce", "catchup", "latency", "single", "idle", "group", "startup"),
        """\
- Kafka runs as its start script runs it (KRaft, one broker, default flush: an acknowledgement does not
  mean that anything is synced) and is warmed before it is measured. Dragoman runs with its default
  settings over local files: every acknowledgement means synced. Figures of cases that end in `_synced` are
  those of Dragoman beside a second Kafka with `log.flush.interval.messages=1`, which syncs each batch before
  it acknowledges it.
  All have `group.initial.rebalance.delay.ms` = 0.
""",
    ),
    (
        ("",),
        """\
- Clients are processes of their own (librdkafka; `linger.ms=5`, `batch.size=1000000`, no compression,
  idempotent) on the same cores, so throughput is that of server and client together. CPU is user and
  system time of the server and its children alone. System CPU has that of the kernel's threads too, until
  all that the load has written is on the disk.
- Free memory of the machine was touched before: a page that a virtual machine uses for the first time costs
  more than what is written to it.
""",
    ),
    (
        ("produce_1k_p6_tls", "catchup_1k_p6_tls"),
        """\
- TLS: what the clients of librdkafka and the server agree on by default, certificates of P-256, each load in
  plain text first and then with TLS; `cpu_to_plain` is the ratio of the server's CPU.
""",
    ),
    (
        ("produce", "catchup", "latency", "single", "scattered", "growth"),
        """\
- Every figure was checked: all records were counted in the log, and what was read had the content, order
  and offsets of what was sent.
""",
    ),
    (
        ("group",),
        """\
- Groups: members are raw protocol clients in one process, and notice a change at once. CPU of a cycle is
  that of forming, losing a member, ending and checking. Offset commits are synced by Dragoman alone. Groups
  were described as stable with all members, and committed offsets read back.
""",
    ),
    (
        ("transactions",),
        """\
- Transactions: four producers of librdkafka with a transactional id each, one record of 100 B in each
  partition of a transaction. The time of a commit begins with the transaction; that end to end is taken by a
  reader of committed records. All records were read, in the order of their offsets.
""",
    ),
    (
        ("far",),
        """\
- Far stores are a bucket in the process of the gateway, whose PUTs take 30, 50 or 100 ms and whose GETs take
  half of that, behind the adapters of S3; and metadata that take 3 ms, as etcd, or are in the bucket. Of the
  bucket with a tail one PUT in a hundred takes 500 ms. What a GiB costs is computed from the requests at
  50 MB/s and published prices, with objects as large as at 1 GiB/s and three readers; storage is not in it.
""",
    ),
    (
        ("pipeline",),
        """\
- Merging is a job as `dragoman compact segments` starts it, over 6 partitions of batches of 64 KiB or
  (`small`) 20 partitions of batches of one record, in local files or (`s3`) in SeaweedFS on this machine.
  MB/s and CPU s/GB are without the start of the job, which `start_s` has. Spark starts the Python of its
  workers with the first task: some seconds of CPU, which CPU s/GB has. Bytes read and written are of the
  store, compared with what was merged; what Spark shuffles is counted apart. The index is the runs of the
  ledger's image, in kB for each GB of records. `pipeline_latency` is a paced load of 1,000 records a second,
  alone and beside jobs, in turn; `merging_share` is how much of that time a job was at work.
""",
    ),
    (("",), "- GB and MB are 10^9 and 10^6 payload bytes.\n"),
    (("growth",), "- Growth is the cost relative to the smallest size.\n"),
)


def _facts(facts: Mapping[str, str]) -> str:
    return _row(["", ""]) + _row(["---", "---"]) + "".join(_row(pair) for pair in facts.items())


def _row(cells_: Sequence[str]) -> str:
    return "| " + " | ".join(cells_) + " |\n"


def as_json(results: Results, facts: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "machine": dict(facts),
        "settings": dict(settings),
        "others_percent": [round(percent, 1) for percent in results.others_percent],
        "figures": [_line_json(line, results.values[line.figure]) for line in results.lines()],
    }


def _line_json(line: Line, values: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return {
        "figure": line.figure,
        "unit": line.unit,
        KAFKA: values.get(KAFKA, []),
        DRAGOMAN: values.get(DRAGOMAN, []),
        "ratio": line.ratio,
        "goal": str(line.goal) if line.goal is not None else None,
        "met": line.is_met,
    }


def write_report(
    directory: Path, results: Results, facts: Mapping[str, str], settings: Mapping[str, Any], page: str = ""
) -> Path:
    """performance.md, and performance/ with results.json and the plots; or performance-PAGE.md and
    performance/PAGE/. Returns the Markdown."""
    below = directory / _below(page)
    below.mkdir(parents=True, exist_ok=True)
    written = directory / (f"{DIRECTORY}-{page}.md" if page else MARKDOWN)
    written.write_text(markdown(results, facts, settings, page, "" if page else _links(directory)))
    (below / "results.json").write_text(json.dumps(as_json(results, facts, settings), indent=1) + "\n")
    for plot in plots(list(results.lines())):
        (below / plot.file).write_text(plot.svg())
    return written


def _links(directory: Path) -> str:
    """To the pages next to this one."""
    names = [path.stem.partition("-")[2] for path in sorted(directory.glob(f"{DIRECTORY}-*.md"))]
    links = ", ".join(f"[{name}]({DIRECTORY}-{name}.md)" for name in names)
    return f"Measured apart, on pages of their own: {links}.\n" if links else ""
