"""Measures two revisions of Dragoman alternately: `python -m bench.pairs --against REVISION`.

What a change costs is smaller than what a machine's day does to the figures. So both revisions run all the
time, are loaded one at a time with the cases of `bench.cases`, and change places from round to round; what
counts is the median of the ratios round by round.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.case import FULL, QUICK, Case
from bench.cases import CASES, warm_up
from bench.machine import allow_open_files
from bench.memory import touch_free_memory
from bench.report import number, spread
from bench.results import Results, selected, unit_of
from bench.run import GROUPS_AS_KAFKA, OPEN_FILES
from bench.servers import BenchGateway
from bench.stats import median_ratio, summarize
from tests.support.versions import ROOT

BEFORE, AFTER = "before", "after"
NAMES: Final = tuple(name for case in CASES for name in case.names)


class RevisionGateway(BenchGateway):
    """`dragoman serve` from one checkout."""

    def __init__(self, name: str, tree: Path, directory: Path) -> None:
        super().__init__(directory, GROUPS_AS_KAFKA)
        self.name = name
        self.tree = tree


@contextmanager
def checked_out(revision: str, directory: Path) -> Iterator[Path]:
    """A work tree of a revision. Errors: subprocess.CalledProcessError where git does not know it."""
    tree = directory / "tree"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
    try:
        yield tree
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def measure_pairs(
    pair: Sequence[RevisionGateway], cases: Sequence[Case], options: argparse.Namespace, console: Console
) -> Results:
    """Each case on both gateways in every round; the first of a round is the second of the next."""
    results = Results()
    scale = QUICK if options.quick else FULL
    for gateway in pair:
        console.print(f"warming {gateway.name} for {options.warm:g} s", style="dim", highlight=False)
        warm_up(gateway, options.warm)
    for round_ in range(options.rounds):
        for case in cases:
            console.print(f"round {round_ + 1}: {case.title}", style="dim", highlight=False)
            for gateway in pair if round_ % 2 == 0 else pair[::-1]:
                for name, figures in case.run(gateway, scale, results.others_percent.append).items():
                    results.add(name, gateway.name, figures)
    return results


def table_of(results: Results, revision: str) -> Table:
    table = Table(title=f"median, least and greatest; ratio: median of after / before ({revision}) by round")
    for column in ("figure", "unit", BEFORE, AFTER, "ratio"):
        table.add_column(column, justify="left" if column in ("figure", "unit") else "right")
    for figure, values in results.values.items():
        ratio = median_ratio(values[AFTER], values[BEFORE])
        table.add_row(
            figure,
            unit_of(figure),
            spread(summarize(values[BEFORE])),
            spread(summarize(values[AFTER])),
            f"{ratio:.3f}x" if ratio is not None else "",
        )
    if results.others_percent:
        noise = summarize(results.others_percent)
        table.caption = f"other processes took {number(noise.median)} % of the cores (median)"
    return table


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pairs",
        description="Measure this tree and another revision of Dragoman, alternately.",
        epilog=f"cases: {', '.join(NAMES)}",
    )
    parser.add_argument("--against", required=True, metavar="REVISION", help="what to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="how many pairs (5)")
    parser.add_argument("--quick", action="store_true", help="little load: for a first look")
    parser.add_argument("--warm", type=float, default=20.0, metavar="S", help="seconds of warming each (20)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="cases whose names begin so; may repeat"
    )
    options = parser.parse_args(arguments)
    for word in options.only:
        if not selected(NAMES, [word], NAMES):
            parser.error(f"no case begins with {word!r}")
    return options


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    console = Console(stderr=True)
    if (reason := allow_open_files(OPEN_FILES)) is not None:
        console.print(f"the bench cannot run here: {reason}")
        return 2
    cases = [case for case in CASES if selected(case.names, options.only, NAMES)]
    directory = Path(tempfile.mkdtemp(prefix="dragoman-pairs-"))
    try:
        with ExitStack() as stack:
            tree = stack.enter_context(checked_out(options.against, directory))
            if not options.quick:
                touch_free_memory()
            pair = [
                RevisionGateway(BEFORE, tree, directory / BEFORE),
                RevisionGateway(AFTER, ROOT, directory / AFTER),
            ]
            for gateway in pair:
                stack.callback(gateway.remove)
                gateway.start()
            results = measure_pairs(pair, cases, options, console)
    except subprocess.CalledProcessError as error:
        console.print(f"git has no work tree of {options.against!r} to give (exit code {error.returncode})")
        return 2
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    Console(width=130).print(table_of(results, options.against))
    return 0


if __name__ == "__main__":
    # Ended from outside, the gateways are stopped all the same.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
