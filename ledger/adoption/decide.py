"""Deciding adoptions."""

from typing import Final

from ledger.adoption.records import RunsAdopted, TopicAdoption
from ledger.adoption.requests import (
    DIGEST_BYTES,
    MAX_ADOPTED_PARTITIONS,
    MAX_ADOPTED_RUNS,
    MAX_PLACE_BYTES,
    Adopted,
    AdoptedSegment,
    Adopting,
    AdoptRuns,
    AdoptStep,
    AdoptTopic,
)
from ledger.adoption.state import Adoption, Adoptions, AdoptionsOfEntry
from ledger.batch.header import HEADER_BYTES
from ledger.errors import ErrorName
from ledger.keys import ADOPTED_SEPARATOR, adopted_locator
from ledger.machine import Decision
from ledger.objects.state import max_object_number
from ledger.overlay import Overlay
from ledger.partitions.state import PartitionLog
from ledger.records import LEVEL_WITH_ADOPTED, MAX_RECORDS_BYTES
from ledger.requests import Refused
from ledger.state import LedgerState
from ledger.swaps.requests import MAX_SEGMENT_BYTES, SEGMENT_HEAD_BYTES, SEGMENT_TRAILER_BYTES
from ledger.topics.records import TopicCreated
from ledger.topics.state import INTERNAL_TOPICS, Topic, check_topic_name
from ledger.types import ZERO_TOPIC_ID

CONFIGS: Final = {"retention.ms": "-1"}
"""Of a topic that is created: its records are older than the default, which would delete them at once."""
MAX_KEY_BYTES: Final = 600
_I64 = 2**63


def adopt_topic(state: LedgerState, overlay: Overlay, request: AdoptTopic, now_ms: int) -> Decision:
    if refused := _refused(state, request.place):
        return Decision(refused)
    if flaw := check_topic_name(request.name):
        return Decision(Refused(ErrorName.INVALID_TOPIC_EXCEPTION, flaw))
    if request.name in INTERNAL_TOPICS:
        reason = f"{request.name} is a topic of Kafka's own: leave it out"
        return Decision(Refused(ErrorName.INVALID_TOPIC_EXCEPTION, reason))
    if len(request.digest) != DIGEST_BYTES or not 1 <= request.partitions <= MAX_ADOPTED_PARTITIONS:
        reason = f"{request.partitions} partitions, of at most {MAX_ADOPTED_PARTITIONS:,}, or no digest"
        return Decision(Refused(ErrorName.INVALID_REQUEST, reason))
    if request.name in overlay.created:
        return Decision(_busy())
    known = state.topics.by_name.get(request.name)
    if known is None or known.topic_id in overlay.deleted:
        return _created(state, overlay, request)
    adoption = state.part(Adoptions).get(known.topic_id)
    if adoption is None:
        return _opened(overlay, request, known)
    if reason := _other_source(request, adoption):
        return Decision(Refused(ErrorName.TOPIC_ALREADY_EXISTS, reason))
    if not adoption.is_open or request.step is not AdoptStep.END:
        return Decision(Adopting(known.topic_id, adoption.is_open, not adoption.is_open))
    return Decision(
        Adopting(known.topic_id, is_open=False, has_ended=True),
        (TopicAdoption(known.topic_id, request.place, request.digest, is_open=False),),
    )


