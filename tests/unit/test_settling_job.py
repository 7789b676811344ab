"""The job that settles, against a gateway that others use meanwhile: what it writes, names and leaves."""

import os
import pickle
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.errors import ErrorName, StoreDamaged
from ledger.formats.settled_meta import decode_meta
from ledger.formats.settled_reader import verify_settled
from ledger.keys import settled_keys_of
from ledger.merging.plan import MergePolicy
from ledger.objects.uploads import ObjectKind
from ledger.requests import Refused
from ledger.settled.lookup import NotTranslated, ObjectGone, as_found, check_offset
from ledger.settled.requests import NameSettled
from ledger.types import TopicId
from pipeline import settling
from pipeline.engines.settling_tasks import SettlingExecutor
from pipeline.engines.spark_settling import groups_of
from pipeline.messages import FoundRun
from pipeline.planning import Place
from pipeline.rounds import JobError, Round
from pipeline.segments import Engine, Host, MergeJob
from pipeline.settled_files import FoundPartition
from pipeline.settling import LocalWriter, SettlingEngine, SettlingJob, SettlingTotals
from tests.support.settling_peer import SettlingPeer, files_of

T = TopicId(b"\1" * 16)
SMALL = MergePolicy(due_runs=1, tail_ms=0, many_segments=2)


def job_of(peer: SettlingPeer, wave_runs: int = 1) -> SettlingJob:
    engine = SettlingEngine(LocalWriter(peer, os.urandom), wave_runs)
    return SettlingJob(peer, engine, Host(peer.elapsed_s, os.urandom))


def settled(peer: SettlingPeer, wave_runs: int = 1) -> SettlingTotals:
    return job_of(peer, wave_runs).run()


def merge(peer: SettlingPeer) -> None:
    MergeJob(peer, Engine(Round(peer, os.urandom)), Host(peer.elapsed_s, os.urandom), SMALL).run()


def check(peer: SettlingPeer, topic_id: TopicId = T, partition: int = 0) -> int:
    """Every offset of the settled ledger is found where the ledger has it. Returns how many."""
    part, found = peer.parts[topic_id, partition], 0
    for offset in range(part.log_start, peer.named[topic_id, partition].high_watermark):
        batch = peer.translate(topic_id, partition, offset)
        live = peer.batch_of(topic_id, partition, offset)
        assert (None if batch is None else (batch.run.locator, batch.start, batch.size)) == live
        found += batch is not None
    return found


def test_every_offset_is_found_where_the_ledger_has_it() -> None:
    peer = SettlingPeer(["t", "u"], partitions=2, page=7)
    peer.fill(20, records=3)
    totals = settled(peer)
    assert (totals.partitions, totals.named, totals.runs, totals.unchanged) == (4, 4, 80, 0)
    for topic_id, partition in peer.parts:
        assert check(peer, topic_id, partition) == 60
    assert peer.pins == {} and totals.writes == 12
    assert totals.written_bytes == sum(
        len(data) for key, data in peer.objects.items() if key.startswith("settled/")
    )


@pytest.mark.parametrize("page", [1, 2, 100])
def test_ends_of_transactions_are_gaps_until_they_are_merged_into_a_segment(page: int) -> None:
    peer = SettlingPeer(page=page)
    for producer_id in range(4):
        peer.send(producer_id, records=2)
        peer.end(producer_id, commit=bool(producer_id % 2))
    settled(peer)
    assert check(peer) == 8
    assert peer.translate(T, 0, 2) is None
    merge(peer)
    settled(peer)
    assert check(peer) == 12


def test_the_json_says_what_the_files_are() -> None:
    peer = SettlingPeer()
    peer.fill(5)
    settled(peer)
    keys = settled_keys_of(files_of(peer, T).locator)
    meta = decode_meta(peer.objects[keys.meta_key], "it")
    assert (meta.topic, meta.partition, meta.cluster_id) == ("t", 0, "cluster")
    assert (meta.log, meta.index, meta.high_watermark, meta.runs) == (keys.log_key, keys.index_key, 10, 5)
    assert (meta.log_bytes, meta.index_bytes) == files_of(peer, T)[1:3]
    runs = list(verify_settled(peer.objects[keys.log_key], peer.objects[keys.index_key], "it"))
    assert [(run.base, run.last) for run in runs] == [(run.base, run.last) for run in peer.parts[T, 0].runs]


def test_what_has_not_changed_is_not_written_again() -> None:
    peer = SettlingPeer(partitions=3)
    peer.flush([(T, 0, 2), (T, 1, 2)])
    assert (settled(peer).named, settled(peer).named) == (2, 0)
    peer.flush([(T, 1, 1)])
    totals = settled(peer)
    assert (totals.named, totals.unchanged) == (1, 2)
    peer.fill(3)
    settled(peer)
    merge(peer)
    # The same offsets, elsewhere.
    assert settled(peer).named == 3
    assert check(peer) == 8


