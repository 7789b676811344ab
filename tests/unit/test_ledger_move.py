"""A move of a ledger to other stores: what is moved, what is refused, and how an interrupted one goes on."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.objects import ObjectSegments
from gateway.coordination.claim import Claim, MoveState, claim_data, newest_claim, put_claim
from gateway.coordination.mark import Mark, encode_mark, new_mark_key
from gateway.coordination.recovery import recover
from gateway.offline.move import (
    SETTLED_S,
    LedgerMove,
    MoveRefused,
    MoveSummary,
    Place,
    has_left,
    interrupted_move,
)
from gateway.offline.move_plan import plan_move
from ledger.batch.records import Record, build_batch
from ledger.errors import AlreadyExists, OutcomeUnknown, StoreDamaged, StoreError
from ledger.image import all_rows
from ledger.journal import apply_entry, decode_entry
from ledger.partitions.requests import CommitBatch, CommitFile, FileCommit
from ledger.ports import Blobs
from ledger.rows import digest
from ledger.topics.requests import CreateTopic
from ledger.types import Buffer, DraftBatch, Position
from tests.support.faulty import EVERY_FAULT, Fault, Faults, FaultyBlobs, FaultyMetadata
from tests.support.held_stores import Death, Deaths
from tests.support.journalled import topic_id
from tests.support.movable import InMemory, empty_target, ledger_with_records, place_over
from tests.support.shards import open_shard

T = TypeVar("T")
NOW_MS = 1_700_001_000_000
METADATA, DATA = "etcd://host/p", "s3://bucket/p"
WHOLE_MOVE = 100
"""More calls than a move makes."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> InMemory:
    return asyncio.run(ledger_with_records(tmp_path_factory.mktemp("ledger")))


@pytest.fixture
def source(built: InMemory) -> InMemory:
    return built.clone()


async def no_pause(_: float) -> None:
    return None


def moving(source: Place, target: Place, data: str = DATA) -> LedgerMove:
    return LedgerMove(source, target, METADATA, data, lambda: NOW_MS, pause=no_pause)


async def move(source: Place, target: Place, *, accept_damage: bool = False, data: str = DATA) -> MoveSummary:
    """As one run of the command does."""
    recovered = await recover(source.journal, None, source.blobs)
    plan = await plan_move(recovered.state, source.segments)
    run = moving(source, target, data).run
    return await run(recovered, plan, lambda _: None, accept_damage=accept_damage)


async def cancel(source: Place, target: Place) -> None:
    leaving = await interrupted_move(source.blobs, 0, METADATA, DATA)
    assert leaving is not None
    await moving(source, target).cancel(leaving)


def with_faults(stores: InMemory, faults: Faults) -> Place:
    return place_over(FaultyMetadata(stores.metadata, faults), FaultyBlobs(stores.blobs, faults))


async def objects_of(stores: InMemory) -> dict[str, bytes]:
    return {info.key: await stores.blobs.get(info.key) for info in await stores.blobs.list("wal/")}


async def check_moved(built: InMemory, target: InMemory) -> None:
    """The target has the state of the source after one more entry, and the bytes of every live run."""
    at_target, at_source = await target.recovered(), await built.recovered()
    begin = await target.place().journal.get(at_source.state.applied)
    assert begin is not None
    apply_entry(at_source.state, decode_entry(begin, "begin"))
    assert digest(all_rows(at_target.state)) == digest(all_rows(at_source.state))
    state = at_target.state
    for log in state.topics.by_name["t"].partitions:
        runs = list(log.runs())
        assert runs
        where = [Position(state.objects.locator(run.object_number), run.start, run.size) for run in runs]
        found = await target.place().segments.read(where)
        assert found == await built.place().segments.read(where)
        assert None not in found


async def test_offsets_groups_settings_and_bytes_are_as_before_and_only_the_target_starts(
    built: InMemory, source: InMemory
) -> None:
    target = empty_target()
    done = await move(source.place(), target.place())
    assert done.moved and not done.damaged and not done.missing
    assert (done.topics, done.partitions, done.groups, done.committed_offsets) == (1, 2, 1, 1)
    assert done.copied_objects == done.objects == 2
    await check_moved(built, target)
    assert not await source.holds_the_ledger()
    with pytest.raises(StoreDamaged, match=f"was moved to metadata {METADATA} and data {DATA}"):
        await source.recovered()


