"""The aborted transactions of a partition against its markers: each ends at a marker of its producer that
aborts, which is a run of its own, or in a segment after a merge.

The reverse does not hold: a marker that aborts may have no aborted transaction, as a transaction may have
added a partition into which it wrote nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ledger.auditing.damages import REPORT, RESTORE_METADATA, Damage, DamageKind, Place
from ledger.batch.control import MarkerType, read_marker
from ledger.batch.header import BatchError, BatchHeader
from ledger.partitions.aborted import AbortedTransaction
from ledger.partitions.markers import is_marker, marker_of
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.types import Buffer

MAX_MARKER_BYTES: Final = 4096
"""Of the batch of a marker; it has 78 bytes."""
REMEDY: Final = f"{RESTORE_METADATA}; {REPORT}"


class MergedMarker(NamedTuple):
    """A marker that must be in a segment: it aborts the transaction of this producer. `number` is that of its
    partition."""

    number: int
    offset: int
    producer_id: int
    first: int
    """The first offset of the transaction."""


def markers_in_runs(log: PartitionLog) -> int:
    """How many offsets from the log start offset on are markers that no segment has yet."""
    return sum(1 for run in log.runs() if run.last >= log.log_start and is_marker(run))


def merged_markers(log: PartitionLog, base: int, last: int) -> Iterator[MergedMarker]:
    """Those that a run of a segment with these offsets must have; none below the log start offset."""
    for found in log.isolation.aborted.since(max(base, log.log_start)):
        if found.last > last:
            return
        yield MergedMarker(log.number, found.last, found.producer_id, found.first)


def check_transactions(place: Place, log: PartitionLog) -> Iterator[Damage]:
    """Damages of what the ledger says of transactions in a partition. Nothing is read."""
    if log.isolation.is_empty:
        return
    found = list(_check_ends(place, log))
    # With a wrong first offset the stable ones only seem wrong.
    yield from found or _check_stable_offsets(place, log)


def _check_ends(place: Place, log: PartitionLog) -> Iterator[Damage]:
    """Each that was aborted has its marker, and none before it; each that is open has none after it."""
    aborted = [each for each in log.isolation.aborted if each.last >= log.log_start]
    ended: dict[int, int] = {}
    """By producer: where its last transaction ended that has been seen."""
    at = 0
    for run in log.runs_from(log.log_start):
        while at < len(aborted) and aborted[at].last <= run.last:
            transaction = aborted[at]
            if transaction.last >= run.base:
                yield from _check_end(place, transaction, run)
                yield from _check_first(place, transaction, ended)
            ended[transaction.producer_id] = transaction.last
            at += 1
        if is_marker(run):
            ended[marker_of(run).producer_id] = run.base
    for producer_id, first in log.isolation.open.items():
        if ended.get(producer_id, first) > first:
            what = (
                f"the ledger has a transaction of producer {producer_id} open from here on, which ended at "
                f"offset {ended[producer_id]}"
            )
            yield _damage(place, what, first, ended[producer_id])


def _check_stable_offsets(place: Place, log: PartitionLog) -> Iterator[Damage]:
    """A reader of committed records that ends below the last stable offset of an aborted transaction learns
    of no later one: so this may not be above the first record of one that was open then."""
    bound = min(log.isolation.open.values(), default=log.high_watermark)
    for transaction in reversed(log.isolation.aborted):
        if transaction.last >= log.log_start and transaction.last_stable > min(bound, transaction.last + 1):
            what = (
                f"the last stable offset after {_in_words(transaction)} is {transaction.last_stable} in the "
                f"ledger, but at most {min(bound, transaction.last + 1)}"
            )
            yield _damage(place, what, transaction.last, transaction.last)
        bound = min(bound, transaction.first)


def _check_end(place: Place, transaction: AbortedTransaction, run: Run) -> Iterator[Damage]:
    """`run`: has the offset of the marker."""
    found = ""
    if is_marker(run):
        marker = marker_of(run)
        found = _otherwise(transaction.producer_id, marker.type, marker.producer_id)
    elif run.dense:
        found = "records"
    if found:
        what = f"{_in_words(transaction)} ends here, where the ledger has {found}"
        yield _damage(place, what, transaction.last, transaction.last)


def _check_first(place: Place, transaction: AbortedTransaction, ended: dict[int, int]) -> Iterator[Damage]:
    before = ended.get(transaction.producer_id, -1)
    if before >= transaction.first:
        what = f"{_in_words(transaction)} is in the ledger, and this producer ended one at offset {before}"
        yield _damage(place, what, transaction.first, transaction.last)


def by_partition(markers: Iterable[MergedMarker]) -> dict[int, list[MergedMarker]]:
    """In the same order, by the number of their partition."""
    found: dict[int, list[MergedMarker]] = {}
    for marker in markers:
        found.setdefault(marker.number, []).append(marker)
    return found


class MarkerCheck:
    """Compares the batches of one run of a segment, in their order, with the markers that it must have."""

    def __init__(self, markers: Sequence[MergedMarker]) -> None:
        self._left = list(reversed(markers))

    def skip(self, last: int) -> None:
        """Nothing is known of the batches up to this offset."""
        while self._left and self._left[-1].offset <= last:
            self._left.pop()

    def batch(self, header: BatchHeader) -> tuple[MergedMarker | None, str]:
        """Of a batch that matches its CRC: the marker that it may be, of which the bytes say the rest; and
        what is wrong, if it cannot be that."""
        self.skip(header.base_offset - 1)
        if not self._left or self._left[-1].offset > header.last_offset:
            return None, ""
        marker = self._left[-1]
        self.skip(header.last_offset)
        is_marker_like = header.is_control and header.size_bytes <= MAX_MARKER_BYTES
        return marker, "" if is_marker_like else _missing(marker, "records")


def flaw_of_marker(marker: MergedMarker, batch: Buffer) -> str:
    """What is wrong with the batch at the offset of a marker; else empty."""
    try:
        found = read_marker(memoryview(batch))
    except BatchError as error:
        return _missing(marker, f"a control batch that cannot be read ({error.reason})")
    otherwise = _otherwise(marker.producer_id, found.type, found.producer_id)
    return _missing(marker, otherwise) if otherwise else ""


def _missing(marker: MergedMarker, found: str) -> str:
    return f"{_named(marker.producer_id, marker.first)} ends here, where the segment has {found}"


def _otherwise(producer_id: int, kind: MarkerType, found_id: int) -> str:
    """What a marker is, unless it aborts a transaction of this producer."""
    if kind is MarkerType.ABORT and found_id == producer_id:
        return ""
    does = "aborts" if kind is MarkerType.ABORT else "commits"
    return f"a marker that {does} a transaction of producer {found_id}"


def _in_words(transaction: AbortedTransaction) -> str:
    return _named(transaction.producer_id, transaction.first)


def _named(producer_id: int, first: int) -> str:
    return f"the aborted transaction of producer {producer_id} from offset {first} on"


def _damage(place: Place, what: str, first: int, last: int) -> Damage:
    return Damage(DamageKind.TRANSACTION, what, REMEDY, place.topic, place.partition, first, last)
