"""Groups and their offsets in the ledger: what the requests of one entry do to each other, and bounds."""

import random
import struct
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import ErrorName, StoreDamaged
from ledger.fields import encode_text
from ledger.groups.records import (
    MAX_GROUP_BYTES,
    MIN_DEFLATED_BYTES,
    GroupRemoved,
    GroupStored,
    OffsetsCommitted,
    OffsetsRemoved,
    decode_group,
    encode_group,
)
from ledger.groups.requests import (
    MAX_OFFSETS,
    CommitOffsets,
    DrainOffsets,
    GroupGone,
    OffsetsStored,
    RemoveGroup,
    RemoveOffsets,
    StoreGroup,
)
from ledger.groups.state import CommittedOffset, Group, Member, OffsetRow
from ledger.image import all_rows, restore
from ledger.journal import MAX_ENTRY_BYTES
from ledger.records import FRAME, MetadataRecord
from ledger.registry import REGISTRY, decode_records, encode_record
from ledger.requests import Done, Refused, Request
from ledger.rows import digest
from ledger.settings.configs import Altered, ConfigChange, ConfigOp
from ledger.settings.records import ClientQuotasSet, ResourceConfigsSet
from ledger.settings.requests import QuotaChange, SetClientQuotas, SetResourceConfigs
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.types import TopicId
from tests.support.journalled import JournalledLedger, topic_id
from tests.support.quiet import as_if_quiet

TOPIC = topic_id(1)
UNKNOWN = Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)
USER = (("user", "u"),)

texts = st.text(st.characters(codec="utf-8"), max_size=12)
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
topic_ids = st.binary(min_size=16, max_size=16).map(TopicId)
partitions = st.integers(0, (1 << 32) - 1)
members = st.builds(
    Member,
    texts,
    st.none() | texts,
    texts,
    texts,
    i32,
    i32,
    st.lists(st.tuples(texts, st.binary(max_size=40)), max_size=3).map(tuple),
    st.binary(max_size=40) | st.just(bytes(MIN_DEFLATED_BYTES)),
)
groups = st.builds(
    Group,
    texts,
    texts,
    i32,
    st.none() | texts,
    st.none() | texts,
    st.lists(members, max_size=3).map(tuple),
    st.booleans(),
)
offset_rows = st.builds(OffsetRow, topic_ids, partitions, i64, i32, i64, texts)
entities = st.lists(st.tuples(texts, st.none() | texts), max_size=2).map(tuple)
records = st.one_of(
    groups.map(GroupStored),
    st.builds(OffsetsCommitted, texts, st.lists(offset_rows, max_size=5)),
    st.builds(OffsetsRemoved, texts, st.lists(st.tuples(topic_ids, partitions), max_size=5)),
    texts.map(GroupRemoved),
    st.builds(ClientQuotasSet, entities, st.dictionaries(texts, st.floats(allow_nan=False), max_size=3)),
    st.builds(ResourceConfigsSet, texts, texts, st.dictionaries(texts, texts, max_size=3)),
)


@pytest.fixture
def ledger() -> JournalledLedger:
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", TOPIC, 2, {}))
    return ledger


def member_of(name: str, metadata: bytes = b"") -> Member:
    return Member(name, None, "c", "/h", 45_000, 300_000, (("range", metadata),), b"")


def group_of(name: str, *members: str, generation: int = 1) -> Group:
    held = tuple(member_of(member) for member in members)
    leader = members[0] if members else None
    return Group(name, "consumer", generation, "range", leader, held, True)


def commit_of(group: str, offset: int, partition: int = 0, topic: TopicId = TOPIC) -> CommitOffsets:
    return CommitOffsets(group, [OffsetRow(topic, partition, offset)])


def offsets_of(ledger: JournalledLedger, group: str) -> dict[int, int]:
    held = ledger.state.groups.offsets.get(group, {})
    return {partition: committed.offset for (_, partition), committed in held.items()}


@given(records)
def test_every_record_reads_back_as_it_was_written(record: MetadataRecord) -> None:
    assert list(decode_records(encode_record(record), 1)) == [record]


@given(records)
def test_a_record_cut_short_anywhere_is_damage_and_nothing_else(record: MetadataRecord) -> None:
    data = encode_record(record)
    number, version, _ = FRAME.unpack_from(data)
    body = data[FRAME.size :]
    for size in range(min(len(body), 200)):
        cut = FRAME.pack(number, version, size) + body[:size]
        try:
            (read,) = decode_records(cut, 1)
        except StoreDamaged:
            continue
        assert type(read) is type(record)


