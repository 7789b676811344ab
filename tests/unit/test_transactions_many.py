"""Very many transactional ids and open transactions: what they hold in memory, and for how long the event
loop is held by what goes over all of them."""

import asyncio
import os
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.transactions.expiry import ExpiryClocks, TransactionExpiry
from ledger.errors import ErrorName
from ledger.image import all_rows
from ledger.partitions.isolation_rows import ABORTED_TRANSACTION as ABORTED
from ledger.partitions.requests import DeleteRecords, DrainRuns
from ledger.requests import Done, Refused, Request
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.transactions import decide as deciding
from ledger.transactions.requests import (
    AddToTransaction,
    EndTransaction,
    InitTransactionalId,
    ProducerEpoch,
    TopicPartition,
)
from ledger.transactions.state import Transactions
from tests.support.embedded import WAIT_S, Clock, Embedded
from tests.support.journalled import JournalledLedger, topic_id
from tests.support.loop_time import longest_turn
from tests.unit.test_transactions_ledger import sent

FULL = bool(os.environ.get("DRAGOMAN_TEST_FULL"))
IDS: Final = 100_000 if FULL else 10_000
OPEN: Final = 10_000 if FULL else 2_000
PARTITIONS: Final = 100
AT_ONCE: Final = 500
TIMEOUT_MS: Final = 60_000
EXPIRATION_MS: Final = 3_600_000
HELD_S: Final = 0.020
ID_BYTES: Final = 600
TOPIC = topic_id(1)


def name_of(number: int) -> str:
    return f"application-{number:06}-of-a-stream"


async def submit(host: Embedded, make: Callable[[int], Request], count: int) -> list[Any]:
    results: list[Any] = []
    for first in range(0, count, AT_ONCE):
        some = range(first, min(first + AT_ONCE, count))
        results += await asyncio.gather(*(host.ask(make(number)) for number in some))
    return results


def adding(producers: list[ProducerEpoch], number: int) -> AddToTransaction:
    partition = TopicPartition(TOPIC, number % PARTITIONS)
    return AddToTransaction(name_of(number), *producers[number][:2], partitions=[partition])


async def filled(host: Embedded) -> list[ProducerEpoch]:
    """IDS transactional ids, of which the first OPEN have an open transaction."""
    await host.ask(CreateTopic("t", TOPIC, PARTITIONS, {}))
    producers = await submit(host, lambda number: InitTransactionalId(name_of(number), TIMEOUT_MS), IDS)
    assert all(isinstance(producer, ProducerEpoch) for producer in producers)
    added = await submit(host, lambda number: adding(producers, number), OPEN)
    assert added == [Done(1)] * OPEN
    return producers


class Held:
    """How long each step held the event loop, in CPU seconds."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}

    async def measure(self, step: str, work: Coroutine[Any, Any, Any]) -> None:
        self.longest[step] = await longest_turn(work)

    @property
    def too_long(self) -> dict[str, float]:
        return {step: seconds for step, seconds in self.longest.items() if seconds > HELD_S}


@pytest.mark.serial
@pytest.mark.timeout(900)
async def test_nothing_that_goes_over_all_transactional_ids_holds_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(deciding, "MAX_TRANSACTIONAL_IDS", IDS)
    clock, held = Clock(), Held()
    async with Embedded(tmp_path, clock) as host:
        producers = await filled(host)
        known = host.shard.state.part(Transactions)
        refused = await host.ask(InitTransactionalId("one more", TIMEOUT_MS))
        assert isinstance(refused, Refused) and refused.error is ErrorName.COORDINATOR_NOT_AVAILABLE
        assert (len(known.by_id), len(known.open)) == (IDS, OPEN)
        # An id that is known goes on.
        assert isinstance(await host.ask(InitTransactionalId(name_of(IDS - 1), TIMEOUT_MS)), ProducerEpoch)
        await held.measure("image", host.checkpointer.write_image())
        await held.measure("snapshot", host.checkpointer.snapshot())
        await held.measure("prune", host.checkpointer.prune())
    begun_s = time.monotonic()
    async with Embedded(tmp_path, clock) as host:
        started_s = time.monotonic() - begun_s
        known = host.shard.state.part(Transactions)
        assert (len(known.by_id), len(known.open)) == (IDS, OPEN)
        clocks = ExpiryClocks(host.shard.now_ms, lambda: 0)
        expiry = TransactionExpiry(host.shard, clocks, EXPIRATION_MS, WAIT_S)
        await held.measure("looking for timeouts", expiry.abort_timed_out())
        assert len(known.open) == OPEN
        ended = EndTransaction(name_of(0), *producers[0][:2], is_commit=True, bumps=True)
        assert isinstance(await host.ask(ended), ProducerEpoch)
        clock.now_ms += TIMEOUT_MS
        await held.measure("timeouts", expiry.abort_timed_out())
        assert not known.open
        clock.now_ms += EXPIRATION_MS + 1
        await held.measure("expiry", expiry.forget_unused())
        assert not known.by_id and not known.by_producer
    figures = ", ".join(f"{step} {1000 * seconds:.1f} ms" for step, seconds in held.longest.items())
    with capsys.disabled():
        print(f"\n{IDS} ids, {OPEN} open: started in {started_s:.1f} s; held: {figures}")  # noqa: T201
    assert held.too_long == {}


def test_what_a_transactional_id_holds_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """With what the next image is made of."""
    ledger, count = JournalledLedger(), 2_000
    state = ledger.state.part(Transactions)
    ledger.submit(InitTransactionalId("first", TIMEOUT_MS))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            ledger.submit(InitTransactionalId(name_of(number), TIMEOUT_MS))
            ledger.entries.clear()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(state.by_id) == count + 1
    with capsys.disabled():
        print(f"\n{(after - before) / count:.0f} bytes an id")  # noqa: T201
    assert (after - before) / count < ID_BYTES


def rows_of_aborted(ledger: JournalledLedger) -> tuple[int, int]:
    """How many the state has, and its image, which is written in parts."""
    ledger.write_image()
    return sum(row[0] == ABORTED for row in all_rows(ledger.state)), sum(
        k == ABORTED for k, _ in ledger.image
    )


def test_the_index_of_aborted_transactions_goes_with_its_records() -> None:
    count, ledger = 300, JournalledLedger()
    ledger.submit(CreateTopic("t", TOPIC, 1, {}), InitTransactionalId("a", TIMEOUT_MS))
    for epoch in range(count):
        ledger.submit(sent((0, epoch), 0))
        ledger.submit(EndTransaction("a", 0, epoch, is_commit=False, bumps=True))
    log = ledger.state.topics.by_id[TOPIC].partitions[0]
    assert rows_of_aborted(ledger) == (count, count)
    # Each has a record and a marker.
    ledger.submit(DeleteRecords(TOPIC, 0, count))
    assert (len(log.isolation.aborted), *rows_of_aborted(ledger)) == (count // 2,) * 3
    ledger.submit(DeleteTopic(TOPIC))
    while ledger.state.draining:
        ledger.submit(DrainRuns(100))
    assert rows_of_aborted(ledger) == (0, 0)
