"""Who has taken a shard over, as the journal says."""

import asyncio
from typing import Final

import structlog

from gateway.coordination.journal import stored_entries
from ledger.cluster.owners import Epoch
from ledger.cluster.records import OwnerChanged, OwnerDescribed
from ledger.errors import StoreError
from ledger.journal import Entry, decode_entry
from ledger.ports import Journal
from ledger.state import LedgerState

log = structlog.get_logger(__name__)

NAMING_S: Final = 5.0
"""A gateway that was replaced ends a little later to know by whom."""
ENTRIES: Final = 64
"""An owner's first entry is the one after the last that the gateway before it wrote."""


async def named_successor(journal: Journal, state: LedgerState) -> str:
    """The owner of the epoch after this state's, as it describes itself; empty if that cannot be read."""
    try:
        async with asyncio.timeout(NAMING_S):
            count = 0
            async for stored in stored_entries(journal, state.applied):
                epoch = _epoch_of(decode_entry(stored.data, stored.where))
                if epoch is not None and epoch.number > state.epoch:
                    return f"{epoch}, as of epoch {epoch.number} from entry {stored.number} on,"
                count += 1
                if count == ENTRIES:
                    break
    except (StoreError, TimeoutError) as error:
        log.info("shard.successor_unknown", shard=journal.shard, reason=str(error))
    return ""


def _epoch_of(entry: Entry) -> Epoch | None:
    """The epoch that an entry begins."""
    changed = next((record for record in entry.records if isinstance(record, OwnerChanged)), None)
    if changed is None:
        return None
    described = next((record for record in entry.records if isinstance(record, OwnerDescribed)), None)
    where = (described.host, described.address) if described is not None else ("", "")
    return Epoch(changed.epoch, changed.gateway, entry.time_ms, *where)
