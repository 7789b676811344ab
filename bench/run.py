"""Measures Apache Kafka and Dragoman on this machine, alternately: `python -m bench.run`.

All servers run all the time and are loaded one at a time; which comes first changes from round to round.
"""

import argparse
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.case import FULL, QUICK, Case, Figures, Noise, Scale
from bench.cases import CASES, warm_up
from bench.far import NAMES as FAR_CASES
from bench.far import measure_far
from bench.growth import SCATTERED, Growth, existing_load, in_use, scattered
from bench.ledger_alone import ledger_alone
from bench.lifecycle import start_empty, start_with_runs
from bench.machine import allow_open_files, describe_machine
from bench.memory import touch_free_memory
from bench.pipeline import NAMES as PIPELINE_CASES
from bench.pipeline import measure_pipeline
from bench.report import print_table, write_report
from bench.results import BESIDE_SYNCED, DRAGOMAN, KAFKA, Results, selected
from bench.servers import SYNCED, SYNCED_KAFKA, BenchGateway, BenchKafka, BenchServer, create_topic
from tests.support.kafka import why_missing
from tests.support.versions import CACHE, ROOT

# KafkaServer has the same: how fast a group forms is not how long it is let wait.
GROUPS_AS_KAFKA = ("--set", "groups.group.initial.rebalance.delay.ms=0")
PAGE_NAME = re.compile("[a-z]+")
OPEN_FILES = 4_096
"""More than the connections of any case."""
ALONE_RUNS = 1_000_000
QUICK_SCATTER_ROUNDS, FULL_SCATTER_ROUNDS = 2, 5
GROWTH_CASES = ("growth_partitions", "growth_in_use", "growth_runs", "scattered")
OTHER_CASES = ("startup", "startup_runs", "ledger")
FEW_ROUNDS = 2
"""Of far stores most figures are requests and waits, which vary little; merging takes its time."""
NAMES = (
    *(name for case in CASES for name in case.names),
    *GROWTH_CASES,
    *OTHER_CASES,
    *FAR_CASES,
    *PIPELINE_CASES,
)


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int
    quick: bool
    only: Sequence[str]
    warm_s: float
    output: Path
    directory: Path

    @property
    def scale(self) -> Scale:
        return QUICK if self.quick else FULL

    def wants(self, *names: str) -> bool:
        return selected(names, self.only, NAMES)


class Bench:
    """Runs the selected cases, and collects the figures."""

    def __init__(self, options: Options, console: Console) -> None:
        self.options = options
        self.console = console
        self.results = Results()

    def run(self) -> None:
        cases = [case for case in CASES if self.options.wants(*case.names)]
        if cases or self.options.wants("scattered"):
            self._side_by_side()
        self._growth()
        for round_ in range(self.options.rounds):
            self._lifecycle(round_)
            if round_ < FEW_ROUNDS:
                self._few(FAR_CASES, measure_far, round_)
                self._few(PIPELINE_CASES, measure_pipeline, round_)

    def _few(
        self,
        names: Sequence[str],
        measured: Callable[[str, Scale, Noise, Path], Figures],
        round_: int,
    ) -> None:
        for name in names:
            if self.options.wants(name):
                self._say(f"round {round_ + 1}: {name}")
                figures = measured(name, self.options.scale, self._noise, self.options.directory)
                self.results.add(name, DRAGOMAN, figures)

    def _side_by_side(self) -> None:
        with self._all() as servers:
            for server in servers:
                self._say(f"warming {server.name} for {self.options.warm_s:g} s")
                warm_up(server, self.options.warm_s)
            for round_ in range(self.options.rounds):
                for case in CASES:
                    if self.options.wants(*case.names):
                        self._say(f"round {round_ + 1}: {case.title}")
                        self.run_round(case, servers, round_)
            if self.options.wants("scattered"):
                self._scattered([server for server in servers if server.name != SYNCED_KAFKA])

    def run_round(self, case: Case, servers: Sequence[BenchServer], round_: int) -> None:
        """Measure one case once on each server."""
        for server in _turn(servers, round_):
            if server.name != SYNCED_KAFKA or case.acked:
                self._measure(case, server)

    def _measure(self, case: Case, server: BenchServer) -> None:
        for name, figures in case.run(server, self.options.scale, self._noise).items():
            if server.name != SYNCED_KAFKA:
                self.results.add(name, server.name, figures)
            if name in case.acked and server.name != KAFKA:
                side = DRAGOMAN if server.name == DRAGOMAN else KAFKA
                self.results.add(f"{name}{BESIDE_SYNCED}", side, figures)

    def _scattered(self, servers: Sequence[BenchServer]) -> None:
        """Last, since this number of partitions burdens a broker for good."""
        for server in servers:
            self._say(f"creating {SCATTERED} partitions on {server.name}")
            create_topic(server, "scattered", SCATTERED)
        laps = QUICK_SCATTER_ROUNDS if self.options.quick else FULL_SCATTER_ROUNDS
        for round_ in range(self.options.rounds):
            self._say(f"round {round_ + 1}: batches of one record over {SCATTERED} partitions")
            for server in _turn(servers, round_):
                figures = scattered(server, "scattered", laps, self._noise)
                self.results.add("scattered", server.name, figures)

    def _growth(self) -> None:
        wants = self.options.wants
        if not wants(*GROWTH_CASES[:3]):
            return
        growth = Growth(self.options.directory)
        try:
            if wants("growth_partitions", "growth_in_use"):
                self._say("opening gateways with more and more partitions")
                growth.open_partitions()
            if wants("growth_runs"):
                self._say("writing ledgers of more and more runs")
                growth.open_runs()
            for round_ in range(self.options.rounds):
                self._growth_round(growth, round_)
        finally:
            growth.close()

    def _growth_round(self, growth: Growth, round_: int) -> None:
        scale = self.options.scale
        for case, gateways in (("growth_partitions", growth.partitions), ("growth_runs", growth.runs)):
            if gateways and self.options.wants(case):
                self._say(f"round {round_ + 1}: {case}")
                order = dict(list(gateways.items())[:: 1 if round_ % 2 == 0 else -1])
                self.results.add(case, DRAGOMAN, existing_load(order, scale, self._noise))
        if growth.partitions and self.options.wants("growth_in_use"):
            self._say(f"round {round_ + 1}: growth_in_use")
            gateway = growth.partitions[min(growth.partitions)]
            self.results.add("growth_in_use", DRAGOMAN, in_use(gateway, scale, self._noise))

    def _lifecycle(self, round_: int) -> None:
        if self.options.wants("startup"):
            self._say(f"round {round_ + 1}: starts on empty storage")
            for name, figures in start_empty(self.options.directory).items():
                self.results.add("startup", name, figures)
        if self.options.wants("startup_runs"):
            self._say(f"round {round_ + 1}: starts with a ledger of 10^6 runs")
            self.results.add("startup_runs", DRAGOMAN, start_with_runs(self.options.directory))
        if self.options.wants("ledger"):
            self._say(f"round {round_ + 1}: the ledger alone")
            self.results.add("ledger", DRAGOMAN, ledger_alone(ALONE_RUNS))

    @contextmanager
    def _all(self) -> Iterator[Sequence[BenchServer]]:
        with ExitStack() as stack:
            servers: list[BenchServer] = [
                BenchKafka(self.options.directory / "kafka"),
                BenchGateway(self.options.directory / "gateway", GROUPS_AS_KAFKA),
            ]
            if any(case.acked and self.options.wants(*case.names) for case in CASES):
                synced = BenchKafka(self.options.directory / "synced", SYNCED_KAFKA, SYNCED)
                servers.append(synced)
            for server in servers:
                stack.callback(server.remove)
                server.start()
            yield servers

    def _noise(self, percent: float) -> None:
        self.results.others_percent.append(percent)

    def _say(self, words: str) -> None:
        self.console.print(words, style="dim", highlight=False)


