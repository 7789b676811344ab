"""Flags and help of `dragoman ledger adopt` and `export`; the work is imported when it runs."""

from typing import Annotated

import typer

from gateway.cli.completion import completer_of
from gateway.cli.help_text import help_text
from gateway.cli.options import AsJson, Assignments, Config, Data, DataDir, Metadata, TlsCa, TlsCert, TlsKey

EXPORT_HELP = help_text("""
Write the records of a ledger in KafScale's layout, to a bucket or a directory.

    dragoman ledger export s3://archive/kafka --data-dir /var/lib/dragoman
    dragoman ledger export file:/mnt/archive --config gateway.toml --topics orders,payments
    dragoman ledger export 's3://archive/kafka?endpoint=http://minio:9000' --config gateway.toml

Every topic becomes segments, NAMESPACE/TOPIC/PARTITION/segment-OFFSET.kfs with an index each, with the
offsets and batches that consumers of read_committed see: without aborted transactions, and up to the first
one that is open; or with --isolation-level read_uncommitted all of them. Clients may produce meanwhile.
Nothing in the target is replaced: the same command goes on where it ended, also after an interruption, and
writes what has come since. Configs, groups and producers are not exported.
""")

ADOPT_HELP = help_text("""
Make a bucket of KafScale readable at its offsets, without copying it.

    dragoman ledger adopt s3://old/kafka --data-dir /var/lib/dragoman --dry-run
    dragoman ledger adopt s3://old/kafka --config gateway.toml --topics orders,payments
    dragoman ledger adopt 's3://old/kafka?endpoint=http://minio:9000' --config gateway.toml --namespace prod

Stop KafScale first. Every segment is read and verified; then each topic is created, or taken if it is there
without records, and its offsets are those of the segments. Producers go on after the last one, and are
refused with an error that they repeat until a topic is complete. Topics that are created keep their records
until retention.ms is set.

The segments stay where they are, and are never changed or deleted: keep the bucket until a merge
([bold]dragoman compact segments[/bold]) has copied them. The same command finishes an adoption that was
interrupted. Segments without an index are left out, as KafScale has not acknowledged them.
""")

Names = Annotated[
    str | None,
    typer.Option("--topics", help="Names of topics, with commas between; default all.", metavar="NAMES"),
]
Namespace = Annotated[
    str, typer.Option(help="KafScale's namespace: the first part of each key.", metavar="NAME")
]

Isolation = Annotated[
    str,
    typer.Option(
        "--isolation-level",
        help="read_committed, or read_uncommitted: with the records of aborted and open transactions.",
        metavar="LEVEL",
        autocompletion=completer_of("read_uncommitted", "read_committed"),
    ),
]


def adopt(
    source: Annotated[str, typer.Argument(help="s3:// or file:DIR.", metavar="SOURCE")],
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    namespace: Namespace = "default",
    topics: Names = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and verify, and change nothing.", metavar="")
    ] = False,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.job_process import TlsFiles
    from gateway.cli.ledger_adopt import AdoptOptions, adopt_bucket
    from gateway.cli.offline_state import settings_for
    from gateway.cli.output import end_with

    flags = {"storage.metadata": metadata, "storage.data": data}
    names = tuple(name for name in (topics or "").split(",") if name)
    options = AdoptOptions(source, namespace, names, dry_run, as_json, TlsFiles(tls_ca, tls_cert, tls_key))
    end_with(lambda: adopt_bucket(settings_for(config, data_dir, flags, assignments or ()), options))


def export(
    target: Annotated[str, typer.Argument(help="s3:// or file:DIR.", metavar="TARGET")],
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    namespace: Namespace = "default",
    topics: Names = None,
    isolation: Isolation = "read_committed",
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.job_process import TlsFiles
    from gateway.cli.ledger_export import ExportOptions, export_ledger
    from gateway.cli.offline_state import settings_for
    from gateway.cli.output import end_with

    flags = {"storage.metadata": metadata, "storage.data": data}
    names = tuple(name for name in (topics or "").split(",") if name)
    tls = TlsFiles(tls_ca, tls_cert, tls_key)
    options = ExportOptions(target, namespace, names, isolation, as_json, tls)
    end_with(lambda: export_ledger(settings_for(config, data_dir, flags, assignments or ()), options))
