"""`dragoman topics ...`: list, create, describe, alter and delete topics of any Kafka endpoint."""

import base64
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint, Refusal, TopicInfo
from gateway.cli.exits import Exit
from gateway.cli.offsets import EARLIEST, LATEST, list_offsets
from gateway.cli.output import (
    UsageError,
    counted,
    print_json,
    print_table,
    print_text,
    raise_failures,
    talk,
)
from gateway.cli.resource_configs import (
    OP_SET,
    SET_ON_TOPIC,
    TOPIC_RESOURCE,
    alter_configs,
    assignments,
    config_changes,
    described_configs,
    with_nearest,
)
from gateway.cli.topic_sizes import TopicSize, topic_sizes
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gateway.wire.messages.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState

TIMEOUT_MS: Final = 15_000


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """`partitions` and `replicas`: -1 for the endpoint's default. `configs`: NAME=VALUE."""

    names: Sequence[str]
    partitions: int = -1
    replicas: int = -1
    configs: Sequence[str] = ()
    if_not_exists: bool = False
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class PartitionLine:
    partition: int
    leader: int
    log_start_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """`topic` is its name, as in all other lines; `name` says the same for scripts of before."""

    topic: str
    name: str
    topic_id: str
    topic_id_base64: str
    """As Kafka's own tools print it."""
    partitions: Sequence[PartitionLine]
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class TopicLine:
    """`topic` is its name, as in all other lines; `name` says the same for scripts of before. `offsets` and
    `bytes` are None unless sizes were requested, or the endpoint does not report them."""

    topic: str
    name: str
    partitions: int
    topic_id: str
    topic_id_base64: str
    offsets: int | None
    bytes: int | None


def list_topics(contact: Contact, internal: bool, with_sizes: bool, as_json: bool) -> Exit:
    with Endpoint(contact) as endpoint:
        topics = endpoint.topics()
        shown = {name: topics[name] for name in sorted(topics) if internal or not topics[name].is_internal}
        sizes = topic_sizes(endpoint, shown) if with_sizes else {}
    lines = [_line(topic, sizes.get(name)) for name, topic in shown.items()]
    if as_json:
        print_json(lines)
        return Exit.OK
    head = ("offsets", "bytes") if with_sizes else ()
    print_table(("topic", "partitions", *head, "topic id"), [_row(line, with_sizes) for line in lines])
    if not shown:
        talk("There is no topic yet; make one with: dragoman topics create NAME")
    return Exit.OK


def _line(topic: TopicInfo, size: TopicSize | None) -> TopicLine:
    return TopicLine(
        topic.name,
        topic.name,
        len(topic.leaders),
        _shown_id(topic),
        _id_base64(topic),
        None if size is None else size.offsets,
        None if size is None else size.size_bytes,
    )


def _row(line: TopicLine, with_sizes: bool) -> Sequence[object]:
    sizes = (line.offsets, "-" if line.bytes is None else line.bytes) if with_sizes else ()
    return (line.name, line.partitions, *sizes, line.topic_id)


def create(contact: Contact, options: CreateOptions) -> Exit:
    configs = [
        CreatableTopicConfig(name, value) for name, value in assignments(options.configs, "--set").items()
    ]
    request = CreateTopicsRequest(
        [
            CreatableTopic(
                name=name,
                num_partitions=options.partitions,
                replication_factor=options.replicas,
                configs=configs,
            )
            for name in options.names
        ],
        TIMEOUT_MS,
    )
    with Endpoint(contact) as endpoint:
        response = endpoint.ask_controller(ApiKey.CREATE_TOPICS, request, 4)
    tolerated = ErrorCode.TOPIC_ALREADY_EXISTS if options.if_not_exists else None
    names = [config.name for config in configs]
    created, existing, failures = _sorted_out(
        response.topics, "created", tolerated, lambda topic: _explained(topic, names)
    )
    for name in existing:
        talk(f"{name} exists already; its partitions and configs stay as they are.")
    if options.as_json:
        print_json({"created": created} | ({"existing": existing} if options.if_not_exists else {}))
    raise_failures(failures)
    return Exit.OK


def _explained(topic: Any, configs: Sequence[str]) -> str | None:
    """Why a topic was not created, and what to write instead."""
    if topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return f"{(topic.error_message or 'it exists').rstrip('.')}; with --if-not-exists that is no error"
    return with_nearest(topic.error_message, configs)


