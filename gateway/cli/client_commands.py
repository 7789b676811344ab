"""Flags and help of the commands that speak Kafka: topics, produce, consume, demo."""

from typing import Annotated

import typer

from gateway.cli.completion import (
    complete_codecs,
    complete_configs,
    complete_groups,
    complete_topics,
    completer_of,
)
from gateway.cli.contact import DEFAULT_BOOTSTRAP, Contact
from gateway.cli.exits import Exit
from gateway.cli.help_text import help_text
from gateway.cli.options import (
    AsJson,
    Bootstrap,
    TlsCa,
    TlsCert,
    TlsKey,
    Yes,
    bootstrap_option,
    format_option,
    set_option,
)

TOPICS_HELP = help_text("""
List, create, describe, alter, trim and delete topics of a gateway, or of any Kafka endpoint.

    dragoman topics create orders --partitions 3 --set retention.ms=86400000
    dragoman topics describe orders
""")
TRIM_HELP = help_text("""
Delete the records of a topic before an offset or a time, for ever.

Prints what would be deleted; --execute does it.

    dragoman topics trim orders --before 2026-01-31T12:00:00
    dragoman topics trim orders --before -1000 --execute    # all but the last 1000 of each partition
    dragoman topics trim orders --partition 0 --before 1500 --execute
""")
PRODUCE_HELP = help_text("""
Send the lines of stdin as records, each acknowledged (acks=all, idempotent).

    echo hello | dragoman produce greetings
    echo '17:{"total": 3}' | dragoman produce orders --key-separator :
    dragoman produce copy --format json < records.jsonl

The endpoint may create the topic. Records with the same key go to the same partition, as with Java's
producer.

--format json takes what [bold]consume --json[/bold] prints: keys, nulls, headers, timestamps and partitions
stay as they are. Only "value" is required. Without "partition" the key selects it; without "timestamp_ms" the
record gets the current time; "topic" and "offset" are ignored.
""")
CONSUME_HELP = help_text("""
Print all records, and new ones as they are written, until Ctrl-C (exit code 130).

    dragoman consume greetings --to-end       # the present records, then stop
    dragoman consume orders --from -10        # the last ten of each partition
    dragoman consume orders --from 2026-01-31T12:00:00 --count 5 --json
    dragoman consume orders --partition 0 --from 100 --until 200
    dragoman consume orders payments --group billing --format '%t %k: %v\\n'

While a gateway restarts, the command retries for 30 s. If only some partitions have the offset (--from 1000),
reading begins at the nearest record in the others. --until never waits for records that are not there yet.

With --isolation-level read_committed records of aborted transactions are left out, and those of open ones
wait; --to-end then stops where the first open one began.

With --group it shares the partitions with the other members of the group, begins at the committed offsets
(--from says where, if there are none), and commits what it has printed: every 5 s, and at the end.

A format string has %t topic, %p partition, %o offset, %T timestamp in ms, %k key, %v value, %K and %V their
lengths (-1: null), %h headers, %% a percent sign; \\n and \\t. It says itself where lines end.
""")
DEMO_HELP = help_text("""
Produce ten records to topic demo of a gateway on this machine, and consume them again.

    dragoman demo --bootstrap 127.0.0.1:9092
""")

Names = Annotated[
    list[str], typer.Argument(help="Topic names.", metavar="TOPIC", autocompletion=complete_topics)
]
NewNames = Annotated[list[str], typer.Argument(help="Topic names.", metavar="TOPIC")]
Name = Annotated[str, typer.Argument(help="Topic name.", metavar="TOPIC", autocompletion=complete_topics)]
Configs = Annotated[
    list[str] | None, set_option("A topic config; repeat for more.", "NAME=VALUE", complete_configs)
]
KeySeparator = typer.Option(
    "--key-separator", "-K", help=r"Between key and value; \t is a tab.", metavar="TEXT"
)
Start = Annotated[
    str,
    typer.Option(
        "--from",
        "-o",
        help="earliest, latest, offset, -N from the end, time.",
        metavar="WHERE",
        autocompletion=completer_of("earliest", "latest"),
    ),
]
Isolation = Annotated[
    str,
    typer.Option(
        "--isolation-level",
        help="read_committed leaves out what transactions aborted.",
        metavar="LEVEL",
        autocompletion=completer_of("read_uncommitted", "read_committed"),
    ),
]
Printed = Annotated[
    str, format_option("value, key-value, json, or a format string.", "value", "key-value", "json")
]

topics_app = typer.Typer(name="topics", help=TOPICS_HELP, no_args_is_help=True, rich_markup_mode="rich")


@topics_app.command("list", help="List the topics.")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics too.", metavar="")] = False,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="How many offsets and bytes they have.", metavar="")
    ] = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.topics import list_topics

    end_with(lambda: list_topics(Contact(bootstrap, tls_ca, tls_cert, tls_key), internal, sizes, as_json))


