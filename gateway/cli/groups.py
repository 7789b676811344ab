"""`dragoman groups ...`: list, describe and delete consumer groups of any Kafka endpoint."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.cli.assignments import held_partitions
from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint, Refusal
from gateway.cli.exits import Exit
from gateway.cli.offsets import LATEST, offsets_of_topics
from gateway.cli.output import counted, print_json, print_table, print_text, raise_failures, talk
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.delete_groups import DeleteGroupsRequest
from gateway.wire.messages.generated.describe_groups import DescribeGroupsRequest
from gateway.wire.messages.generated.list_groups import ListGroupsRequest
from gateway.wire.messages.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

DEAD: Final = "Dead"
STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Empty",
    DEAD,
    "Assigning",
    "Reconciling",
    "NotReady",
    "Unknown",
)
"""Of the groups of all protocols, as Kafka spells them; it takes any capitals."""
NOTHING: Final = "-"

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TopicPartition:
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupLine:
    """`lag` is None unless it was requested, or where nothing was committed."""

    group: str
    state: str
    protocol_type: str
    type: str
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class MemberLine:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: Sequence[Partition]
    assignment: Sequence[TopicPartition]
    """The same as `partitions`, in the shape of all other lines."""


@dataclass(frozen=True, slots=True)
class OffsetLine:
    """`lag` is None where nothing was committed or the topic is gone."""

    topic: str
    partition: int
    offset: int | None
    log_end: int | None
    lag: int | None
    member_id: str | None
    metadata: str


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`lag`: of all partitions in which something was committed; None if nothing was."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    lag: int | None
    members: Sequence[MemberLine]
    offsets: Sequence[OffsetLine]


def list_groups(contact: Contact, states: Sequence[str], with_lag: bool, as_json: bool) -> Exit:
    for state in states:
        if state.lower() not in map(str.lower, STATES):
            talk(f"No group can be {state}; states are {', '.join(STATES)}.")
    with Endpoint(contact) as endpoint:
        lines = found_groups(endpoint, states)
        if with_lag:
            lines = _with_lag(endpoint, lines)
    if as_json:
        print_json(lines)
        return Exit.OK
    rows = [
        (
            line.group,
            line.state,
            line.protocol_type or NOTHING,
            *((_or_nothing(line.lag),) if with_lag else ()),
        )
        for line in lines
    ]
    print_table(("group", "state", "protocol type", *(("lag",) if with_lag else ())), rows)
    if not lines:
        talk(_NONE_MATCHES if states else _NONE_THERE)
    return Exit.OK


_NONE_MATCHES: Final = "No group matches these filters."
_NONE_THERE: Final = "There is no group; one begins when a consumer with a group.id joins or commits."


def _with_lag(endpoint: Endpoint, lines: Sequence[GroupLine]) -> list[GroupLine]:
    committed = {line.group: committed_offsets(endpoint, line.group) for line in lines}
    ends = log_ends(endpoint, sorted({topic for offsets in committed.values() for topic, _ in offsets}))
    return [
        replace(
            line,
            lag=_total(
                max(ends[partition] - found.committed_offset, 0)
                for partition, found in committed[line.group].items()
                if partition in ends
            ),
        )
        for line in lines
    ]


def _total(lags: Iterable[int | None]) -> int | None:
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def found_groups(endpoint: Endpoint, states: Sequence[str] = ()) -> list[GroupLine]:
    """Of all nodes, in the order of their names; in any state if none is said. Refusal."""
    request = ListGroupsRequest(list(states))
    lowest = 4 if states else 0
    responses = [endpoint.ask(ApiKey.LIST_GROUPS, request, node, lowest) for node in endpoint.nodes()]
    for response in responses:
        if response.error_code:
            raise Refusal("groups cannot be listed", response.error_code)
    found = sorted((one for response in responses for one in response.groups), key=lambda one: one.group_id)
    return [GroupLine(one.group_id, one.group_state, one.protocol_type, one.group_type) for one in found]


def describe(contact: Contact, names: Sequence[str], with_members: bool, as_json: bool) -> Exit:
    with Endpoint(contact) as endpoint:
        found = [describe_group(endpoint, name) for name in names]
    if as_json:
        print_json(found)
        return Exit.OK
    for at, group in enumerate(found):
        _print(group, with_members, is_first=at == 0)
    return Exit.OK


def describe_group(endpoint: Endpoint, name: str) -> GroupDescription:
    """Refusal if there is no such group."""
    response = endpoint.ask_coordinator(ApiKey.DESCRIBE_GROUPS, name, DescribeGroupsRequest([name]))
    (group,) = response.groups
    if group.error_code or group.group_state == DEAD:
        raise Refusal(f"group {name}", group.error_code or ErrorCode.GROUP_ID_NOT_FOUND)
    members = [_member_line(member) for member in group.members]
    members.sort(key=lambda member: (member.client_id, member.member_id))
    offsets = _offset_lines(endpoint, name, members)
    return GroupDescription(
        name,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        _total(line.lag for line in offsets),
        members,
        offsets,
    )


def _member_line(member: Any) -> MemberLine:
    held = held_partitions(member.member_assignment)
    return MemberLine(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        held,
        [TopicPartition(*partition) for partition in held],
    )


def committed_offsets(endpoint: Endpoint, group: str) -> dict[Partition, Any]:
    """What a group has committed, by topic and partition. Refusal."""
    request = OffsetFetchRequest(group, None, [OffsetFetchRequestGroup(group, topics=None)])
    response = endpoint.ask_coordinator(ApiKey.OFFSET_FETCH, group, request, 2)
    group_offsets = response.groups[0] if response.groups else response
    if group_offsets.error_code:
        raise Refusal(f"offsets of group {group}", group_offsets.error_code)
    return {
        (topic.name, partition.partition_index): partition
        for topic in group_offsets.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


def log_ends(endpoint: Endpoint, topics: Sequence[str]) -> dict[Partition, int]:
    """The next offset of every partition of the topics that there are."""
    known = endpoint.topics()
    return offsets_of_topics(endpoint, [known[name] for name in topics if name in known], LATEST)


def delete(contact: Contact, names: Sequence[str], as_json: bool) -> Exit:
    failures = []
    deleted = []
    with Endpoint(contact) as endpoint:
        for name in names:
            response = endpoint.ask_coordinator(ApiKey.DELETE_GROUPS, name, DeleteGroupsRequest([name]))
            (result,) = response.results
            if result.error_code:
                failures.append(Refusal(f"group {name} was not deleted", result.error_code))
            else:
                deleted.append(name)
                talk(f"Deleted group {name} and its offsets.")
    if as_json:
        print_json({"deleted": deleted})
    raise_failures(failures)
    return Exit.OK


def _offset_lines(endpoint: Endpoint, name: str, members: Sequence[MemberLine]) -> list[OffsetLine]:
    committed = committed_offsets(endpoint, name)
    holders = {partition: member.member_id for member in members for partition in member.partitions}
    partitions = sorted({*committed, *holders})
    ends = log_ends(endpoint, sorted({topic for topic, _ in partitions}))
    return [_offset_line(partition, committed, holders, ends) for partition in partitions]


def _offset_line(
    partition: Partition,
    committed: Mapping[Partition, Any],
    holders: Mapping[Partition, str],
    ends: Mapping[Partition, int],
) -> OffsetLine:
    found, end = committed.get(partition), ends.get(partition)
    offset = None if found is None else found.committed_offset
    lag = None if offset is None or end is None else max(end - offset, 0)
    metadata = "" if found is None else found.metadata or ""
    return OffsetLine(*partition, offset, end, lag, holders.get(partition), metadata)


def _print(group: GroupDescription, with_members: bool, is_first: bool) -> None:
    protocol = f", {group.protocol}" if group.protocol else ""
    heading = f"{group.group}: {group.state}{protocol}, {counted(len(group.members), 'member')}"
    if group.lag is not None:
        heading += f", lag {group.lag}"
    if not is_first:
        print_text()
    print_text(heading)
    if with_members and group.members:
        rows = [
            (member.member_id, member.instance_id or NOTHING, member.host, _shown(member.partitions))
            for member in group.members
        ]
        print_table(("member", "instance", "host", "partitions"), rows)
    if not group.offsets:
        print_text("It has committed no offset.")
        return
    print_table(
        ("topic", "partition", "offset", "log end", "lag", "member"),
        [
            (
                line.topic,
                line.partition,
                *map(_or_nothing, (line.offset, line.log_end, line.lag, line.member_id)),
            )
            for line in group.offsets
        ],
    )


def _shown(partitions: Sequence[Partition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions) or NOTHING


def _or_nothing(value: object) -> object:
    return NOTHING if value is None else value