def _sorted_out(
    topics: Sequence[Any],
    done: str,
    tolerated: ErrorCode | None,
    explained: Callable[[Any], str | None] = lambda topic: topic.error_message,
) -> tuple[list[str], list[str], list[Refusal]]:
    """Names of the topics that are `done` (a participle), which is printed; names of those with the tolerated
    error; the other errors, each with why it was not done."""
    names, passed, failures = [], [], []
    for topic in topics:
        if not topic.error_code:
            names.append(topic.name)
            talk(f"{done.capitalize()} {topic.name}.")
        elif topic.error_code == tolerated:
            passed.append(topic.name)
        else:
            failures.append(Refusal(f"topic {topic.name} was not {done}", topic.error_code, explained(topic)))
    return names, passed, failures


def describe(contact: Contact, names: Sequence[str], all_configs: bool, as_json: bool) -> Exit:
    with Endpoint(contact) as endpoint:
        topics = endpoint.topics(names)
        found = [_describe(endpoint, topics[name], all_configs) for name in names]
    if as_json:
        print_json(found)
        return Exit.OK
    for at, topic in enumerate(found):
        heading = f"{topic.name}, id {topic.topic_id}"
        rows: list[Sequence[object]] = [
            (line.partition, line.leader, line.log_start_offset, line.high_watermark)
            for line in topic.partitions
        ]
        if at:
            print_text()
        print_text(heading)
        print_table(("partition", "leader", "log start", "high watermark"), rows)
        if topic.configs:
            print_table(("config", "value"), list(topic.configs.items()))
    return Exit.OK


def _describe(endpoint: Endpoint, topic: TopicInfo, all_configs: bool) -> TopicDescription:
    starts = list_offsets(endpoint, topic, EARLIEST)
    ends = list_offsets(endpoint, topic, LATEST)
    lines = [
        PartitionLine(partition, leader, starts[partition], ends[partition])
        for partition, leader in enumerate(topic.leaders)
    ]
    (described,) = described_configs(endpoint, TOPIC_RESOURCE, [topic.name]).values()
    configs = {
        config.name: config.value
        for config in described
        if all_configs or config.config_source == SET_ON_TOPIC
    }
    return TopicDescription(topic.name, topic.name, _shown_id(topic), _id_base64(topic), lines, configs)


def alter(
    contact: Contact,
    name: str,
    partitions: int | None,
    sets: Sequence[str],
    unsets: Sequence[str],
    as_json: bool,
) -> Exit:
    if partitions is None and not sets and not unsets:
        raise UsageError("nothing to alter: give --partitions, --set NAME=VALUE or --unset NAME")
    changes = config_changes(sets, unsets)
    with Endpoint(contact) as endpoint:
        endpoint.topics([name])
        unknown = _unknown(endpoint, name, unsets) if unsets else []
        for config in unknown:
            talk(f"There is no topic config {config}, so --unset {config} has no effect.")
        if changes:
            alter_configs(endpoint, TOPIC_RESOURCE, name, changes)
        if sets or len(unknown) < len(unsets):
            talk(f"Changed the configs of {name}.")
        if partitions is not None:
            growth = CreatePartitionsRequest([CreatePartitionsTopic(name, partitions, None)], TIMEOUT_MS)
            (grown,) = endpoint.ask_controller(ApiKey.CREATE_PARTITIONS, growth).results
            if grown.error_code:
                raise Refusal(f"partitions of {name} stay as they are", grown.error_code, grown.error_message)
            talk(f"{name} has {counted(partitions, 'partition')} now.")
    if as_json:
        print_json(
            {
                "topic": name,
                "set": [change.name for change in changes if change.config_operation == OP_SET],
                "unset": list(unsets),
                "partitions": partitions,
            }
        )
    return Exit.OK


def _unknown(endpoint: Endpoint, name: str, unsets: Sequence[str]) -> list[str]:
    """Configs that do not exist: an endpoint reports no error if one of these is unset."""
    (described,) = described_configs(endpoint, TOPIC_RESOURCE, [name]).values()
    known = {config.name for config in described}
    return [unset for unset in unsets if unset not in known]


def delete(contact: Contact, names: Sequence[str], if_exists: bool, as_json: bool) -> Exit:
    request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], list(names), TIMEOUT_MS)
    with Endpoint(contact) as endpoint:
        response = endpoint.ask_controller(ApiKey.DELETE_TOPICS, request, 1)
    tolerated = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None
    deleted, missing, failures = _sorted_out(response.responses, "deleted", tolerated)
    for name in missing:
        talk(f"There is no topic {name}.")
    if as_json:
        print_json({"deleted": deleted} | ({"missing": missing} if if_exists else {}))
    raise_failures(failures)
    return Exit.OK


def _shown_id(topic: TopicInfo) -> str:
    return str(uuid.UUID(bytes=topic.topic_id))


def _id_base64(topic: TopicInfo) -> str:
    return base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=")
