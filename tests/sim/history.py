"""One seed, one history: a gateway that crashes and starts again on stores that fail, and its clients."""

import asyncio
import logging
import random
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from gateway.assembly import RunningGateway, running_gateway
from gateway.config import load_settings
from gateway.coordination.shard import Shard
from gateway.housekeeping import pins, steps
from gateway.settings import Settings
from gateway.store_assembly import METADATA_FILE
from gateway.world import World
from ledger.errors import StoreDamaged, StoreError, StoreLocked, StoreTooNew
from tests.sim.book import Book, ReadBatch, TopicPartition, batches_of
from tests.sim.host import SimulatedHost
from tests.sim.links import Connection, Lost, MemoryLinks
from tests.sim.load import GROUPS, MEMBERS_GROUP, PARTITIONS, TOPIC, Client
from tests.sim.merging import MergingJobs
from tests.sim.stores import Disk, Fate, Rates
from tests.sim.transactions import TRANSACTED, Reader, Transactor
from tests.support.transactional_history import Outcome, Place, Read, TransactionalHistory
from tests.support.virtual_time import run_virtually

Result = TypeVar("Result")
Change = Callable[[World], World]

SETTINGS = {
    "listeners.listen": "PLAINTEXT://127.0.0.1:9092",
    "admin.listen": "",
    "internal.socket": "none",
    "storage.reserve_bytes": "0",
    "ledger.commit_timeout_ms": "2000",
    "groups.group.initial.rebalance.delay.ms": "50",
    "limits.drain_ms": "1000",
    "broker.log.retention.check.interval.ms": "1000",
    "transactions.transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transactions.transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}
IN_MEMORY = {
    "storage.metadata": "memory:",
    "storage.data": "memory:",
    "storage.allow_unsafe_acks": "true",
}
SNAPSHOT_BYTES = 1_000
SNAPSHOT_S = 0.5
GRACE_MS = 3_000
"""Below what operators may set, so that a short history has snapshots, pruning and deletions."""
PIN_LOOK_S, PIN_EXPIRY_MS = 1.0, 4_000
TROUBLED_S = 30.0
FILES_EVERY = 5
LIVES_IN_SQLITE = 3
"""Before the journal goes on in a log."""
INLINE_EVERY, INLINE_BYTES = 3, 1_500
"""In so many histories small drafts travel in journal entries."""
SHARED_MEMORY = Path("/dev/shm")
"""Files that are synced at once."""
FINISHED_S = 300.0
TRANSACTIONAL_IDS = {"v1": False, "v2": True}
"""And whether their clients are of transaction version 2."""
INSTANCES, TRANSACTIONS = 2, 6
ID_EXPIRY_EVERY, ID_EXPIRY_MS = 3, 4_000
"""In so many histories ids are forgotten that soon."""
WEEK_MS = 7 * 24 * 3600 * 1000


class JournalIn(Enum):
    """Where a gateway over files has its journal."""

    LOG = "log"
    """The default."""
    SQLITE_THEN_LOG = "both"
    SQLITE = "sqlite"


@dataclass(frozen=True, slots=True)
class History:
    seed: int
    wrong: list[str]
    """What contradicts a promise."""
    written: list[tuple[str, bytes]]
    """All that was put into the stores: key and bytes, in order."""
    lives: int
    acknowledged: int
    swapped: int
    """How often segments took the place of runs."""
    committed: int
    """Transactions."""
    ends_merged: int
    """Ends of transactions that jobs have put into segments."""


class Life:
    """A process: from an assembly to its end, or to the crash."""

    def __init__(self, simulation: "Simulation") -> None:
        choose = simulation.choose
        self.fate = Fate(random.Random(choose.random()), simulation.rates)
        self.fate.is_calm = simulation.is_calm
        self.links = MemoryLinks(random.Random(choose.random()))
        self._simulation = simulation
        self._end = asyncio.Event()
        self._begun: asyncio.Future[RunningGateway] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run())

    async def begin(self) -> bool:
        """Whether it came to listening."""
        both: tuple[asyncio.Future[Any], asyncio.Future[Any]] = self._begun, self.task
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return self._begun.done()

    async def end(self) -> None:
        """Orderly."""
        self._end.set()
        await self.task

    @property
    def shard(self) -> Shard | None:
        """While this process is alive and listens."""
        is_there = self._begun.done() and not self.task.done() and not self.fate.is_dead
        return self._begun.result().shard if is_there else None

    def crash(self) -> None:
        self.fate.is_dead = True
        self.links.cut()
        self.task.cancel()

    async def _run(self) -> None:
        simulation = self._simulation
        world = simulation.change(simulation.host.world(simulation.disk.opener(self.fate), self.links))
        try:
            async with running_gateway(simulation.settings, world) as gateway:
                self._begun.set_result(gateway)
                ends = [asyncio.create_task(event.wait()) for event in (self._end, gateway.ended)]
                try:
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for end in ends:
                        end.cancel()
                if gateway.ended.is_set():
                    simulation.book.complain(f"the shard was lost: {gateway.shard.broken!r}")
        except asyncio.CancelledError:
            if not self.fate.is_dead:
                raise
        except StoreError as error:
            if isinstance(error, StoreDamaged | StoreTooNew | StoreLocked):
                simulation.book.complain(f"the stores were refused: {error!r}")
        except Exception as error:
            if not self.fate.is_dead:
                simulation.book.complain(f"the gateway failed: {error!r}")
        finally:
            self.links.cut()


