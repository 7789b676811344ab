"""Where a gateway's time goes under a load: `python -m bench.profile produce_1k_p6 --output DIR`.

Draws the stacks that py-spy saw on a CPU as a flame graph, and prints functions by their own share and by
their share with all they call. A case of a stream is both producing and catching up.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench import proc
from bench.case import FULL, QUICK
from bench.cases import CASES
from bench.flames import flame_svg
from bench.servers import BenchGateway

SHOWN = 45
RATE_HZ = 250
# py-spy takes a thread that waits in C for one that works.
_WAITING = (
    "_work (adapters/threads.py",
    "Condition.wait (threading.py",
    "_worker (concurrent/futures",
    "Runner.run (asyncio",
)


def read_folded(text: str) -> Counter[tuple[str, ...]]:
    """Samples by stack, outermost first, of `a;b;c 12` lines."""
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        stacks[tuple(frames.split(";"))] += int(count)
    return stacks


def working(stacks: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """Without those of threads that wait for work."""
    return Counter({stack: count for stack, count in stacks.items() if not stack[-1].startswith(_WAITING)})


def shares(stacks: Counter[tuple[str, ...]]) -> tuple[Counter[str], Counter[str]]:
    """Samples by frame: its own, and with all that it calls (a recursive frame counts once a stack)."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for stack, count in stacks.items():
        own[stack[-1]] += count
        for frame in set(stack):
            whole[frame] += count
    return own, whole


def record(case_name: str, output: Path, repeats: int, *, quick: bool, lines: bool) -> Path:
    """Run one case `repeats` times against a fresh gateway under py-spy; returns the folded stacks."""
    case = next(case for case in CASES if case_name in case.names)
    scale = QUICK if quick else FULL
    directory = Path(tempfile.mkdtemp(prefix="dragoman-profile-"))
    gateway = BenchGateway(directory / "gateway")
    output.mkdir(parents=True, exist_ok=True)
    folded = output / f"{case_name}.folded"
    try:
        gateway.start()
        case.run(gateway, QUICK, lambda percent: None)
        command = ["py-spy", "record", "--pid", str(gateway.pid), "--rate", str(RATE_HZ), "--threads"]
        command += ["--format", "raw", "--output", str(folded), *([] if lines else ["--function"])]
        spy = subprocess.Popen([str(Path(sys.executable).with_name(command[0])), *command[1:]])
        before = proc.cpu_seconds(gateway.pid)
        for _ in range(repeats):
            figures = case.run(gateway, scale, lambda percent: None)
            sys.stdout.write(f"{figures}\n")
        sys.stdout.write(f"CPU {proc.cpu_seconds(gateway.pid) - before:.1f} s\n")
        spy.send_signal(signal.SIGINT)
        spy.wait(60)
        # Threads are called after what they store, in directories that are gone.
        folded.write_text(folded.read_text().replace(f"{directory}/", ""))
    finally:
        gateway.remove()
        shutil.rmtree(directory, ignore_errors=True)
    return folded


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile")
    parser.add_argument("case")
    parser.add_argument("--output", type=Path, default=Path("docs/profiles"))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--lines", action="store_true", help="by line and not by function")
    requested = parser.parse_args(arguments)
    folded = record(
        requested.case, requested.output, requested.repeats, quick=requested.quick, lines=requested.lines
    )
    stacks = working(read_folded(folded.read_text()))
    folded.unlink()
    folded.with_suffix(".svg").write_text(flame_svg(stacks, f"dragoman serve under {requested.case}"))
    own, whole = shares(stacks)
    total = sum(stacks.values())
    for title, counted in (("own", own), ("with all they call", whole)):
        sys.stdout.write(f"\n{title}, of {total} samples\n")
        for frame, count in counted.most_common(SHOWN):
            sys.stdout.write(f"{100 * count / total:6.1f} %  {frame}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
