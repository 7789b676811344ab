"""Which transactions the owner aborts because they take too long, and which transactional ids it forgets."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.admin.transaction_totals import TransactionTotals
from gateway.telemetry.transactions import TransactionOutcome
from gateway.transactions import expiry as module
from gateway.transactions.coordinator import TransactionCoordinator
from gateway.transactions.expiry import MAX_ID_SHOWN, ExpiryClocks, TransactionExpiry
from ledger.errors import ErrorName
from ledger.requests import Done, LedgerResult, Refused, Request
from ledger.topics.requests import CreateTopic
from ledger.transactions.requests import (
    AbortTransaction,
    AddToTransaction,
    EndTransaction,
    InitTransactionalId,
    ProducerEpoch,
    TopicPartition,
)
from ledger.transactions.state import Status, Transaction, Transactions
from tests.support.embedded import WAIT_S, Clock, Embedded
from tests.support.journalled import topic_id

TIMEOUT_MS = 60_000
EXPIRATION_MS = 3_600_000
TOPIC = topic_id(1)


@dataclass
class Setting:
    host: Embedded
    elapsed_ms: int = 0
    doubted_ms: int = 0
    timeouts: list[None] = field(default_factory=list)

    def __post_init__(self) -> None:
        clocks = ExpiryClocks(self.host.shard.now_ms, lambda: self.elapsed_ms, lambda: self.doubted_ms)
        self.expiry = TransactionExpiry(
            self.host.shard, clocks, EXPIRATION_MS, WAIT_S, lambda: self.timeouts.append(None)
        )

    def pass_ms(self, passed_ms: int) -> None:
        """Time passes, on all clocks."""
        self.host.clock.now_ms += passed_ms
        self.elapsed_ms += passed_ms

    async def opened(self, name: str, timeout_ms: int = TIMEOUT_MS) -> ProducerEpoch:
        """A new producer with an open transaction in one partition."""
        begun = await self.host.ask(InitTransactionalId(name, timeout_ms))
        assert isinstance(begun, ProducerEpoch)
        return await self.add(name, begun)

    async def add(self, name: str, producer: ProducerEpoch) -> ProducerEpoch:
        added = await self.host.ask(
            AddToTransaction(name, *producer[:2], partitions=[TopicPartition(TOPIC, 0)])
        )
        assert added == Done(1)
        return producer

    def of(self, name: str) -> Transaction:
        return self.host.shard.state.part(Transactions).by_id[name]

    @property
    def names(self) -> list[str]:
        return sorted(self.host.shard.state.part(Transactions).by_id)


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with Embedded(tmp_path, Clock()) as host:
        await host.ask(CreateTopic("t", TOPIC, 1, {}))
        yield Setting(host)


async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_is_fenced(
    setting: Setting,
) -> None:
    slow = await setting.opened("slow")
    await setting.opened("patient", 10 * TIMEOUT_MS)
    setting.pass_ms(TIMEOUT_MS - 1)
    assert await setting.expiry.abort_timed_out() == 0
    setting.pass_ms(1)
    with capture_logs() as logs:
        assert await setting.expiry.abort_timed_out() == 1
    assert (setting.of("slow").status, setting.of("patient").status) == (Status.ABORTED, Status.ONGOING)
    ended = await setting.host.ask(EndTransaction("slow", *slow[:2], is_commit=True, bumps=False))
    assert isinstance(ended, Refused) and ended.error == ErrorName.PRODUCER_FENCED
    assert logs == [
        {
            "event": "transaction.timed_out",
            "log_level": "warning",
            "transactional_id": "slow",
            "producer_id": slow.producer_id,
            "epoch": 0,
            "timeout_ms": TIMEOUT_MS,
            "open_ms": TIMEOUT_MS,
            "partitions": 1,
            "groups": 0,
        }
    ]
    assert len(setting.timeouts) == 1
    assert await setting.expiry.abort_timed_out() == 0


async def test_a_long_transactional_id_does_not_fill_the_log(setting: Setting) -> None:
    await setting.opened("x" * 20_000)
    setting.pass_ms(TIMEOUT_MS)
    with capture_logs() as logs:
        await setting.expiry.abort_timed_out()
    assert logs[0]["transactional_id"] == "x" * MAX_ID_SHOWN


async def test_each_transaction_of_a_producer_has_its_own_time(setting: Setting) -> None:
    producer = await setting.opened("a")
    setting.pass_ms(TIMEOUT_MS - 1)
    await setting.expiry.abort_timed_out()
    await setting.host.ask(EndTransaction("a", *producer[:2], is_commit=True, bumps=False))
    setting.pass_ms(10)
    await setting.add("a", producer)
    setting.pass_ms(TIMEOUT_MS - 1)
    assert await setting.expiry.abort_timed_out() == 0
    setting.pass_ms(1)
    assert await setting.expiry.abort_timed_out() == 1


async def test_an_abort_that_is_overtaken_ends_no_later_transaction(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of transaction version 1 has the same epoch in its next transaction."""
    producer = await setting.opened("a")
    setting.pass_ms(TIMEOUT_MS)
    true_submit = setting.host.shard.submit

    async def overtaken(request: Request) -> LedgerResult:
        if isinstance(request, AbortTransaction):
            await setting.host.ask(EndTransaction("a", *producer[:2], is_commit=True, bumps=False))
            await setting.add("a", producer)
        return await true_submit(request)

    with monkeypatch.context() as patched:
        patched.setattr(setting.host.shard, "submit", overtaken)
        assert await setting.expiry.abort_timed_out() == 0
    assert setting.of("a").is_open and not setting.timeouts
    ended = await setting.host.ask(EndTransaction("a", *producer[:2], is_commit=True, bumps=False))
    assert isinstance(ended, ProducerEpoch)


