"""How many records and bytes topics have, from ListOffsets and DescribeLogDirs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.cli.endpoint import Endpoint, Refusal, TopicInfo
from gateway.cli.offsets import EARLIEST, LATEST, offsets_of_topics
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

TOPICS_A_REQUEST: Final = 1_000


@dataclass(frozen=True, slots=True)
class TopicSize:
    """`offsets`: from the log start to the end, in all partitions; records unless some were compacted away.
    `size_bytes`: of one replica; None where the endpoint does not report it."""

    offsets: int
    size_bytes: int | None


def topic_sizes(endpoint: Endpoint, topics: Mapping[str, TopicInfo]) -> dict[str, TopicSize]:
    """By topic. Refusal."""
    firsts = offsets_of_topics(endpoint, list(topics.values()), EARLIEST)
    ends = offsets_of_topics(endpoint, list(topics.values()), LATEST)
    offsets = dict.fromkeys(topics, 0)
    for (name, partition), end in ends.items():
        offsets[name] += end - firsts[name, partition]
    sizes: dict[str, int] = {}
    for (name, _), size in _replica_bytes(endpoint, topics).items():
        sizes[name] = sizes.get(name, 0) + size
    return {name: TopicSize(offsets[name], sizes.get(name)) for name in topics}


def _replica_bytes(endpoint: Endpoint, topics: Mapping[str, TopicInfo]) -> dict[tuple[str, int], int]:
    """Of the largest replica of each partition."""
    largest: dict[tuple[str, int], int] = {}
    names = sorted(topics)
    for node in endpoint.nodes():
        for at in range(0, len(names), TOPICS_A_REQUEST):
            wanted = [
                DescribableLogDirTopic(name, list(range(len(topics[name].leaders))))
                for name in names[at : at + TOPICS_A_REQUEST]
            ]
            response = endpoint.ask(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(wanted), node, 1)
            for result in response.results:
                if result.error_code:
                    raise Refusal(f"sizes at broker {node}", result.error_code)
                for topic in result.topics:
                    for part in topic.partitions:
                        key = (topic.name, part.partition_index)
                        if not part.is_future_key:
                            largest[key] = max(largest.get(key, 0), part.partition_size)
    return largest