def test_a_large_group_is_deflated_in_the_journal_and_not_in_the_image(ledger: JournalledLedger) -> None:
    members = tuple(member_of(f"m{n}", bytes(1_000)) for n in range(100))
    group = Group("g", "consumer", 1, "range", "m0", members, True)
    ledger.submit(StoreGroup(group))
    assert len(ledger.entries[-1]) < MIN_DEFLATED_BYTES < len(encode_group(group))
    assert ledger.from_journal().groups.by_id["g"].members == members
    assert any(row.value is not None and encode_group(group) in row.value for row in all_rows(ledger.state))


def test_a_deflated_group_of_more_bytes_than_any_group_is_damage() -> None:
    bomb = b"\1" + zlib.compress(bytes(64 * MAX_GROUP_BYTES), 9)
    with pytest.raises(StoreDamaged, match="longer than a group can be"):
        list(decode_records(FRAME.pack(15, 0, len(bomb)) + bomb, 1))


def test_a_group_is_stored_with_the_time_of_its_entry(ledger: JournalledLedger) -> None:
    ledger.now_ms += 5
    assert ledger.submit(StoreGroup(group_of("g", "a", "b"))) == [Done(1)]
    held = ledger.state.groups.by_id["g"]
    assert (held.generation, held.changed_ms, len(held.members)) == (1, ledger.now_ms, 2)


@pytest.mark.parametrize("compressible", [True, False])
def test_a_group_that_no_entry_holds_is_refused_and_the_shard_continues(
    ledger: JournalledLedger, compressible: bool
) -> None:
    size = 11_000 if compressible else 6_000
    data = [bytes(size) if compressible else random.Random(n).randbytes(size) for n in range(100)]
    members = tuple(member_of(f"m{n}", metadata) for n, metadata in enumerate(data))
    results = ledger.submit(
        StoreGroup(Group("g", "consumer", 1, "range", "m0", members, True)), commit_of("g", 1)
    )
    assert isinstance(results[0], Refused) and results[0].error == "UNKNOWN_SERVER_ERROR"
    assert results[1] == OffsetsStored([None])
    assert len(ledger.entries[-1]) < 500


def test_offsets_are_committed_row_by_row(ledger: JournalledLedger) -> None:
    rows = [
        OffsetRow(TOPIC, 0, 5, 0, -1, "m"),
        OffsetRow(TOPIC, 2, 5),
        OffsetRow(topic_id(9), 0, 5),
        OffsetRow(TOPIC, -1, 5),
        OffsetRow(TOPIC, 1, 7, -1, 99, ""),
    ]
    assert ledger.submit(CommitOffsets("g", rows)) == [OffsetsStored([None, UNKNOWN, UNKNOWN, UNKNOWN, None])]
    assert ledger.state.groups.offsets["g"] == {
        (TOPIC, 0): CommittedOffset(5, 0, "m", ledger.now_ms, -1),
        (TOPIC, 1): CommittedOffset(7, -1, "", ledger.now_ms, 99),
    }


def test_nothing_is_committed_for_a_topic_deleted_in_the_same_entry(ledger: JournalledLedger) -> None:
    results = ledger.submit(DeleteTopic(TOPIC), commit_of("g", 1))
    assert results[1] == OffsetsStored([UNKNOWN])
    assert not ledger.state.groups.offsets


def test_an_offset_committed_before_its_topic_is_deleted_in_the_same_entry_is_drained(
    ledger: JournalledLedger,
) -> None:
    ledger.submit(commit_of("g", 1), DeleteTopic(TOPIC))
    assert ledger.submit(DrainOffsets(10)) == [Done(1)]
    assert not ledger.state.groups.offsets and not ledger.state.groups.by_topic


def test_an_offset_committed_in_an_entry_can_be_removed_by_it(ledger: JournalledLedger) -> None:
    results = ledger.submit(commit_of("g", 1), RemoveOffsets("g", [(TOPIC, 0), (TOPIC, 1), (TOPIC, 0)]))
    assert results[1] == Done(1)
    assert not ledger.state.groups.offsets


