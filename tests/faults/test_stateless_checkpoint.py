"""Snapshot, archive, raised start and deletion, over stores that promise as little as S3, without an image:
whichever step fails or is the last of a process, the state is recovered as it was, to the last entry."""

import copy
from collections.abc import Sequence

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal, entry_key
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.journal import consecutive_entries
from gateway.coordination.recovery import recover, snapshot_keys
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from ledger.cluster.records import OwnerChanged
from ledger.errors import StoreDamaged, StoreError
from ledger.image import all_rows
from ledger.journal import NONCE_BYTES, decode_entry, encode_entry, nonce_of
from ledger.ports import Blobs, MetadataStore, PutOutcome, Won
from ledger.rows import Row
from ledger.topics.requests import CreateTopic
from tests.support.faulty import EVERY_FAULT, Call, Fault, Faults, FaultyBlobs, FaultyMetadata
from tests.support.held_stores import Death, Deaths
from tests.support.journalled import topic_id
from tests.support.shards import journal_of
from tests.support.shared_shard import NOW_MS, SharedOwner, SharedShard

STEPS = {
    "blobs.put",
    "blobs.list",
    "blobs.get",
    "blobs.delete",
    "metadata.get",
    "metadata.scan",
    "metadata.put",
    "metadata.delete",
}
WRITES = {step for step in STEPS if step.rpartition(".")[2] in ("put", "delete")}
MAX_CALLS = 80


class AsS3(MemoryMetadata):
    """Several processes may write, versions are hashes of values. It remembers the nonce of each entry."""

    def __init__(self) -> None:
        super().__init__(exclusive=False, unique_versions=False)
        self.nonces: dict[int, bytes] = {}

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        outcome = await super().put(key, value, expect)
        if isinstance(outcome, Won) and key.startswith("journal/0/"):
            self.nonces.setdefault(int(key.rpartition("/")[2]), nonce_of(value))
        return outcome


class Hosts:
    """Gateways one after the other, each with nothing but these stores."""

    def __init__(self) -> None:
        self.shared = SharedShard()
        self.shared.store = self.store = AsS3()  # type: ignore[assignment] # another memory of nonces
        self.topics = 0

    async def begun(self) -> SharedOwner:
        """A gateway with two snapshots and a journal that was pruned: a checkpoint makes every call."""
        owner = await self.shared.take_over()
        for _ in range(3):
            await self.work(owner)
            await owner.checkpointer.snapshot()
            await owner.checkpointer.prune()
        await self.work(owner)
        return owner

    async def work(self, owner: SharedOwner) -> None:
        for _ in range(3):
            self.topics += 1
            await owner.ask(CreateTopic(f"t{self.topics}", topic_id(self.topics), 2, {}))
        await owner.grow(2, snapshot=False)

    async def checkpoint(self, owner: SharedOwner, faults: Faults) -> Exception | Death | None:
        """With these faults. Returns how it ended."""
        journal = journal_of(owner.shard)
        journal.store = FaultyMetadata(self.store, faults)
        blobs = FaultyBlobs(self.shared.blobs, faults)
        checkpointer = Checkpointer(owner.shard, None, blobs, SnapshotRule(1), lambda: NOW_MS)
        try:
            await checkpointer.snapshot()
            await checkpointer.prune()
        except (StoreError, Death) as error:
            return error
        finally:
            journal.store = self.store
        return None


async def rows_of(store: MetadataStore, blobs: Blobs) -> Sequence[Row]:
    """Of the state that an empty machine recovers."""
    recovered = await recover(MetadataJournal(store, 0), None, blobs)
    assert recovered.source.startswith("snapshot/")
    return sorted(all_rows(recovered.state))


async def check_recovery(hosts: Hosts, owner: SharedOwner) -> None:
    """From the newest snapshot, and if that is lost from the older one."""
    expected = sorted(all_rows(owner.shard.state))
    assert await rows_of(hosts.store, hosts.shared.blobs) == expected
    without: MemoryBlobs = copy.deepcopy(hosts.shared.blobs)
    await without.delete((await snapshot_keys(without, 0))[-1:])
    assert await rows_of(hosts.store, without) == expected


