"""Flags and help of `dragoman ledger ...`, `doctor` and `audit`; the work is imported when it runs."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.contact import DEFAULT_BOOTSTRAP, Contact
from gateway.cli.help_text import help_text
from gateway.cli.kafscale_commands import ADOPT_HELP, EXPORT_HELP, adopt, export
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
    endpoint_option,
)

if TYPE_CHECKING:
    from gateway.cli.exits import Exit
    from gateway.settings import Settings

LEDGER_HELP = help_text("""
Inspect the offset ledger of a data directory, back it up, restore it, move it to other stores.

These work while no gateway uses the directory; otherwise they name its process, and exit with 5. A gateway
whose stores are elsewhere (s3://, etcd://, filer://) is not locked out: stop it before a restore.
[bold]snapshot[/bold] and [bold]backup[/bold] work beside it; [bold]snapshot[/bold], [bold]adopt[/bold] and
[bold]export[/bold] need a gateway, and start one for themselves if none runs.
""")
SHOW_HELP = help_text("""
Print topics, partitions, runs, objects, journal numbers, garbage and orphans.

    dragoman ledger show --data-dir /var/lib/dragoman
    dragoman ledger show --data-dir data --json | jq '.topics[].name'
""")
SNAPSHOT_HELP = help_text("""
Let a running gateway write a snapshot of its ledger now, into the data directory or its bucket.

    dragoman ledger snapshot --data-dir /var/lib/dragoman

A copy of the data that is made afterwards can be restored up to there, whatever is written meanwhile, if it
is made as docs/operations.md says: with a file backup-open, and with log/ moved aside in the copy. Gateways
write snapshots by themselves, but only as their journal grows. The gateway is reached as compact reaches it;
if none runs, one does for as long as this takes.
""")
BACKUP_HELP = help_text("""
Write the metadata to another directory. Offline it is exact to the last entry; a gateway that uses the data
directory writes a snapshot for it, with all that was acknowledged before.

    dragoman ledger backup --data-dir /var/lib/dragoman --to /mnt/backup/dragoman

Record batches are not in it: copy log/, wal/, blobs/seg/ and, if it is there, replaced/ as well. A backup
directory takes any number of backups; a restore uses the newest. A running gateway keeps snapshots of
its own in the data directory, which a restore can use as well: see restore.

For --hold-hours, by default 48, a gateway keeps the objects that the backup names, although their records are
merged or deleted meanwhile: see holds.
""")
HOLDS_HELP = help_text("""
List the holds of backups, and release them. A gateway may run meanwhile.

    dragoman ledger holds --data-dir /var/lib/dragoman
    dragoman ledger holds --data-dir data --release 01a2045d-cf5c-7de9-9a17-407666e0e4f8

Each backup holds the objects that it names, so that a restore finds them: for 48 hours, or as many as its
--hold-hours said. Release a hold when you have copied the records as well, or need the space.
""")
RESTORE_HELP = help_text("""
Begin a new metadata store from a backup. The data directory must not hold one.

    dragoman ledger restore --from /mnt/backup/dragoman --data-dir /var/lib/dragoman

If --from names the data directory itself, the newest snapshot of its gateway is used. Records acknowledged
after the backup have no offsets any more; their objects are listed, and never deleted.
""")
MOVE_HELP = help_text("""
Move a ledger and its records from a data directory to other stores. Stop the gateway first.

    dragoman ledger move --to-metadata s3://b/meta --to-data s3://b/data
    dragoman ledger move --to-metadata etcd://h/p --to-data s3://b/data --dry-run

Offsets, groups, topic ids, configs, quotas and sequences of producers stay as they are. A move that was
interrupted goes on when the same command is run again; until its last step the gateway may be started on the
old directory, and after it only on the new stores. What is in the old directory stays there. Exits with 3 if
objects are missing or damaged: then nothing has moved.
""")
TRANSLATE_HELP = help_text("""
Print where the record of one offset is: object, byte and size of its batch, by the settled ledger of the
partition (dragoman compact ledger).

    dragoman ledger translate orders 0 4711 --data-dir /var/lib/dragoman
    dragoman ledger translate orders 0 4711 --metadata etcd://h/p --data s3://b/p --json

It reads the stores alone; a gateway that has the data directory locked is asked which settled ledger is the
newest. The batch is read, and its CRC checked. Exits with 1 if the offset is newer than the settled ledger,
below the log start offset, or in an object that was merged or deleted since.
""")
DOCTOR_HELP = help_text("""
Check the stores of a gateway: permissions, disk, format versions, journal, image, objects, CRCs; of far
stores their proof, and of a bucket its rights, lifecycle rules, versions and unfinished uploads.

    dragoman doctor --data-dir data           # a sample of each partition
    dragoman doctor --data-dir data --all     # every batch
    dragoman doctor --config gateway.toml     # with the settings of a gateway
    dragoman doctor --metadata etcd://host/dragoman --data s3://bucket/dragoman

With --against it compares two endpoints instead, as after a migration: whether the one of --bootstrap has
the topics, configs, offsets and groups of the other one, and with --records every record:

    dragoman doctor --bootstrap 127.0.0.1:9092 --against kafka.example:9092 --records

Exits with 0 without findings, with 3 otherwise, and with 4 where a store cannot be used. Each finding is a
sentence with its remedy.
""")

AUDIT_HELP = help_text("""
Read every batch that a consumer could fetch, account for every stored object, and compare the image and the
snapshots with the journal.

    dragoman audit --data-dir data
    dragoman audit --data-dir data --topics orders,payments
    dragoman audit --metadata etcd://host/p --data s3://b/p --json
    dragoman audit --metadata etcd://host/p --data s3://b/p --engine spark --master spark://host:7077

[bold]doctor[/bold] is the quick look before a start: permissions, disk, settings of a bucket, and a sample of
each partition. [bold]audit[/bold] reads everything, and takes as long as that takes: it checks each CRC, that
each offset is in exactly one run, and that each object is live, garbage, new, or kept after a restore.

Each damage is named with topic, partition, offset, object, position and remedy; then this exits with 3,
without damage with 0, and with 4 where a store cannot be used. --repair deletes stray objects and changes
nothing else: objects below the orphan floor that no journal entry names. A data directory must not be in use;
next to a gateway on stores elsewhere this may run. With --engine spark executors read the objects, and find
the same.
""")

ledger_app = typer.Typer(name="ledger", help=LEDGER_HELP, no_args_is_help=True, rich_markup_mode="rich")


@ledger_app.command(help=SHOW_HELP)
def show(
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.ledger import show as work
    from gateway.cli.output import end_with

    end_with(lambda: work(_settings(config, data_dir, metadata, data, assignments), as_json))


@ledger_app.command(help=BACKUP_HELP)
def backup(
    to: Annotated[str, typer.Option(help="Where to write to: a directory, or s3://.", metavar="PLACE")],
    hold_hours: Annotated[
        int,
        typer.Option(help="For so long its objects stay; 0: no hold.", metavar="HOURS", min=0, max=8_784),
    ] = 48,
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.ledger import backup as work
    from gateway.cli.output import end_with

    end_with(lambda: work(_settings(config, data_dir, metadata, data, assignments), to, as_json, hold_hours))


@ledger_app.command(help=SNAPSHOT_HELP)
def snapshot(
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.job_process import TlsFiles
    from gateway.cli.ledger_snapshot import snapshot as work
    from gateway.cli.output import end_with

    tls = TlsFiles(tls_ca, tls_cert, tls_key)
    end_with(lambda: work(_settings(config, data_dir, metadata, data, assignments), tls, as_json))


@ledger_app.command(help=HOLDS_HELP)
def holds(
    release: Annotated[
        list[str] | None, typer.Option(help="Release this one; repeat for more.", metavar="HOLD")
    ] = None,
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.ledger_holds import holds as work
    from gateway.cli.output import end_with

    settings = partial(_settings, config, data_dir, metadata, data, assignments)
    end_with(lambda: work(settings(), release or (), as_json))


@ledger_app.command(help=RESTORE_HELP)
def restore(
    source: Annotated[
        str,
        typer.Option("--from", help="A backup, a data directory, or the s3:// of data.", metavar="PLACE"),
    ],
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.ledger import restore as work
    from gateway.cli.output import end_with

    end_with(lambda: work(_settings(config, data_dir, metadata, data, assignments), source, as_json))


@ledger_app.command(help=MOVE_HELP)
def move(
    to_metadata: Annotated[str, typer.Option(help="URL of the new metadata store.", metavar="URL")],
    to_data: Annotated[str, typer.Option(help="URL of the new place of the records.", metavar="URL")],
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what would be moved; the target is not opened.", metavar=""),
    ] = False,
    accept_damage: Annotated[
        bool,
        typer.Option(
            "--accept-damage", help="Move without missing objects, and damaged ones as they are.", metavar=""
        ),
    ] = False,
    cancel: Annotated[
        bool,
        typer.Option("--cancel", help="Give up a move that was interrupted at its last step.", metavar=""),
    ] = False,
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.ledger_move import MoveOptions, move_ledger
    from gateway.cli.output import end_with

    options = MoveOptions(to_metadata, to_data, dry_run, accept_damage, cancel, as_json)
    end_with(lambda: move_ledger(_settings(config, data_dir, metadata, data, assignments), options))


ledger_app.command(help=EXPORT_HELP)(export)
ledger_app.command(help=ADOPT_HELP)(adopt)


@ledger_app.command(help=TRANSLATE_HELP)
def translate(
    topic: Annotated[str, typer.Argument(help="Name of the topic.", metavar="TOPIC")],
    partition: Annotated[int, typer.Argument(help="Number of the partition.", metavar="PARTITION", min=0)],
    offset: Annotated[int, typer.Argument(help="The offset.", metavar="OFFSET", min=0)],
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.job_process import TlsFiles
    from gateway.cli.output import end_with
    from gateway.cli.translate import TranslateOptions
    from gateway.cli.translate import translate as work

    tls = TlsFiles(tls_ca, tls_cert, tls_key)
    options = TranslateOptions(topic, partition, offset, as_json, tls)
    end_with(lambda: work(_settings(config, data_dir, metadata, data, assignments), options))


def doctor(
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    whole: Annotated[bool, typer.Option("--all", help="Read every batch, not a sample.", metavar="")] = False,
    against: Annotated[
        str | None,
        typer.Option(
            help="Compare the endpoint of --bootstrap with this one instead.",
            metavar="HOST:PORT",
            rich_help_panel="Two endpoints",
        ),
    ] = None,
    bootstrap: Annotated[str, endpoint_option("The endpoint to compare.")] = DEFAULT_BOOTSTRAP,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topics",
            help="Compare these alone; several by commas, or repeat.",
            metavar="TOPIC",
            rich_help_panel="Two endpoints",
        ),
    ] = None,
    records: Annotated[
        bool,
        typer.Option("--records", help="Compare every record.", metavar="", rich_help_panel="Two endpoints"),
    ] = False,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.compare import CompareOptions, compare
    from gateway.cli.doctor import diagnose
    from gateway.cli.output import UsageError, end_with

    def work() -> "Exit":
        if against is None:
            if topics or records:
                raise UsageError("--topics and --records need --against HOST:PORT")
            return diagnose(_settings(config, data_dir, metadata, data, assignments), whole, as_json)
        names = [name for text in topics or () for name in text.split(",") if name]
        options = CompareOptions(names, records, as_json)
        tls = (tls_ca, tls_cert, tls_key)
        return compare(Contact(bootstrap, *tls), Contact(against, *tls), options)

    end_with(work)


def audit(
    config: Config = None,
    data_dir: DataDir = None,
    metadata: Metadata = None,
    data: Data = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(help="Read these alone; several by commas, or repeat.", metavar="TOPIC"),
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Delete stray objects.", metavar="")] = False,
    engine: Engine = "",
    master: Master = "",
    spark_conf: SparkConf = None,
    as_json: AsJson = False,
    assignments: Assignments = None,
) -> None:
    from gateway.cli.audit import AuditOptions
    from gateway.cli.audit import audit as work
    from gateway.cli.job_process import EngineOptions
    from gateway.cli.output import end_with

    names = [name for text in topics or () for name in text.split(",") if name]
    options = AuditOptions(names, repair, as_json, EngineOptions(engine, master, spark_conf or ()))
    end_with(lambda: work(_settings(config, data_dir, metadata, data, assignments), options))


def _settings(
    config: Config, data_dir: DataDir, metadata: Metadata, data: Data, assignments: Assignments
) -> "Settings":
    """Of the stores that a command works on. Raises ConfigError."""
    from gateway.cli.offline_state import settings_for

    flags = {"storage.metadata": metadata, "storage.data": data}
    return settings_for(config, data_dir, flags, assignments or ())