def test_expiry_never_takes_an_offset_that_is_committed_in_the_same_entry(ledger: JournalledLedger) -> None:
    ledger.submit(commit_of("g", 1), commit_of("g", 1, partition=1))
    seen_ms = ledger.now_ms + 10
    ledger.now_ms += 10
    remove = RemoveOffsets("g", [(TOPIC, 0), (TOPIC, 1)], committed_before_ms=seen_ms)
    assert ledger.submit(commit_of("g", 2), remove) == [OffsetsStored([None]), Done(1)]
    assert offsets_of(ledger, "g") == {0: 2}


def test_a_group_stored_and_removed_in_one_entry_is_gone(ledger: JournalledLedger) -> None:
    ledger.submit(commit_of("g", 1))
    results = ledger.submit(
        StoreGroup(group_of("g")),
        commit_of("g", 2, partition=1),
        RemoveGroup("g"),
        RemoveGroup("g"),
        RemoveOffsets("g", [(TOPIC, 0), (TOPIC, 1)]),
    )
    assert results[2:] == [GroupGone(0), Refused(ErrorName.GROUP_ID_NOT_FOUND), Done(0)]
    assert not ledger.state.groups.has("g")


def test_a_group_removed_in_an_entry_can_begin_again_in_it(ledger: JournalledLedger) -> None:
    ledger.submit(StoreGroup(group_of("g")), commit_of("g", 5), commit_of("g", 6, partition=1))
    ledger.submit(RemoveGroup("g"), commit_of("g", 1), StoreGroup(group_of("g", "a", generation=7)))
    assert offsets_of(ledger, "g") == {0: 1}
    assert ledger.state.groups.by_id["g"].generation == 7


def test_a_group_with_members_is_not_removed(ledger: JournalledLedger) -> None:
    ledger.submit(commit_of("g", 1))
    refused = Refused(ErrorName.NON_EMPTY_GROUP)
    assert ledger.submit(StoreGroup(group_of("g", "a")), RemoveGroup("g"))[1] == refused
    assert ledger.submit(RemoveGroup("g")) == [refused]
    assert ledger.submit(StoreGroup(group_of("g")), RemoveGroup("g"))[1] == GroupGone(0)


def many_offsets(count: int) -> JournalledLedger:
    """A group with offsets of `count` partitions of one topic."""
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", TOPIC, count, {}))
    for first in range(0, count, 1_000):
        rows = [OffsetRow(TOPIC, first + at, 1) for at in range(min(1_000, count - first))]
        ledger.submit(CommitOffsets("g", rows))
    return ledger


def test_a_group_with_many_offsets_is_removed_in_slices() -> None:
    ledger = many_offsets(2_500)
    ledger.submit(StoreGroup(group_of("g")))
    left = []
    while ledger.state.groups.has("g"):
        (result,) = ledger.submit(RemoveGroup("g", 1_000))
        assert isinstance(result, GroupGone)
        left.append(result.left)
        assert ("g" in ledger.state.groups.by_id) == bool(result.left)
    assert left == [1_500, 500, 0]
    assert not ledger.state.groups.by_topic


def test_offsets_of_deleted_topics_are_drained_in_slices_and_no_others() -> None:
    ledger = many_offsets(250)
    ledger.submit(CreateTopic("u", topic_id(2), 3, {}))
    ledger.submit(commit_of("g", 4, 2, topic_id(2)), commit_of("h", 1, 7), commit_of("h", 2, 1, topic_id(2)))
    ledger.submit(DeleteTopic(TOPIC))
    for state in (ledger.state, ledger.from_snapshot()):
        ledger.state = state
        assert sum(1 for _ in state.groups.dead_offsets()) == 251
    results = [ledger.submit(DrainOffsets(100), DrainOffsets(1)) for _ in range(3)]
    assert results == [[Done(100), Done(1)], [Done(100), Done(1)], [Done(49), Done(0)]]
    assert (offsets_of(ledger, "g"), offsets_of(ledger, "h")) == ({2: 4}, {1: 2})
    assert not ledger.state.groups.dead


def test_a_drain_stays_within_the_bytes_that_it_announced() -> None:
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", TOPIC, 1, {}))
    names = [f"{n}".rjust(30_000, "g") for n in range(10)]
    ledger.submit(*[commit_of(name, 1) for name in names])
    ledger.submit(DeleteTopic(TOPIC))
    request = DrainOffsets(2_000)
    results = []
    while ledger.state.groups.dead:
        results += ledger.submit(request)
        assert len(ledger.entries[-1]) <= request.weight + 64 <= MAX_ENTRY_BYTES
    assert sum(result.count for result in results if isinstance(result, Done)) == 10


