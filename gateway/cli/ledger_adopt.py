"""`dragoman ledger adopt`: makes a bucket of KafScale readable, by a job in a process of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.cli.exits import Exit
from gateway.cli.job_process import TlsFiles, job_lines, ready_request
from gateway.cli.ledger_export import SHOWN_S, checked_namespace, kafscale_url
from gateway.cli.output import counted, print_json, print_table, print_text, size_text, talk
from gateway.host import precise_s
from gateway.settings import Settings


@dataclass(frozen=True, slots=True)
class AdoptOptions:
    """`topics`: their names; empty: all."""

    source: str
    namespace: str
    topics: Sequence[str] = ()
    dry_run: bool = False
    as_json: bool = False
    tls: TlsFiles = field(default_factory=TlsFiles)


def adopt_bucket(settings: Settings, options: AdoptOptions) -> Exit:
    wanted = {
        "job": "adopt",
        "topics": list(options.topics),
        "dry_run": options.dry_run,
        "options": {
            "source": kafscale_url(options.source, "SOURCE"),
            "namespace": checked_namespace(options.namespace),
        },
    }
    planned: list[Mapping[str, Any]] = []
    with ready_request(settings, options.tls) as ready:
        done = _run({**ready, **wanted}, options, planned)
    if options.as_json:
        print_json({"planned": planned, "summary": done})
    else:
        _show(planned, done, options)
    return Exit.OK


def _run(
    request: Mapping[str, Any], options: AdoptOptions, planned: list[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """The summary; `planned` gets what is found of each topic."""
    shown_s = precise_s()
    for key, value in job_lines(request):
        if key == "planned":
            planned.append(value)
        elif key == "summary":
            return dict(value)
        elif key == "progress" and not options.as_json and precise_s() - shown_s >= SHOWN_S:
            shown_s = precise_s()
            talk(
                f"{counted(value['verified'], 'segment')} verified, {size_text(value['read_bytes'])}; "
                f"{value['segments']} adopted"
            )
    raise AssertionError("a job ends with a summary or an error")


def _show(planned: Sequence[Mapping[str, Any]], done: Mapping[str, Any], options: AdoptOptions) -> None:
    print_table(
        ("TOPIC", "PARTITIONS", "SEGMENTS", "BYTES"),
        [
            (topic["topic"], topic["partitions"], topic["segments"], size_text(topic["bytes"]))
            for topic in planned
        ],
    )
    if done["without_index"]:
        were = "was" if done["without_index"] == 1 else "were"
        talk(f"{counted(done['without_index'], 'segment')} without an index {were} left out.")
    if done["ended"]:
        talk(f"{counted(done['ended'], 'topic')} adopted before.")
    spent = (
        f"in {done['took_s']:.1f} s, {size_text(done['read_bytes'])} read by "
        f"{counted(done['reads'], 'read')} and {counted(done['listings'], 'listing')}, "
        f"${done['dollars']:.4f}"
    )
    if options.dry_run:
        print_text(f"Verified {counted(done['verified'], 'segment')} {spent}; nothing has changed.")
        return
    print_text(
        f"Adopted {counted(done['topics'], 'topic')} with {counted(done['segments'], 'segment')} {spent}. "
        f"{size_text(done['bytes'])} stay in the bucket until they are merged: dragoman compact segments."
    )
