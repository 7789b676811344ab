"""Plans of partitions that are read up to their end: quicker, and the same."""

from itertools import product

import msgspec
import pytest

from gateway.fetch.offset_index import SparseOffsetIndex
from gateway.fetch.planning import PartitionFetch, find_log, plan, plan_ends
from gateway.fetch.sessions import SessionPartition
from gateway.wire.messages.fetch import FetchPartition
from ledger.partitions.logs import PartitionLogs, Partitions
from ledger.topics.state import Topic, Topics
from ledger.types import ZERO_TOPIC_ID, TopicId

FIRST, SECOND = TopicId(bytes(15) + b"\1"), TopicId(bytes(15) + b"\2")
NOWHERE = TopicId(bytes(15) + b"\3")
RECORDS = 5


def topics_of_two() -> Topics:
    """Two topics of three partitions: with records, blank, and with an open transaction."""
    topics, logs = Topics(), PartitionLogs()
    for number, (name, topic_id) in enumerate((("first", FIRST), ("second", SECOND))):
        partitions = Partitions(topic_id, logs)
        partitions.grow(10 * number, 3)
        for index in (0, 2):
            partitions[index].append(1, 0, 500, 0, RECORDS - 1, 0)
        partitions[2].transactional().begin(7, 2)
        topics.add(Topic(name, topic_id, partitions, {}, 0))
    return topics


def fetches(is_from_broker: bool) -> list[PartitionFetch]:
    """Every combination of where a partition is, and of what a client may say of it."""
    places = [(name, ZERO_TOPIC_ID) for name in ("first", "second", "none")]
    places += [("", topic_id) for topic_id in (FIRST, SECOND, NOWHERE)]
    said = product(
        (-1, 0, 1, 2, 3), (-1, 0, 1), (0, RECORDS - 1, RECORDS, RECORDS + 1), (-1, 0, 1), (-1, 900)
    )
    requests = [
        FetchPartition(index, epoch, offset, last_epoch, 0, max_bytes)
        for index, epoch, offset, last_epoch, max_bytes in said
    ]
    return [
        PartitionFetch(SessionPartition(name, topic_id, request), request, is_from_broker)
        for name, topic_id in places
        for request in requests
    ]


def seen(fetched: PartitionFetch) -> list[object]:
    """All of a plan; of a stream the runs that it reads."""
    fields = msgspec.structs.asdict(fetched)
    stream = fields.pop("stream")
    return [stream is None or (stream.runs, stream.offset, stream.bound), *fields.items()]


@pytest.mark.parametrize("is_from_broker", [False, True])
@pytest.mark.parametrize("isolation", [0, 1])
def test_a_partition_at_its_end_is_planned_as_any_other(is_from_broker: bool, isolation: int) -> None:
    topics = topics_of_two()
    one_by_one, together = fetches(is_from_broker), fetches(is_from_broker)
    for fetched in one_by_one:
        plan(fetched, topics, isolation, 1 << 20, SparseOffsetIndex())
    others = plan_ends(together, topics)
    for fetched in others:
        plan(fetched, topics, isolation, 1 << 20, SparseOffsetIndex())
    assert [seen(fetched) for fetched in together] == [seen(fetched) for fetched in one_by_one]
    # A blank partition is not looked for.
    planned = {id(fetched) for fetched in others}
    at_end = [fetched for fetched in together if fetched.is_at_end and fetched.request.index != 1]
    assert bool(at_end) != is_from_broker
    assert not planned & {id(fetched) for fetched in at_end}


def test_each_partition_is_looked_for_in_its_own_topic() -> None:
    topics = topics_of_two()
    request = FetchPartition(0, -1, RECORDS, -1, 0, 900)
    ids = [FIRST, SECOND, bytes(FIRST), SECOND, ZERO_TOPIC_ID, ZERO_TOPIC_ID, FIRST]
    names = ["", "", "", "", "second", "first", ""]
    partitions = [
        SessionPartition(name, topic_id, request) for name, topic_id in zip(names, ids, strict=True)
    ]
    fetched = [PartitionFetch(partition, request) for partition in partitions]
    assert plan_ends(fetched, topics) == []
    assert [one.log for one in fetched] == [find_log(one.partition, topics) for one in fetched]
    assert [one.name for one in partitions] == [
        "first",
        "second",
        "first",
        "second",
        "second",
        "first",
        "first",
    ]