def _created(state: LedgerState, overlay: Overlay, request: AdoptTopic) -> Decision:
    if request.step is AdoptStep.END:
        return Decision(Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {request.name} is gone"))
    if (other := state.topics.collision(request.name)) is not None:
        reason = f"the topic {request.name} differs from the topic {other} in '.' and '_' alone"
        return Decision(Refused(ErrorName.INVALID_TOPIC_EXCEPTION, reason))
    if request.topic_id in state.topics.by_id or request.topic_id == ZERO_TOPIC_ID:
        return Decision(Refused(ErrorName.INVALID_REQUEST, "a topic needs an id of its own"))
    if request.step is AdoptStep.CHECK:
        return Decision(Adopting(request.topic_id, is_open=False))
    created = TopicCreated(
        request.topic_id, request.name, overlay.next_number, request.partitions, dict(CONFIGS)
    )
    overlay.next_number += request.partitions
    overlay.created.add(request.name)
    opened = TopicAdoption(request.topic_id, request.place, request.digest, is_open=True)
    return Decision(Adopting(request.topic_id, is_open=True), (created, opened))


def _opened(overlay: Overlay, request: AdoptTopic, topic: Topic) -> Decision:
    logs = [log for log in topic.partitions.made if log is not None]
    has_records = any(log.high_watermark or log.number in overlay.next_offset for log in logs)
    if has_records or request.step is AdoptStep.END:
        reason = f"the topic {request.name} has records of its own: delete it, or adopt into another ledger"
        return Decision(Refused(ErrorName.TOPIC_ALREADY_EXISTS, reason))
    if len(topic.partitions) < request.partitions:
        reason = (
            f"the topic {request.name} is there with {len(topic.partitions)} partitions, and "
            f"{request.partitions} are to be adopted: add partitions, or delete it, as it is empty"
        )
        return Decision(Refused(ErrorName.INVALID_PARTITIONS, reason))
    if request.step is AdoptStep.CHECK:
        return Decision(Adopting(topic.topic_id, is_open=False))
    overlay.part(AdoptionsOfEntry).opened.add(topic.topic_id)
    opened = TopicAdoption(topic.topic_id, request.place, request.digest, is_open=True)
    return Decision(Adopting(topic.topic_id, is_open=True), (opened,))


def adopt_runs(state: LedgerState, overlay: Overlay, request: AdoptRuns, now_ms: int) -> Decision:
    if refused := _refused(state, request.place):
        return Decision(refused)
    if flaw := _flaw(request):
        return Decision(Refused(ErrorName.INVALID_REQUEST, flaw))
    topic = state.topics.by_id.get(request.topic_id)
    is_there = topic is not None and request.topic_id not in overlay.deleted
    if topic is None or not is_there or not 0 <= request.partition < len(topic.partitions):
        return Decision(Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION))
    log = topic.partitions[request.partition]
    high_watermark = overlay.next_offset.get(log.number, log.high_watermark)
    if request.runs[-1].last < high_watermark:
        return Decision(Adopted(high_watermark, duplicate=True))
    adoption = state.part(Adoptions).get(request.topic_id)
    if adoption is None or not adoption.is_open or adoption.place != request.place:
        reason = f"the topic {topic.name} is not being adopted from {request.place}"
        return Decision(Refused(ErrorName.INVALID_REQUEST, reason))
    return _entered(state, overlay, request, log, high_watermark)


def _entered(
    state: LedgerState, overlay: Overlay, request: AdoptRuns, log: PartitionLog, high_watermark: int
) -> Decision:
    runs, segments = request.runs, request.segments
    if runs[0].base < high_watermark:
        reason = f"offsets from {runs[0].base} are below the high watermark {high_watermark}"
        return Decision(Refused(ErrorName.INVALID_REQUEST, reason))
    locators = [adopted_locator(request.topic_id, request.place, segment.key) for segment in segments]
    for locator in locators:
        # It may have lost its runs by now, and be forgotten by the next sweep.
        if locator in state.objects.by_locator or locator in overlay.object_bytes:
            reason = f"{locator} was entered before: all runs of a segment are entered by one request"
            return Decision(Refused(ErrorName.INVALID_REQUEST, reason))
    numbers = state.objects.next_number + overlay.new_objects + len(segments) - 1
    if numbers > max_object_number(state.feature_level):
        return Decision(Refused(ErrorName.KAFKA_STORAGE_ERROR, "all numbers of objects are used up"))
    overlay.next_offset[log.number] = runs[-1].last + 1
    overlay.new_objects += len(segments)
    overlay.object_bytes.update(
        (locator, segment.object_bytes) for locator, segment in zip(locators, segments, strict=True)
    )
    record = RunsAdopted(log.number, request.topic_id, request.place, segments, runs)
    return Decision(Adopted(runs[-1].last + 1), (record,))


