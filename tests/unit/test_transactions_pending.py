"""A request of a producer that waits for the shard without a task: its result, its deadline, and its end."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import cast

import pytest
import pytest_asyncio

from adapters.metadata.memory import MemoryMetadata
from gateway.completion import Completion
from gateway.coordination.ledger import Ledger
from gateway.coordination.shard import Shard
from gateway.telemetry.transactions import TransactionOutcome
from gateway.timers.deadlines import Deadlines
from gateway.transactions.coordinator import TransactionCoordinator
from gateway.transactions.pending import RETRIABLE, PendingRequest
from ledger.errors import ErrorName, OutcomeUnknown, StoreUnavailable
from ledger.requests import Done, LedgerResult, Refused, Request
from ledger.topics.requests import CreateTopic
from ledger.transactions.requests import AddToTransaction, EndTransaction, ProducerEpoch, TopicPartition
from ledger.types import TopicId
from tests.support.held_stores import HeldMetadata
from tests.support.shards import open_shard

WAIT_S = 20.0
SHORT_S = 0.05
TOPIC = TopicId(b"t" * 16)


@dataclass
class Called:
    """A completion that notes its calls."""

    results: list[LedgerResult] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    once: asyncio.Event = field(default_factory=asyncio.Event)

    def done(self) -> bool:
        return False

    def set_result(self, result: LedgerResult, /) -> None:
        self.results.append(result)
        self.once.set()

    def set_exception(self, error: Exception, /) -> None:
        self.errors.append(error)
        self.once.set()


@dataclass
class Host:
    store: HeldMetadata
    shard: Shard
    coordinator: TransactionCoordinator
    ended: list[TransactionOutcome]
    producer: ProducerEpoch

    def add(self, called: Called, wait_s: float = WAIT_S) -> PendingRequest:
        request = AddToTransaction("a", *self.producer[:2], [TopicPartition(TOPIC, 0)])
        pending = self.coordinator.start_add(request, after(wait_s), called)
        assert isinstance(pending, PendingRequest)
        return pending

    def end(self, called: Called, name: str = "a") -> PendingRequest:
        request = EndTransaction(name, *self.producer[:2], is_commit=True, bumps=False)
        pending = self.coordinator.start_end(request, after(WAIT_S), called)
        assert isinstance(pending, PendingRequest)
        return pending


def after(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@pytest_asyncio.fixture
async def host() -> AsyncIterator[Host]:
    store = HeldMetadata(MemoryMetadata())
    shard = await open_shard(store, None, None, 1, lambda: 1_700_000_000_000)
    ended: list[TransactionOutcome] = []
    coordinator = TransactionCoordinator(shard, 60_000, ended.append)
    await shard.ask(CreateTopic("t", TOPIC, 1, {}), after(WAIT_S))
    producer = await coordinator.init("a", 60_000, None, after(WAIT_S))
    assert isinstance(producer, ProducerEpoch)
    yield Host(store, shard, coordinator, ended, producer)
    store.release()
    coordinator.close()
    await shard.close()


async def until_called(called: Called) -> None:
    async with asyncio.timeout(WAIT_S):
        await called.once.wait()


async def test_the_shard_completes_it_and_no_task_waits(host: Host) -> None:
    host.store.hold()
    tasks = asyncio.all_tasks()
    added = Called()
    pending = host.add(added)
    await host.store.until_held()
    assert asyncio.all_tasks() - tasks == set()
    assert not (added.results or pending.done())
    host.store.release()
    await until_called(added)
    assert added.results == [Done(1)] and pending.done()
    ended = Called()
    host.end(ended)
    await until_called(ended)
    assert ended.results == [host.producer._replace(ended_before=False)]
    assert host.ended == [TransactionOutcome.COMMITTED]


async def test_at_its_deadline_it_may_be_sent_again_and_is_completed_once(host: Host) -> None:
    host.store.hold()
    called = Called()
    host.add(called, SHORT_S)
    await until_called(called)
    (refused,) = called.results
    assert isinstance(refused, Refused) and refused.error == RETRIABLE
    host.store.release()
    # What was on its way counts all the same.
    again = Called()
    host.add(again)
    await until_called(again)
    assert again.results == [Done(0)] and len(called.results) == 1


async def test_a_caller_that_has_gone_is_not_completed_and_nothing_is_counted(host: Host) -> None:
    added = Called()
    host.add(added)
    await until_called(added)
    host.store.hold()
    called = Called()
    pending = host.end(called)
    await host.store.until_held()
    pending.cancel()
    host.store.release()
    again = Called()
    host.end(again)
    await until_called(again)
    assert again.results and not (called.results or called.errors)
    # The second end found that all had been done.
    assert host.ended == []


async def test_without_a_name_it_is_refused_before_the_shard_has_it(host: Host) -> None:
    host.store.hold()
    called = Called()
    host.end(called, "")
    (refused,) = called.results
    assert isinstance(refused, Refused) and refused.error == ErrorName.INVALID_REQUEST


def test_an_observer_that_fails_keeps_no_result_from_its_caller_and_stops_no_shard() -> None:
    def fail(result: LedgerResult) -> None:
        raise ValueError("a bug")

    called = Called()
    PendingRequest(called, Deadlines(), fail).set_result(Done(1))
    assert called.results == [Done(1)] and not called.errors


class Answering:
    """A shard that completes at once."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def submit_for(self, completion: Completion[LedgerResult], request: Request) -> None:
        completion.set_exception(self._error)


@pytest.mark.parametrize(
    ("error", "is_refused"),
    [
        (StoreUnavailable("away"), True),
        (OutcomeUnknown("nothing came back"), True),
        (TimeoutError(), True),
        (ValueError("a bug"), False),
    ],
)
def test_what_failed_in_the_store_is_retriable_and_a_bug_is_reported(
    error: Exception, is_refused: bool
) -> None:
    called = Called()
    pending = PendingRequest(called, Deadlines(), lambda result: None)
    shard = cast(Ledger, Answering(error))
    pending.submit(shard, EndTransaction("a", 1, 0, is_commit=True, bumps=False), 0.0)
    assert pending.done()
    if is_refused:
        assert called.results == [Refused(RETRIABLE, str(error))] and not called.errors
    else:
        assert called.errors == [error] and not called.results
