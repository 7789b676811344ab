"""Which entries of which files make up the local log, from their headers (sans-I/O).

A gateway begins a new file at its start, when a file is full, and after a write that failed: then it is
unknown whether the last frame is there. The header of the new file says with which entry the log goes on, and
after which seal. It is durable before anything else is said of that entry. So of every earlier file only
entries below it count, whatever else can be read there.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ledger.errors import StoreDamaged
from ledger.formats.local_log import LogHeader
from ledger.journal import REMEDY

NO_END = 2**63 - 1


class LogBeginning(NamedTuple):
    """What the first file of a log goes on after: entries before `number` are elsewhere, the last of them has
    this nonce."""

    number: int
    nonce: bytes
    cluster_id: bytes


class LogPart(NamedTuple):
    """The entries [header.first_entry, end) of a file count; `end` is NO_END for the newest one."""

    header: LogHeader
    end: int


def parts_of(headers: Iterable[LogHeader]) -> Sequence[LogPart]:
    """The files that have entries which count, oldest first. StoreDamaged for two files with one sequence, or
    files of different ledgers."""
    newest_first = sorted(headers, key=lambda header: header.sequence, reverse=True)
    _verify(newest_first)
    parts: list[LogPart] = []
    end = NO_END
    for header in newest_first:
        if header.first_entry < end:
            parts.append(LogPart(header, end))
            end = header.first_entry
    return parts[::-1]


def _verify(newest_first: Sequence[LogHeader]) -> None:
    for newer, older in pairwise(newest_first):
        if newer.sequence == older.sequence:
            raise StoreDamaged(f"two files of the local log have the sequence {newer.sequence}; {REMEDY}")
    if len({(header.cluster_id, header.shard) for header in newest_first}) > 1:
        raise StoreDamaged(f"files of different ledgers are in one local log; {REMEDY}")
