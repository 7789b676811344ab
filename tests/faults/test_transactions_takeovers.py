"""A second gateway takes over in the middle of transactions, again and again; and what the older one still
hears ends no later transaction."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from gateway.wire.messages.generated.describe_transactions import DescribeTransactionsRequest
from gateway.wire.messages.generated.end_txn import EndTxnRequest
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.batch.records import Producer, Record, build_batch
from tests.faults.copying import Copiers, copiers_at
from tests.faults.takeovers import EXIT_S, READY_S, TAKEN_OVER, gateway_of, replace, two_gateways
from tests.faults.transactors import problems_of, read_topic
from tests.support.far_stores import BUCKET_ALONE, ETCD_S3, FAR_ROWS, FarGateway, FarPlace, far_place
from tests.support.messages import message, read
from tests.support.raw import Outcome, RawConnection
from tests.support.tcp_proxy import Link
from tests.support.topics import create_topics

TOPIC, PARTITIONS = "transacted", 3
COPIERS: Final = 3
TAKEOVERS, FULL_TAKEOVERS = 1, 30
GO_ON_S: Final = 120.0
NAME: Final = "delayed"
RESPONSE_S: Final = 30.0
BEGUN_MS: Final = 1_700_000_000_000


async def replaced(link: Link, older: FarGateway, newer: FarGateway, copiers: Copiers) -> None:
    await replace(link, older, newer)
    await asyncio.to_thread(copiers.wait_until_all_commit, GO_ON_S)


async def take_over_again_and_again(place: FarPlace, directory: Path, takeovers: int) -> None:
    async with two_gateways(place, directory) as (link, gateways), AsyncExitStack() as stack:
        bootstrap = link.endpoint
        await asyncio.to_thread(create_topics, bootstrap, {TOPIC: PARTITIONS})
        copiers = stack.enter_context(copiers_at(bootstrap, TOPIC, PARTITIONS, COPIERS, takeovers))
        await asyncio.to_thread(copiers.wait_until_all_commit, GO_ON_S)
        for number in range(takeovers):
            await replaced(link, gateways[number % 2], gateways[1 - number % 2], copiers)
        await asyncio.to_thread(copiers.stop)
        print(f"{place.row}: {takeovers} take-overs: {copiers.summary()}")  # noqa: T201
        found = await asyncio.to_thread(problems_of, copiers.history, bootstrap, TOPIC, PARTITIONS)
        assert found == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("row", [ETCD_S3])
async def test_each_transaction_is_whole_or_unseen_though_its_gateway_is_replaced(
    row: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    await take_over_again_and_again(far_place(request, row), tmp_path, TAKEOVERS)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("row", FAR_ROWS)
async def test_each_transaction_is_whole_or_unseen_over_thirty_takeovers(
    row: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    await take_over_again_and_again(far_place(request, row), tmp_path, FULL_TAKEOVERS)


class Speaker:
    """A producer at one gateway. `is_v2`: of transaction version 2."""

    def __init__(self, gateway: FarGateway, *, is_v2: bool) -> None:
        self._connection = RawConnection(
            socket.create_connection((gateway.host, gateway.port), timeout=RESPONSE_S)
        )
        self._is_v2 = is_v2

    def close(self) -> None:
        self._connection.sock.close()

    def ask(self, key: ApiKey, version: int, body: Any) -> Any:
        self._connection.send(message(key, version, body))
        response = self._connection.read_frame()
        assert isinstance(response, bytes), f"{key.name}: {response}"
        return read(key, version, response)

    def init(self) -> tuple[int, int]:
        begun = self.ask(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(NAME, 60_000))
        assert begun.error_code == ErrorCode.NONE
        return begun.producer_id, begun.producer_epoch

    def write(self, producer: tuple[int, int], sequence: int, value: bytes) -> None:
        if not self._is_v2:
            adding = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=NAME,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(TOPIC, [0])],
            )
            (topic,) = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, adding).results_by_topic_v3_and_below
            assert topic.results_by_partition[0].partition_error_code == ErrorCode.NONE
        data = build_batch(
            [Record(0, value=value)],
            base_timestamp=BEGUN_MS,
            producer=Producer(*producer, sequence),
            flags=TRANSACTIONAL_BIT,
        )
        sent = [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, data)])]
        body = ProduceRequest(NAME, -1, 10_000, sent)
        response = self.ask(ApiKey.PRODUCE, 12 if self._is_v2 else 11, body)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    def send_end(self, producer: tuple[int, int], *, commit: bool) -> None:
        self._connection.send(
            message(ApiKey.END_TXN, self._end_version, EndTxnRequest(NAME, *producer, commit))
        )

    def ended(self) -> Any:
        """The response to the end; None if the gateway has closed the connection."""
        response = self._connection.read_frame()
        if isinstance(response, Outcome):
            assert response is Outcome.CLOSED
            return None
        return read(ApiKey.END_TXN, self._end_version, response)

    def end(self, producer: tuple[int, int], *, commit: bool) -> tuple[int, int]:
        """With what it goes on."""
        self.send_end(producer, commit=commit)
        ended = self.ended()
        assert ended is not None and ended.error_code == ErrorCode.NONE
        return (ended.producer_id, ended.producer_epoch) if self._is_v2 else producer

    def state(self) -> str:
        described = self.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest([NAME]))
        return str(described.transaction_states[0].transaction_state)

    @property
    def _end_version(self) -> int:
        return 5 if self._is_v2 else 4


@pytest.fixture
def two(row: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[FarGateway]]:
    """Gateways on one store, which are not started."""
    link = Link(0)
    place = far_place(request, row)
    made = [gateway_of(place, tmp_path, node_id, link) for node_id in (1, 2)]
    # Clients may connect to each of them by itself.
    for gateway in made:
        at = gateway.options.index("--advertise")
        del gateway.options[at : at + 2]
    yield made
    for gateway in made:
        gateway.stop()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_v2", [False, True], ids=["version-1", "version-2"])
@pytest.mark.parametrize(
    "delayed_commits", [True, pytest.param(False, marks=pytest.mark.full)], ids=["commit", "abort"]
)
@pytest.mark.parametrize(
    "row", [BUCKET_ALONE, *(pytest.param(row, marks=pytest.mark.full) for row in FAR_ROWS[1:])]
)
def test_an_end_delayed_at_a_replaced_gateway_ends_no_later_transaction(
    two: list[FarGateway], is_v2: bool, delayed_commits: bool
) -> None:
    """The producer has no response, ends its transaction at the newer gateway, and begins another one that is
    open when the older gateway goes on."""
    older, newer = two
    older.start(READY_S)
    create_topics(older.bootstrap, {TOPIC: 1})
    with ExitStack() as stack:
        before = Speaker(older, is_v2=is_v2)
        stack.callback(before.close)
        producer = before.init()
        before.write(producer, 0, b"first")
        os.kill(older.pid, signal.SIGSTOP)
        try:
            before.send_end(producer, commit=delayed_commits)
            newer.start(READY_S)
            after = Speaker(newer, is_v2=is_v2)
            stack.callback(after.close)
            goes_on = after.end(producer, commit=delayed_commits)
            after.write(goes_on, 0 if is_v2 else 1, b"second")
        finally:
            os.kill(older.pid, signal.SIGCONT)
        late = before.ended()
        assert late is None or late.error_code != ErrorCode.NONE
        assert after.state() == "Ongoing"
        assert older.wait_for_exit(EXIT_S) == TAKEN_OVER
        assert after.state() == "Ongoing"
        after.end(goes_on, commit=not delayed_commits)
    (seen,) = read_topic(newer.bootstrap, TOPIC, 1, committed=True).values()
    assert [found.value for found in seen] == [b"first" if delayed_commits else b"second"]