async def test_what_is_dead_or_of_no_entry_stays_where_it_is(source: InMemory) -> None:
    recovered = await source.recovered()
    dead = f"wal/0/{'0' * 8}-0000-7000-8000-{'0' * 12}.wal"
    await source.blobs.put(dead, [b"nothing names this"])
    target = empty_target()
    done = await move(source.place(), target.place())
    assert done.left_objects == 1
    live = {each.locator for each in recovered.state.objects.by_number.values() if not each.closed}
    assert set(await objects_of(target)) == live
    assert await objects_of(source) == await objects_of(source) | {dead: b"nothing names this"}


async def test_a_gateway_goes_on_where_the_old_one_was(source: InMemory) -> None:
    before = (await source.recovered()).state
    target = empty_target()
    await move(source.place(), target.place())
    shard = await open_shard(target.metadata, target.blobs, None, 1, lambda: NOW_MS)
    await claim_data(shard, target.blobs, is_lasting=True)
    state = shard.state
    await shard.close()
    assert (state.cluster_id, state.cluster_epoch, state.epoch) == (
        before.cluster_id,
        before.cluster_epoch,
        before.epoch + 2,
    )
    assert state.next_producer_id == before.next_producer_id
    # And the command says the same when it is run again.
    done = await move(source.place(), target.place())
    assert done.moved and done.copied_objects == 0
    leaving = await interrupted_move(source.blobs, 0, METADATA, DATA)
    assert has_left(leaving) and leaving is not None
    with pytest.raises(MoveRefused, match="has moved"):
        await moving(source.place(), target.place()).cancel(leaving)


# Interrupted at every step


async def state_of(source: InMemory) -> MoveState | None:
    _, claim = await newest_claim(source.blobs, 0)
    return claim.move.state if claim is not None and claim.move is not None else None


async def only_one_place_starts(source: InMemory, target: InMemory) -> None:
    """One of the two, but between the third step and the fifth: then none, and the source says so."""
    starts = [await source.holds_the_ledger(), await target.holds_the_ledger()]
    if await state_of(source) is MoveState.LEAVING:
        assert starts in ([False, False], [False, True])
    else:
        assert sum(starts) == 1


@pytest.mark.parametrize("when", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER])
@pytest.mark.parametrize("dies_in", ["source", "target"])
async def test_killed_at_any_call_one_place_starts_and_the_same_command_goes_on(
    built: InMemory, when: Fault, dies_in: str
) -> None:
    for call in range(1, WHOLE_MOVE):
        source, target = built.clone(), empty_target()
        deaths = Deaths(call, when)
        places = {
            "source": (with_faults(source, deaths), target.place()),
            "target": (source.place(), with_faults(target, deaths)),
        }
        with suppress(Death):
            await move(*places[dies_in])
        if not deaths.failed:
            break
        await only_one_place_starts(source, target)
        done = await move(source.place(), target.place())
        assert done.moved
        await check_moved(built, target)
        assert not await source.holds_the_ledger()
    assert call > 15


@pytest.mark.parametrize("fault", EVERY_FAULT)
async def test_stores_that_fail_at_any_call_lose_nothing(built: InMemory, fault: Fault) -> None:
    failed = 0
    for call in range(1, WHOLE_MOVE):
        source, target = built.clone(), empty_target()
        faults = Faults(call, fault)
        try:
            done = await move(with_faults(source, faults), with_faults(target, faults))
            assert done.moved
        except StoreError:
            failed += 1
            await only_one_place_starts(source, target)
        await faults.arrive()
        if not faults.failed:
            break
        done = await move(source.place(), target.place())
        assert done.moved
        await check_moved(built, target)
        assert not await source.holds_the_ledger()
    assert call > 40


class LateDeletes(FaultyMetadata):
    """Deletions are not answered, and take effect when `arrive` is called."""

    def __init__(self, store: MemoryMetadata) -> None:
        super().__init__(store, Faults())
        self._below = store
        self.deletions: list[list[str]] = []

    async def delete(self, keys: Sequence[str]) -> None:
        self.deletions.append(list(keys))
        raise OutcomeUnknown("no answer")

    async def arrive(self) -> None:
        for keys in self.deletions:
            await self._below.delete(keys)


