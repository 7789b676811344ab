"""TakeSnapshot (20009) as a client sends and reads it (sans-I/O, as `pipeline/messages.py`)."""

from typing import NamedTuple

from pipeline.messages import Failure, end_request, read_failure
from pipeline.primitives import Reader, Writer


class TakenSnapshot(NamedTuple):
    """A snapshot of the ledger. `entry_time_ms`: of its last entry, or of one shortly after it. `hold` is
    empty, and `held_until_ms` 0, if none of the objects that it names is held."""

    key: str
    cluster_id: str
    entries: int
    entry_time_ms: int
    topics: int
    hold: str
    held_until_ms: int


def snapshot_request(place: str, hold_ms: int, timeout_ms: int) -> bytes:
    writer = Writer()
    writer.string(place)
    writer.int64(hold_ms)
    return end_request(writer, timeout_ms)


def snapshot_response(reader: Reader) -> tuple[Failure, TakenSnapshot]:
    reader.int32()
    failure = read_failure(reader)
    ids = reader.string(), reader.string()
    taken = TakenSnapshot(
        *ids, reader.int64(), reader.int64(), reader.int32(), reader.string(), reader.int64()
    )
    reader.tags()
    return failure, taken
