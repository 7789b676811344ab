"""Flags and help of `dragoman compact ...`; the work is imported when it runs."""

from typing import Annotated

import typer

from gateway.cli.help_text import help_text
from gateway.cli.options import (
    AsJson,
    Assignments,
    Config,
    Data,
    DataDir,
    Engine,
    Master,
    Metadata,
    SparkConf,
    TlsCa,
    TlsCert,
    TlsKey,
)

COMPACT_HELP = help_text("""
Rewrite what is stored, so that it is read at less cost and the ledger stays small. No record is lost.
""")
SEGMENTS_HELP = help_text("""
Merge the runs that producers have left into segments: objects of one partition, in offset order.

    dragoman compact segments --data-dir /var/lib/dragoman --dry-run
    dragoman compact segments --data-dir /var/lib/dragoman
    dragoman compact segments --config gateway.toml --topics orders,payments --watch
    dragoman compact segments --data-dir /var/lib/dragoman --engine spark --master spark://host:7077

Clients may produce and consume meanwhile, and the command may be interrupted at any time. If no gateway
runs on this ledger, one without listeners does for as long as the command takes. A gateway merges by itself
when there are many small runs (housekeeping.merge_runs). Exits with 3 if runs are damaged or missing: those
are left as they are.
""")

LEDGER_HELP = help_text("""
Write for each partition where its records are, for readers without a gateway: a settled ledger.

    dragoman compact ledger --data-dir /var/lib/dragoman --dry-run
    dragoman compact ledger --data-dir /var/lib/dragoman
    dragoman compact ledger --data-dir /var/lib/dragoman --engine spark --master spark://host:7077
    dragoman ledger translate orders 0 4711 --data-dir /var/lib/dragoman

A partition that has not changed since its last one is left out. The one before is deleted after
ledger.orphan_grace_ms. A settled ledger is right when it is written, and ages: it keeps none of the objects
that it names from being merged or deleted. Exits with 3 if partitions have no new one; they are named.
""")

Topics = Annotated[
    str | None, typer.Option(help="Names of topics, with commas between; default all.", metavar="NAMES")
]

compact_app = typer.Typer(name="compact", help=COMPACT_HELP, no_args_is_help=True, rich_markup_mode="rich")


@compact_app.callback()
def compact() -> None:
    pass


@compact_app.command(help=SEGMENTS_HELP)
def segments(
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    topics: Topics = None,
    engine: Engine = "",
    master: Master = "",
    spark_conf: SparkConf = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be merged, and merge nothing.", metavar="")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Again every minute, until interrupted.", metavar="")
    ] = False,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.compact import CompactOptions, compact_segments
    from gateway.cli.job_process import EngineOptions, TlsFiles
    from gateway.cli.offline_state import settings_for
    from gateway.cli.output import end_with

    flags = {"storage.metadata": metadata, "storage.data": data}
    names = _names(topics)
    tls = TlsFiles(tls_ca, tls_cert, tls_key)
    options = CompactOptions(
        names, EngineOptions(engine, master, spark_conf or ()), dry_run, as_json, watch, tls
    )
    end_with(lambda: compact_segments(settings_for(config, data_dir, flags, assignments or ()), options))


@compact_app.command(help=LEDGER_HELP)
def ledger(
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    topics: Topics = None,
    engine: Engine = "",
    master: Master = "",
    spark_conf: SparkConf = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be written, and write nothing.", metavar="")
    ] = False,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.compact import CompactOptions
    from gateway.cli.compact_ledger import compact_ledger
    from gateway.cli.job_process import EngineOptions, TlsFiles
    from gateway.cli.offline_state import settings_for
    from gateway.cli.output import end_with

    flags = {"storage.metadata": metadata, "storage.data": data}
    tls = TlsFiles(tls_ca, tls_cert, tls_key)
    carrier = EngineOptions(engine, master, spark_conf or ())
    options = CompactOptions(_names(topics), carrier, dry_run, as_json, tls=tls)
    end_with(lambda: compact_ledger(settings_for(config, data_dir, flags, assignments or ()), options))


def _names(topics: str | None) -> tuple[str, ...]:
    return tuple(name for name in (topics or "").split(",") if name)
