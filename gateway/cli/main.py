"""The `dragoman` command. Heavy modules are imported only when a command runs, so that --help is quick."""

import os
import sys
from typing import Annotated, Final, TextIO

import typer

from gateway.cli.client_commands import (
    CONSUME_HELP,
    DEMO_HELP,
    PRODUCE_HELP,
    consume,
    demo,
    produce,
    topics_app,
)
from gateway.cli.cluster_commands import cluster_app, quotas_app
from gateway.cli.compact_commands import compact_app
from gateway.cli.completion import complete_profiles
from gateway.cli.debug_commands import debug_app
from gateway.cli.group_commands import groups_app
from gateway.cli.help_text import help_text
from gateway.cli.ledger_commands import AUDIT_HELP, DOCTOR_HELP, audit, doctor, ledger_app
from gateway.cli.options import AsJson, Assignments, Config, Data, DataDir, Metadata
from gateway.cli.transaction_commands import transactions_app

PLATFORMS: Final = ("linux", "darwin")
PROFILE_VARIABLE: Final = "DRAGOMAN_CLIENT_PROFILE"
WITHOUT_PROFILE: Final = ("serve", "settings", "ledger", "audit", "compact", "spark-script")
"""Commands that are no Kafka clients: a profile that cannot be read does not concern them. `doctor` is
one with --against."""
HAVE_THREADS: Final = ("obstore", "grpc")
"""Libraries whose threads go on until the process ends."""
HELP = help_text("""
A Kafka endpoint that stores nothing itself.

Clients speak Kafka to Dragoman; record batches go to your own storage, and an offset ledger gives each its
Kafka offsets.

Start one with [bold]dragoman serve[/bold], then produce and consume with any Kafka client on 127.0.0.1:9092:

    echo hello | dragoman produce greetings
    echo hello | kcat -P -b 127.0.0.1:9092 -t greetings
    dragoman consume greetings --to-end
    kcat -C -b 127.0.0.1:9092 -t greetings -o beginning -e

Or both in one: [bold]dragoman demo[/bold].
""")
SERVE_HELP = help_text("""
Run a gateway in the foreground until SIGTERM or Ctrl-C.

Every setting has a name, section.key. A value comes from a flag, else the environment
(DRAGOMAN_SECTION_KEY), else the --config file (TOML), else the default: see [bold]dragoman settings[/bold].

Exit codes: 0 stopped and drained, 1 failed while running, 2 wrong flag or setting, 4 a store is out of
reach or damaged, 5 data directory locked, port in use or shard taken over, 130 interrupted.
""")
SPARK_SCRIPT_HELP = help_text("""
Print the path of the file for spark-submit. What comes after it is a command with its flags, whose job runs
on that Spark:

    spark-submit --master spark://host:7077 "$(dragoman spark-script)" compact segments --data-dir DIR
""")

app = typer.Typer(
    name="dragoman",
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from gateway.version import product_version

        typer.echo(product_version())
        raise typer.Exit


@app.callback()
def dragoman(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version.", metavar=""
        ),
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Where commands connect, by a name in ~/.config/dragoman/client.toml.",
            metavar="NAME",
            envvar=PROFILE_VARIABLE,
            autocompletion=complete_profiles,
        ),
    ] = None,
) -> None:
    from gateway.cli.profiles import defaults_of, profile_values
    from gateway.settings import ConfigError

    if ctx.invoked_subcommand in WITHOUT_PROFILE and profile is None:
        return
    try:
        values = profile_values(profile)
    except ConfigError as error:
        typer.echo(f"dragoman: {error}", err=True)
        raise typer.Exit(2) from None
    if values:
        ctx.default_map = defaults_of(ctx.command, values)


@app.command(help=SERVE_HELP)
def serve(
    config: Config = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            help="Where clients connect; repeat for more, port 0 = any.", metavar="PLAINTEXT://HOST:PORT"
        ),
    ] = None,
    advertise: Annotated[
        list[str] | None,
        typer.Option(help="Address that clients connect to, one for each --listen.", metavar="HOST:PORT"),
    ] = None,
    admin: Annotated[
        str | None, typer.Option(help="Health, metrics and version pages; '' = none.", metavar="HOST:PORT")
    ] = None,
    metadata: Metadata = None,
    data: Data = None,
    data_dir: DataDir = None,
    node_id: Annotated[int | None, typer.Option(help="Broker id of this gateway.", metavar="N")] = None,
    ready_file: Annotated[
        str | None, typer.Option(help="Written (JSON: pid, ports) once clients can connect.", metavar="PATH")
    ] = None,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.serve import run_gateway

    flags: dict[str, object] = {
        "listeners.listen": tuple(listen) if listen else None,
        "listeners.advertise": tuple(advertise) if advertise else None,
        "admin.listen": admin,
        "storage.metadata": metadata,
        "storage.data": data,
        "storage.data_dir": data_dir,
        "broker.node.id": node_id,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    raise typer.Exit(run_gateway(config, given, assignments or [], ready_file))


@app.command(help="List every setting with its default and its name in the environment.")
def settings(as_json: AsJson = False) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.settings import print_settings

    end_with(lambda: print_settings(as_json))


app.add_typer(cluster_app)
app.add_typer(topics_app)
app.add_typer(groups_app)
app.add_typer(transactions_app)
app.add_typer(quotas_app)
app.command(help=PRODUCE_HELP)(produce)
app.command(help=CONSUME_HELP)(consume)
app.command(help=DEMO_HELP)(demo)
app.add_typer(ledger_app)
app.command(help=DOCTOR_HELP)(doctor)
app.command(help=AUDIT_HELP)(audit)
app.add_typer(compact_app)
app.add_typer(debug_app)


@app.command("spark-script", help=SPARK_SCRIPT_HELP)
def spark_script() -> None:
    from gateway.cli.output import print_text
    from gateway.cli.spark_submit import path

    print_text(path())


def main() -> None:
    """What the `dragoman` command does, once its modules are imported."""
    if not sys.platform.startswith(PLATFORMS):
        typer.echo(f"dragoman: it runs on Linux and macOS, not on {sys.platform}; WSL has a Linux", err=True)
        raise SystemExit(2)
    try:
        app()
    except SystemExit as ended:
        is_silenced = not _is_flushed(sys.stderr) and _is_flushed(sys.stdout)
        if isinstance(ended.code, int) and (is_silenced or any(map(sys.modules.get, HAVE_THREADS))):
            # Python would end with 120 where messages cannot be written: here the code says what happened.
            _leave(ended.code)
        raise


def _is_flushed(stream: TextIO | None) -> bool:
    """False: what was written to it is lost, as its disk is full or its reader is gone."""
    try:
        if stream is not None:
            stream.flush()
    except (OSError, ValueError):
        return False
    return True


def _leave(code: int) -> None:
    """End the process at once. All is closed by now; but while Python finalizes itself, a thread of a library
    that wants to call it, if only to free an object, is killed within that library, and the process with it
    (SIGABRT)."""
    for stream in (sys.stdout, sys.stderr):
        _is_flushed(stream)
    os._exit(code)


if __name__ == "__main__":
    main()
