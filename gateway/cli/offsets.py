"""The offset that a word, a number or a time means, from ListOffsets of the leaders."""

import datetime
from collections.abc import Sequence
from typing import Final

from gateway.cli.endpoint import Endpoint, Refusal, TopicInfo
from gateway.cli.output import UsageError
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER: Final = -1
PARTITIONS_A_REQUEST: Final = 1_000
WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


def list_offsets(endpoint: Endpoint, topic: TopicInfo, timestamp: int) -> dict[int, int]:
    """Offset of each partition: of EARLIEST, LATEST, or of the first record as late as a unix time in ms
    (-1 if there is none). Refusal."""
    found = offsets_of_topics(endpoint, [topic], timestamp)
    return {partition: offset for (_, partition), offset in found.items()}


def offsets_of_topics(
    endpoint: Endpoint, topics: Sequence[TopicInfo], timestamp: int, isolation: int = 0
) -> dict[tuple[str, int], int]:
    """The same of every partition of several topics, with few requests. `isolation` 1: LATEST is where the
    first open transaction begins. Refusal."""
    wanted: dict[int, list[tuple[str, int]]] = {}
    for topic in topics:
        for partition, leader in enumerate(topic.leaders):
            wanted.setdefault(leader, []).append((topic.name, partition))
    offsets: dict[tuple[str, int], int] = {}
    for leader, partitions in sorted(wanted.items()):
        for at in range(0, len(partitions), PARTITIONS_A_REQUEST):
            chunk = partitions[at : at + PARTITIONS_A_REQUEST]
            offsets |= _listed(endpoint, leader, chunk, timestamp, isolation)
    return offsets


def _listed(
    endpoint: Endpoint, leader: int, partitions: Sequence[tuple[str, int]], timestamp: int, isolation: int
) -> dict[tuple[str, int], int]:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, partition in partitions:
        topic = topics.setdefault(name, ListOffsetsTopic(name))
        topic.partitions.append(ListOffsetsPartition(partition, timestamp=timestamp))
    request = ListOffsetsRequest(CONSUMER, isolation, list(topics.values()))
    response = endpoint.ask(ApiKey.LIST_OFFSETS, request, leader, 2 if isolation else 1)
    offsets = {}
    for topic in response.topics:
        for found in topic.partitions:
            if found.error_code:
                raise Refusal(f"offsets of {topic.name}-{found.partition_index}", found.error_code)
            offsets[topic.name, found.partition_index] = found.offset
    return offsets


def starting_offsets(
    endpoint: Endpoint, topic: TopicInfo, start: str, flag: str = "--from"
) -> dict[int, int]:
    """Where each partition begins: `earliest`, `latest`, an offset, -N (N before the end), or a time.
    UsageError, naming the flag."""
    if start in WORDS:
        return list_offsets(endpoint, topic, WORDS[start])
    if start.isdecimal():
        return dict.fromkeys(range(len(topic.leaders)), int(start))
    ends = list_offsets(endpoint, topic, LATEST)
    if start.startswith("-") and start[1:].isdecimal():
        firsts = list_offsets(endpoint, topic, EARLIEST)
        return {partition: max(firsts[partition], end - int(start[1:])) for partition, end in ends.items()}
    found = list_offsets(endpoint, topic, parse_time(start, flag))
    return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}


def parse_time(text: str, flag: str = "--from") -> int:
    """Unix ms of an ISO 8601 time (UTC unless it says otherwise). UsageError."""
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{flag} {text}: expected earliest, latest, an offset, -N, or a time such as 2026-01-31T12:00:00"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    return int(time.timestamp() * 1000)
