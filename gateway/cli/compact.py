"""`dragoman compact segments`: merges small runs into segments, by a job in a process of its own."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from gateway.cli.client import ClientError
from gateway.cli.exits import Exit
from gateway.cli.job_process import EngineOptions, TlsFiles, job_lines, ready_request
from gateway.cli.output import (
    counted,
    failed,
    print_json,
    print_line,
    print_table,
    print_text,
    size_text,
    talk,
)
from gateway.host import precise_s
from gateway.settings import Settings
from ledger.errors import StoreError
from pipeline.engines.spark_context import SUBMITTED

WATCH_S: Final = 60.0
ON_TERMINAL_S, ELSEWHERE_S = 2.0, 15.0
"""How often progress is printed."""
SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """`topics`: their names; empty: all. `watch`: again and again, until interrupted."""

    topics: Sequence[str] = ()
    engine: EngineOptions = field(default_factory=EngineOptions)
    dry_run: bool = False
    as_json: bool = False
    watch: bool = False
    tls: TlsFiles = field(default_factory=TlsFiles)


def compact_segments(settings: Settings, options: CompactOptions) -> Exit:
    """Merge, and print plan and summary. FINDINGS if runs were damaged or missing."""
    if options.watch and not options.dry_run:
        return _watch(settings, options)
    return _once(settings, options)


def _watch(settings: Settings, options: CompactOptions) -> Exit:
    """Until SIGINT or SIGTERM; as the last round ended. One that failed is followed by the next."""
    code = Exit.OK
    with suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        while True:
            try:
                code = _once(settings, options)
            except (ClientError, StoreError) as error:
                code = failed(error)
            time.sleep(WATCH_S)
    return code


def _once(settings: Settings, options: CompactOptions) -> Exit:
    engine = options.engine.request()
    with ready_request(settings, options.tls) as ready:
        return _run({**ready, **engine, "topics": list(options.topics)}, options)


def _run(request: Mapping[str, Any], options: CompactOptions) -> Exit:
    began_s = precise_s()
    planned = sorted(_plan(request), key=itemgetter("topic"))
    rows = [topic for topic in planned if topic["merged_runs"]]
    if not options.as_json:
        _show_plan(rows)
    if options.dry_run or not rows:
        if options.as_json:
            _print({"planned": planned, "summary": None}, options)
        elif not rows:
            talk("There is nothing to merge.")
        return Exit.OK
    summary = _merge(request, options, sum(topic["merged_runs"] for topic in planned))
    if options.as_json:
        _print({"planned": planned, "summary": summary}, options)
    else:
        _show_summary(summary, precise_s() - began_s)
    return Exit.FINDINGS if summary["damages"] else Exit.OK


def _plan(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key, value in job_lines({**request, "dry_run": True}):
        if key == "planned":
            yield value


def _merge(request: Mapping[str, Any], options: CompactOptions, planned_runs: int) -> dict[str, Any]:
    shown = _Shown(planned_runs)
    for key, value in job_lines(request):
        if key == "summary":
            return dict(value)
        # spark-submit joins stdout and stderr of what it runs: progress would be within the JSON.
        if key == "progress" and not (options.as_json and SUBMITTED in os.environ):
            shown(value)
    raise AssertionError("a job ends with a summary or an error")


class _Shown:
    """Prints progress now and then."""

    def __init__(self, planned_runs: int) -> None:
        self._planned_runs = planned_runs
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._every_s = ON_TERMINAL_S if is_terminal else ELSEWHERE_S
        self._shown_s = precise_s()

    def __call__(self, done: Mapping[str, Any]) -> None:
        if precise_s() - self._shown_s < self._every_s:
            return
        self._shown_s = precise_s()
        talk(
            f"{done['runs']} of about {counted(self._planned_runs, 'run')} merged into "
            f"{counted(done['segments'], 'segment')}, {size_text(done['run_bytes'])}"
        )


def _show_plan(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    print_table(
        ("TOPIC", "PARTITIONS", "RUNS", "TO MERGE", "BYTES", "SEGMENTS"),
        [
            (
                topic["topic"],
                topic["partitions"],
                topic["runs"],
                topic["merged_runs"],
                size_text(topic["merged_bytes"]),
                topic["tasks"],
            )
            for topic in rows
        ],
    )


def _show_summary(done: Mapping[str, Any], took_s: float) -> None:
    for sentence in done["damages"][:SHOWN]:
        talk(sentence)
    if done["left_runs"]:
        talk(f"{counted(done['left_runs'], 'run')} left as they are.")
    requests = f"by {counted(done['reads'], 'read')} and {counted(done['writes'], 'write')}"
    became = f"{counted(done['segment_runs'], 'run')} of {counted(done['segments'], 'segment')}"
    again = f", {counted(done['again'], 'plan')} made again" if done["again"] else ""
    java_bytes = done["java_max_rss_bytes"]
    shuffled = f", {size_text(done['shuffled_bytes'])} shuffled" if java_bytes else ""
    memory = f" The driver had at most {size_text(done['max_rss_bytes'] + java_bytes)}." if java_bytes else ""
    print_text(
        f"Merged {counted(done['runs'], 'run')} of {size_text(done['run_bytes'])} into {became} "
        f"in {took_s:.1f} s: "
        f"{size_text(done['read_bytes'])} read{shuffled} and {size_text(done['written_bytes'])} written "
        f"{requests}, ${done['dollars']:.4f}{again}.{memory}"
    )


def _print(value: Mapping[str, Any], options: CompactOptions) -> None:
    show: Callable[[Any], None] = print_line if options.watch else print_json
    show(value)
