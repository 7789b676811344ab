"""`dragoman topics trim`: deletes the records before an offset (DeleteRecords)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint, Refusal, TopicInfo
from gateway.cli.exits import Exit
from gateway.cli.offsets import EARLIEST, LATEST, list_offsets, starting_offsets
from gateway.cli.output import UsageError, counted, print_json, print_table, raise_failures, talk
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

TIMEOUT_MS: Final = 15_000


@dataclass(frozen=True, slots=True)
class TrimOptions:
    """`before`: as `--from` of consume: a word, an offset, -N or a time."""

    topic: str
    before: str
    partitions: Sequence[int]
    execute: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class TrimLine:
    """Offsets from `log_start` to before `new_log_start` are deleted."""

    partition: int
    log_start: int
    new_log_start: int
    high_watermark: int


def trim(contact: Contact, options: TrimOptions) -> Exit:
    """Print the plan; with `execute` also delete."""
    with Endpoint(contact) as endpoint:
        topic = endpoint.topics([options.topic])[options.topic]
        lines = _plan(endpoint, topic, options)
        trimmed = [line for line in lines if line.new_log_start > line.log_start]
        failures = _delete(endpoint, topic, trimmed) if options.execute and trimmed else []
    if options.as_json:
        executed = options.execute and bool(trimmed) and not failures
        print_json({"topic": topic.name, "executed": executed, "partitions": lines})
    else:
        rows = [(one.partition, one.log_start, one.new_log_start, one.high_watermark) for one in lines]
        print_table(("partition", "log start", "new log start", "high watermark"), rows)
    raise_failures(failures)
    count = sum(line.new_log_start - line.log_start for line in trimmed)
    if not trimmed:
        talk(f"{topic.name} has no records before that.")
    elif options.execute:
        talk(f"Deleted {counted(count, 'offset')} of {topic.name}.")
    else:
        talk(f"{counted(count, 'offset')} would be deleted for ever; do it with --execute.")
    return Exit.OK


def _plan(endpoint: Endpoint, topic: TopicInfo, options: TrimOptions) -> list[TrimLine]:
    for partition in options.partitions:
        if not 0 <= partition < len(topic.leaders):
            raise UsageError(
                f"--partition {partition}: {topic.name} has partitions 0 to {len(topic.leaders) - 1}"
            )
    firsts, ends = list_offsets(endpoint, topic, EARLIEST), list_offsets(endpoint, topic, LATEST)
    wanted = starting_offsets(endpoint, topic, options.before, "--before")
    return [
        TrimLine(part, firsts[part], min(max(wanted[part], firsts[part]), ends[part]), ends[part])
        for part in sorted(set(options.partitions or firsts))
    ]


def _delete(endpoint: Endpoint, topic: TopicInfo, lines: Sequence[TrimLine]) -> list[Refusal]:
    """The partitions that were refused. ClientError."""
    failures = []
    for leader in sorted({topic.leaders[line.partition] for line in lines}):
        partitions = [
            DeleteRecordsPartition(line.partition, line.new_log_start)
            for line in lines
            if topic.leaders[line.partition] == leader
        ]
        request = DeleteRecordsRequest([DeleteRecordsTopic(topic.name, partitions)], TIMEOUT_MS)
        response = endpoint.ask(ApiKey.DELETE_RECORDS, request, leader)
        for found in response.topics[0].partitions:
            if found.error_code:
                what = f"records of {topic.name}-{found.partition_index} were not deleted"
                failures.append(Refusal(what, found.error_code))
    return failures
