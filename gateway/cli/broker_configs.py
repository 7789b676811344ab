"""`dragoman cluster configs`: configs of brokers, and the defaults for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.cli.client import ClientError
from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint
from gateway.cli.exits import Exit
from gateway.cli.output import print_json, print_table, talk
from gateway.cli.resource_configs import (
    BROKER_RESOURCE,
    OP_DELETE,
    SOFTWARE_DEFAULT,
    SOURCES,
    alter_configs,
    config_changes,
    described_configs,
)


@dataclass(frozen=True, slots=True)
class ConfigLine:
    """`value` is None if the endpoint keeps it secret. `source`: what set it."""

    config: str
    value: str | None
    source: str
    is_read_only: bool


def show(contact: Contact, broker: int | None, everything: bool, as_json: bool) -> Exit:
    """Of one broker, the first if None. Defaults of the software only with `everything`."""
    with Endpoint(contact) as endpoint:
        node = _chosen(endpoint, broker)
        (configs,) = described_configs(endpoint, BROKER_RESOURCE, [str(node)], node).values()
    lines = [
        ConfigLine(
            one.name,
            None if one.is_sensitive else one.value,
            SOURCES.get(one.config_source, "-"),
            one.read_only,
        )
        for one in configs
        if everything or one.config_source != SOFTWARE_DEFAULT
    ]
    if as_json:
        print_json({"broker": node, "configs": lines})
        return Exit.OK
    print_table(
        ("config", "value", "set by", "changes"),
        [
            (
                line.config,
                "-" if line.value is None else line.value,
                line.source,
                "at a start" if line.is_read_only else "at any time",
            )
            for line in lines
        ],
    )
    return Exit.OK


def alter(
    contact: Contact, broker: int | None, sets: Sequence[str], unsets: Sequence[str], as_json: bool
) -> Exit:
    """Of one broker, or the defaults for all of them if None."""
    changes = config_changes(sets, unsets)
    with Endpoint(contact) as endpoint:
        node = None if broker is None else _chosen(endpoint, broker)
        alter_configs(endpoint, BROKER_RESOURCE, "" if node is None else str(node), changes, node)
    whose = "all brokers" if node is None else f"broker {node}"
    talk(f"Changed the configs of {whose}.")
    if as_json:
        print_json(
            {
                "broker": node,
                "set": [one.name for one in changes if one.config_operation != OP_DELETE],
                "unset": list(unsets),
            }
        )
    return Exit.OK


def _chosen(endpoint: Endpoint, broker: int | None) -> int:
    nodes = endpoint.nodes()
    if not nodes:
        raise ClientError("the endpoint reports no broker")
    if broker is None:
        return nodes[0]
    if broker not in nodes:
        raise ClientError(f"there is no broker {broker}; there are {', '.join(map(str, nodes))}")
    return broker
