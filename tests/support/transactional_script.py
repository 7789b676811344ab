"""What an embedded gateway and producers with transactional ids do, step by step, through restarts."""

from dataclasses import dataclass, field
from pathlib import Path

from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.batch.records import Producer, Record, build_batch
from ledger.groups.requests import OffsetsStored
from ledger.groups.state import OffsetRow
from ledger.partitions.requests import ProducerTransaction
from ledger.requests import Done, LedgerResult, Refused, Request
from ledger.transactions.requests import (
    AbortTransaction,
    AddToTransaction,
    EndTransaction,
    InitTransactionalId,
    PendOffsets,
    ProducerEpoch,
    TopicPartition,
)
from ledger.transactions.state import Transactions
from tests.support.embedded import BEGUN_MS
from tests.support.faulty import Faults
from tests.support.journalled import topic_id
from tests.support.script import Script
from tests.support.transactional_history import Attempt, Outcome, TransactionalHistory

TOPIC, PARTITIONS = "transacted", 2
TIMEOUT_MS = 60_000
NAMES = ("version-1", "version-2")
NO_PRODUCER = ProducerEpoch(-1, -1)


@dataclass(slots=True)
class Copier:
    """A producer whose group has the name of its transactional id."""

    name: str
    is_v2: bool
    producer: ProducerEpoch = NO_PRODUCER
    offset: int = 0
    """Of the input, that comes next."""
    sequences: dict[int, int] = field(default_factory=dict)


class TransactionalScript(Script):
    """`history` has what the producers have heard."""

    def __init__(self, root: Path, faults: Faults, *, exclusive: bool = True) -> None:
        super().__init__(root, faults, exclusive=exclusive)
        self.history = TransactionalHistory()
        self.copiers = [Copier(name, is_v2=bool(at)) for at, name in enumerate(NAMES)]

    async def run(self) -> None:
        await self.start()
        await self.create(TOPIC, 1, PARTITIONS)
        for copier in self.copiers:
            await self.init(copier)
            await self.transact(copier, Outcome.COMMITTED)
            await self.transact(copier, Outcome.ABORTED)
        open_ones = [await self.fill(copier) for copier in self.copiers]
        await self.checkpoint()
        await self.restart()
        for copier, attempt in zip(self.copiers, open_ones, strict=True):
            await self.end(copier, attempt, Outcome.COMMITTED)
        for copier in self.copiers:
            await self.fill(copier)
            # Another instance, which knows nothing of what is open.
            await self.init(copier)
            await self.transact(copier, Outcome.COMMITTED)
        await self.housekeeping(lambda: self.host.checkpointer.write_image())
        for copier in self.copiers:
            await self.time_out(copier, await self.fill(copier))
        await self.checkpoint()
        await self.restart(image=False)
        for copier in self.copiers:
            await self.transact(copier, Outcome.COMMITTED)
            await self.fill(copier)
        await self.host.stop()

    async def ask(self, request: Request) -> LedgerResult:
        """Until there is a result."""
        found: list[LedgerResult] = []

        async def step() -> bool:
            found.append(await self.host.ask(request))
            return True

        await self.again_until(step)
        return found[-1]

    async def init(self, copier: Copier) -> None:
        begun = await self.ask(InitTransactionalId(copier.name, TIMEOUT_MS))
        assert isinstance(begun, ProducerEpoch)
        copier.producer, copier.sequences = begun, {}

    async def transact(self, copier: Copier, outcome: Outcome) -> None:
        await self.end(copier, await self.fill(copier), outcome)

    async def fill(self, copier: Copier) -> Attempt:
        """A record of output for each of two offsets of the input, and the offset."""
        consumed = copier.offset, copier.offset + 2
        attempt = self.history.begin(copier.name, 0.0, 0.0, consumed)
        for number in range(*consumed):
            await self.write(copier, attempt, number % PARTITIONS, f"{attempt.name}/{number}".encode())
        await self.pend(copier, consumed[1])
        return attempt

    async def write(self, copier: Copier, attempt: Attempt, partition: int, value: bytes) -> None:
        name, (producer_id, epoch, *_) = copier.name, copier.producer
        if not copier.is_v2:
            adding = AddToTransaction(name, producer_id, epoch, [TopicPartition(topic_id(1), partition)])
            assert isinstance(await self.ask(adding), Done)
        sequence = copier.sequences.get(partition, 0)
        copier.sequences[partition] = sequence + 1
        producer = Producer(producer_id, epoch, sequence)
        batch = build_batch(
            [Record(value=value)], base_timestamp=BEGUN_MS, producer=producer, flags=TRANSACTIONAL_BIT
        )
        claimed = ProducerTransaction(name, copier.is_v2, is_abortable=True)
        self.history.send(attempt, (TOPIC, partition), [value])

        async def step() -> bool:
            (result,) = await self.host.send(TOPIC, partition, batch, transaction=claimed)
            if isinstance(result, int):
                self.history.acknowledge(attempt, (TOPIC, partition), result, [value])
                return True
            assert result in ("KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT"), result
            return False

        await self.again_until(step)

    async def pend(self, copier: Copier, offset: int) -> None:
        name, (producer_id, epoch, *_) = copier.name, copier.producer
        if not copier.is_v2:
            adding = AddToTransaction(name, producer_id, epoch, groups=[name])
            assert isinstance(await self.ask(adding), Done)
        row = OffsetRow(topic_id(1), 0, offset)
        stored = await self.ask(PendOffsets(name, name, producer_id, epoch, [row], copier.is_v2))
        assert stored == OffsetsStored([None])

    async def end(self, copier: Copier, attempt: Attempt, outcome: Outcome) -> None:
        """And once more, late: that changes nothing."""
        producer_id, epoch, *_ = copier.producer
        is_commit = outcome is Outcome.COMMITTED
        self.history.conclude(attempt, Outcome.UNKNOWN if is_commit else Outcome.ABORTED)
        request = EndTransaction(copier.name, producer_id, epoch, is_commit, copier.is_v2)
        ended = await self.ask(request)
        assert isinstance(ended, ProducerEpoch), ended
        self.history.conclude(attempt, outcome)
        again = await self.ask(request)
        assert isinstance(again, ProducerEpoch) and again[:2] == ended[:2]
        if is_commit:
            copier.offset = attempt.consumed[1]
        if copier.is_v2:
            copier.producer, copier.sequences = ended, {}

    async def time_out(self, copier: Copier, attempt: Attempt) -> None:
        """The owner aborts it; its commit comes too late, and another instance begins."""
        producer_id, epoch, *_ = copier.producer

        async def step() -> bool:
            known = self.host.shard.state.part(Transactions).by_id[copier.name]
            await self.host.ask(AbortTransaction(copier.name, producer_id, epoch, known.started_ms))
            return True

        await self.again_until(step)
        self.history.conclude(attempt, Outcome.ABORTED)
        ended = await self.ask(EndTransaction(copier.name, producer_id, epoch, True, copier.is_v2))
        assert isinstance(ended, Refused)
        await self.init(copier)