async def check_archives(hosts: Hosts) -> None:
    """Every entry that is gone is in an archive, as it was, and every epoch's first one is in the journal."""
    journal, archived = MetadataJournal(hosts.store, 0), await hosts.shared.archived()
    start = await journal.start()
    for number in range(start):
        data = await journal.get(number)
        if data is None:
            assert archived[number] == {hosts.store.nonces[number]}
        else:
            assert nonce_of(data) == hosts.store.nonces[number]
    assert start > 0
    ends = [stored.number async for stored in consecutive_entries(journal, start)]
    assert ends == list(range(start, max(hosts.store.nonces) + 1))


async def epochs(hosts: Hosts) -> int:
    journal = MetadataJournal(hosts.store, 0)
    found = [await journal.get(number) for number in hosts.store.nonces]
    records = [record for data in found if data for record in decode_entry(data, "an entry").records]
    return sum(isinstance(record, OwnerChanged) for record in records)


async def next_gateway(hosts: Hosts) -> None:
    """It finds what was left half done, and goes on."""
    before = await epochs(hosts)
    owner = await hosts.shared.take_over()
    for _ in range(2):
        await hosts.work(owner)
        assert await hosts.checkpoint(owner, Faults()) is None
    await check_recovery(hosts, owner)
    await check_archives(hosts)
    assert await epochs(hosts) == before + 1
    assert len(await snapshot_keys(hosts.shared.blobs, 0)) == 2


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.LATE], ids=lambda f: f.name)
async def test_a_gateway_dies_at_any_step_and_an_empty_machine_has_every_entry(fault: Fault) -> None:
    died_at: list[Call] = []
    for fail_at in range(1, MAX_CALLS):
        hosts = Hosts()
        owner = await hosts.begun()
        deaths = Deaths(fail_at, fault)
        end = await hosts.checkpoint(owner, deaths)
        died_at += deaths.failed
        await check_recovery(hosts, owner)
        # What the dead one had sent arrives while others go on.
        await deaths.arrive()
        await check_recovery(hosts, owner)
        await next_gateway(hosts)
        await hosts.shared.close()
        if end is None:
            break
    else:
        raise AssertionError("no checkpoint came to its end")
    assert {f"{call.store}.{call.method}" for call in died_at} >= WRITES


@pytest.mark.parametrize("fault", EVERY_FAULT, ids=lambda fault: fault.name)
async def test_any_step_fails_and_the_gateway_goes_on_with_the_next_checkpoint(fault: Fault) -> None:
    failed: list[Call] = []
    for fail_at in range(1, MAX_CALLS):
        hosts = Hosts()
        owner = await hosts.begun()
        faults = Faults(fail_at, fault)
        await hosts.checkpoint(owner, faults)
        failed += faults.failed
        await check_recovery(hosts, owner)
        await hosts.work(owner)
        await hosts.checkpoint(owner, Faults())
        await faults.arrive()
        await check_recovery(hosts, owner)
        await check_archives(hosts)
        await next_gateway(hosts)
        await hosts.shared.close()
        if not faults.failed:
            break
    else:
        raise AssertionError("no checkpoint came to its end")
    assert {f"{call.store}.{call.method}" for call in failed} == STEPS


async def test_without_an_image_too_an_older_copy_of_the_journal_is_refused() -> None:
    hosts = Hosts()
    owner = await hosts.begun()
    older = copy.deepcopy(hosts.store)
    await hosts.work(owner)
    await owner.checkpointer.snapshot()
    with pytest.raises(StoreDamaged, match="but the snapshot was made after"):
        await recover(MetadataJournal(older, 0), None, hosts.shared.blobs)
    # And once another gateway has gone on with it.
    for number in range(max(older.nonces) + 1, max(hosts.store.nonces) + 3):
        entry = encode_entry(1, NOW_MS, number.to_bytes(NONCE_BYTES, "big"), [])
        assert isinstance(await older.put(entry_key(0, number), entry, None), Won)
    with pytest.raises(StoreDamaged, match="is not the one that the snapshot"):
        await recover(MetadataJournal(older, 0), None, hosts.shared.blobs)
    await hosts.shared.close()
