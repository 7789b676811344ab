"""Finds the batch of an offset by a settled ledger: what is read for that, and what it means (sans-I/O).

A settled ledger keeps none of the objects that it names: once their runs were merged or deleted they are
garbage, and are deleted after the grace. So the batch itself is read, which proves the answer.
"""

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple, TypeAlias

from ledger.batch.header import BatchError, verify_crc, walk
from ledger.errors import StoreDamaged
from ledger.formats.settled import HEAD_BYTES, SettledRun
from ledger.formats.settled_reader import find_run, read_block, read_head, read_index, read_table
from ledger.keys import settled_keys_of
from ledger.objects.uploads import ObjectKind
from ledger.settled.requests import SettledFiles
from ledger.types import Buffer, Position, TopicId

WRITE_NEW: Final = "write a new one with `dragoman compact ledger`"

Reading: TypeAlias = Generator[Sequence[Position], Sequence[Buffer | None], "FoundBatch | None"]
"""Yields what is to be read, and gets the bytes; None where object or range is not there."""


class ObjectGone(Exception):
    """The object that the settled ledger names is not there any more; one sentence says what to do."""


class FoundBatch(NamedTuple):
    """The batch that holds an offset: bytes [start, start + size) of the object."""

    run: SettledRun
    start: int
    size: int
    base: int
    last: int


class SettledLookup:
    """One offset of one partition."""

    def __init__(self, topic_id: TopicId, partition: int, files: SettledFiles, high_watermark: int) -> None:
        """As the journal has the settled ledger."""
        self._topic_id = topic_id
        self._partition = partition
        self._files = files
        self._high_watermark = high_watermark
        self._keys = settled_keys_of(files.locator)

    def reading(self, offset: int) -> Reading:
        """What is read in turn, and in the end the batch; None where no record has this offset. StoreDamaged
        if the settled ledger or the batch is not as it was written; StoreTooNew; ObjectGone."""
        run = yield from self._run(offset)
        if run is None:
            return None
        (data,) = yield [Position(run.locator, run.start, run.size)]
        if data is None:
            raise ObjectGone(
                f"{run.locator} is not there any more: the records of offsets {run.base} to {run.last} were "
                f"merged or deleted since {self._files.locator} was written; {WRITE_NEW}"
            )
        return _batch_of(run, data, offset)

    def _run(self, offset: int) -> Generator[Sequence[Position], Sequence[Buffer | None], SettledRun | None]:
        log, index_key = self._keys.log_key, self._keys.index_key
        data = yield [Position(log, 0, HEAD_BYTES), Position(index_key, 0, self._files.index_bytes)]
        head = read_head(_there(data[0], log), log)
        index = read_index(_there(data[1], index_key), index_key)
        about = self._topic_id, self._partition, self._high_watermark
        if (head.partition.topic_id, head.partition.partition, head.partition.high_watermark) != about:
            raise StoreDamaged(
                f"{log} is damaged: it is of something else than the journal says; {WRITE_NEW}"
            )
        if index.log_bytes != self._files.log_bytes:
            raise StoreDamaged(
                f"{index_key} is damaged: it is of a .log of {index.log_bytes} bytes, and the journal says "
                f"{self._files.log_bytes}; {WRITE_NEW}"
            )
        place = index.block_of(offset)
        if place is None:
            return None
        data = yield [Position(log, HEAD_BYTES, head.table_bytes), Position(log, *place)]
        table = read_table(_there(data[0], log), head, log)
        return find_run(read_block(_there(data[1], log), table, log), offset)


def _there(data: Buffer | None, key: str) -> Buffer:
    if data is None:
        raise StoreDamaged(f"{key} is missing or cut short; {WRITE_NEW}")
    return data


def _batch_of(run: SettledRun, data: Buffer, offset: int) -> FoundBatch | None:
    """Of a run that holds the offset, with its bytes. None in a gap, which a run of a segment may have."""
    view, following = memoryview(data), run.base
    where = f"{run.locator} at byte {run.start}"
    try:
        for batch in walk(view):
            base = batch.base_offset if run.kind == ObjectKind.SEGMENT else following
            if offset < base:
                return None
            following = base + batch.last_offset_delta + 1
            if base <= offset < following:
                if not verify_crc(view[batch.position : batch.position + batch.size_bytes]):
                    raise StoreDamaged(
                        f"{where} is damaged: the batch of offset {offset} does not match its CRC; "
                        "`dragoman audit` names all damages"
                    )
                start = run.start + batch.position
                return FoundBatch(run, start, batch.size_bytes, base, following - 1)
    except BatchError as error:
        raise StoreDamaged(
            f"{where} is damaged: {error.reason}; `dragoman audit` names all damages"
        ) from None
    raise StoreDamaged(
        f"{where} is damaged: no batch has offset {offset}; `dragoman audit` names all damages"
    )


class NotTranslated(Exception):
    """The settled ledger cannot say where the offset is; one sentence says why and what helps."""


def check_offset(
    name: str, files: SettledFiles | None, high_watermark: int, log_start: int, offset: int
) -> SettledFiles:
    """The settled ledger that has the offset, if one has. `name`: of the partition; `log_start`: as it is
    now. NotTranslated."""
    if offset < 0:
        raise NotTranslated(f"offsets are numbered from 0 on, and {offset} is below")
    if offset < log_start:
        raise NotTranslated(
            f"offset {offset} is below the log start offset {log_start} of {name}: its record was deleted"
        )
    if files is None:
        raise NotTranslated(f"{name} has no settled ledger: write one with `dragoman compact ledger`")
    if offset >= high_watermark:
        raise NotTranslated(
            f"the newest settled ledger of {name} has the offsets below {high_watermark}, and {offset} is "
            f"newer: {WRITE_NEW}"
        )
    return files


def as_found(found: FoundBatch | None, files: SettledFiles, name: str, offset: int) -> dict[str, object]:
    """What the command prints. NotTranslated where no record has this offset."""
    if found is None:
        raise NotTranslated(f"no record of {name} has offset {offset}: offsets may have gaps")
    run = found.run
    return {
        "offset": offset,
        "object": run.locator,
        "kind": ObjectKind(run.kind).name.lower(),
        "start": found.start,
        "size": found.size,
        "base_offset": found.base,
        "last_offset": found.last,
        "run_start": run.start,
        "run_size": run.size,
        "settled": files.locator,
    }
