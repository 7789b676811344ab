"""Completion of the values of flags: words, and the names of existing topics and groups.

Nothing here may fail or take long: without a reachable endpoint a shell gets no proposals.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from gateway.cli.contact import DEFAULT_BOOTSTRAP, Contact

if TYPE_CHECKING:
    from gateway.cli.endpoint import Endpoint

RESPONSE_S: Final = 2.0
Completer = Callable[[str], list[str]]


def completer_of(*words: str) -> Completer:
    return lambda incomplete: _begun(words, incomplete)


def complete_codecs(incomplete: str) -> list[str]:
    from ledger.batch.header import Codec

    return _begun([codec.name.lower() for codec in Codec], incomplete)


def complete_settings(incomplete: str) -> list[str]:
    """Of a gateway, as `--set` takes them."""
    from gateway.config import SETTINGS

    return _begun([f"{name}=" for name, setting in SETTINGS.items() if not setting.is_secret], incomplete)


def complete_configs(incomplete: str) -> list[str]:
    """Of topics."""
    from gateway.configs.topic_configs import TOPIC_CONFIGS

    return _begun(list(TOPIC_CONFIGS), incomplete)


def complete_broker_configs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Those that can be changed while brokers run."""
    from gateway.cli.resource_configs import BROKER_RESOURCE, described_configs

    def names(endpoint: "Endpoint") -> list[str]:
        node = endpoint.nodes()[0]
        (configs,) = described_configs(endpoint, BROKER_RESOURCE, [str(node)], node).values()
        return [f"{config.name}=" for config in configs if not config.read_only]

    return _begun(_names_from(ctx, names), incomplete)


def complete_quotas(incomplete: str) -> list[str]:
    from gateway.cli.quotas import QUOTAS

    return _begun(QUOTAS, incomplete)


def complete_profiles(incomplete: str) -> list[str]:
    from gateway.cli.profiles import profile_names

    return _begun(profile_names(), incomplete)


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    return _begun(_names_from(ctx, lambda endpoint: list(endpoint.topics())), incomplete)


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    from gateway.cli.groups import found_groups

    return _begun(
        _names_from(ctx, lambda endpoint: [line.group for line in found_groups(endpoint)]), incomplete
    )


def complete_transactional_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    from gateway.cli.transactions import ListOptions, found_transactions

    def names(endpoint: "Endpoint") -> list[str]:
        return [line.transactional_id for line in found_transactions(endpoint, ListOptions())]

    return _begun(_names_from(ctx, names), incomplete)


def _names_from(ctx: typer.Context, names: Callable[["Endpoint"], Sequence[str]]) -> Sequence[str]:
    from gateway.cli.client import ClientError
    from gateway.cli.endpoint import Endpoint
    from gateway.cli.profiles import FIELDS, profile_values
    from gateway.settings import ConfigError

    given: dict[str, Any] = dict(ctx.params)
    try:
        # A flag or the environment wins over the profile.
        for field, value in profile_values(ctx.find_root().params.get("profile")).items():
            source = ctx.get_parameter_source(field)
            if source is None or source.name == "DEFAULT":
                given[field] = value
    except ConfigError:
        return []
    contact = Contact(
        given.get("bootstrap") or DEFAULT_BOOTSTRAP, *(given.get(name) or "" for name in FIELDS[1:])
    )
    try:
        with Endpoint(contact, RESPONSE_S) as endpoint:
            return names(endpoint)
    except (ClientError, ConfigError, OSError):
        return []


def _begun(words: Sequence[str], incomplete: str) -> list[str]:
    return sorted(word for word in words if word.startswith(incomplete) and word.isprintable())
