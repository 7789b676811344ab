"""Applying the metadata records of adoptions."""

from ledger.adoption.records import RunsAdopted, TopicAdoption
from ledger.adoption.requests import AdoptedSegment
from ledger.adoption.rows import ADOPTION
from ledger.adoption.state import Adoption, Adoptions
from ledger.keys import adopted_locator
from ledger.objects.rows import OBJECT
from ledger.objects.state import ADOPTED_STORE, ObjectState, Origin
from ledger.objects.uploads import ObjectKind
from ledger.partitions.apply import changing
from ledger.partitions.rows import PARTITION
from ledger.partitions.runs import Run
from ledger.state import LedgerState
from ledger.topics.records import TopicDeleted


def topic_adoption(state: LedgerState, record: TopicAdoption) -> None:
    state.part(Adoptions)[record.topic_id] = Adoption(record.place, record.digest, record.is_open)
    state.dirty[ADOPTION].add(record.topic_id)


def runs_adopted(state: LedgerState, record: RunsAdopted) -> None:
    log = changing(state, record.number)
    if not log.high_watermark:
        log.log_start = record.runs[0].base
    segments = [_register(state, record, segment) for segment in record.segments]
    for at, start, size, base, last, max_timestamp in record.runs:
        log.enter(Run(base, last, segments[at].number, start, size, max_timestamp, dense=False))
        segments[at].live_runs += 1
    state.touched[log.number] = log
    state.dirty[PARTITION].add(log.number)


def _register(state: LedgerState, record: RunsAdopted, segment: AdoptedSegment) -> ObjectState:
    origin = Origin(ObjectKind.SEGMENT, ADOPTED_STORE, segment.created_ms, None)
    locator = adopted_locator(record.topic_id, record.place, segment.key)
    stored = state.objects.register(locator, origin)
    stored.size = segment.object_bytes
    state.dirty[OBJECT].add(stored.number)
    return stored


def topic_deleted(state: LedgerState, record: TopicDeleted) -> None:
    if state.part(Adoptions).pop(record.topic_id, None) is not None:
        state.dirty[ADOPTION].add(record.topic_id)
