"""Damages that an audit must find, each with how it is made and what is said of it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tests.support.audited import OBJECTS, RECORDS, AuditedLedger

Damage = Mapping[str, Any]
Seed = Callable[[AuditedLedger], Awaitable[object]]


async def make_overlap(ledger: AuditedLedger) -> None:
    await ledger.commit_lying(base_change=-2)


async def make_gap(ledger: AuditedLedger) -> None:
    await ledger.commit_lying(base_change=5)


async def make_wrong_count(ledger: AuditedLedger) -> None:
    await ledger.commit_lying(last_change=1)


async def make_stale_entry(ledger: AuditedLedger) -> None:
    await ledger.append([], epoch=0)


HELD = OBJECTS * RECORDS
"""Records of each partition."""
SECOND = {"partition": 1, "offset": RECORDS, "last_offset": 2 * RECORDS - 1}
DAMAGES: Mapping[str, tuple[Seed, Damage]] = {
    "flipped byte": (AuditedLedger.flip_byte, {"kind": "damaged batch", "topic": "orders", **SECOND}),
    "missing object": (
        AuditedLedger.remove_object,
        {"kind": "missing object", "topic": "orders", **SECOND},
    ),
    "short object": (AuditedLedger.cut_object, {"kind": "short object", "topic": "orders", **SECOND}),
    "overlap": (
        make_overlap,
        {"kind": "overlap", "topic": "orders", "partition": 0, "offset": HELD - 2, "last_offset": HELD + 1},
    ),
    "gap": (
        make_gap,
        {"kind": "gap", "topic": "orders", "partition": 0, "offset": HELD, "last_offset": HELD + 4},
    ),
    "short index": (AuditedLedger.cut_index, {"kind": "damaged index"}),
    "stray object": (AuditedLedger.strayed, {"kind": "stray object", "topic": None}),
    "wrong count": (
        make_wrong_count,
        {"kind": "wrong count", "topic": "orders", "partition": 0, "offset": HELD},
    ),
    "stale owner": (make_stale_entry, {"kind": "stale owner"}),
}
