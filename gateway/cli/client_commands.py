"""Flags and help of the commands that speak Kafka: topics, produce, consume."""

from typing import Annotated

import typer

from gateway.cli.contact import Contact

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TOPICS_HELP = """List, create, describe, alter and delete topics of a gateway, or of any Kafka endpoint.

    dragoman topics create orders --partitions 3 --set retention.ms=86400000
    dragoman topics describe orders
"""
PRODUCE_HELP = """Send the lines of stdin as records, each acknowledged (acks=all, idempotent).

    echo hello | dragoman produce greetings
    dragoman produce orders --key-separator : < orders.txt     # lines such as 17:{"total": 3}

The topic is created if the endpoint does so. Records with one key go to one partition, the same that a Java
producer takes.
"""
CONSUME_HELP = """Print records, from the earliest on and then as they come, until Ctrl-C (exit code 130).

    dragoman consume greetings --to-end                        # what is there, then stop
    dragoman consume orders --from -10 --partition 0           # the last ten of partition 0, and what comes
    dragoman consume orders --from 2026-01-31T12:00:00 --count 5 --format json
"""

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        help="Where to connect; several by commas; SSL:// before it speaks TLS.",
        metavar="HOST:PORT",
    ),
]
TlsCa = Annotated[
    str,
    typer.Option(
        "--tls-ca", help="Trust these CAs, not the machine's.", metavar="PEM", rich_help_panel="TLS"
    ),
]
TlsCert = Annotated[
    str,
    typer.Option("--tls-cert", help="Show this client certificate.", metavar="PEM", rich_help_panel="TLS"),
]
TlsKey = Annotated[
    str,
    typer.Option(
        "--tls-key", help="Its key, if it is in another file.", metavar="PEM", rich_help_panel="TLS"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
Names = Annotated[list[str], typer.Argument(help="Topic names.", metavar="TOPIC...")]
Name = Annotated[str, typer.Argument(help="Topic name.", metavar="TOPIC")]
Configs = Annotated[
    list[str] | None, typer.Option("--set", help="A topic config; repeat for more.", metavar="NAME=VALUE")
]

topics_app = typer.Typer(name="topics", help=TOPICS_HELP, no_args_is_help=True, rich_markup_mode="rich")


@topics_app.command("list", help="List the topics.")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics too.")] = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.topics import list_topics

    end_with(lambda: list_topics(Contact(bootstrap, tls_ca, tls_cert, tls_key), internal, as_json))


@topics_app.command(help="Create topics.")
def create(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; -1 = the endpoint's default.")
    ] = -1,
    replicas: Annotated[int, typer.Option("--replicas", help="How many; -1 = the endpoint's default.")] = -1,
    configs: Configs = None,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.topics import create as work

    end_with(
        lambda: work(
            Contact(bootstrap, tls_ca, tls_cert, tls_key), names, partitions, replicas, configs or [], as_json
        )
    )


@topics_app.command(help="Print partitions, offsets, and the configs that were set.")
def describe(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    all_configs: Annotated[bool, typer.Option("--all-configs", help="Also those by default.")] = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.topics import describe as work

    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), names, all_configs, as_json))


@topics_app.command(help="Change configs, or add partitions (their number only grows).")
def alter(
    name: Name,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="How many there are to be.")
    ] = None,
    sets: Configs = None,
    unsets: Annotated[
        list[str] | None, typer.Option("--unset", help="Back to the default.", metavar="NAME")
    ] = None,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.topics import alter as work

    end_with(
        lambda: work(
            Contact(bootstrap, tls_ca, tls_cert, tls_key), name, partitions, sets or [], unsets or []
        )
    )


@topics_app.command(help="Delete topics with all their records. Asks first when typed on a terminal.")
def delete(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    import sys

    from gateway.cli.output import end_with
    from gateway.cli.topics import delete as work

    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(names)} with all records?", abort=True, err=True)
    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), names))


def produce(
    name: Name,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    key_separator: Annotated[
        str, typer.Option("--key-separator", "-K", help="Between key and value of a line.", metavar="TEXT")
    ] = "",
    codec: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Send here; repeat for more.", metavar="N")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="For every record.", metavar="NAME=VALUE")
    ] = None,
    idempotent: Annotated[bool, typer.Option(help="A batch that is sent again is stored once.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line for each batch, on stdout.")] = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.produce import ProduceOptions
    from gateway.cli.produce import produce as work

    options = ProduceOptions(name, key_separator, codec, partitions or (), headers or (), idempotent, as_json)
    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), options))


def consume(
    name: Name,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    start: Annotated[
        str,
        typer.Option(
            "--from", "-o", help="earliest, latest, offset, -N from the end, time.", metavar="WHERE"
        ),
    ] = "earliest",
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this; repeat for more.", metavar="N")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=0, help="Stop after so many records.", metavar="N")
    ] = None,
    to_end: Annotated[bool, typer.Option("--to-end", "-e", help="Stop at the present end.")] = False,
    format_: Annotated[
        str, typer.Option("--format", "-f", help="value, key-value or json.", metavar="FORMAT")
    ] = "value",
    key_separator: Annotated[
        str, typer.Option("--key-separator", "-K", help="Between key and value.", metavar="TEXT")
    ] = "\t",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    from gateway.cli.consume import ConsumeOptions, parse_format
    from gateway.cli.consume import consume as work
    from gateway.cli.output import end_with

    end_with(
        lambda: work(
            Contact(bootstrap, tls_ca, tls_cert, tls_key),
            ConsumeOptions(
                name,
                start,
                partitions or (),
                count,
                to_end,
                parse_format("json" if as_json else format_),
                key_separator,
            ),
        )
    )
