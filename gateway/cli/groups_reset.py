"""`dragoman groups reset-offsets`: sets where the consumers of a stopped group continue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.cli.client import ClientError
from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint, Refusal, TopicInfo
from gateway.cli.exits import Exit
from gateway.cli.groups import DEAD, Partition, committed_offsets, log_ends
from gateway.cli.offset_file import offsets_of_file
from gateway.cli.offsets import EARLIEST, LATEST, list_offsets, offsets_of_topics, starting_offsets
from gateway.cli.output import UsageError, counted, print_json, print_table, talk
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.describe_groups import DescribeGroupsRequest
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

CURRENT: Final = "current"
STOPPED: Final = ("Empty", DEAD)
"""States in which a group accepts offsets from a client that is not a member."""


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """`topics`: NAME or NAME:0,2. Empty: all topics of which the group, or what it follows, has offsets. One
    of `to`, `shift`, `to_group` and `to_file` is given."""

    group: str
    topics: Sequence[str]
    to: str | None = None
    shift: int | None = None
    to_group: str | None = None
    to_file: str | None = None
    to_lag_of: Contact | None = None
    execute: bool = False
    as_json: bool = False

    @property
    def ways(self) -> int:
        ways = (self.to, self.shift, self.to_group, self.to_file, self.to_lag_of)
        return sum(way is not None for way in ways)


@dataclass(frozen=True, slots=True)
class ResetLine:
    topic: str
    partition: int
    offset: int | None
    new_offset: int


def reset_offsets(contact: Contact, options: ResetOptions) -> Exit:
    """Print the plan; with `execute` also commit it."""
    if options.ways != 1:
        raise UsageError(
            "say where to: one of --to WHERE or --shift N, --to-group GROUP, --to-file FILE, "
            "--to-lag-of HOST:PORT"
        )
    given = None if options.to_file is None else offsets_of_file(options.to_file)
    with Endpoint(contact) as endpoint:
        is_new = _check_stopped(endpoint, options.group)
        before = {
            partition: found.committed_offset
            for partition, found in committed_offsets(endpoint, options.group).items()
        }
        if options.to_group is not None:
            given = _offsets_of_group(endpoint, options.to_group)
        elif options.to_lag_of is not None:
            given = _offsets_by_lag(endpoint, options.group, options.to_lag_of)
        lines = (
            _plan(endpoint, options, before) if given is None else _plan_of(endpoint, options, before, given)
        )
        if options.execute and lines:
            _commit(endpoint, options.group, lines)
    _print_plan(lines, options, is_new)
    return Exit.OK


def _check_stopped(endpoint: Endpoint, group: str) -> bool:
    """ClientError if the group has members. Returns whether it does not exist yet."""
    response = endpoint.ask_coordinator(ApiKey.DESCRIBE_GROUPS, group, DescribeGroupsRequest([group]))
    (found,) = response.groups
    if found.group_state not in STOPPED:
        raise ClientError(
            f"group {group} is {found.group_state} with {counted(len(found.members), 'member')}: "
            "stop its consumers first, or they commit over it"
        )
    return bool(found.group_state == DEAD)


def _plan(endpoint: Endpoint, options: ResetOptions, before: Mapping[Partition, int]) -> list[ResetLine]:
    wanted = _wanted(options.topics) or _all_of(before)
    found = endpoint.topics(sorted(wanted)) if wanted else {}
    lines = []
    for name, partitions in sorted(wanted.items()):
        topic = found[name]
        chosen = range(len(topic.leaders)) if partitions is None else partitions
        targets = _targets(endpoint, topic, options, before, chosen)
        lines += [
            ResetLine(name, partition, before.get((name, partition)), targets[partition])
            for partition in chosen
            if partition in targets
        ]
    return lines


def _plan_of(
    endpoint: Endpoint,
    options: ResetOptions,
    before: Mapping[Partition, int],
    given: Mapping[Partition, int],
) -> list[ResetLine]:
    """To the offsets of another group or a file, brought to where there are records."""
    chosen = _wanted(options.topics) or _all_of(given)
    parts = sorted((name, part) for name, part in given if _is_chosen(chosen, name, part))
    topics = endpoint.topics(sorted({name for name, _ in parts})) if parts else {}
    firsts = offsets_of_topics(endpoint, list(topics.values()), EARLIEST)
    ends = offsets_of_topics(endpoint, list(topics.values()), LATEST)
    for name, part in parts:
        if (name, part) not in ends:
            raise ClientError(f"{name} has no partition {part}: it has {len(topics[name].leaders)}")
    return [
        ResetLine(*part, before.get(part), min(max(given[part], firsts[part]), ends[part])) for part in parts
    ]


def _is_chosen(chosen: Mapping[str, list[int] | None], topic: str, partition: int) -> bool:
    partitions = chosen.get(topic, [])
    return partitions is None or partition in partitions


def _offsets_of_group(endpoint: Endpoint, group: str) -> dict[Partition, int]:
    found = committed_offsets(endpoint, group)
    if not found:
        raise ClientError(f"group {group} has committed no offset; see dragoman groups list")
    return {partition: offset.committed_offset for partition, offset in found.items()}


def _offsets_by_lag(endpoint: Endpoint, group: str, other: Contact) -> dict[Partition, int]:
    """Offsets at which as much is left to read here as for the group at the other endpoint.

    Where both have the same records, whatever their offsets, it continues with the same record. Where offsets
    are missing there (transactions, compaction), it continues before it.
    """
    with Endpoint(other) as there:
        theirs = _offsets_of_group(there, group)
        ends_there = log_ends(there, sorted({topic for topic, _ in theirs}))
    ends_here = log_ends(endpoint, sorted({topic for topic, _ in theirs}))
    return {
        part: ends_here[part] - (ends_there[part] - offset)
        for part, offset in theirs.items()
        if part in ends_here and part in ends_there
    }


def _wanted(topics: Sequence[str]) -> dict[str, list[int] | None]:
    """Partitions by topic; None for all partitions."""
    wanted: dict[str, list[int] | None] = {}
    for text in topics:
        name, sign, numbers = text.partition(":")
        try:
            wanted[name] = sorted({int(number) for number in numbers.split(",")}) if sign else None
        except ValueError:
            raise UsageError(
                f"--topic {text}: expected NAME, or NAME:0,2 for some of its partitions"
            ) from None
    return wanted


def _all_of(before: Mapping[Partition, int]) -> dict[str, list[int] | None]:
    wanted: dict[str, list[int]] = {}
    for topic, partition in sorted(before):
        wanted.setdefault(topic, []).append(partition)
    return dict(wanted)


def _targets(
    endpoint: Endpoint,
    topic: TopicInfo,
    options: ResetOptions,
    before: Mapping[Partition, int],
    chosen: Sequence[int],
) -> dict[int, int]:
    """The new offset of each partition, brought to where there are records."""
    unknown = [partition for partition in chosen if partition not in range(len(topic.leaders))]
    if unknown:
        raise UsageError(f"--topic {topic.name}:{unknown[0]}: it has {len(topic.leaders)} partitions")
    firsts, ends = list_offsets(endpoint, topic, EARLIEST), list_offsets(endpoint, topic, LATEST)
    if options.shift is not None or options.to == CURRENT:
        # What was never committed has no place to be moved from: it goes to the end, as a new consumer would.
        shift = options.shift or 0
        wanted = {part: before.get((topic.name, part), ends[part] - shift) + shift for part in chosen}
    else:
        assert options.to is not None
        wanted = starting_offsets(endpoint, topic, options.to, "--to")
    return {part: min(max(wanted[part], firsts[part]), ends[part]) for part in chosen}


def _commit(endpoint: Endpoint, group: str, lines: Sequence[ResetLine]) -> None:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for line in lines:
        topic = topics.setdefault(line.topic, OffsetCommitRequestTopic(line.topic))
        topic.partitions.append(OffsetCommitRequestPartition(line.partition, line.new_offset))
    request = OffsetCommitRequest(group, topics=list(topics.values()))
    response = endpoint.ask_coordinator(ApiKey.OFFSET_COMMIT, group, request)
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                where = f"{topic.name}-{partition.partition_index}"
                raise Refusal(f"offset of group {group} for {where} was not reset", partition.error_code)


def _print_plan(lines: Sequence[ResetLine], options: ResetOptions, is_new: bool) -> None:
    if options.as_json:
        print_json({"group": options.group, "executed": options.execute and bool(lines), "offsets": lines})
    else:
        rows = [
            (line.topic, line.partition, "-" if line.offset is None else line.offset, line.new_offset)
            for line in lines
        ]
        print_table(("topic", "partition", "offset", "new offset"), rows)
    if not lines:
        talk(f"Group {options.group} has committed no offset; name topics with --topic.")
    elif options.execute:
        talk(f"Reset {counted(len(lines), 'offset')} of group {options.group}.")
    else:
        talk("Nothing was changed; do it with --execute.")
    if is_new and lines:
        made = "it was made" if options.execute else "--execute makes it"
        talk(f"There was no group {options.group}: {made}. Is it the right name? See dragoman groups list.")