@pytest.mark.parametrize("change", ["append", "merge", "delete", "trim all"])
def test_a_ledger_that_moves_on_meanwhile_is_settled_as_of_one_step(change: str) -> None:
    peer = SettlingPeer(page=3)
    peer.fill(12)
    first = peer.parts[T, 0]

    def changed() -> None:
        if peer.finds != 3:
            return
        peer.finds += 1
        if change == "append":
            peer.fill(4)
        elif change == "merge":
            merge(peer)
        else:
            first.log_start = 14 if change == "delete" else first.end
            first.runs = [run for run in first.runs if run.last >= first.log_start]

    peer.before_find = changed
    settled(peer)
    newest = peer.named[T, 0]
    assert newest.high_watermark == first.end == (32 if change == "append" else 24)
    for offset in range(first.log_start, newest.high_watermark):
        batch = peer.translate(T, 0, offset)
        assert batch is not None and batch.base <= offset <= batch.last
    # The next job sees that runs were merged, and writes it again.
    assert settled(peer).named == (change == "merge")
    assert check(peer) == newest.high_watermark - first.log_start


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_settled_ledgers_of_any_history_say_what_the_ledger_says(seed: int) -> None:
    dice = Random(seed)
    peer = SettlingPeer(partitions=2, page=dice.randint(1, 9))
    for _ in range(dice.randint(2, 12)):
        match dice.choice(["fill", "fill", "merge", "gap", "trim", "settle"]):
            case "fill":
                peer.flush([(T, dice.randrange(2), dice.randint(1, 4)) for _ in range(dice.randint(1, 5))])
            case "merge":
                merge(peer)
            case "gap":
                peer.parts[T, 0].end += dice.randint(1, 3)
            case "trim":
                part = peer.parts[T, 1]
                part.log_start = dice.randint(part.log_start, part.end)
                part.runs = [run for run in part.runs if run.last >= part.log_start]
            case "settle":
                settled(peer, dice.choice([1, 5, 1000]))
    peer.fill(1)
    settled(peer)
    for topic_id, partition in peer.parts:
        check(peer, topic_id, partition)


def test_a_lost_pin_begins_again_and_writes_only_what_is_left() -> None:
    peer = SettlingPeer(partitions=2)
    peer.fill(2)

    lost = iter([True])

    def lose(naming: NameSettled) -> None:
        if naming.partition == 1 and next(lost, False):
            peer.pins.clear()

    peer.before_naming = lose
    totals = settled(peer)
    assert (totals.again, totals.named, totals.orphans) == (1, 2, 1)
    assert [naming.partition for naming in peer.namings] == [0, 1]
    assert peer.pins == {}


@pytest.mark.parametrize("error", [ErrorName.INVALID_UPDATE_VERSION, ErrorName.UNKNOWN_TOPIC_OR_PARTITION])
def test_what_another_job_has_newer_or_nobody_needs_is_left_as_an_orphan(error: ErrorName) -> None:
    peer = SettlingPeer(partitions=2)
    peer.fill(2)
    peer.before_naming = lambda naming: None if naming.partition else Refused(error)
    totals = settled(peer)
    assert (totals.named, totals.orphans, totals.left) == (1, 1, [])


def test_a_partition_that_could_not_be_named_is_said() -> None:
    peer = SettlingPeer()
    peer.fill(2)
    peer.before_naming = lambda _: Refused(ErrorName.KAFKA_STORAGE_ERROR, "too old")
    totals = settled(peer)
    assert (totals.left_partitions, totals.left) == (1, ["t-0: too old; run the job again"])


def test_too_many_objects_are_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MAX_JOB_OBJECTS", 5)
    peer = SettlingPeer(page=3)
    peer.fill(10)
    totals = settled(peer)
    assert totals.named == 0 and totals.left_partitions == 1
    assert totals.left == ["t-0: more than 5 objects; merge it first (dragoman compact segments)"]
    merge(peer)
    assert settled(peer).named == 1


def test_a_plan_writes_nothing() -> None:
    peer = SettlingPeer(["t", "u"], partitions=2)
    peer.flush([(T, 0, 5)])
    objects = dict(peer.objects)
    plan = list(SettlingJob(peer, None, Host(peer.elapsed_s, os.urandom)).plan())
    assert [tuple(topic) for topic in plan] == [("t", 2, 1, 5), ("u", 2, 0, 0)]
    assert peer.objects == objects and peer.pins == {}


def test_below_feature_level_4_nothing_is_written() -> None:
    peer = SettlingPeer()
    peer.fill(2)
    peer.level = 3
    with pytest.raises(JobError, match=r"start the gateway once with ledger.feature_level = 4"):
        settled(peer)
    assert peer.pins == {} and not any(key.startswith("settled/") for key in peer.objects)


def test_an_unknown_topic_is_named() -> None:
    with pytest.raises(JobError, match="there is no topic x"):
        job_of(SettlingPeer()).run(["x"])


