"""Flags and help of `dragoman cluster ...` and `dragoman quotas ...`."""

from typing import Annotated

import typer

from gateway.cli.completion import complete_broker_configs, complete_quotas
from gateway.cli.contact import DEFAULT_BOOTSTRAP, Contact
from gateway.cli.help_text import help_text
from gateway.cli.options import AsJson, Bootstrap, TlsCa, TlsCert, TlsKey, set_option

CLUSTER_HELP = help_text("""
Print who serves an endpoint, whether clients can use all of it, and the configs of its brokers.

    dragoman cluster info
    dragoman cluster health --admin 127.0.0.1:9644
    dragoman cluster configs --set log.retention.ms=86400000
""")
HEALTH_HELP = help_text("""
Check that each broker responds at its advertised address, and that each partition has a leader and all its
replicas in sync, and say which transactions are open. With --admin also what the gateway there reports on
/readyz.

Exits with 3 if anything was found.
""")
CONFIGS_HELP = help_text("""
Print the configs of a broker that are not defaults, or change them while it runs.

    dragoman cluster configs --all --broker 1
    dragoman cluster configs --set log.retention.ms=86400000      # for all brokers
    dragoman cluster configs --unset log.retention.ms --broker 1

A gateway changes defaults of topics in this way; its other settings are those of its start.
""")
QUOTAS_HELP = help_text("""
List, set and unset client quotas: byte rates, request time, and how fast connections and topics are made.

    dragoman quotas list
    dragoman quotas set --client-id batch-import producer_byte_rate=1048576 consumer_byte_rate=1048576
    dragoman quotas set --default-user --default-client-id request_percentage=50
    dragoman quotas unset --ip 192.0.2.7 connection_creation_rate
""")

Broker = Annotated[int | None, typer.Option("--broker", help="Id of a broker.", metavar="N")]
User = Annotated[str | None, typer.Option("--user", help="Of this user (principal).", metavar="NAME")]
ClientId = Annotated[str | None, typer.Option("--client-id", help="Of this client id.", metavar="NAME")]
Ip = Annotated[str | None, typer.Option("--ip", help="Of this address.", metavar="ADDRESS")]
DefaultUser = Annotated[bool, typer.Option("--default-user", help="Of users without their own.", metavar="")]
DefaultClientId = Annotated[
    bool, typer.Option("--default-client-id", help="Of client ids without their own.", metavar="")
]
DefaultIp = Annotated[bool, typer.Option("--default-ip", help="Of addresses without their own.", metavar="")]

cluster_app = typer.Typer(name="cluster", help=CLUSTER_HELP, no_args_is_help=True, rich_markup_mode="rich")
quotas_app = typer.Typer(name="quotas", help=QUOTAS_HELP, no_args_is_help=True, rich_markup_mode="rich")


@cluster_app.command(help="Print the cluster's id, its brokers, and how many topics there are.")
def info(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    as_json: AsJson = False,
) -> None:
    from gateway.cli.cluster import info as work
    from gateway.cli.output import end_with

    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), as_json))


@cluster_app.command(help=HEALTH_HELP)
def health(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    admin: Annotated[
        str | None, typer.Option(help="Admin address of a gateway.", metavar="HOST:PORT")
    ] = None,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.cluster import health as work
    from gateway.cli.output import end_with

    end_with(lambda: work(Contact(bootstrap, tls_ca, tls_cert, tls_key), admin, as_json))


@cluster_app.command(help=CONFIGS_HELP)
def configs(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    broker: Broker = None,
    everything: Annotated[bool, typer.Option("--all", help="Defaults too.", metavar="")] = False,
    sets: Annotated[
        list[str] | None,
        set_option("Change a config; repeat for more.", "NAME=VALUE", complete_broker_configs),
    ] = None,
    unsets: Annotated[
        list[str] | None, typer.Option("--unset", help="Back to the default.", metavar="NAME")
    ] = None,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.broker_configs import alter, show
    from gateway.cli.output import end_with

    contact = Contact(bootstrap, tls_ca, tls_cert, tls_key)
    if sets or unsets:
        end_with(lambda: alter(contact, broker, sets or [], unsets or [], as_json))
    end_with(lambda: show(contact, broker, everything, as_json))


@quotas_app.command("list", help="List the quotas; of an entity alone, if one is given.")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default_user: DefaultUser = False,
    default_client_id: DefaultClientId = False,
    default_ip: DefaultIp = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.quotas import EntityFlags, entity_of, list_quotas

    contact = Contact(bootstrap, tls_ca, tls_cert, tls_key)
    flags = EntityFlags(user, client_id, ip, default_user, default_client_id, default_ip)
    end_with(lambda: list_quotas(contact, entity_of(flags), as_json))


@quotas_app.command("set", help="Set quotas of an entity: a user, a client id, both, or an address.")
def set_(
    quotas: Annotated[
        list[str],
        typer.Argument(help="Quotas.", metavar="QUOTA=VALUE", autocompletion=complete_quotas),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default_user: DefaultUser = False,
    default_client_id: DefaultClientId = False,
    default_ip: DefaultIp = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.quotas import EntityFlags, alter_quotas, entity_of

    contact = Contact(bootstrap, tls_ca, tls_cert, tls_key)
    flags = EntityFlags(user, client_id, ip, default_user, default_client_id, default_ip)
    end_with(lambda: alter_quotas(contact, entity_of(flags), quotas, [], as_json))


@quotas_app.command(help="Remove quotas of an entity.")
def unset(
    quotas: Annotated[
        list[str],
        typer.Argument(help="Names of quotas.", metavar="QUOTA", autocompletion=complete_quotas),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default_user: DefaultUser = False,
    default_client_id: DefaultClientId = False,
    default_ip: DefaultIp = False,
    as_json: AsJson = False,
) -> None:
    from gateway.cli.output import end_with
    from gateway.cli.quotas import EntityFlags, alter_quotas, entity_of

    contact = Contact(bootstrap, tls_ca, tls_cert, tls_key)
    flags = EntityFlags(user, client_id, ip, default_user, default_client_id, default_ip)
    end_with(lambda: alter_quotas(contact, entity_of(flags), [], quotas, as_json))