def _turn(servers: Sequence[BenchServer], round_: int) -> Sequence[BenchServer]:
    return servers if round_ % 2 == 0 else servers[::-1]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run",
        description="Measure Apache Kafka and Dragoman on this machine, alternately.",
        epilog=f"cases: {', '.join(NAMES)}",
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--quick", action="store_true", help="little load, short warming: for a first look")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="this case, or all whose names begin so; may repeat",
    )
    parser.add_argument("--warm", type=float, metavar="S", help="seconds of warming each (60; quick: 8)")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="where performance.md goes (docs if nothing was shortened)"
    )
    parser.add_argument(
        "--page", metavar="NAME", help="write docs/performance-NAME.md, a page of the cases of --only"
    )
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="where servers store (a temporary directory)"
    )
    requested = parser.parse_args(arguments)
    for word in requested.only:
        if not selected(NAMES, [word], NAMES):
            parser.error(f"no case begins with {word!r}")
    if requested.page is not None and (requested.quick or not requested.only):
        parser.error("--page is for a run with --only, and without --quick")
    if requested.page is not None and PAGE_NAME.fullmatch(requested.page) is None:
        parser.error(f"--page {requested.page}: write small letters")
    return requested


def main(arguments: Sequence[str]) -> int:
    requested = parse(arguments)
    console = Console(stderr=True)
    if (reason := why_missing()) is not None:
        console.print(f"Apache Kafka cannot run here: {reason}")
        return 2
    if (reason := allow_open_files(OPEN_FILES)) is not None:
        console.print(f"the bench cannot run here: {reason}")
        return 2
    shortened = requested.quick or requested.only or requested.rounds < 5
    in_docs = requested.page or not shortened
    output = requested.output or (ROOT / "docs" if in_docs else CACHE / "bench")
    directory = Path(tempfile.mkdtemp(prefix="dragoman-bench-", dir=requested.work))
    warm_s = requested.warm if requested.warm is not None else 8.0 if requested.quick else 60.0
    options = Options(requested.rounds, requested.quick, requested.only, warm_s, output, directory)
    touched = 0 if requested.quick else touch_free_memory()
    bench = Bench(options, console)
    try:
        bench.run()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    facts = describe_machine(directory.parent)
    settings: dict[str, object] = {
        "rounds": options.rounds,
        "seconds of warming": options.warm_s,
        "quick": options.quick,
        "memory touched before": f"{touched / 2**30:.0f} GiB",
    }
    if requested.only:
        settings["cases"] = ", ".join(requested.only)
    written = write_report(output, bench.results, facts, settings, requested.page or "")
    print_table(list(bench.results.lines()), Console(width=150))
    console.print(f"written: {written}")
    return 0


if __name__ == "__main__":
    # Ended from outside, the servers are stopped all the same.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