class Simulation:
    def __init__(
        self, seed: int, directory: Path | None, change: Change, *, is_transactional: bool = False
    ) -> None:
        self.seed = seed
        self.is_transactional = is_transactional
        self.transactions = TransactionalHistory()
        self.change = change
        self.choose = random.Random(f"history {seed}")
        self.host = SimulatedHost(seed)
        self.disk = Disk(seed, directory)
        self.book = Book()
        # Files are locked by one process.
        is_in_memory = directory is None
        self.rates = replace(
            drawn_rates(self.choose),
            shared=is_in_memory and seed % 2 == 0,
            placing=is_in_memory and seed % 3 > 0,
        )
        id_expiry_ms = WEEK_MS if seed % ID_EXPIRY_EVERY else ID_EXPIRY_MS
        self._settings = drawn_settings(self.choose, directory, id_expiry_ms)
        self._journal_in = drawn_journal(seed)
        self.is_calm = False
        self._is_over = False
        self._fate_of_jobs = Fate(random.Random(f"jobs' stores {seed}"), self.rates)
        self.jobs = self._merging_jobs()
        self._lives = list[Life]()

    async def run(self) -> History:
        await self._begin_life()
        await self.client("setting up").create(TOPIC, PARTITIONS)
        if self.is_transactional:
            await self.client("setting up").create(TRANSACTED, PARTITIONS)
        loads, consumers = self._transactional_loads() if self.is_transactional else self._loads()
        merging = asyncio.create_task(self.jobs.run(lambda: self._is_over)) if self.jobs else None
        trouble = asyncio.create_task(self._trouble())
        await asyncio.sleep(TROUBLED_S)
        self.is_calm = True
        await trouble
        for fate in (*(life.fate for life in self._lives), self._fate_of_jobs):
            fate.is_calm = True
        try:
            async with asyncio.timeout(FINISHED_S):
                await asyncio.gather(*loads)
                self._is_over = True
                await asyncio.gather(*consumers)
                if merging is not None:
                    await merging
                await self._check()
        except TimeoutError:
            self.book.complain("the clients do not come to an end")
        await self._lives[-1].end()
        await asyncio.gather(*(life.task for life in self._lives))
        acknowledged = sum(map(len, self.book.acked.values()))
        swapped = self.jobs.swapped if self.jobs else 0
        committed = sum(a.outcome is Outcome.COMMITTED for a in self.transactions.attempts)
        wrong = [*self.book.wrong, *self.transactions.wrong]
        ends_merged = self.jobs.ends_merged if self.jobs else 0
        written, lives = self.disk.written, len(self._lives)
        return History(self.seed, wrong, written, lives, acknowledged, swapped, committed, ends_merged)

    @property
    def settings(self) -> Settings:
        """Of the life that begins now."""
        directory = self.disk.directory
        if directory is None or self._journal_in is JournalIn.LOG:
            return self._settings
        is_moved = self._journal_in is JournalIn.SQLITE_THEN_LOG and len(self._lives) > LIVES_IN_SQLITE
        metadata = f"file:{directory}" if is_moved else f"sqlite:{directory / METADATA_FILE}"
        storage = msgspec.structs.replace(self._settings.storage, metadata=metadata)
        return msgspec.structs.replace(self._settings, storage=storage)

    def client(self, name: str) -> Client:
        return Client(name, self.book, random.Random(f"{name} {self.seed}"), self._connect)

    def _merging_jobs(self) -> MergingJobs | None:
        """In memory alone: files of a WAL have one reader here."""
        if self.disk.directory is not None:
            return None
        opener = self.disk.opener(self._fate_of_jobs)
        stores = opener.segments("memory:", roll_age_ms=0, far=None), opener.blobs("memory:", far=None)
        choose = random.Random(f"jobs {self.seed}")
        return MergingJobs(choose, self.book, lambda: self._lives[-1].shard if self._lives else None, stores)

    def _connect(self) -> Connection:
        if not self._lives:
            raise Lost
        return self._lives[-1].links.connect()

    def _loads(self) -> tuple[list[asyncio.Task[None]], list[asyncio.Task[None]]]:
        makes = [self.client(f"once {n}").produce_exactly_once(12) for n in range(3)]
        makes += [self.client(f"plain {n}").produce_plainly(8) for n in range(2)]
        makes += [self.client(f"commits {group}").commit(group, 12) for group in GROUPS]
        makes += [self.client(f"member {n}").be_member(MEMBERS_GROUP, 8) for n in range(2)]
        makes += [self.client("churn").churn(4), self.client("alter").alter(3), self.client("trim").trim(12)]
        consumes = [self.client(f"consumer {n}").consume(n, lambda: self._is_over) for n in range(PARTITIONS)]
        loop = asyncio.get_running_loop()
        return [loop.create_task(make) for make in makes], [loop.create_task(one) for one in consumes]

    def _transactional_loads(self) -> tuple[list[asyncio.Task[None]], list[asyncio.Task[None]]]:
        loop, history = asyncio.get_running_loop(), self.transactions
        transactors = [
            Transactor(self.client(f"{name} {number}"), history, name, is_v2=is_v2)
            for name, is_v2 in TRANSACTIONAL_IDS.items()
            for number in range(INSTANCES)
        ]
        makes = [transactor.run(TRANSACTIONS) for transactor in transactors]
        makes += [self.client("once").produce_exactly_once(12), self.client("churn").churn(2)]
        readers = [reader for committed in (False, True) for reader in self._readers(committed=committed)]
        follows = [reader.follow(lambda: self._is_over) for reader in readers]
        return [loop.create_task(make) for make in makes], [loop.create_task(one) for one in follows]

    def _readers(self, *, committed: bool) -> list[Reader]:
        name = "committed" if committed else "uncommitted"
        return [
            Reader(self.client(f"{name} {n}"), self.transactions, n, committed=committed)
            for n in range(PARTITIONS)
        ]

    async def _begin_life(self) -> None:
        while True:
            life = Life(self)
            self._lives.append(life)
            if await life.begin() or self.book.wrong:
                return
            await asyncio.sleep(0.1)

    async def _trouble(self) -> None:
        """Crashes and orderly restarts, in the middle of anything."""
        while not self.is_calm:
            is_crash = self.choose.random() < 0.8
            due = asyncio.Event()
            if is_crash:
                # Where a gateway is at work is where a crash may do harm.
                self._lives[-1].fate.crash_after(
                    self.choose.randint(1, self.choose.choice([5, 40, 200])), due.set
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(self.choose.choice([0.2, 3.0, 12.0, 20.0]) * self.choose.random()):
                    await due.wait()
            await self._restart(is_crash=is_crash)

    async def _restart(self, *, is_crash: bool) -> None:
        life = self._lives[-1]
        if is_crash:
            life.crash()
            if self.disk.directory is not None:
                # Until its files are closed.
                await life.task
        else:
            await life.end()
        await self._begin_life()

    async def _check(self) -> None:
        """Against what a client reads now, and after one more restart."""
        before = await self._read_all()
        await self._restart(is_crash=True)
        after = await self._read_all()
        for place, stored in after.items():
            self.book.compare(place, stored)
            if before[place] != stored:
                self.book.complain(f"{place}: a restart has changed what is there")
        if self.is_transactional:
            await self._check_transactions()
            return
        client = self.client("last look")
        for group in GROUPS:
            while not await client.look_at_commit((group, 0)):
                await client.pause()

    async def _check_transactions(self) -> None:
        """And once more after a restart: readers find the same."""
        offsets = {
            name: await Transactor(self.client("last look"), self.transactions, name, is_v2=is_v2).look()
            for name, is_v2 in TRANSACTIONAL_IDS.items()
        }
        found = await self._read_transacted(committed=False), await self._read_transacted(committed=True)
        if self.transactions.wrong:
            return
        self.transactions.compare(*found, offsets)
        await self._restart(is_crash=True)
        again = await self._read_transacted(committed=False), await self._read_transacted(committed=True)
        if again != found:
            self.transactions.complain("a restart has changed what readers of transactions see")

    async def _read_transacted(self, *, committed: bool) -> dict[Place, list[Read]]:
        readers = self._readers(committed=committed)
        return {(TRANSACTED, n): await reader.read_all() for n, reader in enumerate(readers)}

    async def _read_all(self) -> dict[TopicPartition, list[ReadBatch]]:
        client, found = self.client("reader"), dict[TopicPartition, list[ReadBatch]]()
        for partition in range(PARTITIONS):
            place, offset, stored = (TOPIC, partition), 0, list[ReadBatch]()
            while offset < self.book.ends[place] and not self.book.wrong:
                end_before = self.book.ends[place]
                try:
                    data = await client.fetch(place, offset, 0)
                except Lost:
                    continue
                records = bytes(data.records or b"")
                if data.error_code or not records:
                    client.refuse(f"a fetch at {offset}", data.error_code)
                    await client.pause()
                    continue
                stored += batches_of(records)
                offset = self.book.read(place, offset, records, data.high_watermark, end_before)
            found[place] = stored
        return found


def drawn_journal(seed: int) -> JournalIn:
    """Of a history in files."""
    return list(JournalIn)[seed // FILES_EVERY % len(JournalIn)]


def drawn_rates(choose: random.Random) -> Rates:
    worst = choose.choice([0.0, 0.02, 0.05])
    return Rates(
        before=choose.uniform(0, worst),
        after=choose.uniform(0, worst),
        lost=choose.uniform(0, worst),
        late=choose.uniform(0, worst),
        slow_s=choose.choice([0.0005, 0.004, 0.03]),
        overlapping=choose.random() < 0.5,
    )


def drawn_settings(choose: random.Random, directory: Path | None, id_expiry_ms: int) -> Settings:
    stores = IN_MEMORY if directory is None else {"storage.data_dir": str(directory)}
    linger_ms = str(choose.choice([0, 0, 5]))
    inline = {"storage.inline_bytes": str(0 if choose.randrange(INLINE_EVERY) else INLINE_BYTES)}
    settings = load_settings({**SETTINGS, **stores, **inline, "ledger.linger_ms": linger_ms}, {})
    ledger = msgspec.structs.replace(settings.ledger, snapshot_bytes=SNAPSHOT_BYTES, orphan_grace_ms=GRACE_MS)
    transactions = msgspec.structs.replace(settings.transactions, transactional_id_expiration_ms=id_expiry_ms)
    return msgspec.structs.replace(settings, ledger=ledger, transactions=transactions)


async def history(
    seed: int,
    change: Change = lambda world: world,
    in_files: bool | None = None,
    *,
    is_transactional: bool = False,
) -> History:
    """`change`: to show what a gateway in another world would do. `in_files`: over local files,
    otherwise in memory; by default drawn by the seed. `is_transactional`: of producers with transactional
    ids, instead of all other clients."""
    if not (seed % FILES_EVERY == 0 if in_files is None else in_files):
        return await Simulation(seed, None, change, is_transactional=is_transactional).run()
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as directory:
        return await Simulation(seed, Path(directory), change, is_transactional=is_transactional).run()


def lived(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """On virtual time, and nothing is logged."""
    before, often_s = structlog.get_config(), (steps.SNAPSHOT_S, pins.LOOK_S, pins.EXPIRY_MS)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    steps.SNAPSHOT_S, pins.LOOK_S, pins.EXPIRY_MS = SNAPSHOT_S, PIN_LOOK_S, PIN_EXPIRY_MS  # type: ignore[misc]
    try:
        return run_virtually(main)
    finally:
        structlog.configure(**before)
        steps.SNAPSHOT_S, pins.LOOK_S, pins.EXPIRY_MS = often_s  # type: ignore[misc]