@pytest.mark.parametrize("put", [1, 2, 3])
@pytest.mark.parametrize("when", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER])
async def test_a_move_that_goes_on_deletes_nothing_of_the_journal_it_has_begun(
    built: InMemory, put: int, when: Fault
) -> None:
    source, target = built.clone(), empty_target()
    with pytest.raises(Death):
        await move(source.place(), with_faults(target, Deaths(put, when, only=["metadata.put"])))
    assert await state_of(source) is MoveState.LEAVING
    late = LateDeletes(target.metadata)
    assert (await move(source.place(), place_over(late, target.blobs))).moved
    assert not late.deletions
    await check_moved(built, target)


async def test_a_move_after_one_that_was_given_up_waits_for_what_that_may_delete_late(
    built: InMemory,
) -> None:
    source, target = built.clone(), empty_target()
    with pytest.raises(Death):
        await move(source.place(), with_faults(target, Deaths(3, only=["metadata.put"])))
    await cancel(source.place(), target.place())
    # The ledger is as it was, so the next move begins its journal under the same keys.
    late = LateDeletes(target.metadata)
    with pytest.raises(OutcomeUnknown):
        await move(source.place(), place_over(late, target.blobs))
    assert late.deletions and await source.holds_the_ledger()

    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)
        if seconds == SETTLED_S:
            await late.arrive()

    recovered = await recover(source.place().journal, None, source.blobs)
    plan = await plan_move(recovered.state, source.place().segments)
    again = LedgerMove(source.place(), target.place(), METADATA, DATA, lambda: NOW_MS, pause=pause)
    assert (await again.run(recovered, plan, lambda _: None)).moved
    assert waited == [SETTLED_S]
    await check_moved(built, target)
    assert not await source.holds_the_ledger()


class DeathsWithCallsUnderWay(Faults):
    """The process dies in the chosen call, whose effect happens when `arrive` is called."""

    async def _fail(
        self,
        call: object,
        effect: Callable[[], Awaitable[T]],
        unknown: Callable[[str], T] | None,
        conflict: Callable[[str], T] | None,
    ) -> T:
        self._late.append((WHOLE_MOVE, effect))
        raise Death(str(call))


async def test_a_move_that_is_cancelled_is_not_completed_by_a_put_that_was_under_way(built: InMemory) -> None:
    cancelled = 0
    for call in range(1, WHOLE_MOVE):
        source, target = built.clone(), empty_target()
        deaths = DeathsWithCallsUnderWay(call, only=["put"])
        with suppress(Death):
            await move(source.place(), with_faults(target, deaths))
        if not deaths.failed:
            break
        if await state_of(source) is not MoveState.LEAVING or await target.holds_the_ledger():
            continue
        cancelled += 1
        await cancel(source.place(), target.place())
        assert await source.holds_the_ledger()
        await deaths.arrive()
        assert await source.holds_the_ledger() and not await target.holds_the_ledger()
        assert await state_of(target) is MoveState.ARRIVING
    assert cancelled == 4


async def test_a_move_is_completed_also_where_puts_were_under_way(built: InMemory) -> None:
    for call in range(1, WHOLE_MOVE):
        source, target = built.clone(), empty_target()
        deaths = DeathsWithCallsUnderWay(call, only=["put"])
        with suppress(Death):
            await move(source.place(), with_faults(target, deaths))
        if not deaths.failed:
            break
        with suppress(AlreadyExists):
            # The claim of the earlier run may arrive where this one puts its own: then it is run once more.
            await move(source.place(), place_over(target.metadata, ArrivingFirst(target.blobs, deaths)))
        await move(source.place(), target.place())
        await check_moved(built, target)
        assert not await source.holds_the_ledger()
    assert call > 8


class ArrivingFirst(FaultyBlobs):
    """What was under way arrives before the first put."""

    def __init__(self, blobs: Blobs, late: Faults) -> None:
        super().__init__(blobs, Faults())
        self._late = late

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._late.arrive()
        await super().put(key, parts)


async def test_a_move_that_has_happened_cannot_be_cancelled(built: InMemory) -> None:
    source, target = built.clone(), empty_target()
    with pytest.raises(Death):
        await move(with_faults(source, Deaths(2, only=["blobs.put"])), target.place())
    assert await state_of(source) is MoveState.LEAVING and await target.holds_the_ledger()
    with pytest.raises(MoveRefused, match="has moved"):
        await cancel(source.place(), target.place())
    # Also when a gateway has begun there, and has replaced the claim.
    shard = await open_shard(target.metadata, target.blobs, None, 1, lambda: NOW_MS)
    await claim_data(shard, target.blobs, is_lasting=True)
    await shard.close()
    with pytest.raises(MoveRefused, match="has moved"):
        await cancel(source.place(), target.place())
    assert (await move(source.place(), target.place())).moved
    assert await state_of(source) is MoveState.LEFT and await target.holds_the_ledger()


