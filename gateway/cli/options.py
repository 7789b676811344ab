"""Flags that several commands have."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from gateway.cli.completion import complete_settings, completer_of


def bootstrap_option(help_: str) -> Any:
    return typer.Option("--bootstrap", "-b", help=help_, metavar="HOST:PORT", envvar="DRAGOMAN_BOOTSTRAP")


def endpoint_option(help_: str) -> Any:
    """Of one of two endpoints."""
    return typer.Option(
        "--bootstrap",
        "-b",
        help=help_,
        metavar="HOST:PORT",
        envvar="DRAGOMAN_BOOTSTRAP",
        rich_help_panel="Two endpoints",
    )


def set_option(help_: str, metavar: str, complete: Callable[..., list[str]]) -> Any:
    """NAME=VALUE, any number of times."""
    return typer.Option("--set", help=help_, metavar=metavar, autocompletion=complete)


def format_option(help_: str, *formats: str) -> Any:
    """The format of records on stdin or stdout."""
    return typer.Option("--format", "-f", help=help_, metavar="FORMAT", autocompletion=completer_of(*formats))


def _tls_option(flag: str, help_: str) -> Any:
    environment = "DRAGOMAN_CLIENT_" + flag.removeprefix("--").replace("-", "_").upper()
    return typer.Option(flag, help=help_, metavar="PEM", rich_help_panel="TLS", envvar=environment)


Bootstrap = Annotated[
    str, bootstrap_option("Where to connect; several by commas; SSL:// before it speaks TLS.")
]
TlsCa = Annotated[str, _tls_option("--tls-ca", "Trust these CAs, not the machine's.")]
TlsCert = Annotated[str, _tls_option("--tls-cert", "Show this client certificate.")]
TlsKey = Annotated[str, _tls_option("--tls-key", "Its key, if it is in another file.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="JSON on stdout; errors stay text on stderr.", metavar="")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", metavar="")]
Config = Annotated[str | None, typer.Option(help="TOML file with settings.", metavar="FILE")]
DataDir = Annotated[
    str | None, typer.Option(help="Directory of the embedded stores; default data.", metavar="DIR")
]
Metadata = Annotated[
    str | None,
    typer.Option(
        help="Metadata: file:DIR, sqlite:PATH, s3://, etcd:// or filer://; default in the data directory.",
        metavar="URL",
    ),
]
Data = Annotated[
    str | None,
    typer.Option(help="Record data: file:DIR or s3://; default in the data directory.", metavar="URL"),
]
Assignments = Annotated[
    list[str] | None, set_option("Any setting; repeat for more.", "SECTION.KEY=VALUE", complete_settings)
]
Engine = Annotated[
    str,
    typer.Option(
        help="What carries the job out: local or spark; default local, below spark-submit spark.",
        metavar="NAME",
    ),
]
Master = Annotated[
    str,
    typer.Option(
        help="Where Spark runs, as for spark-submit; default all cores of this machine.", metavar="URL"
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", help="A property of Spark; repeat for more.", metavar="NAME=VALUE"),
]
