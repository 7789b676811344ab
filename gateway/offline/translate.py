"""Where the batch of one offset is, by the settled ledger that the journal names and the stores alone."""

from ledger.ports import SegmentStore
from ledger.settled.lookup import NotTranslated, SettledLookup, as_found, check_offset
from ledger.settled.requests import SettledFiles
from ledger.settled.state import SettledLedgers
from ledger.state import LedgerState


async def translate_offset(
    state: LedgerState, segments: SegmentStore, topic: str, partition: int, offset: int
) -> dict[str, object]:
    """What `dragoman ledger translate` prints. NotTranslated, ObjectGone; StoreDamaged, StoreTooNew,
    StoreUnavailable."""
    name, known = f"{topic}-{partition}", state.topics.by_name.get(topic)
    if known is None or not 0 <= partition < len(known.partitions):
        raise NotTranslated(f"there is no partition {name}; dragoman ledger show names all")
    log = known.partitions[partition]
    newest, files, high_watermark = state.part(SettledLedgers).get(log.number), None, 0
    if newest is not None:
        sizes = newest.log_bytes, newest.index_bytes, newest.meta_bytes
        files = SettledFiles(state.objects.locator(newest.object_number), *sizes)
        high_watermark = newest.high_watermark
    files = check_offset(name, files, high_watermark, log.log_start, offset)
    reading = SettledLookup(known.topic_id, partition, files, high_watermark).reading(offset)
    positions = next(reading)
    while True:
        data = await segments.read(positions)
        try:
            positions = reading.send(data)
        except StopIteration as end:
            return as_found(end.value, files, name, offset)
