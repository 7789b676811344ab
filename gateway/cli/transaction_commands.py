"""Flags and help of `dragoman transactions`."""

from typing import Annotated

import typer

from gateway.cli.completion import complete_transactional_ids, completer_of
from gateway.cli.contact import DEFAULT_BOOTSTRAP, Contact
from gateway.cli.help_text import help_text
from gateway.cli.options import AsJson, Bootstrap, TlsCa, TlsCert, TlsKey, Yes

TRANSACTIONS_HELP = help_text("""
List, describe and abort transactions.

    dragoman transactions list --state Ongoing --longer-than 60000
    dragoman transactions describe billing-1
""")
ABORT_HELP = help_text("""
Abort open transactions. Asks first on a terminal.

The producers of these transactional ids are fenced: they fail, and have to be started again.

    dragoman transactions abort billing-1

A transaction that hangs in a partition, because its coordinator does not know it any more, is ended there
alone. Without --start-offset the open transactions of the partition are printed. One that its coordinator
still has open is refused: abort it by its id.

    dragoman transactions abort --partition orders:0
    dragoman transactions abort --partition orders:0 --start-offset 1500
""")
LONGER_THAN_HELP = (
    "Only if the last transaction began more than this ago, also if it has ended, or there was none yet; "
    "for open ones add --state Ongoing."
)

Names = Annotated[
    list[str],
    typer.Argument(help="Transactional ids.", metavar="ID", autocompletion=complete_transactional_ids),
]
SomeNames = Annotated[
    list[str] | None,
    typer.Argument(help="Transactional ids.", metavar="[ID]...", autocompletion=complete_transactional_ids),
]

transactions_app = typer.Typer(
    name="transactions", help=TRANSACTIONS_HELP, no_args_is_help=True, rich_markup_mode="rich"
)


@transactions_app.command("list", help="List the transactional ids and the states of their transactions.")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            help="Only Ongoing, Empty, ...; repeat for more.",
            metavar="STATE",
            autocompletion=completer_of("Ongoing", "Empty", "CompleteCommit", "CompleteAbort"),
        ),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option("--producer-id", help="Only of this producer; repeat for more.", metavar="N"),
    ] = None,
    longer_than: Annotated[
        int | None,
        typer.Option("--longer-than", min=0, help=LONGER_THAN_HELP, metavar="MS"),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="Only ids that match all of it (RE2).", metavar="REGEX")
    ] = None,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.transactions import ListOptions, list_transactions

    contact = Contact(bootstrap, tls_ca, tls_cert, tls_key)
    options = ListOptions(tuple(states or ()), tuple(producer_ids or ()), longer_than, pattern)
    end_with(lambda: list_transactions(contact, options, as_json))


@transactions_app.command(help="Print the state of transactional ids, their producers and open transactions.")
def describe(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.transactions import describe as work

    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), names, as_json))


@transactions_app.command(help=ABORT_HELP)
def abort(
    names: SomeNames = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    partition: Annotated[
        str | None, typer.Option("--partition", help="Where a transaction hangs.", metavar="TOPIC:N")
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", min=0, help="The first offset of the transaction.", metavar="N"),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import confirm, end_with
    from gateway.cli.transactions import AbortOptions
    from gateway.cli.transactions import abort as work

    options = AbortOptions(names or (), partition, start_offset, as_json)
    if not yes and options.changes_something:
        confirm(f"Abort the open transaction of {options.subject}?", "Nothing was aborted.")
    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), options))