TOO_MUCH: list[Request] = [
    CommitOffsets("g", [OffsetRow(TOPIC, 0, 1)] * (MAX_OFFSETS + 1)),
    CommitOffsets("g", [OffsetRow(TOPIC, 0, 1, metadata="x" * 60_000)] * 10),
    CommitOffsets("g" * 40_000, [OffsetRow(TOPIC, 0, 1)]),
    RemoveOffsets("g", [(TOPIC, 0)] * (MAX_OFFSETS + 1)),
    StoreGroup(group_of("é" * 20_000)),
]


@pytest.mark.parametrize("request_", TOO_MUCH, ids=[f"{n}" for n in range(len(TOO_MUCH))])
def test_what_no_entry_holds_is_refused(ledger: JournalledLedger, request_: Request) -> None:
    (result,) = ledger.submit(request_)
    assert isinstance(result, Refused)


def test_metadata_too_long_for_its_field_refuses_its_own_row_only(ledger: JournalledLedger) -> None:
    rows = [OffsetRow(TOPIC, 0, 1, metadata="x" * 65_536), OffsetRow(TOPIC, 1, 1)]
    assert ledger.submit(CommitOffsets("g", rows)) == [
        OffsetsStored([Refused(ErrorName.OFFSET_METADATA_TOO_LARGE), None])
    ]


def test_weights_bound_the_bytes_that_are_written(ledger: JournalledLedger) -> None:
    rows = [OffsetRow(TOPIC, at % 2, 1, metadata="é" * 9) for at in range(50)]
    requests: list[Request] = [
        StoreGroup(group_of("gé", "a", "b")),
        CommitOffsets("gé", rows),
        RemoveOffsets("gé", [(TOPIC, 0)]),
        StoreGroup(group_of("gé")),
        RemoveGroup("gé"),
        SetClientQuotas([QuotaChange(USER, {"producer_byte_rate": 1.0})]),
        SetResourceConfigs("group", "gé", [ConfigChange(ConfigOp.SET, "a", "1")]),
    ]
    for request in requests:
        decided = ledger.decide(request)
        written = sum(len(encode_record(r)) for decision in decided.decisions for r in decision.records)
        assert 0 < written <= request.weight
        ledger.make_durable(decided)


@pytest.mark.parametrize("size", [MIN_DEFLATED_BYTES, 100_000, 500_000])
def test_the_weight_of_a_group_bounds_what_cannot_be_deflated(size: int) -> None:
    noise = random.Random(size).randbytes(size)
    member = Member("m", None, "", "", 1, 1, (), noise)
    group = Group("g", "consumer", 1, "range", "m", (member,), synced=True)
    assert len(encode_record(GroupStored(group))) <= StoreGroup(group).weight


def large_group() -> Group:
    """Of 400 KB, which are deflated to half of it."""
    noise = random.Random(5)
    members = [member_of(f"m{number}", noise.randbytes(100) + bytes(100)) for number in range(1_600)]
    return Group("g", "consumer", 1, "range", "m0", tuple(members), synced=True)


