"""Flags and help of `dragoman debug ...`."""

from typing import Annotated

import typer

from gateway.cli.contact import DEFAULT_BOOTSTRAP, Contact
from gateway.cli.help_text import help_text
from gateway.cli.options import (
    Assignments,
    Bootstrap,
    Config,
    Data,
    DataDir,
    Metadata,
    TlsCa,
    TlsCert,
    TlsKey,
)

DEBUG_HELP = help_text("""
For the search for faults.
""")
BUNDLE_HELP = help_text("""
Write settings, admin pages, metadata, configs, groups, facts of the host and logs into one archive.

    dragoman debug bundle --to fault.tar.gz --admin 127.0.0.1:9644 --config gateway.toml --log gateway.log

No records and no secrets are in it, but names of topics, groups, clients and hosts. What cannot be read is
named in failures.json. A gateway may run meanwhile; its data directory is not opened.
""")

debug_app = typer.Typer(name="debug", help=DEBUG_HELP, no_args_is_help=True, rich_markup_mode="rich")


@debug_app.callback()
def debug() -> None:
    """Keeps the name of the one command below it."""


@debug_app.command(help=BUNDLE_HELP)
def bundle(
    to: Annotated[str, typer.Option("--to", help="The archive to write.", metavar="FILE")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    admin: Annotated[
        str | None, typer.Option(help="Admin address of the gateway.", metavar="HOST:PORT")
    ] = None,
    logs: Annotated[
        list[str] | None,
        typer.Option("--log", help="Its last 16 MiB; repeat for more.", metavar="FILE"),
    ] = None,
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.debug_bundle import BundleOptions
    from gateway.cli.debug_bundle import bundle as work
    from gateway.cli.offline_state import settings_for
    from gateway.cli.output import end_with

    flags = {"storage.metadata": metadata, "storage.data": data}
    options = BundleOptions(
        to, lambda: settings_for(config, data_dir, flags, assignments or []), admin, logs or ()
    )
    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), options))
