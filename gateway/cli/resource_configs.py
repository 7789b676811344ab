"""Configs of topics and brokers at any Kafka endpoint: described, set and unset."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.cli.endpoint import Endpoint, Refusal
from gateway.cli.output import UsageError
from gateway.configs.topic_configs import TOPIC_CONFIGS
from gateway.nearest import did_you_mean
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gateway.wire.messages.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
SET_ON_TOPIC: Final = 1
"""`config_source` of a config that was set on the topic itself."""
SOURCES: Final[Mapping[int, str]] = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "settings",
    5: "default",
    6: "broker logger",
    8: "group",
}
"""Where a value comes from, by `config_source`."""
SOFTWARE_DEFAULT: Final = 5
RESOURCES_A_REQUEST: Final = 200
OP_SET, OP_DELETE = 0, 1


def described_configs(
    endpoint: Endpoint, kind: int, names: Sequence[str], node: int | None = None
) -> dict[str, list[Any]]:
    """The configs of each resource, by name. Refusal."""
    described = {}
    for at in range(0, len(names), RESOURCES_A_REQUEST):
        resources = [
            DescribeConfigsResource(kind, name, None) for name in names[at : at + RESOURCES_A_REQUEST]
        ]
        response = endpoint.ask(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources), node, 1)
        for result in response.results:
            if result.error_code:
                what = f"configs of {result.resource_name or 'all brokers'}"
                raise Refusal(what, result.error_code, result.error_message)
            described[result.resource_name] = sorted(result.configs, key=lambda config: str(config.name))
    return described


def config_changes(sets: Sequence[str], unsets: Sequence[str]) -> list[AlterableConfig]:
    """Of `--set NAME=VALUE` and `--unset NAME`. UsageError."""
    changes = [AlterableConfig(key, OP_SET, value) for key, value in assignments(sets, "--set").items()]
    return changes + [AlterableConfig(key, OP_DELETE, None) for key in unsets]


def alter_configs(
    endpoint: Endpoint, kind: int, name: str, changes: Sequence[AlterableConfig], node: int | None = None
) -> None:
    """By the controller, or by `node`. Refusal."""
    resource = AlterConfigsResource(kind, name, list(changes))
    request = IncrementalAlterConfigsRequest([resource])
    if node is None:
        response = endpoint.ask_controller(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
    else:
        response = endpoint.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, node)
    (changed,) = response.responses
    if changed.error_code:
        whose = name if kind == TOPIC_RESOURCE else f"broker {name}" if name else "all brokers"
        what = f"configs of {whose} stay as they are"
        names = [change.name for change in changes] if kind == TOPIC_RESOURCE else ()
        raise Refusal(what, changed.error_code, with_nearest(changed.error_message, names))


def with_nearest(refused: str | None, names: Sequence[str]) -> str | None:
    """The message of a refusal of these topic configs: with the known name that is nearest, if it names one
    that is not known."""
    for name in names:
        if refused and name in refused and name not in TOPIC_CONFIGS:
            return refused.rstrip(".") + did_you_mean(name, list(TOPIC_CONFIGS))
    return refused


def assignments(texts: Sequence[str], flag: str) -> dict[str, str]:
    """From NAME=VALUE. UsageError that names the flag."""
    pairs = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{flag} {text}: expected NAME=VALUE")
        pairs[name] = value
    return pairs
