"""Flags and help of `dragoman groups`."""

from typing import Annotated

import typer

from gateway.cli.completion import complete_groups, complete_topics, completer_of
from gateway.cli.contact import DEFAULT_BOOTSTRAP, Contact
from gateway.cli.help_text import help_text
from gateway.cli.options import AsJson, Bootstrap, TlsCa, TlsCert, TlsKey, Yes

GROUPS_HELP = help_text("""
List, describe and delete consumer groups, and set where they continue reading.

    dragoman groups list --state Stable --lag
    dragoman groups describe billing      # offsets, lag, and members of partitions
    dragoman groups reset-offsets billing --to 2026-01-31T12:00:00
""")
RESET_HELP = help_text("""
Set where a group continues reading. Its consumers must have stopped.

Prints what would change; --execute does it.

    dragoman groups reset-offsets billing --to earliest
    dragoman groups reset-offsets billing --topic orders:0,2 --to 1500
    dragoman groups reset-offsets billing --topic orders --shift -100
    dragoman groups reset-offsets billing-2 --to-group billing
    dragoman groups describe billing --json > billing.json
    dragoman groups reset-offsets billing --to-file billing.json
    dragoman groups reset-offsets billing --to-lag-of kafka.example:9092    # after a migration

Without --topic it sets the offsets of all topics that the group, the other group or the file has. An offset
outside of a partition's records becomes their first or their end.
""")

Group = Annotated[str, typer.Argument(help="Group id.", metavar="GROUP", autocompletion=complete_groups)]
Groups = Annotated[
    list[str], typer.Argument(help="Group ids.", metavar="GROUP", autocompletion=complete_groups)
]
ToGroup = Annotated[
    str | None,
    typer.Option(
        "--to-group",
        help="Where this other group is.",
        metavar="GROUP",
        autocompletion=complete_groups,
    ),
]
ToFile = Annotated[
    str | None,
    typer.Option("--to-file", help="Where groups describe --json said it was.", metavar="FILE"),
]
ToLagOf = Annotated[
    str | None,
    typer.Option("--to-lag-of", help="As far behind as at this other endpoint.", metavar="HOST:PORT"),
]

groups_app = typer.Typer(name="groups", help=GROUPS_HELP, no_args_is_help=True, rich_markup_mode="rich")


@groups_app.command("list", help="List the groups and their states.")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            help="Only Stable, Empty, ...; repeat for more.",
            metavar="STATE",
            autocompletion=completer_of("Stable", "Empty", "PreparingRebalance", "CompletingRebalance"),
        ),
    ] = None,
    lag: Annotated[bool, typer.Option("--lag", help="How far each is behind, in all.", metavar="")] = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.groups import list_groups
    from gateway.cli.output import end_with

    contact = Contact(bootstrap, tls_ca, tls_cert, tls_key)
    end_with(lambda: list_groups(contact, states or [], lag, as_json))


@groups_app.command(
    help="Print the state of groups, their offsets and lag, and the member that reads each partition."
)
def describe(
    names: Groups,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    members: Annotated[
        bool, typer.Option("--members", "-m", help="A table of the members too.", metavar="")
    ] = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.groups import describe as work
    from gateway.cli.output import end_with

    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), names, members, as_json))


@groups_app.command("reset-offsets", help=RESET_HELP)
def reset_offsets(
    name: Group,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            help="Only this topic, or these partitions; repeat for more.",
            metavar="NAME[:N,N]",
            autocompletion=complete_topics,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="earliest, latest, current, offset, -N from the end, time.", metavar="WHERE"
        ),
    ] = None,
    shift: Annotated[
        int | None, typer.Option("--shift", help="N offsets further than now; back if below 0.", metavar="N")
    ] = None,
    to_group: ToGroup = None,
    to_file: ToFile = None,
    to_lag_of: ToLagOf = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it, instead of only printing it.", metavar="")
    ] = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.groups_reset import ResetOptions
    from gateway.cli.groups_reset import reset_offsets as work
    from gateway.cli.output import end_with

    other = None if to_lag_of is None else Contact(to_lag_of, tls_ca, tls_cert, tls_key)
    options = ResetOptions(name, topics or (), to, shift, to_group, to_file, other, execute, as_json)
    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), options))


@groups_app.command(help="Delete groups that have no members, with their offsets. Asks first on a terminal.")
def delete(
    names: Groups,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.groups import delete as work
    from gateway.cli.output import confirm, end_with

    if not yes:
        confirm(f"Delete {', '.join(names)} with all their offsets?")
    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), names, as_json))