async def test_a_jump_of_the_clock_ahead_aborts_nothing_while_it_is_in_doubt(setting: Setting) -> None:
    await setting.opened("a")
    await setting.expiry.abort_timed_out()
    setting.host.clock.now_ms += 10 * TIMEOUT_MS
    setting.doubted_ms = 10 * TIMEOUT_MS
    assert await setting.expiry.abort_timed_out() == 0
    # This owner has seen it open for that long, whatever time it is.
    setting.elapsed_ms += TIMEOUT_MS
    assert await setting.expiry.abort_timed_out() == 1


async def test_a_new_epoch_begins_to_watch_again(setting: Setting) -> None:
    await setting.opened("a")
    await setting.expiry.abort_timed_out()
    setting.elapsed_ms += TIMEOUT_MS - 1
    await setting.expiry.abort_timed_out()
    setting.host.shard.state.epoch += 1
    setting.elapsed_ms += 1
    assert await setting.expiry.abort_timed_out() == 0


async def test_many_transactions_time_out_in_slices(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE_IDS", 3)
    monkeypatch.setattr(module, "ABORTS_AT_ONCE", 2)
    for at in range(10):
        await setting.opened(f"id-{at}", TIMEOUT_MS if at % 2 else 2 * TIMEOUT_MS)
    setting.pass_ms(TIMEOUT_MS)
    assert await setting.expiry.abort_timed_out() == 5
    assert len(setting.host.shard.state.part(Transactions).open) == 5


async def test_an_id_that_no_producer_uses_is_forgotten_but_never_one_with_an_open_transaction(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE_IDS", 2)
    for name in ("unused", "used"):
        await setting.host.ask(InitTransactionalId(name, TIMEOUT_MS))
    await setting.opened("open")
    setting.pass_ms(EXPIRATION_MS)
    assert await setting.expiry.forget_unused() == 0
    await setting.host.ask(InitTransactionalId("used", TIMEOUT_MS))
    setting.pass_ms(1)
    assert await setting.expiry.forget_unused() == 1
    assert setting.names == ["open", "used"]
    setting.pass_ms(EXPIRATION_MS)
    setting.doubted_ms = EXPIRATION_MS
    assert await setting.expiry.forget_unused() == 0


async def test_each_end_is_counted_once_however_often_it_is_requested(setting: Setting) -> None:
    counted: list[TransactionOutcome] = []
    coordinator = TransactionCoordinator(setting.host.shard, TIMEOUT_MS, counted.append)
    soon = setting.host.deadline
    producer = await setting.opened("a")
    for is_commit in (True, False):
        request = EndTransaction("a", *producer[:2], is_commit, bumps=True)
        producers = [await coordinator.end(request, soon()) for _ in range(2)]
        assert isinstance(producers[0], ProducerEpoch) and isinstance(producers[1], ProducerEpoch)
        assert producers[0][:2] == producers[1][:2]
        producer = await setting.add("a", producers[0])
    begun = await coordinator.init("a", TIMEOUT_MS, None, soon())
    assert isinstance(begun, ProducerEpoch)
    # Nothing is open.
    await coordinator.end(EndTransaction("a", *begun[:2], is_commit=False, bumps=True), soon())
    await coordinator.init("a", TIMEOUT_MS, None, soon())
    assert counted == ["committed", "aborted", "fenced"]


async def test_the_figures_of_transactions(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.admin.transaction_totals.SLICE", 2)
    totals = TransactionTotals(lambda: setting.host.shard.state, setting.host.shard.now_ms)
    await totals.count()
    assert (totals.open, totals.oldest_ms) == (0, 0)
    for name in ("a", "b"):
        await setting.opened(name)
        setting.pass_ms(1_000)
    for name in ("c", "d", "e"):
        await setting.host.ask(InitTransactionalId(name, TIMEOUT_MS))
    await totals.count()
    assert (totals.open, totals.oldest_ms) == (2, 2_000)
    assert totals.by_state == {"Empty": 3, "Ongoing": 2, "CompleteCommit": 0, "CompleteAbort": 0}
