"""Deciding whether a settled ledger becomes the newest one of its partition."""

from typing import Final

from ledger.errors import ErrorName
from ledger.formats.settled import HEAD_BYTES, INDEX_HEAD_BYTES, TRAILER_BYTES
from ledger.keys import created_ms, settled_name
from ledger.machine import Decision
from ledger.objects.state import max_object_number
from ledger.overlay import Overlay
from ledger.partitions.state import PartitionLog
from ledger.records import LEVEL_WITH_SETTLED
from ledger.requests import Refused
from ledger.settled.records import SettledNamed
from ledger.settled.requests import Named, NameSettled
from ledger.settled.state import SettledLedger, SettledLedgers, SettledOfEntry
from ledger.state import LedgerState
from ledger.swaps.requests import JOB_BYTES
from ledger.swaps.state import Pin, Pins, SwapsOfEntry

_I32: Final = 2**31
_I64: Final = 2**63
_NO_PIN: Final = (
    "the job has no such pin: it has expired, or the ledger was restored or moved meanwhile; begin again"
)


def name_settled(state: LedgerState, overlay: Overlay, request: NameSettled, now_ms: int) -> Decision:
    found = _find(state, overlay, request)
    if isinstance(found, Refused):
        return Decision(found)
    present = state.part(SettledLedgers).get(found.number)
    of_entry = overlay.part(SettledOfEntry)
    if present is not None and _is_repeat(state, present, request):
        return Decision(Named(duplicate=True))
    pin = _pin_of(state, overlay, request.job)
    if pin is None or pin.entry != request.entry:
        return Decision(Refused(ErrorName.UNKNOWN_MEMBER_ID, _NO_PIN))
    if present is not None and present.age > (request.high_watermark, request.entry):
        reason = (
            f"there is a newer one, with offsets below {present.high_watermark} as of entry {present.entry}"
        )
        return Decision(Refused(ErrorName.INVALID_UPDATE_VERSION, reason))
    if refused := _object_refused(state, overlay, request, pin):
        return Decision(refused)
    of_entry.partitions.add(found.number)
    overlay.new_objects += 1
    overlay.object_bytes[request.files.locator] = request.files.log_bytes
    as_of = request.entry, request.high_watermark, request.layout_version
    record = SettledNamed(found.number, request.job, request.attempt, request.files, *as_of)
    return Decision(Named(), (record,))


def _is_repeat(state: LedgerState, present: SettledLedger, request: NameSettled) -> bool:
    of_job = present.job, present.attempt, state.objects.locator(present.object_number)
    return of_job == (request.job, request.attempt, request.files.locator)


def _find(state: LedgerState, overlay: Overlay, request: NameSettled) -> Refused | PartitionLog:
    if state.feature_level < LEVEL_WITH_SETTLED:
        return Refused(
            ErrorName.UNSUPPORTED_VERSION,
            f"the ledger has feature level {state.feature_level}, and settled ledgers need level "
            f"{LEVEL_WITH_SETTLED}: start the gateway once with ledger.feature_level = {LEVEL_WITH_SETTLED}",
        )
    if flaw := _flaw(request):
        return Refused(ErrorName.INVALID_REQUEST, flaw)
    topic = state.topics.by_id.get(request.topic_id)
    is_there = topic is not None and request.topic_id not in overlay.deleted
    if topic is None or not is_there or not request.partition < len(topic.partitions):
        return Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)
    log = topic.partitions[request.partition]
    if request.high_watermark > log.high_watermark:
        reason = f"offsets below {request.high_watermark}, where the partition has {log.high_watermark}"
        return Refused(ErrorName.INVALID_REQUEST, reason)
    if log.number in overlay.part(SettledOfEntry).partitions:
        return Refused(
            ErrorName.COORDINATOR_NOT_AVAILABLE, "another one is named in the same journal entry: try again"
        )
    return log


def _pin_of(state: LedgerState, overlay: Overlay, job: bytes) -> Pin | None:
    decided = overlay.part(SwapsOfEntry).pins
    return decided[job] if job in decided else state.part(Pins).get(job)


def _object_refused(state: LedgerState, overlay: Overlay, request: NameSettled, pin: Pin) -> Refused | None:
    locator = request.files.locator
    if locator in state.objects.by_locator or locator in overlay.object_bytes:
        return Refused(ErrorName.INVALID_REQUEST, f"{locator} was named before: keys are never used again")
    # No floor passes a pin, so the sweep may not have deleted it.
    if created_ms(locator) < pin.started_ms:
        reason = f"{locator} is older than the pin of its job: write it again under a new key"
        return Refused(ErrorName.KAFKA_STORAGE_ERROR, reason)
    if state.objects.next_number + overlay.new_objects > max_object_number(state.feature_level):
        return Refused(ErrorName.KAFKA_STORAGE_ERROR, "all numbers of objects are used up")
    return None


def _flaw(request: NameSettled) -> str:
    """What is wrong with it, whatever the ledger holds; else empty. All that passes can be journaled."""
    if len(request.job) != JOB_BYTES or not -_I32 <= request.attempt < _I32:
        return f"a job has an id of {JOB_BYTES} bytes, and attempts of 32 bits"
    locator, log_bytes, index_bytes, meta_bytes = request.files
    name = settled_name(locator)
    if name is None or (name.topic_id, name.partition) != (request.topic_id, request.partition):
        return f"{locator!r} is no key of a settled ledger of this partition"
    are_files = (
        HEAD_BYTES + TRAILER_BYTES <= log_bytes < _I64
        and INDEX_HEAD_BYTES <= index_bytes < _I64
        and 0 < meta_bytes < _I64
    )
    if not are_files:
        return f"{locator} has files of {log_bytes}, {index_bytes} and {meta_bytes} bytes"
    numbers = request.high_watermark, request.entry, request.layout_version
    if request.partition < 0 or not all(0 <= number < _I64 for number in numbers):
        return "a number that is below 0, or too large"
    if not request.high_watermark:
        return "a partition that never had a record has no settled ledger"
    return ""