def flipped(at: int, data: bytes) -> bytes:
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("ending", "kept", "flip", "sentence"),
    [
        ("log", 0, None, "is missing or cut short; write a new one with"),
        ("log", 90, None, "is missing or cut short"),
        ("log", -20, None, "is missing or cut short"),
        ("log", None, 20, "header does not match its CRC"),
        ("log", None, 70, "object table does not match its CRC"),
        ("log", None, -20, "block does not match its CRC"),
        ("index", 0, None, "is missing or cut short"),
        ("index", -1, None, "is missing or cut short"),
        ("index", None, 30, "does not match its CRC"),
    ],
)
def test_a_damaged_settled_ledger_says_so_in_a_sentence(
    ending: str, kept: int | None, flip: int | None, sentence: str
) -> None:
    peer = SettlingPeer()
    peer.fill(4)
    settled(peer)
    key = files_of(peer, T).locator.removesuffix("log") + ending
    data = peer.objects.pop(key)
    if kept != 0:
        peer.objects[key] = data[:kept] if flip is None else flipped(flip, data)
    with pytest.raises(StoreDamaged, match=sentence) as raised:
        peer.translate(T, 0, 7)
    assert key in str(raised.value) and "\n" not in str(raised.value)


def test_an_object_that_is_gone_is_named_with_the_remedy() -> None:
    peer = SettlingPeer()
    peer.fill(4)
    settled(peer)
    gone = peer.parts[T, 0].runs[1].object_key
    del peer.objects[gone]
    with pytest.raises(ObjectGone, match=f"{gone} is not there any more.*write a new one with"):
        peer.translate(T, 0, 2)
    assert peer.translate(T, 0, 4) is not None


def test_a_batch_that_is_not_as_written_is_damage() -> None:
    peer = SettlingPeer()
    peer.fill(1)
    settled(peer)
    run = peer.parts[T, 0].runs[0]
    data = bytearray(peer.objects[run.object_key])
    data[run.start + 70] ^= 1
    peer.objects[run.object_key] = bytes(data)
    with pytest.raises(StoreDamaged, match="does not match its CRC"):
        peer.translate(T, 0, 0)


@pytest.mark.parametrize(
    ("offset", "sentence"),
    [
        (-1, "offsets are numbered from 0 on"),
        (2, "offset 2 is below the log start offset 3 of t-0"),
        (8, "has the offsets below 8, and 8 is newer: write a new one with"),
    ],
)
def test_offsets_that_it_does_not_have_are_said(offset: int, sentence: str) -> None:
    peer = SettlingPeer()
    peer.fill(4)
    settled(peer)
    files = files_of(peer, T)
    with pytest.raises(NotTranslated, match=sentence):
        check_offset("t-0", files, 8, 3, offset)
    assert check_offset("t-0", files, 8, 3, 7) == files
    with pytest.raises(NotTranslated, match="t-0 has no settled ledger: write one with"):
        check_offset("t-0", None, 0, 0, 0)
    with pytest.raises(NotTranslated, match="no record of t-0 has offset 7: offsets may have gaps"):
        as_found(None, files, "t-0", 7)


def found_of(*runs: int) -> list[FoundPartition]:
    made = [FoundPartition(Place(T, "t", at), "c", 1, 1, 0, 0) for at in range(len(runs))]
    for each, count in zip(made, runs, strict=True):
        for at in range(count):
            each.runs.add(FoundRun(f"wal/0/{at}", ObjectKind.WAL, 0, 100, at, at, 0))
    return made


@pytest.mark.parametrize("runs", [(1,), (1, 1, 1, 1), (5_000, 1, 1, 1, 1, 1), (0, 9_000, 0, 9_000)])
def test_spark_tasks_have_about_as_much_to_do_each(runs: tuple[int, ...]) -> None:
    found = found_of(*runs)
    groups = list(groups_of(found, 4))
    assert [number for group in groups for number, _ in group] == list(range(len(runs)))
    assert 1 <= len(groups) <= 5 and all(groups)
    share = sum(count + 500 for count in runs) / 4
    assert all(sum(len(each.runs) + 500 for _, each in group[:-1]) < share for group in groups)


def test_what_goes_to_an_executor_is_small_and_comes_back_as_it_was() -> None:
    (found,) = found_of(1_000)
    data = pickle.dumps(found)
    assert len(data) < 100 * 1_000
    again = pickle.loads(data)
    assert list(again.runs) == list(found.runs) and again.place == found.place


def test_what_an_executor_cannot_write_is_said_of_each_partition() -> None:
    executor = SettlingExecutor("objects+file:/absent", {}, 1)
    outcomes = list(executor.write([list(enumerate(found_of(3, 3)))]))
    assert [outcome.number for outcome in outcomes] == [0, 1]
    assert all("there is no data of a gateway" in outcome.store_error for outcome in outcomes)
