"""A feature of the ledger is a machine of its own: the registry names it, and nothing else changes."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from ledger.cut import StateCut, take_dirty_rows
from ledger.errors import StoreTooNew
from ledger.image import all_rows, restore
from ledger.journal import apply_entry, decode_entry, encode_entry
from ledger.machine import Decision, Machine, Section
from ledger.overlay import Overlay
from ledger.records import RecordFormat
from ledger.registry import REGISTRY, Registry
from ledger.requests import SMALL, Done, Request
from ledger.rows import digest
from ledger.state import LedgerState
from ledger.topics.records import TopicDeleted
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.types import TopicId
from tests.support.journalled import topic_id

NOTE = 250
_KEY = struct.Struct(">16s")


@dataclass(slots=True)
class Notes:
    """What the feature keeps: one note a topic."""

    by_topic: dict[TopicId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PutNote:
    topic_id: TopicId
    text: str
    weight: int = SMALL
    work: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class NotePut:
    topic_id: TopicId
    text: str


def put_note(state: LedgerState, overlay: Overlay, request: PutNote, now_ms: int) -> Decision:
    pending = overlay.part(Notes).by_topic
    held = pending.get(request.topic_id) or state.part(Notes).by_topic.get(request.topic_id)
    if held == request.text:
        return Decision(Done(0))
    pending[request.topic_id] = request.text
    return Decision(Done(1), (NotePut(request.topic_id, request.text),))


def note_put(state: LedgerState, record: NotePut) -> None:
    state.part(Notes).by_topic[record.topic_id] = record.text
    state.dirty[NOTE].add(record.topic_id)


def topic_deleted(state: LedgerState, record: TopicDeleted) -> None:
    state.part(Notes).by_topic.pop(record.topic_id, None)
    state.dirty[NOTE].add(record.topic_id)


def encode_note(record: NotePut) -> bytes:
    return record.topic_id + record.text.encode()


def decode_note(body: memoryview) -> NotePut:
    return NotePut(TopicId(bytes(body[:16])), str(body[16:], "utf-8"))


def note_keys(state: LedgerState) -> Iterable[TopicId]:
    return state.part(Notes).by_topic


def note_row(state: LedgerState, key: TopicId) -> bytes | None:
    text = state.part(Notes).by_topic.get(key)
    return text.encode() if text is not None else None


def restore_notes(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    state.part(Notes).by_topic.update({TopicId(key): value.decode() for key, value in rows})


NOTES = Machine(
    decide={PutNote: put_note},
    formats=(RecordFormat(250, NotePut, encode_note, decode_note),),
    apply={NotePut: note_put, TopicDeleted: topic_deleted},
    sections=(Section(NOTE, note_keys, _KEY.pack, TopicId, note_row, restore_notes),),
    growing=frozenset({PutNote}),
)
WITH_NOTES = Registry((*REGISTRY.machines, NOTES))


def entry_of(state: LedgerState, *requests: Request) -> tuple[list[object], bytes]:
    """The results, and the bytes of the entry."""
    overlay = Overlay(state)
    decisions = [WITH_NOTES.decide(state, overlay, request, 1_000) for request in requests]
    records = [WITH_NOTES.encode_record(record) for decision in decisions for record in decision.records]
    return [decision.result for decision in decisions], encode_entry(1, 1_000, bytes(16), records)


def played(*entries: Sequence[Request]) -> LedgerState:
    state = LedgerState()
    for requests in entries:
        _, data = entry_of(state, *requests)
        apply_entry(state, decode_entry(data, "entry", WITH_NOTES), WITH_NOTES)
    return state


def noted() -> LedgerState:
    topics = [CreateTopic(name, topic_id(at), 1, {}) for at, name in enumerate("ab")]
    return played(topics, [PutNote(topic_id(0), "one"), PutNote(topic_id(1), "two")])


def test_a_machine_of_another_feature_decides_and_its_records_are_applied() -> None:
    assert noted().part(Notes).by_topic == {topic_id(0): "one", topic_id(1): "two"}


def test_its_overlay_holds_what_the_same_entry_has_decided() -> None:
    results, _ = entry_of(LedgerState(), PutNote(topic_id(0), "one"), PutNote(topic_id(0), "one"))
    assert results == [Done(1), Done(0)]


def test_several_machines_apply_one_record() -> None:
    state = noted()
    _, data = entry_of(state, DeleteTopic(topic_id(0)))
    apply_entry(state, decode_entry(data, "entry", WITH_NOTES), WITH_NOTES)
    assert "a" not in state.topics.by_name
    assert state.part(Notes).by_topic == {topic_id(1): "two"}


def test_its_rows_are_in_the_image_and_restore_its_state() -> None:
    state = noted()
    rows = list(all_rows(state, WITH_NOTES))
    restored = restore(rows, WITH_NOTES)
    assert restored.part(Notes) == state.part(Notes)
    assert digest(all_rows(restored, WITH_NOTES)) == digest(rows)


def test_rows_of_it_that_could_not_be_written_are_dirty_again() -> None:
    state = noted()
    cut = StateCut(state, registry=WITH_NOTES)
    assert list(cut.begin()) and not state.dirty
    cut.give_up()
    assert len([row for row in take_dirty_rows(state, WITH_NOTES) if row.section == NOTE]) == 2


def test_what_it_lets_grow_is_refused_with_the_rest() -> None:
    assert WITH_NOTES.growing == REGISTRY.growing | {PutNote}


def test_a_ledger_without_the_feature_refuses_its_records() -> None:
    _, data = entry_of(LedgerState(), PutNote(topic_id(0), "one"))
    with pytest.raises(StoreTooNew):
        decode_entry(data, "entry")


@pytest.mark.parametrize(
    "other",
    [
        Machine(decide={PutNote: put_note}),
        Machine(formats=(RecordFormat(250, Done, encode_note, decode_note),)),
        Machine(formats=(RecordFormat(251, NotePut, encode_note, decode_note),)),
        Machine(sections=(Section(NOTE, note_keys, _KEY.pack, TopicId, note_row, restore_notes),)),
        Machine(sections=(Section(0, note_keys, _KEY.pack, TopicId, note_row, restore_notes),)),
    ],
    ids=["request", "type number", "record", "section", "first section"],
)
def test_two_machines_may_not_claim_the_same(other: Machine) -> None:
    with pytest.raises(ValueError, match="two"):
        Registry((*WITH_NOTES.machines, other))
