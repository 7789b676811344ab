"""Deciding what concerns offsets, runs and producers, but for commits (`ledger/partitions/commit.py`)."""

from ledger.errors import ErrorName
from ledger.machine import Decision
from ledger.overlay import Overlay
from ledger.partitions.producers import SILENT_MS
from ledger.partitions.records import ProducerIdsReserved, ProducersExpired, RecordsDeleted, RunsDropped
from ledger.partitions.requests import (
    DeleteRecords,
    DrainRuns,
    ExpireProducers,
    ForgetProducers,
    LowWatermark,
    Reserved,
    ReserveProducerIds,
)
from ledger.requests import Done, Refused
from ledger.state import LedgerState

HIGH_WATERMARK = -1
MAX_DRAINED = 500
"""Partitions that lose runs by one request."""


def delete_records(state: LedgerState, overlay: Overlay, request: DeleteRecords, now_ms: int) -> Decision:
    topic = state.topics.by_id.get(request.topic_id)
    if topic is None or request.topic_id in overlay.deleted:
        return Decision(Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION))
    if not 0 <= request.partition < len(topic.partitions):
        return Decision(Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION))
    log = topic.partitions[request.partition]
    offset = log.high_watermark if request.offset == HIGH_WATERMARK else request.offset
    if not 0 <= offset <= log.high_watermark:
        return Decision(Refused(ErrorName.OFFSET_OUT_OF_RANGE))
    log_start = overlay.log_start.get(log.number, log.log_start)
    if offset <= log_start:
        return Decision(LowWatermark(log_start))
    overlay.log_start[log.number] = offset
    return Decision(LowWatermark(offset), (RecordsDeleted(log.number, offset),))


def reserve_producer_ids(
    state: LedgerState, overlay: Overlay, request: ReserveProducerIds, now_ms: int
) -> Decision:
    first = overlay.next_producer_id
    overlay.next_producer_id += request.count
    return Decision(Reserved(first, request.count), (ProducerIdsReserved(overlay.next_producer_id),))


def drain_runs(state: LedgerState, overlay: Overlay, request: DrainRuns, now_ms: int) -> Decision:
    left = request.limit
    records: list[RunsDropped] = []
    for number, log in state.draining.items():
        if left == 0 or len(records) == MAX_DRAINED:
            break
        if number in overlay.dropped or number in overlay.swapped:
            continue
        count = log.droppable(left)
        if count:
            overlay.dropped.add(number)
            overlay.touched_objects.update(log.first_objects(count))
            records.append(RunsDropped(number, count))
            left -= count
    return Decision(Done(request.limit - left), records)


def expire_producers(state: LedgerState, overlay: Overlay, request: ExpireProducers, now_ms: int) -> Decision:
    pairs: list[tuple[int, int]] = []
    for number in request.partitions:
        if len(pairs) == request.limit:
            break
        log = state.logs.get(number)
        if log is None:
            continue
        for producer_id, producer in log.producers.items():
            if len(pairs) == request.limit:
                break
            if producer_id in log.isolation.open:
                continue
            if request.has_expired(producer.last_ms) and (number, producer_id) not in overlay.producers:
                pairs.append((number, producer_id))
    return Decision(Done(len(pairs)), (ProducersExpired(pairs),) if pairs else ())


def forget_producers(state: LedgerState, overlay: Overlay, request: ForgetProducers, now_ms: int) -> Decision:
    pairs = [pair for pair in request.pairs if _is_silent(state, overlay, pair, now_ms)]
    return Decision(Done(len(pairs)), (ProducersExpired(pairs),) if pairs else ())


def _is_silent(state: LedgerState, overlay: Overlay, pair: tuple[int, int], now_ms: int) -> bool:
    number, producer_id = pair
    log = state.logs.get(number)
    if log is None or producer_id in log.isolation.open:
        return False
    producer = log.producers.get(producer_id)
    return producer is not None and producer.last_ms <= now_ms - SILENT_MS and pair not in overlay.producers
