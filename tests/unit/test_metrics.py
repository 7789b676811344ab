"""Every metric has its name and moves; probes say why; pages for operators."""

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapters.journals import metadata as metadata_journal
from adapters.metadata.memory import MemoryMetadata
from gateway.admin.readiness import Readiness
from gateway.coordination.free_space import FreeSpace
from gateway.coordination.shard import Shard
from gateway.telemetry import stores
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.stores import StoreWatch, TimedBlobs, TimedMetadata, TimedSegments
from ledger.errors import StoreUnavailable
from ledger.ports import MetadataStore, PutOutcome, Unknown, Won
from ledger.topics.requests import CreateTopic
from ledger.types import DraftBatch
from tests.support.embedded import GRACE_MS, Clock, Embedded
from tests.support.faulty import Fault, Faults, FaultyMetadata
from tests.support.held_stores import HeldMetadata
from tests.support.journalled import topic_id
from tests.support.shards import open_shard

WAIT_S = 20.0


async def test_an_alarm_says_of_what() -> None:
    metrics = Metrics()
    value = metrics.registry.get_sample_value
    assert value("dragoman_alarms_total", {"reason": "fetch.batch_damaged"}) == 0
    metrics.alarm("fetch.batch_damaged")
    assert value("dragoman_alarms_total", {"reason": "fetch.batch_damaged"}) == 1


async def test_store_calls_are_timed_and_their_failures_counted() -> None:
    metrics = Metrics()
    watch = StoreWatch(metrics)
    store = TimedMetadata(
        FaultyMetadata(MemoryMetadata(), Faults(fail_at=2, fault=Fault.ERROR_BEFORE, times=2)), watch
    )
    assert isinstance(await store.put("k", b"v", None), Won)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.get("k")
    value = metrics.registry.get_sample_value
    assert value("dragoman_store_seconds_count", {"store": "metadata", "op": "get"}) == 2
    assert value("dragoman_store_errors_total", {"store": "metadata", "op": "get"}) == 2
    assert value("dragoman_store_errors_total", {"store": "metadata", "op": "put"}) == 0
    assert list(watch.health.failing()) == ["metadata.get"]
    assert await store.get("k") is not None
    assert value("dragoman_store_errors_total", {"store": "metadata", "op": "get"}) == 2
    assert watch.health.failing() == {}


async def test_a_put_of_unknown_outcome_is_a_failure() -> None:
    metrics = Metrics()
    watch = StoreWatch(metrics)
    faulty = FaultyMetadata(MemoryMetadata(), Faults(fail_at=1, fault=Fault.ANSWER_LOST))
    await TimedMetadata(faulty, watch).put("k", b"v", None)
    failed = {"store": "metadata", "op": "put"}
    assert metrics.registry.get_sample_value("dragoman_store_errors_total", failed) == 1
    assert list(watch.health.failing()) == ["metadata.put"]


async def test_the_log_says_once_that_a_store_fails_and_that_it_works_again() -> None:
    watch = StoreWatch(Metrics())
    faults = Faults(fail_at=2, fault=Fault.NEVER_SENT, times=3, only=["metadata.put"])
    store = TimedMetadata(FaultyMetadata(MemoryMetadata(), faults), watch)
    with capture_logs() as logs:
        for n in range(6):
            await store.put(f"k{n}", b"v", None)
    failing, again = logs
    assert (failing["event"], failing["operation"]) == ("store.failing", "metadata.put")
    assert "fault on purpose in call 2" in failing["error"]
    assert (again["event"], again["operation"]) == ("store.works_again", "metadata.put")


async def test_a_store_that_fails_now_and_then_does_not_fill_the_log() -> None:
    watch = StoreWatch(Metrics())
    with capture_logs() as logs:
        for _ in range(100):
            watch.health.failed("blobs.put", "503 SlowDown")
            watch.health.succeeded("blobs.put", 0.1)
        watch.health.failed("blobs.put", "503 SlowDown")
    assert [line["event"] for line in logs] == ["store.failing", "store.works_again"]
    assert watch.health.failing() == {"blobs.put": "503 SlowDown"}


async def test_a_call_without_a_response_is_a_failure_while_clients_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "STALLED_SECONDS", 1e-9)
    metrics = Metrics()
    watch = StoreWatch(metrics)
    held = HeldMetadata(MemoryMetadata())
    metadata = TimedMetadata(held, watch)
    held.hold()
    held.scans.shut()
    calls = [asyncio.create_task(metadata.put("k", b"v", None)), asyncio.create_task(metadata.scan("k"))]
    await held.until_held()
    await held.scans.until_held()
    assert watch.health.failing() == {"metadata.put": "no response for 0 s"}
    waits = partial(metrics.registry.get_sample_value, "dragoman_store_waiting_seconds")
    assert (waits({"store": "metadata", "op": "put"}) or 0.0) > 0.0
    held.release()
    held.scans.open()
    with capture_logs() as logs:
        await asyncio.gather(*calls)
    assert watch.health.failing() == {}
    assert waits({"store": "metadata", "op": "put"}) == 0.0
    assert [(line["event"], line["operation"]) for line in logs] == [("store.slow", "metadata.put")]


