"""Rows of images, changed on purpose."""

import random
import sqlite3
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from ledger.rows import META, Row, sealed

_CRC_BYTES = 4


def body(row: Row) -> bytes:
    """The value without its checksum."""
    assert row.value is not None
    return row.value[:-_CRC_BYTES]


def resealed(row: Row, change: Callable[[bytes], bytes]) -> Row:
    """Changed, with the checksum that goes with it: as a bug would write it, not as a disk damages it."""
    return sealed(row.section, row.key, change(body(row)))


def of_version(rows: Sequence[Row], version: int) -> list[Row]:
    """As a build wrote them that knew no checksums."""
    head = struct.pack(">H", version)
    return [row._replace(value=head + body(row)[2:] if row.section == META else body(row)) for row in rows]


def flipped(row: Row, bit: int) -> Row:
    """One bit of the key and the value is another."""
    assert row.value is not None
    both = bytearray(row.key + row.value)
    both[bit // 8] ^= 1 << bit % 8
    return row._replace(key=bytes(both[: len(row.key)]), value=bytes(both[len(row.key) :]))


def with_any_bit_flipped(rows: Sequence[Row], dice: random.Random) -> list[Row]:
    """Every bit of a key or value is as likely as any other."""
    bits = [8 * (len(row.key) + len(row.value or b"")) for row in rows]
    (at,) = dice.choices(range(len(rows)), bits)
    return [*rows[:at], flipped(rows[at], dice.randrange(bits[at])), *rows[at + 1 :]]


def rewrite_image(path: Path, change: Callable[[list[Row]], Sequence[Row]]) -> None:
    """Put other rows into the file of an image; of two with one key, the later one."""
    with sqlite3.connect(path) as db:
        rows = [Row(*row) for row in db.execute("SELECT section, key, value FROM rows")]
        db.execute("DELETE FROM rows")
        db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", change(rows))
    db.close()
