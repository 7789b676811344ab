"""`dragoman ledger export`: writes a ledger in KafScale's layout, by a job in a process of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway.cli.consume import isolation_of
from gateway.cli.exits import Exit
from gateway.cli.fetching import READ_COMMITTED
from gateway.cli.job_process import TlsFiles, job_lines, ready_request
from gateway.cli.output import UsageError, counted, print_json, print_text, size_text, talk
from gateway.host import precise_s
from gateway.settings import Settings
from ledger.formats.kafscale import KafScalePartition, segment_keys

FILE: Final = "file:"
S3: Final = "s3://"
SHOWN_S: Final = 5.0
"""How often progress is printed."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """`topics`: their names; empty: all."""

    target: str
    namespace: str
    topics: Sequence[str] = ()
    isolation: str = "read_committed"
    as_json: bool = False
    tls: TlsFiles = field(default_factory=TlsFiles)


def export_ledger(settings: Settings, options: ExportOptions) -> Exit:
    place = {
        "target": kafscale_url(options.target, "TARGET"),
        "namespace": checked_namespace(options.namespace),
        "committed": isolation_of(options.isolation) == READ_COMMITTED,
    }
    wanted = {"job": "export", "topics": list(options.topics), "options": place}
    with ready_request(settings, options.tls) as ready:
        done = _run({**ready, **wanted}, options)
    _show(done, options)
    return Exit.OK


def _run(request: Mapping[str, Any], options: ExportOptions) -> Mapping[str, Any]:
    shown_s = precise_s()
    for key, value in job_lines(request):
        if key == "summary":
            return dict(value)
        if key == "progress" and not options.as_json and precise_s() - shown_s >= SHOWN_S:
            shown_s = precise_s()
            talk(f"{counted(value['segments'], 'segment')} written, {size_text(value['written_bytes'])}")
    raise AssertionError("a job ends with a summary or an error")


def kafscale_url(place: str, name: str) -> str:
    """For a process that may have another working directory. UsageError for what is no bucket."""
    if place.startswith(S3):
        return place
    directory = place.removeprefix(FILE).removeprefix("//")
    if not place.startswith(FILE) or not directory:
        raise UsageError(f"{name} is s3://BUCKET/PREFIX[?endpoint=URL], or file:DIR")
    return f"{FILE}{Path(directory).absolute()}"


def checked_namespace(namespace: str) -> str:
    """UsageError for one that no key can have."""
    try:
        segment_keys(KafScalePartition(namespace, "t", 0), 0)
    except ValueError as error:
        raise UsageError(f"--namespace: {error}") from None
    return namespace


def _show(done: Mapping[str, Any], options: ExportOptions) -> None:
    if options.as_json:
        print_json(done)
        return
    for topic in dict.fromkeys(done["gone"]):
        talk(f"The topic {topic} was deleted meanwhile.")
    aborted = f", {counted(done['left_out'], 'aborted one')} left out" if done["left_out"] else ""
    there = f", {counted(done['present'], 'segment')} were there already" if done["present"] else ""
    print_text(
        f"Exported {counted(done['partitions'], 'partition')} in {done['took_s']:.1f} s: "
        f"{counted(done['segments'], 'segment')} with {counted(done['batches'], 'batch', 'batches')} written"
        f"{aborted}{there}; "
        f"{size_text(done['read_bytes'])} read and {size_text(done['written_bytes'])} written by "
        f"{counted(done['reads'] + done['target_reads'], 'read')}, "
        f"{counted(done['listings'], 'listing')} and {counted(done['writes'], 'write')}, "
        f"${done['dollars']:.4f}."
    )
