"""`dragoman topics ...`: list, create, describe, alter and delete topics of any Kafka endpoint."""

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
)
from gateway.cli.topic_sizes import TopicSize, topic_sizes
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gateway.wire.messages.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState

TIMEOUT_MS: Final = 15_000


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


def create(
    contact: Contact,
    names: Sequence[str],
    partitions: int,
    replicas: int,
    configs: Sequence[str],
    as_json: bool,
) -> Exit:
    pairs = assignments(configs, "--set")
    request = CreateTopicsRequest(
        [
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replicas,
                configs=[CreatableTopicConfig(key, value) for key, value in pairs.items()],
            )
            for name in names
        ],
        TIMEOUT_MS,
    )
    with Endpoint(contact) as endpoint:
        response = endpoint.ask_controller(ApiKey.CREATE_TOPICS, request, 4)
    failures = []
    created = []
    for topic in response.topics:
        if topic.error_code:
            failures.append(
                Refusal(f"topic {topic.name} was not created", topic.error_code, topic.error_message)
            )
        else:
            created.append(topic.name)
            talk(f"Created {topic.name}.")
    if as_json:
        print_json({"created": created})
    raise_failures(failures)
    return Exit.OK


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
        if unsets:
            _warn_of_unknown(endpoint, name, unsets)
        if changes:
            alter_configs(endpoint, TOPIC_RESOURCE, name, changes)
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


def _warn_of_unknown(endpoint: Endpoint, name: str, unsets: Sequence[str]) -> None:
    """An endpoint reports no error if the config that is unset does not exist."""
    (described,) = described_configs(endpoint, TOPIC_RESOURCE, [name]).values()
    known = {config.name for config in described}
    for unset in unsets:
        if unset not in known:
            talk(f"There is no topic config {unset}, so --unset {unset} has no effect.")


def delete(contact: Contact, names: Sequence[str], as_json: bool) -> Exit:
    request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], list(names), TIMEOUT_MS)
    failures = []
    deleted = []
    with Endpoint(contact) as endpoint:
        response = endpoint.ask_controller(ApiKey.DELETE_TOPICS, request, 1)
    for topic in response.responses:
        if topic.error_code:
            failures.append(
                Refusal(f"topic {topic.name} was not deleted", topic.error_code, topic.error_message)
            )
        else:
            deleted.append(topic.name)
            talk(f"Deleted {topic.name}.")
    if as_json:
        print_json({"deleted": deleted})
    raise_failures(failures)
    return Exit.OK


def _shown_id(topic: TopicInfo) -> str:
    return str(uuid.UUID(bytes=topic.topic_id))


def _id_base64(topic: TopicInfo) -> str:
    return base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=")