async def test_after_a_cancelled_move_the_ledger_goes_on_and_may_move_again(built: InMemory) -> None:
    source, target = built.clone(), empty_target()
    with pytest.raises(Death):
        await move(source.place(), with_faults(target, Deaths(3, only=["metadata.put"])))
    assert await state_of(source) is MoveState.LEAVING
    with pytest.raises(StoreDamaged, match="interrupted at its last step"):
        await source.recovered()
    await cancel(source.place(), target.place())
    shard = await open_shard(source.metadata, source.blobs, None, 1, lambda: NOW_MS)
    await claim_data(shard, source.blobs, is_lasting=True)
    await shard.close()
    grown = source.clone()
    assert (await move(source.place(), target.place())).moved
    await check_moved(grown, target)


@pytest.mark.parametrize("after_put", [2, 3, 5])
async def test_a_ledger_that_went_on_after_an_interrupted_move_moves_as_it_is_then(
    built: InMemory, after_put: int
) -> None:
    """Interrupted after the claim of the new place, after an object, after the snapshot."""
    source, target = built.clone(), empty_target()
    deaths = Deaths(after_put, Fault.ERROR_AFTER, only=["blobs.put"])
    with pytest.raises(Death):
        await move(source.place(), with_faults(target, deaths))
    assert await source.holds_the_ledger()
    assert len(await target.blobs.list("snapshot/")) == (after_put == 5)
    shard = await open_shard(source.metadata, source.blobs, None, 1, lambda: NOW_MS)
    await claim_data(shard, source.blobs, is_lasting=True)
    await shard.close()
    grown = source.clone()
    assert (await move(source.place(), target.place())).moved
    await check_moved(grown, target)
    assert len(await target.blobs.list("snapshot/")) == 1


# What is refused


async def test_a_place_with_anything_else_in_it_is_refused_and_stays_as_it_is(built: InMemory) -> None:
    async def of_another_cluster(target: InMemory) -> None:
        await target.blobs.put("cluster-id", [b"another"])

    async def of_a_ledger(target: InMemory) -> None:
        await put_claim(target.blobs, 0, Claim("another", 1, 0, bytes(16)))

    async def with_a_journal(target: InMemory) -> None:
        await (await open_shard(target.metadata, MemoryBlobs(), None, 1, lambda: NOW_MS)).close()

    async def with_objects(target: InMemory) -> None:
        await target.blobs.put(f"wal/0/{'0' * 8}-0000-7000-8000-{'0' * 12}", [b"x"])

    async def with_a_mark(target: InMemory) -> None:
        await target.blobs.put(new_mark_key(0, 9, 1, bytes), [encode_mark(Mark("c", 1, 9, bytes(16)))])

    async def with_a_move_of_another(target: InMemory) -> None:
        with pytest.raises(Death):
            await move(built.clone().place(), with_faults(target, Deaths(3, only=["blobs.put"])))
        await target.blobs.delete(["cluster-id"])
        _, claim = await newest_claim(target.blobs, 0)
        assert claim is not None
        other = Claim("another", claim.epoch, claim.entry, claim.nonce, claim.move)
        await put_claim(target.blobs, 0, other, is_restored=True)

    places = (
        of_another_cluster,
        of_a_ledger,
        with_a_journal,
        with_objects,
        with_a_mark,
        with_a_move_of_another,
    )
    for prepare in places:
        source, target = built.clone(), empty_target()
        await prepare(target)
        before = target.clone()
        with pytest.raises(MoveRefused, match="choose an empty place"):
            await move(source.place(), target.place())
        assert vars(target.blobs) == vars(before.blobs)
        assert vars(target.metadata) == vars(before.metadata)
        assert await source.holds_the_ledger()


async def test_a_gateway_does_not_start_where_a_ledger_arrives(built: InMemory) -> None:
    source, target = built.clone(), empty_target()
    with pytest.raises(Death):
        await move(source.place(), with_faults(target, Deaths(3, only=["blobs.put"])))
    with pytest.raises(StoreDamaged, match="is being moved here"):
        await target.recovered()


