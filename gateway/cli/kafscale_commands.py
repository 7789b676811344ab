"""Flags and help of `dragoman ledger export`; the work is imported when it runs."""

from typing import Annotated

import typer

from gateway.cli.help_text import help_text
from gateway.cli.options import AsJson, Assignments, Config, Data, DataDir, Metadata, TlsCa, TlsCert, TlsKey

EXPORT_HELP = help_text("""
Write the records of a running gateway in KafScale's layout, to a bucket or a directory.

    dragoman ledger export s3://archive/kafka --data-dir /var/lib/dragoman
    dragoman ledger export file:/mnt/archive --config gateway.toml --topics orders,payments
    dragoman ledger export 's3://archive/kafka?endpoint=http://minio:9000' --config gateway.toml

Every topic becomes segments, NAMESPACE/TOPIC/PARTITION/segment-OFFSET.kfs with an index each, with the
offsets and batches that consumers see. Clients may produce meanwhile. Nothing in the target is replaced: the
same command goes on where it ended, also after an interruption, and writes what has come since. Configs,
groups and producers are not exported.
""")

Names = Annotated[
    str | None,
    typer.Option("--topics", help="Names of topics, with commas between; default all.", metavar="NAMES"),
]
Namespace = Annotated[
    str, typer.Option(help="KafScale's namespace: the first part of each key.", metavar="NAME")
]


def export(
    target: Annotated[str, typer.Argument(help="s3:// or file:DIR.", metavar="TARGET")],
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    namespace: Namespace = "default",
    topics: Names = None,
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
    options = ExportOptions(target, namespace, names, as_json, TlsFiles(tls_ca, tls_cert, tls_key))
    end_with(lambda: export_ledger(settings_for(config, data_dir, flags, assignments or ()), options))