def test_a_large_group_is_encoded_once(ledger: JournalledLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """For its size, which is checked, and for the entry: each takes as long as many small requests."""
    texts = list[str | None]()

    def encoded(value: str | None) -> bytes:
        texts.append(value)
        return encode_text(value)

    monkeypatch.setattr("ledger.groups.records.encode_text", encoded)
    group = large_group()
    assert ledger.submit(StoreGroup(group)) == [Done(1)]
    assert texts == ["g", "consumer", "range", "m0", *[member.instance_id for member in group.members]]
    assert ledger.state.groups.by_id["g"].members == group.members


def test_what_was_cut_short_or_prolonged_is_no_group() -> None:
    data = encode_group(group_of("g", "a", "b"))
    for damaged in [*(data[:at] for at in range(len(data))), data + b"\0"]:
        with pytest.raises((StoreDamaged, struct.error)):
            decode_group(memoryview(damaged))


def test_quotas_change_by_key_and_see_their_entry(ledger: JournalledLedger) -> None:
    version = ledger.state.quotas.version
    results = ledger.submit(
        SetClientQuotas([QuotaChange(USER, {"a": 1.0, "b": 2.0}), QuotaChange(USER, {"a": None})]),
        SetClientQuotas([QuotaChange(USER, {"c": 3.0}), QuotaChange((("user", None),), {"x": None})]),
    )
    assert results == [Done(1), Done(1)]
    assert ledger.state.quotas.by_entity == {USER: {"b": 2.0, "c": 3.0}}
    assert ledger.state.quotas.version > version
    ledger.submit(SetClientQuotas([QuotaChange(USER, {"b": None, "c": None})]))
    assert not ledger.state.quotas.by_entity


def test_configs_of_brokers_and_groups_change_by_name(ledger: JournalledLedger) -> None:
    def set_to(name: str, value: str) -> SetResourceConfigs:
        return SetResourceConfigs("broker", "", [ConfigChange(ConfigOp.SET, name, value)])

    assert ledger.submit(set_to("a", "1"), set_to("b", "2")) == [
        Altered({"a": "1"}),
        Altered({"a": "1", "b": "2"}),
    ]
    removal = SetResourceConfigs("broker", "", [ConfigChange(ConfigOp.SET, "c", "3")], replace=True)
    assert ledger.submit(removal) == [Altered({"c": "3"})]
    assert ledger.state.resource_configs.by_resource == {("broker", ""): {"c": "3"}}
    assert isinstance(ledger.submit(set_to("a", "x" * 70_000))[0], Refused)


def test_entities_with_quotas_and_resources_with_configs_are_bounded(
    ledger: JournalledLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.settings.decide.MAX_ENTITIES", 3)

    def quota(name: str, value: float | None = 1.0) -> SetClientQuotas:
        return SetClientQuotas([QuotaChange((("user", name),), {"a": value})])

    def config(name: str) -> SetResourceConfigs:
        return SetResourceConfigs("group", name, [ConfigChange(ConfigOp.SET, "a", "1")])

    for ask in (quota, config):
        ledger.submit(ask("1"))
        results = ledger.submit(ask("2"), ask("3"), ask("4"))
        assert [isinstance(result, Refused) for result in results] == [False, False, True]
        (result,) = ledger.submit(ask("5"))
        assert isinstance(result, Refused) and result.error == "POLICY_VIOLATION"
        assert not isinstance(ledger.submit(ask("3"))[0], Refused)
    ledger.submit(quota("1", None))
    assert ledger.submit(quota("5")) == [Done(1)]


def test_a_restored_image_has_the_same_digest(ledger: JournalledLedger) -> None:
    ledger.submit(
        StoreGroup(group_of("g", "a")),
        commit_of("g", 4),
        commit_of("simple", 5, 1),
        SetClientQuotas([QuotaChange((("client-id", None), ("user", "")), {"producer_byte_rate": 1e6})]),
        SetResourceConfigs("group", "g", [ConfigChange(ConfigOp.SET, "a", "1")]),
    )
    restored = restore(list(all_rows(ledger.state)))
    assert (
        digest(all_rows(restored))
        == digest(all_rows(ledger.from_journal()))
        == digest(all_rows(ledger.state))
    )
    assert restored.groups == ledger.state.groups
    assert restored.quotas.by_entity == ledger.state.quotas.by_entity
    assert restored.resource_configs.by_resource == ledger.state.resource_configs.by_resource


@pytest.mark.serial
@pytest.mark.parametrize("removing", [False, True], ids=["commit", "remove"])
def test_no_slice_of_a_hundred_thousand_offsets_is_applied_for_long(removing: bool) -> None:
    """The bound is 5 ms; the fastest of the slices is looked at."""
    ledger = many_offsets(100_000)
    took = []
    for at in range(40):
        rows = [OffsetRow(TOPIC, at * MAX_OFFSETS + n, 2) for n in range(MAX_OFFSETS)]
        request: Request = RemoveGroup("g", MAX_OFFSETS) if removing else CommitOffsets("g", rows)
        (decision,) = ledger.decide(request).decisions
        began = time.thread_time()
        for record in decision.records:
            REGISTRY.apply(ledger.state, record)
        took.append(as_if_quiet(time.thread_time() - began))
    assert len(ledger.state.groups.offsets["g"]) == (20_000 if removing else 100_000)
    assert min(took) < 0.005
