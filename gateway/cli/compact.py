"""`dragoman compact segments`: merges small runs into segments, by a job in a process of its own."""

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from gateway.cli.client import ClientError
from gateway.cli.exits import Exit
from gateway.cli.output import UsageError, counted, print_json, print_line, print_table, print_text, talk
from gateway.host import child_command, child_environment, precise_s
from gateway.housekeeping.merging import job_options
from gateway.internal.listener import bindings_of, socket_path
from gateway.settings import Settings
from gateway.store_assembly import urls_of

ENGINES: Final[Mapping[str, str]] = {"local": "pipeline.engines.local"}
"""The module of each engine: its docstring has the lines that go to it and come from it."""
WATCH_S: Final = 60.0
ON_TERMINAL_S, ELSEWHERE_S = 2.0, 15.0
"""How often progress is printed."""
END_S: Final = 10.0
TAIL_LINES: Final = 3
SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files for an SSL:// address of internal.listen."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """`topics`: their names; empty: all. `watch`: again and again, until interrupted."""

    topics: Sequence[str] = ()
    engine: str = "local"
    dry_run: bool = False
    as_json: bool = False
    watch: bool = False
    tls: TlsFiles = TlsFiles()


def compact_segments(settings: Settings, options: CompactOptions) -> Exit:
    """Merge, and print plan and summary. FINDINGS if runs were damaged or missing."""
    if options.engine not in ENGINES:
        raise UsageError(f"--engine {options.engine}: this build has {', '.join(ENGINES)}")
    code = _once(settings, options)
    while options.watch and not options.dry_run:
        time.sleep(WATCH_S)
        code = _once(settings, options)
    return code


def _once(settings: Settings, options: CompactOptions) -> Exit:
    request = {**job_request(settings, options.tls), "topics": list(options.topics)}
    began_s = precise_s()
    planned = sorted(_plan(request, options), key=itemgetter("topic"))
    rows = [topic for topic in planned if topic["merged_runs"]]
    if not options.as_json:
        _show_plan(rows)
    if options.dry_run or not rows:
        if options.as_json:
            _print({"planned": planned, "summary": None}, options)
        elif not options.dry_run:
            talk("There is nothing to merge.")
        return Exit.OK
    summary = _merge(request, options, sum(topic["merged_runs"] for topic in planned))
    if options.as_json:
        _print({"planned": planned, "summary": summary}, options)
    else:
        _show_summary(summary, precise_s() - began_s)
    return Exit.FINDINGS if summary["damages"] else Exit.OK


def job_request(settings: Settings, tls: TlsFiles) -> dict[str, Any]:
    """What every job needs: how the gateway and the stores are reached. UsageError if nothing says where the
    gateway is."""
    return {"peer": _peer(settings, tls), "far": job_options(settings.storage) or {}}


def _peer(settings: Settings, tls: TlsFiles) -> dict[str, Any]:
    """By its Unix socket, if it has one; else by the first address of internal.listen."""
    path = socket_path(settings.internal, urls_of(settings.storage).directory)
    if path is not None:
        return {"path": str(path)}
    for binding in bindings_of(settings):
        files = dataclasses.asdict(_whole(tls)) if binding.is_tls else {}
        return {"host": binding.bind.host, "port": binding.bind.port, **files}
    raise UsageError(
        "this gateway has no internal listener: without a data directory set internal.socket or "
        "internal.listen, for it and for this command"
    )


def _whole(tls: TlsFiles) -> TlsFiles:
    """With the key, which may be in the file of the certificate. UsageError if a file is absent."""
    if not (tls.ca and tls.certificate):
        raise UsageError(
            "internal.listen is SSL://: give --tls-ca, and --tls-cert of one of internal.principals"
        )
    return dataclasses.replace(tls, key=tls.key or tls.certificate)


def _plan(request: Mapping[str, Any], options: CompactOptions) -> Iterator[dict[str, Any]]:
    for key, value in _job({**request, "dry_run": True}, options):
        if key == "planned":
            yield value


def _merge(request: Mapping[str, Any], options: CompactOptions, planned_runs: int) -> dict[str, Any]:
    shown = _Shown(planned_runs)
    for key, value in _job(request, options):
        if key == "summary":
            return dict(value)
        if key == "progress":
            shown(value)
    raise AssertionError("a job ends with a summary or an error")


def _job(request: Mapping[str, Any], options: CompactOptions) -> Iterator[tuple[str, Any]]:
    """What a job says, to its summary. ClientError if it fails."""
    with _engine(ENGINES[options.engine]) as engine:
        assert engine.stdin is not None and engine.stdout is not None
        with suppress(BrokenPipeError):
            # What it wrote before it ended says why.
            engine.stdin.write(json.dumps(request) + "\n")
            engine.stdin.flush()
        tail: list[str] = []
        for line in engine.stdout:
            said = _said(line)
            if said is None:
                tail = [*tail[1 - TAIL_LINES :], line.strip()]
                continue
            ((key, value),) = said.items()
            if key == "error":
                raise ClientError(str(value))
            yield key, value
            if key == "summary":
                return
        raise ClientError(f"the job ended with {engine.wait()}" + (f": {' '.join(tail)}" if tail else ""))


@contextmanager
def _engine(module: str) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with this one, as its stdin does."""
    try:
        process = subprocess.Popen(
            child_command(["-m", module]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise ClientError(f"the job cannot be started: {error.strerror or error}") from error
    try:
        yield process
    finally:
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _said(line: str) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) and len(said) == 1 else None


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
            f"{counted(done['segments'], 'segment')}, {_size(done['run_bytes'])}"
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
                _size(topic["merged_bytes"]),
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
    requests = f"{counted(done['reads'], 'read')} and {counted(done['writes'], 'write')}"
    became = f"{counted(done['segment_runs'], 'run')} of {counted(done['segments'], 'segment')}"
    again = f", {counted(done['again'], 'plan')} made again" if done["again"] else ""
    print_text(
        f"Merged {counted(done['runs'], 'run')} of {_size(done['run_bytes'])} into {became} "
        f"in {took_s:.1f} s: "
        f"{_size(done['read_bytes'])} read and {_size(done['written_bytes'])} written by {requests}, "
        f"${done['dollars']:.4f}{again}."
    )


def _print(value: Mapping[str, Any], options: CompactOptions) -> None:
    show: Callable[[Any], None] = print_line if options.watch else print_json
    show(value)


def _size(size_bytes: int) -> str:
    return counted(size_bytes, "byte") if size_bytes < 1_000_000 else f"{size_bytes / 1_000_000:.1f} MB"
