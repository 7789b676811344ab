"""The settled ledger of a partition: its three files are there, as long as the journal says, and each byte of
`.log` and `.index` is right. What runs it names is not compared: those may be merged or deleted by now.

It is held whole while it is checked: some 20 bytes for each run that its partition had.
"""

from collections import deque

from ledger.auditing.damages import Damage, DamageKind, Place, Report
from ledger.auditing.frames import PIECE_BYTES, Reading
from ledger.errors import StoreDamaged
from ledger.formats.settled_meta import decode_meta
from ledger.formats.settled_reader import read_head, verify_settled
from ledger.keys import settled_keys_of
from ledger.settled.state import SettledLedger
from ledger.types import Position

REMEDY = "no record is lost by this; write a new one with `dragoman compact ledger`"


def check_settled(place: Place, locator: str, known: SettledLedger, report: Report) -> Reading[None]:
    """`locator`: that of its `.log`. StoreTooNew if this build cannot read it."""
    keys = settled_keys_of(locator)

    def damaged(key: str, what: str) -> None:
        report(Damage(DamageKind.SETTLED_LEDGER, what, REMEDY, place.topic, place.partition, object=key))

    found: list[bytes] = []
    sizes = known.log_bytes, known.index_bytes, known.meta_bytes
    for key, size in zip(keys, sizes, strict=True):
        data = yield from _whole(key, size)
        if data is None:
            damaged(key, f"it is not there, or does not have the {size} bytes that the journal says")
            return
        found.append(data)
    log, index, meta = found
    try:
        deque(verify_settled(log, index, locator), maxlen=0)
        decode_meta(meta, keys.meta_key)
        about = read_head(log, locator).partition
    except StoreDamaged as error:
        damaged(locator, str(error))
        return
    if (about.topic_id, about.partition) != (place.topic_id, place.partition):
        damaged(locator, "it is of another partition")


def _whole(key: str, size: int) -> Reading[bytes | None]:
    """None if the store does not have all of it."""
    parts = bytearray()
    while len(parts) < size:
        data = yield Position(key, len(parts), min(PIECE_BYTES, size - len(parts)))
        if data is None:
            return None
        parts += data
    return bytes(parts)