@topics_app.command(help="Create topics.")
def create(
    names: NewNames,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; -1 = the endpoint's default.", metavar="N")
    ] = -1,
    replicas: Annotated[
        int, typer.Option("--replicas", help="How many; -1 = the endpoint's default.", metavar="N")
    ] = -1,
    configs: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="One that exists is no error.", metavar="")
    ] = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.topics import CreateOptions
    from gateway.cli.topics import create as work

    options = CreateOptions(names, partitions, replicas, configs or (), if_not_exists, as_json)
    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), options))


@topics_app.command(help="Print partitions, offsets, and the configs that were set.")
def describe(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Configs by default too.", metavar="")
    ] = False,
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
        int | None, typer.Option("--partitions", "-p", help="Their new number.", metavar="N")
    ] = None,
    sets: Configs = None,
    unsets: Annotated[
        list[str] | None,
        typer.Option("--unset", help="Back to the default.", metavar="NAME", autocompletion=complete_configs),
    ] = None,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.topics import alter as work

    contact = Contact(bootstrap, tls_ca, tls_cert, tls_key)
    end_with(lambda: work(contact, name, partitions, sets or [], unsets or [], as_json))


@topics_app.command(help=TRIM_HELP)
def trim(
    name: Name,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            help="latest, offset, -N from the end, time.",
            metavar="WHERE",
            autocompletion=completer_of("latest"),
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this; repeat for more.", metavar="N")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it, instead of only printing it.", metavar="")
    ] = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.topics_trim import TrimOptions
    from gateway.cli.topics_trim import trim as work

    options = TrimOptions(name, before, partitions or (), execute, as_json)
    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), options))


@topics_app.command(help="Delete topics with all their records. Asks first on a terminal.")
def delete(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    yes: Yes = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="One that does not exist is no error.", metavar="")
    ] = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import confirm, end_with
    from gateway.cli.topics import delete as work

    if not yes:
        confirm(f"Delete {', '.join(names)} with all records?")
    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), names, if_exists, as_json))


def produce(
    name: Name,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    key_separator: Annotated[str, KeySeparator] = "",
    null: Annotated[
        str | None,
        typer.Option("--null", help="A key or value of exactly this text is null.", metavar="TEXT"),
    ] = None,
    format_: Annotated[
        str, format_option("lines, or json as consume --json prints it.", "lines", "json")
    ] = "lines",
    codec: Annotated[
        str,
        typer.Option(
            help="none, gzip, snappy, lz4 or zstd.", metavar="CODEC", autocompletion=complete_codecs
        ),
    ] = "none",
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Send here; repeat for more.", metavar="N")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="For every record.", metavar="NAME=VALUE")
    ] = None,
    idempotent: Annotated[
        bool, typer.Option(help="A batch that is sent again is stored once.", metavar="")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON line for each batch, on stdout.", metavar="")
    ] = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.produce import ProduceOptions
    from gateway.cli.produce import produce as work

    options = ProduceOptions(
        name, key_separator, codec, partitions or (), headers or (), idempotent, as_json, format_, null
    )
    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), options))


def consume(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    start: Start = "earliest",
    until: Annotated[
        str | None, typer.Option("--until", help="Stop before this offset, -N or time.", metavar="WHERE")
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this; repeat for more.", metavar="N")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Read as a member of this group, and commit.",
            metavar="GROUP",
            autocompletion=complete_groups,
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=0, help="Stop after N records.", metavar="N")
    ] = None,
    to_end: Annotated[
        bool, typer.Option("--to-end", "-e", help="Stop at the present end.", metavar="")
    ] = False,
    isolation: Isolation = "read_uncommitted",
    format_: Printed = "value",
    key_separator: Annotated[str, KeySeparator] = r"\t",
    null: Annotated[str, typer.Option("--null", help="Printed for a null.", metavar="TEXT")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.", metavar="")] = False,
) -> None:
    from gateway.cli.consume import ConsumeOptions, isolation_of
    from gateway.cli.consume import consume as work
    from gateway.cli.output import end_with
    from gateway.cli.record_output import OutputOptions

    output = OutputOptions("json" if as_json else format_, key_separator, null)

    def done() -> Exit:
        level = isolation_of(isolation)
        options = ConsumeOptions(names, start, partitions or (), count, to_end, until, group, level, output)
        return work(Contact(bootstrap, tls_ca, tls_cert, tls_key), options)

    end_with(done)


def demo(
    bootstrap: Annotated[str, bootstrap_option("Where a gateway listens, without TLS.")] = DEFAULT_BOOTSTRAP,
) -> None:
    from gateway.cli.demo import end_with_demo

    raise typer.Exit(end_with_demo(bootstrap))
