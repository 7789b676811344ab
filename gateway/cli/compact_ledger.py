"""`dragoman compact ledger`: writes settled ledgers, by a job in a process of its own."""

from collections.abc import Mapping
from typing import Any

from gateway.cli.compact import CompactOptions
from gateway.cli.exits import Exit
from gateway.cli.job_process import job_lines, ready_request
from gateway.cli.output import counted, print_json, print_table, print_text, talk
from gateway.settings import Settings


def compact_ledger(settings: Settings, options: CompactOptions) -> Exit:
    """Write, and print plan or summary. FINDINGS if partitions have no new one."""
    wanted = {"job": "ledger", "topics": list(options.topics), "dry_run": options.dry_run}
    with ready_request(settings, options.tls) as ready:
        planned, summary = _run({**ready, **options.engine.request(), **wanted})
    if options.as_json:
        print_json({"planned": planned, "summary": None if options.dry_run else summary})
    elif options.dry_run:
        print_table(
            ("TOPIC", "PARTITIONS", "TO WRITE", "OFFSETS"),
            [
                tuple(topic[name] for name in ("topic", "partitions", "to_write", "offsets"))
                for topic in planned
            ],
        )
    else:
        _show(summary)
    return Exit.FINDINGS if summary["left_partitions"] else Exit.OK


def _run(request: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    planned = list[dict[str, Any]]()
    for key, value in job_lines(request):
        if key == "planned":
            planned.append(value)
        elif key == "summary":
            return sorted(planned, key=lambda topic: str(topic["topic"])), dict(value)
    raise AssertionError("a job ends with a summary or an error")


def _show(done: Mapping[str, Any]) -> None:
    for sentence in done["left"]:
        talk(sentence)
    unchanged = f"{done['unchanged']} of {counted(done['partitions'], 'partition')} unchanged"
    print_text(
        f"Wrote {counted(done['named'], 'settled ledger')} of {counted(done['runs'], 'run')} in "
        f"{counted(done['objects'], 'object')}, {counted(done['written_bytes'], 'byte')}, in "
        f"{done['took_s']:.1f} s; {unchanged}."
    )