def _refused(state: LedgerState, place: str) -> Refused | None:
    if state.feature_level < LEVEL_WITH_ADOPTED:
        return Refused(
            ErrorName.UNSUPPORTED_VERSION,
            f"the ledger has feature level {state.feature_level}, and adopted topics need level "
            f"{LEVEL_WITH_ADOPTED}: start the gateway once with ledger.feature_level = {LEVEL_WITH_ADOPTED}",
        )
    if not 0 < len(place.encode()) <= MAX_PLACE_BYTES or ADOPTED_SEPARATOR in place:
        return Refused(ErrorName.INVALID_REQUEST, "the URL of the bucket is none, or too long")
    return None


def _other_source(request: AdoptTopic, adoption: Adoption) -> str:
    """Why the adoption that is there is not the requested one; empty if it is."""
    name = request.name
    if adoption.place != request.place:
        return f"the topic {name} was adopted from {adoption.place}"
    if adoption.digest == request.digest:
        return ""
    changed = f"the bucket has other segments of the topic {name} than when its adoption began"
    if adoption.is_open:
        return (
            f"{changed}: stop what writes there, delete the topic, and adopt it again; its records are still "
            "in the bucket"
        )
    return f"{changed}, and that has ended: leave the topic out (--topics)"


def _busy() -> Refused:
    reason = "in the same journal entry a topic of this name is created: try again"
    return Refused(ErrorName.COORDINATOR_NOT_AVAILABLE, reason)


def _flaw(request: AdoptRuns) -> str:
    """What is wrong with it, whatever the ledger holds; else empty. All that passes can be journaled."""
    if not 1 <= len(request.segments) <= len(request.runs) <= MAX_ADOPTED_RUNS:
        return f"1 to {MAX_ADOPTED_RUNS:,} runs are entered, of as many segments at most"
    if request.weight > MAX_RECORDS_BYTES:
        return f"keys and runs of {request.weight:,} bytes, where an entry has room for {MAX_RECORDS_BYTES:,}"
    for segment in request.segments:
        if flaw := _segment_flaw(segment):
            return flaw
    if len({segment.key for segment in request.segments}) < len(request.segments):
        return "a segment is named twice"
    return _runs_flaw(request)


def _segment_flaw(segment: AdoptedSegment) -> str:
    is_key = segment.key.isascii() and 0 < len(segment.key) <= MAX_KEY_BYTES
    if not is_key or not segment.key.endswith(".kfs") or ADOPTED_SEPARATOR in segment.key:
        return "a key that no segment has"
    if not SEGMENT_HEAD_BYTES + SEGMENT_TRAILER_BYTES < segment.object_bytes <= MAX_SEGMENT_BYTES:
        return f"{segment.key} has {segment.object_bytes} bytes"
    return "" if 0 <= segment.created_ms < _I64 else f"{segment.key} has no time of creation"


def _runs_flaw(request: AdoptRuns) -> str:
    at, end, offset = -1, 0, 0
    for segment, start, size, base, last, max_timestamp in request.runs:
        if segment != at or segment < 0:
            if segment != at + 1 or segment >= len(request.segments):
                return "segments are not in the order of their runs"
            at, end = segment, SEGMENT_HEAD_BYTES
        if start < end or size < HEADER_BYTES:
            return f"the run at {start} of segment {at} is no run, or not after the one before"
        end = start + size
        if end > request.segments[at].object_bytes - SEGMENT_TRAILER_BYTES:
            return f"the run at {start} of segment {at} leaves the segment"
        if not offset <= base <= last < _I64 - 1:
            return f"offsets {base} to {last} of a run are not after those of the one before"
        if not -_I64 <= max_timestamp < _I64:
            return f"{max_timestamp} is no timestamp"
        offset = last + 1
    return "" if at == len(request.segments) - 1 else f"segment {at + 1} has no run"