async def test_a_move_at_its_last_step_is_completed_to_the_same_place_alone(built: InMemory) -> None:
    source, target = built.clone(), empty_target()
    with pytest.raises(Death):
        await move(source.place(), with_faults(target, Deaths(1, only=["metadata.put"])))
    with pytest.raises(MoveRefused, match="name these with --to-metadata"):
        await move(source.place(), empty_target().place(), data="s3://another")
    # The same name, and another place: it was emptied, or the name means another one now.
    with pytest.raises(MoveRefused, match="something was removed there"):
        await move(source.place(), empty_target().place())
    assert (await move(source.place(), target.place())).moved


# Damage


async def damage(stores: InMemory, locator: str) -> bytes:
    """Flip a byte of the last batch of the object that can be read."""
    state = (await stores.recovered()).state
    number = state.objects.by_locator[locator].number
    runs = [run for log in state.topics.by_name["t"].partitions for run in log.runs()]
    data = bytearray(await stores.blobs.get(locator))
    data[max(run.start + run.size for run in runs if run.object_number == number) - 1] ^= 0xFF
    await stores.blobs.delete([locator])
    await stores.blobs.put(locator, [data])
    return bytes(data)


async def test_a_damaged_object_stops_the_move_unless_that_is_accepted(
    source: InMemory,
) -> None:
    first, second = await objects_of(source)
    damaged = await damage(source, first)
    await source.blobs.delete([second])
    target = empty_target()
    for _ in range(2):
        done = await move(source.place(), target.place())
        assert not done.moved and done.missing == [second]
        (said,) = done.damaged
        assert said.startswith(first) and "CRC" in said
        assert await source.holds_the_ledger() and not await target.holds_the_ledger()
    done = await move(source.place(), target.place(), accept_damage=True)
    assert done.moved and done.missing == [second] and len(done.damaged) == 1
    assert await objects_of(target) == {first: damaged}
    assert await target.holds_the_ledger() and not await source.holds_the_ledger()


async def test_a_short_object_is_damaged(source: InMemory) -> None:
    first, _ = await objects_of(source)
    beginning = await source.blobs.get(first, 0, 10)
    await source.blobs.delete([first])
    await source.blobs.put(first, [beginning])
    done = await move(source.place(), empty_target().place())
    assert not done.moved and "it has 10 of" in done.damaged[0]


async def test_another_object_under_the_same_name_stops_the_move(built: InMemory) -> None:
    source, target = built.clone(), empty_target()
    with pytest.raises(Death):
        await move(source.place(), with_faults(target, Deaths(3, only=["blobs.put"])))
    (first, *_) = await objects_of(source)
    await target.blobs.delete([first])
    await target.blobs.put(first, [b"of something else"])
    with pytest.raises(StoreError, match="another object under"):
        await move(source.place(), target.place())
    assert await source.holds_the_ledger()


# Size


async def test_a_ledger_of_100_000_batches_moves() -> None:
    """As runs that do not join: each partition has one batch in a draft."""
    source, data = InMemory(MemoryMetadata(), MemoryBlobs()), build_batch([Record(value=b"v")])
    shard = await open_shard(source.metadata, source.blobs, None, 1, lambda: NOW_MS)
    deadline = asyncio.get_running_loop().time() + 60
    await shard.ask(CreateTopic("t", topic_id(1), 1000, {}), deadline)
    drafts = [DraftBatch(topic_id(1), partition, data, 1) for partition in range(1000)]
    for draft in range(100):
        placed = await ObjectSegments(source.blobs).write(drafts, NOW_MS + draft, shard.state.feature_level)
        batches = [
            CommitBatch(topic_id(1), number, start, len(data), 1, 1, 0, -1, -1, -1)
            for number, start in enumerate(placed.starts)
        ]
        result = await shard.ask(CommitFile(placed.locator, placed.object_bytes, batches), deadline)
        assert isinstance(result, FileCommit)
    await claim_data(shard, source.blobs, is_lasting=True)
    await shard.close()
    target = empty_target()
    done = await move(source.place(), target.place())
    assert done.moved and done.copied_objects == 100
    state = (await target.recovered()).state
    assert sum(len(list(log.runs())) for log in state.logs.values()) == 100_000
    assert await objects_of(target) == await objects_of(source)
