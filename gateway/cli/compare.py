"""`dragoman doctor --against`: whether one endpoint has what another one has, as after a migration.

What the other endpoint has must be here: topics, partitions, configs, as many offsets, groups, and no less
left to read for each group; with `records` also every record. What is here alone is only noted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint, TopicInfo
from gateway.cli.exits import Exit
from gateway.cli.fetching import READ_COMMITTED, Consumed, Partition, fetched
from gateway.cli.groups import committed_offsets, found_groups
from gateway.cli.offsets import EARLIEST, LATEST, offsets_of_topics
from gateway.cli.output import UsageError, counted, print_json, print_text, talk
from gateway.cli.resource_configs import SET_ON_TOPIC, TOPIC_RESOURCE, described_configs

MIRROR_SUFFIX: Final = ".internal"
MIRROR_TOPICS: Final = frozenset({"heartbeats"})
"""Topics of MirrorMaker 2 itself."""
TIMESTAMP_TYPE: Final = "message.timestamp.type"
APPEND_TIME: Final = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class Difference:
    """`kind`: topic, partitions, config, offsets, record, group or group offset. `detail` is a sentence."""

    kind: str
    detail: str
    topic: str | None = None
    partition: int | None = None
    group: str | None = None


@dataclass(slots=True)
class Comparison:
    findings: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """`topics`: these alone; empty: all, but for internal ones and those of MirrorMaker 2."""

    topics: Sequence[str]
    records: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class _Side:
    endpoint: Endpoint
    topics: Mapping[str, TopicInfo]
    firsts: Mapping[Partition, int]
    ends: Mapping[Partition, int]

    def count(self, partition: Partition) -> int:
        return self.ends[partition] - self.firsts[partition]

    def range(self, partition: Partition) -> str:
        return f"{self.count(partition)} ({self.firsts[partition]} to {self.ends[partition]})"


def compare(contact: Contact, against: Contact, options: CompareOptions) -> Exit:
    """FINDINGS if something of the other endpoint is not here as it is there."""
    found = Comparison()
    with Endpoint(contact) as here, Endpoint(against) as there:
        theirs = _chosen(there.topics(), options.topics)
        ours = _chosen(here.topics(), options.topics)
        for name in options.topics:
            if name not in theirs:
                raise UsageError(f"--topics {name}: {against.bootstrap} has no such topic")
        both = _compare_topics(ours, theirs, found)
        sides = (_side(here, ours, both), _side(there, theirs, both))
        _compare_configs(*sides, found)
        partitions = _compare_offsets(*sides, found)
        if options.records:
            _compare_records(*sides, partitions, found)
        _compare_groups(*sides, found)
    _print(found, options.as_json)
    return Exit.FINDINGS if found.findings else Exit.OK


def _print(found: Comparison, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        for difference in found.findings:
            print_text(f"FOUND  {difference.detail}")
        for note in found.notes:
            print_text(f"ok     {note}")
    talk(f"{counted(len(found.findings), 'difference')}." if found.findings else "No difference found.")


def _chosen(topics: Mapping[str, TopicInfo], names: Sequence[str]) -> dict[str, TopicInfo]:
    return {
        name: topic
        for name, topic in topics.items()
        if (name in names if names else not topic.is_internal and not _is_of_mirror(name))
    }


def _is_of_mirror(name: str) -> bool:
    return name.endswith(MIRROR_SUFFIX) or name in MIRROR_TOPICS


def _side(endpoint: Endpoint, topics: Mapping[str, TopicInfo], both: Sequence[str]) -> _Side:
    chosen = {name: topics[name] for name in both}
    infos = list(chosen.values())
    return _Side(
        endpoint,
        chosen,
        offsets_of_topics(endpoint, infos, EARLIEST),
        offsets_of_topics(endpoint, infos, LATEST, READ_COMMITTED),
    )


def _compare_topics(
    ours: Mapping[str, TopicInfo], theirs: Mapping[str, TopicInfo], found: Comparison
) -> list[str]:
    """The topics that both have."""
    for name in sorted(theirs.keys() - ours.keys()):
        found.findings.append(Difference("topic", f"topic {name} is missing here", name))
    if alone := sorted(ours.keys() - theirs.keys()):
        found.notes.append(f"topics that are here alone: {', '.join(alone)}")
    both = sorted(ours.keys() & theirs.keys())
    for name in both:
        here, there = len(ours[name].leaders), len(theirs[name].leaders)
        if here != there:
            detail = f"topic {name} has {counted(here, 'partition')} here, {there} there"
            found.findings.append(Difference("partitions", detail, name))
    found.notes.append(f"topics: {len(both)} that both have")
    return both


def _compare_configs(here: _Side, there: _Side, found: Comparison) -> None:
    """Of each config that is set on the topic at one of both, the value that is in force."""
    names = list(here.topics)
    ours = described_configs(here.endpoint, TOPIC_RESOURCE, names)
    theirs = described_configs(there.endpoint, TOPIC_RESOURCE, names)
    compared = 0
    for topic in names:
        values = (_values(ours[topic]), _values(theirs[topic]))
        set_somewhere = {
            config.name for config in [*ours[topic], *theirs[topic]] if config.config_source == SET_ON_TOPIC
        }
        for config in sorted(set_somewhere):
            compared += 1
            here_value, there_value = (value.get(config, "unknown") for value in values)
            if here_value != there_value:
                detail = f"{config} of topic {topic} is {here_value} here, {there_value} there"
                found.findings.append(Difference("config", detail, topic))
    found.notes.append(f"configs: {compared} that are set on topics")


def _values(configs: Sequence[Any]) -> dict[str, str | None]:
    return {config.name: config.value for config in configs}


def _compare_offsets(here: _Side, there: _Side, found: Comparison) -> list[Partition]:
    """The partitions that both have."""
    both = sorted(here.ends.keys() & there.ends.keys())
    shifted = 0
    for part in both:
        if here.count(part) != there.count(part):
            name = f"{part[0]}-{part[1]}"
            detail = f"{name} has {here.range(part)} offsets here, {there.range(part)} there"
            found.findings.append(Difference("offsets", detail, *part))
        elif here.ends[part] != there.ends[part]:
            shifted += 1
    total = sum(here.count(part) for part in both)
    found.notes.append(
        f"offsets: {total} in {counted(len(both), 'partition')}"
        + (f", {shifted} of which begin elsewhere" if shifted else "")
    )
    return both


def _compare_records(here: _Side, there: _Side, partitions: Sequence[Partition], found: Comparison) -> None:
    configs = described_configs(here.endpoint, TOPIC_RESOURCE, sorted({topic for topic, _ in partitions}))
    stamped = {
        topic for topic, values in configs.items() if _values(values).get(TIMESTAMP_TYPE) == APPEND_TIME
    }
    compared = 0
    for part in partitions:
        pairs = zip_longest(_records(here, part), _records(there, part))
        for ours, theirs in pairs:
            what = _difference(ours, theirs, with_timestamp=part[0] not in stamped)
            if what:
                at = ours or theirs
                side = "here" if ours else "there"
                detail = f"{part[0]}-{part[1]}: the record at offset {at.offset} {side} {what}"
                found.findings.append(Difference("record", detail, *part))
                break
            compared += 1
    found.notes.append(f"records: {compared} are equal")
    if stamped:
        found.notes.append(
            f"timestamps of {', '.join(sorted(stamped))} are not compared: they are of the append"
        )


def _records(side: _Side, partition: Partition) -> Iterator[Consumed]:
    starts, ends = {partition: side.firsts[partition]}, {partition: side.ends[partition]}
    return fetched(side.endpoint, side.topics, starts, ends, isolation=READ_COMMITTED)


def _difference(ours: Consumed | None, theirs: Consumed | None, *, with_timestamp: bool) -> str:
    """What differs, as the end of a sentence; empty if nothing does."""
    if ours is None or theirs is None:
        return f"is missing {'here' if ours is None else 'there'}"
    if ours.record.key != theirs.record.key:
        return "has another key"
    if ours.record.value != theirs.record.value:
        return "has another value"
    if list(ours.record.headers) != list(theirs.record.headers):
        return "has other headers"
    if with_timestamp and ours.timestamp_ms != theirs.timestamp_ms:
        return f"has another timestamp ({ours.timestamp_ms} here, {theirs.timestamp_ms} there)"
    return ""


def _compare_groups(here: _Side, there: _Side, found: Comparison) -> None:
    groups = again = exact = 0
    for line in found_groups(there.endpoint):
        theirs = _committed(there, line.group)
        if not theirs:
            continue
        groups += 1
        ours = _committed(here, line.group)
        for part in sorted(theirs):
            more = _more_to_read(here, there, part, ours.get(part), theirs[part])
            if more is None or more < 0:
                detail = _group_detail(line.group, part, more)
                found.findings.append(Difference("group offset", detail, *part, line.group))
            elif more:
                again += 1
                found.notes.append(
                    f"group {line.group} reads {counted(more, 'record')} of {part[0]}-{part[1]} again"
                )
            else:
                exact += 1
    found.notes.append(f"groups: {groups}, with {counted(exact, 'offset')} as there, {again} further back")


def _group_detail(group: str, partition: Partition, more: int | None) -> str:
    name = f"{partition[0]}-{partition[1]}"
    if more is None:
        return f"group {group} has no offset of {name} here"
    return f"group {group} would leave out {counted(-more, 'record')} of {name} here"


def _committed(side: _Side, group: str) -> dict[Partition, int]:
    """Of the compared topics."""
    return {
        part: found.committed_offset
        for part, found in committed_offsets(side.endpoint, group).items()
        if part in side.ends
    }


def _more_to_read(here: _Side, there: _Side, part: Partition, ours: int | None, theirs: int) -> int | None:
    """How much more is left for the group here than there. None if it has no offset here."""
    if ours is None or part not in here.ends:
        return None
    left_here = here.ends[part] - max(ours, here.firsts[part])
    left_there = there.ends[part] - max(theirs, there.firsts[part])
    return left_here - left_there
