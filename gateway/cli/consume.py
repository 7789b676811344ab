"""`dragoman consume`: records become lines on stdout, by themselves or as a member of a consumer group."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gateway.cli.client import ClientError
from gateway.cli.consumer_member import GroupMember, Rebalanced
from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint, TopicInfo
from gateway.cli.exits import Exit
from gateway.cli.fetching import READ_COMMITTED, READ_UNCOMMITTED, Consumed, Partition, fetched
from gateway.cli.groups import committed_offsets
from gateway.cli.offsets import EARLIEST, LATEST, list_offsets, offsets_of_topics, starting_offsets
from gateway.cli.output import UsageError, counted, stdout_bytes, talk, writing
from gateway.cli.record_output import OutputOptions, Printer, printer_for

IDLE_S: Final = 0.5
ISOLATIONS: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """`count` None: no bound. `to_end`: stop at the end as it was at the start. `until`: stop before this
    offset or time, or at the end. `group`: read as a member of it, and commit."""

    topics: Sequence[str]
    start: str = "earliest"
    partitions: Sequence[int] = ()
    count: int | None = None
    to_end: bool = False
    until: str | None = None
    group: str | None = None
    isolation: int = READ_UNCOMMITTED
    output: OutputOptions = field(default_factory=OutputOptions)


def isolation_of(level: str) -> int:
    """UsageError."""
    if level not in ISOLATIONS:
        raise UsageError(f"--isolation-level {level}: expected {' or '.join(ISOLATIONS)}")
    return ISOLATIONS[level]


class _Enough(Exception):
    """As many records as were wanted are printed."""


class _Lines:
    """Prints records, and knows how far it has come."""

    def __init__(self, printer: Printer, count: int | None) -> None:
        self._printer = printer
        self._count = count
        self.printed = 0
        self.positions: dict[Partition, int] = {}
        """The next offset of each partition of which something was printed."""

    def print(self, records: Iterable[Consumed]) -> None:
        """Until they end. _Enough, OutputError, and what the records raise."""
        if self._count == 0:
            raise _Enough
        out = stdout_bytes()
        for consumed in records:
            with writing():
                out.write(self._printer(consumed))
                out.flush()
            self.printed += 1
            self.positions[consumed.topic, consumed.partition] = consumed.offset + 1
            if self.printed == self._count:
                raise _Enough


def consume(contact: Contact, options: ConsumeOptions) -> Exit:
    """Print records until there are enough, or until interrupted."""
    lines = _Lines(printer_for(options.output), options.count)
    _check(options)
    with Endpoint(contact) as endpoint:
        topics = endpoint.topics(options.topics)
        ends: Mapping[Partition, int] = {}
        has_begun = True
        try:
            if options.group is None:
                ends = _consume_alone(endpoint, topics, options, lines)
            else:
                ends = _consume_as_member(contact, endpoint, topics, options, lines)
        except _Enough:
            pass
        except UsageError:
            # Of --from, --until or --partition; a group reads them again at each rebalance.
            has_begun = lines.printed > 0
            raise
        finally:
            if has_begun:
                talk(f"Consumed {counted(lines.printed, 'record')} of {', '.join(options.topics)}.")
        if options.isolation == READ_COMMITTED:
            with suppress(ClientError):
                _talk_of_open_transactions(endpoint, topics, ends)
    return Exit.OK


def _check(options: ConsumeOptions) -> None:
    if len(set(options.topics)) < len(options.topics):
        raise UsageError("a topic is named twice; name each once")
    if options.to_end and options.until is not None:
        raise UsageError("--to-end and --until: give one of them")
    if options.group is not None and options.partitions:
        raise UsageError("--group and --partition: the group assigns the partitions; give one of them")


def _consume_alone(
    endpoint: Endpoint, topics: Mapping[str, TopicInfo], options: ConsumeOptions, lines: _Lines
) -> dict[Partition, int]:
    """Where it has stopped."""
    starts = _starts(endpoint, topics, options)
    ends = _ends(endpoint, topics, options)
    lines.print(fetched(endpoint, topics, starts, ends, isolation=options.isolation))
    return {} if ends is None else {part: ends[part] for part in starts}


def _consume_as_member(
    contact: Contact,
    endpoint: Endpoint,
    topics: Mapping[str, TopicInfo],
    options: ConsumeOptions,
    lines: _Lines,
) -> dict[Partition, int]:
    """The same for the partitions that the group has assigned."""
    assert options.group is not None
    ends = _ends(endpoint, topics, options)
    with GroupMember(contact, options.group, topics, lines.positions) as member:
        while True:
            assigned = member.join()
            # What was printed before is committed: what another member has printed since is too.
            lines.positions.clear()
            starts = _member_starts(endpoint, topics, options, assigned)
            mine = None if ends is None else {part: ends.get(part, 0) for part in starts}
            try:
                lines.print(fetched(endpoint, topics, starts, mine, member.tend, options.isolation))
                if mine is not None:
                    return mine
                _wait_for_rebalance(member)
            except Rebalanced as why:
                talk(f"Group {options.group} rebalances ({why}).")


def _talk_of_open_transactions(
    endpoint: Endpoint, topics: Mapping[str, TopicInfo], ends: Mapping[Partition, int]
) -> None:
    """A hint, if records behind these ends wait for an open transaction. ClientError."""
    if not ends:
        return
    # In this order: an end that grows in between does not look like an open transaction.
    last = offsets_of_topics(endpoint, list(topics.values()), LATEST)
    stable = offsets_of_topics(endpoint, list(topics.values()), LATEST, READ_COMMITTED)
    waiting = [part for part, end in sorted(ends.items()) if end == stable[part] < last[part]]
    if waiting:
        topic, index = waiting[0]
        more = f" and {counted(len(waiting) - 1, 'more partition')}" if len(waiting) > 1 else ""
        talk(
            f"Records of {topic}-{index} from offset {stable[topic, index]} on{more} wait for a transaction "
            "that is open; see dragoman transactions list --state Ongoing"
        )


def _wait_for_rebalance(member: GroupMember) -> None:
    """Without a partition there is nothing to fetch. Rebalanced."""
    while True:
        member.tend()
        time.sleep(IDLE_S)


def _member_starts(
    endpoint: Endpoint,
    topics: Mapping[str, TopicInfo],
    options: ConsumeOptions,
    assigned: Sequence[Partition],
) -> dict[Partition, int]:
    """Committed offsets; where there is none, what `--from` says."""
    assert options.group is not None
    committed = {
        part: found.committed_offset for part, found in committed_offsets(endpoint, options.group).items()
    }
    if not any(part not in committed for part in assigned):
        return {part: committed[part] for part in assigned}
    fresh = _starts(endpoint, topics, options)
    return {part: committed.get(part, fresh.get(part, 0)) for part in assigned}


def _starts(
    endpoint: Endpoint, topics: Mapping[str, TopicInfo], options: ConsumeOptions
) -> dict[Partition, int]:
    starts: dict[Partition, int] = {}
    for topic in topics.values():
        chosen = _chosen(topic, options, starting_offsets(endpoint, topic, options.start))
        if options.start.isdecimal():
            chosen = _within_records(endpoint, topic, chosen)
        starts |= {(topic.name, partition): offset for partition, offset in chosen.items()}
    return starts


def _ends(
    endpoint: Endpoint, topics: Mapping[str, TopicInfo], options: ConsumeOptions
) -> dict[Partition, int] | None:
    """Where to stop: never later than the present end, or the first open transaction for those who read what
    is committed. None: nowhere."""
    if not options.to_end and options.until is None:
        return None
    ends = offsets_of_topics(endpoint, list(topics.values()), LATEST, options.isolation)
    if options.until is None:
        return ends
    for topic in topics.values():
        for partition, until in starting_offsets(endpoint, topic, options.until, "--until").items():
            ends[topic.name, partition] = min(ends[topic.name, partition], until)
    return ends


def _chosen(topic: TopicInfo, options: ConsumeOptions, starts: Mapping[int, int]) -> dict[int, int]:
    for partition in options.partitions:
        if partition not in starts:
            raise UsageError(
                f"--partition {partition}: {topic.name} has partitions 0 to {len(topic.leaders) - 1}"
            )
    return {partition: starts[partition] for partition in options.partitions or starts}


def _within_records(endpoint: Endpoint, topic: TopicInfo, starts: Mapping[int, int]) -> dict[int, int]:
    """The offsets, moved to the nearest record where a partition does not have them; as given if none has."""
    firsts, ends = list_offsets(endpoint, topic, EARLIEST), list_offsets(endpoint, topic, LATEST)
    if not any(firsts[part] <= at <= ends[part] for part, at in starts.items()):
        return dict(starts)
    return {part: min(max(at, firsts[part]), ends[part]) for part, at in starts.items()}
