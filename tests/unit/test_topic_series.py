"""How many series a page of metrics has, what it leaves out, and how long it holds the event loop at once."""

import asyncio
import time
from typing import Final

import pytest

from gateway.addresses import Address
from gateway.admin.series import Families
from gateway.cli.client import Client
from gateway.telemetry.traffic import PRUNE_AT, Traffic
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ledger.types import TopicId
from tests.support.caller import collected_as_in_a_process
from tests.support.in_memory import InMemoryGateway, in_memory_gateway
from tests.support.prometheus import check_metrics
from tests.support.quiet import as_if_quiet

TOPICS: Final = 1_000
LIMITS: Final = {"limits.partitions": "10000", "limits.topic_partitions": "10000", "metrics.topics": "true"}
LONGEST_S: Final = 0.020


async def create_many(gateway: InMemoryGateway, count: int, partitions: int = 1) -> None:
    topics = [CreatableTopic(f"topic-{n}", partitions, 1) for n in range(count)]
    response = await gateway.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics, 5000))
    assert not any(topic.error_code for topic in response.topics)


async def commit(gateway: InMemoryGateway, groups: int, topics: int) -> None:
    named = [
        OffsetCommitRequestTopic(f"topic-{n}", partitions=[OffsetCommitRequestPartition(0, 0)])
        for n in range(topics)
    ]
    address = Address("127.0.0.1", gateway.running.bound[0].port)

    def exchange() -> None:
        with Client(address, timeout=10.0) as client:
            for group in range(groups):
                request = OffsetCommitRequest(f"group-{group}", -1, "", None, topics=named)
                response = client.ask(ApiKey.OFFSET_COMMIT, 8, request)
                assert not any(part.error_code for topic in response.topics for part in topic.partitions)

    await asyncio.to_thread(exchange)


async def labelled(gateway: InMemoryGateway) -> list[str]:
    """The lines with the name of a topic or group, or what is left out of them."""
    text = (await gateway.running.services.metrics.page()).decode()
    marks = '{topic="', '{group="', "dragoman_series_left_out{"
    return [line for line in text.splitlines() if any(mark in line for mark in marks)]


def left_out(lines: list[str]) -> dict[str, int]:
    found = [line for line in lines if line.startswith("dragoman_series_left_out")]
    return {line.split('"')[1]: int(line.rpartition(" ")[2]) for line in found}


async def test_there_are_no_series_of_topics_unless_they_are_enabled() -> None:
    async with in_memory_gateway() as gateway:
        await gateway.create("topic-0")
        assert await labelled(gateway) == []


@pytest.mark.parametrize("most", [100, 1_000, 100_000])
async def test_the_series_of_1000_topics_stay_below_the_bound(most: int) -> None:
    async with in_memory_gateway({**LIMITS, "metrics.series": str(most)}) as gateway:
        await create_many(gateway, TOPICS)
        await commit(gateway, groups=10, topics=20)
        lines = await labelled(gateway)
        assert len(lines) <= most
        for kind, needed, total in (("topic", 7, TOPICS), ("group", 42, 10)):
            named = [line for line in lines if f'{{{kind}="' in line]
            shown = {line.split('"')[1] for line in named}
            # Each one that is shown is shown whole.
            assert len(named) == needed * len(shown)
            assert len(shown) + left_out(lines)[kind] == total
        if most == 100_000:
            assert left_out(lines) == {"topic": 0, "group": 0}


async def test_a_group_that_does_not_fit_hides_no_smaller_one() -> None:
    async with in_memory_gateway({**LIMITS, "metrics.series": "100"}) as gateway:
        await create_many(gateway, 60)
        await commit(gateway, groups=1, topics=60)
        await commit(gateway, groups=3, topics=1)
        lines = await labelled(gateway)
        assert left_out(lines)["group"] == 1
        lags = [line for line in lines if line.startswith("dragoman_group_lag_records")]
        assert [line.split('"')[1] for line in lags] == ["group-1", "group-2"]


async def longest_iteration(gateway: InMemoryGateway) -> float:
    """Of the event loop while a page is made, in CPU seconds of a quiet machine."""
    making = asyncio.ensure_future(gateway.running.services.metrics.page())
    longest, before = 0.0, time.thread_time()
    while not making.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    longest = as_if_quiet(longest)
    check_metrics(making.result().decode())
    return longest


@pytest.mark.serial
async def test_a_page_of_very_many_series_does_not_hold_the_event_loop() -> None:
    settings = {**LIMITS, "limits.partitions": "60000", "metrics.series": "100000"}
    with collected_as_in_a_process():
        async with in_memory_gateway(settings) as gateway:
            await create_many(gateway, TOPICS, partitions=30)
            lines = await labelled(gateway)
            assert len(lines) > 90_000
            assert await longest_iteration(gateway) < LONGEST_S


async def test_pages_that_are_requested_together_are_whole() -> None:
    async with in_memory_gateway({**LIMITS, "metrics.series": "100000"}) as gateway:
        await create_many(gateway, TOPICS)
        await commit(gateway, groups=3, topics=20)
        pages = await asyncio.gather(*[labelled(gateway) for _ in range(3)])
        assert pages[0] == pages[1] == pages[2]
        assert len(pages[0]) == 7 * TOPICS + 42 * 3 + 2


async def test_counts_of_deleted_topics_are_dropped() -> None:
    traffic, live = Traffic(), set[TopicId]()
    traffic.count_topics(lambda: live)
    ids = [TopicId(n.to_bytes(16, "big")) for n in range(10 * PRUNE_AT)]
    live.add(ids[0])
    for topic_id in ids:
        traffic.produced(topic_id, 10, 1)
    assert traffic.produced_bytes.value == 10 * len(ids)
    assert traffic.of(ids[0]).produced_records == 1
    assert sum(traffic.of(topic_id).produced_records for topic_id in ids) <= PRUNE_AT + 1


def test_families_are_printed_together_whatever_the_order_of_their_series() -> None:
    families = Families({"a": ("gauge", "A"), "b": ("counter", "B"), "c": ("gauge", "C")})
    for n in range(2):
        families.add("b", f'n="{n}"', n)
        families.add("a", f'n="{n}"', n)
    text = b"".join(families.text()).decode()
    assert text == (
        '# HELP a A\n# TYPE a gauge\na{n="0"} 0\na{n="1"} 1\n'
        '# HELP b_total B\n# TYPE b_total counter\nb_total{n="0"} 0\nb_total{n="1"} 1\n'
    )