@pytest.mark.parametrize(
    ("operation", "failing"),
    [("read", {}), ("write", {"segments.write": "no response for 16 s"})],
)
def test_reads_that_wait_for_their_turn_are_no_failure_while_others_are_answered(
    monkeypatch: pytest.MonkeyPatch, operation: str, failing: dict[str, str]
) -> None:
    now = [1_000.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: now[0])
    monkeypatch.setattr(stores, "time", clock)
    watch = StoreWatch(Metrics())
    timed = watch.timed("segments", operation)
    with timed.begin():
        for _ in range(4):
            now[0] += 4
            with timed.begin():
                pass
        assert watch.health.failing() == failing
        assert timed.longest_s() == 16
        now[0] += 6
        assert list(watch.health.failing()) == [f"segments.{operation}"]


async def test_what_a_wrapped_store_promises_is_what_the_store_promises(tmp_path: Path) -> None:
    watch = StoreWatch(Metrics())
    async with Embedded(tmp_path, Clock()) as host:
        metadata = TimedMetadata(host.metadata, watch)
        assert (metadata.exclusive, metadata.durable_ack) == (True, True)
        assert TimedSegments(host.segments, watch).capabilities == host.segments.capabilities
        blobs = TimedBlobs(host.blobs, watch)
        await blobs.put("a/b", [b"12", b"34"])
        assert await blobs.get("a/b", 1, 2) == b"23"
        assert [info.key for info in await blobs.list("a/")] == ["a/b"]
        await blobs.delete(["a/b"])
        assert await blobs.list("a/") == []


async def test_objects_that_no_entry_names_are_counted_until_they_go(tmp_path: Path) -> None:
    clock = Clock()
    async with Embedded(tmp_path, clock, roll_age_ms=1) as host:
        await host.garbage.sweep(host.loop_time)
        assert host.garbage.orphans_left == 0
        await host.segments.write([DraftBatch(topic_id(1), 0, b"never committed", 1)], clock())
        await host.garbage.sweep(host.loop_time)
        assert host.garbage.orphans_left == 1
        clock.now_ms += 2 * GRACE_MS
        swept = await host.garbage.sweep(host.loop_time)
        assert (swept.orphans, host.garbage.orphans_left) == (1, 0)


async def opened(store: MetadataStore) -> Shard:
    return await open_shard(store, None, None, 1, lambda: 1_000)


def ready(shard: Shard, **facts: Any) -> list[str]:
    readiness = Readiness(shard, **{"failing": dict, "space": FreeSpace(()), **facts})
    reasons = readiness.reasons()
    assert all(set(reason) == {"reason", "detail"} and reason["detail"] for reason in reasons)
    return [reason["reason"] for reason in reasons]


async def test_an_owner_is_ready_and_one_that_lost_its_shard_is_not() -> None:
    store = MemoryMetadata(exclusive=False)
    shard, thief = await opened(store), await opened(store)
    assert ready(thief) == []
    with pytest.raises(StoreUnavailable):
        await shard.ask(CreateTopic("t", topic_id(1), 1, {}), asyncio.get_running_loop().time() + WAIT_S)
    assert ready(shard) == ["shard_lost"]
    await shard.close()
    await thief.close()


async def test_a_journal_entry_of_unknown_outcome_is_a_reason_until_it_is_known() -> None:
    store = MemoryMetadata()
    await (await opened(store)).close()
    faults = Faults(fail_at=2, fault=Fault.NEVER_SENT, times=4, only=["metadata.put"])
    shard = await opened(FaultyMetadata(store, faults))
    seen: list[list[str]] = []
    with capture_logs() as logs:
        created = shard.submit(CreateTopic("t", topic_id(1), 1, {}))
        while not created.done():
            seen.append(ready(shard))
            await asyncio.sleep(0.005)
    assert ["journal_outcome_unknown"] in seen
    assert ready(shard) == []
    assert [line["event"] for line in logs] == ["journal.outcome_unknown", "journal.outcome_known"]
    assert "fault on purpose" in logs[0]["error"]
    await shard.close()


class UnsureOnce(MemoryMetadata):
    """The first put of each entry is lost on the way, and nobody says so."""

    def __init__(self) -> None:
        super().__init__()
        self._tried: set[str] = set()

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        if key.startswith("journal/") and key not in self._tried:
            self._tried.add(key)
            return Unknown("fault on purpose")
        return await super().put(key, value, expect)


async def test_unknown_outcomes_of_many_entries_are_one_line_unless_one_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with capture_logs() as logs:
        shard = await opened(UnsureOnce())
        deadline = asyncio.get_running_loop().time() + WAIT_S
        for number in range(3):
            await shard.ask(CreateTopic(f"t{number}", topic_id(number), 1, {}), deadline)
        events = [line["event"] for line in logs if line["event"].startswith("journal.")]
        assert events == ["journal.outcome_unknown", "journal.outcome_known"]
        monkeypatch.setattr(metadata_journal, "LONG_UNKNOWN_S", 0.0)
        await shard.ask(CreateTopic("late", topic_id(9), 1, {}), deadline)
    events = [line["event"] for line in logs if line["event"].startswith("journal.")]
    assert events == 2 * ["journal.outcome_unknown", "journal.outcome_known"]
    await shard.close()


async def test_failing_stores_a_full_disk_and_the_end_are_reasons(tmp_path: Path) -> None:
    shard = await opened(MemoryMetadata())
    assert ready(shard, failing=lambda: {"segments.write": "no space"}) == ["store"]
    assert ready(shard, directory=tmp_path, min_free_bytes=1) == []
    assert ready(shard, directory=tmp_path, min_free_bytes=2**60) == ["disk"]
    assert ready(shard, directory=tmp_path / "gone", min_free_bytes=1) == ["disk"]
    assert ready(shard, is_draining=True) == ["draining"]
    await shard.close()
