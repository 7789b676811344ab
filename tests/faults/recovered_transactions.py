"""What a data directory has of transactions, as a starting gateway finds it, held against their history."""

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from gateway.coordination.shard import Shard
from ledger.batch.header import BatchHeader
from ledger.errors import StoreError
from ledger.partitions.state import PartitionLog
from ledger.ports import SegmentStore
from ledger.transactions.requests import InitTransactionalId, ProducerEpoch
from tests.faults.load import Found
from tests.faults.recovered import Opened, owned, written_records
from tests.support.transactional_history import Place, Read, TransactionalHistory

TIMEOUT_MS: Final = 60_000
WAIT_S: Final = 20.0


async def problems_of_directory(
    data_dir: Path, history: TransactionalHistory, topic: str, names: Collection[str]
) -> list[str]:
    """As `problems_of_shard`, and what is damaged. No other process has the directory."""
    try:
        async with owned(data_dir) as (shard, stores):
            return await problems_of_shard(shard, stores.segments, history, topic, names)
    except StoreError as error:
        return [f"{error}"]


async def problems_of_shard(
    shard: Shard,
    segments: SegmentStore,
    history: TransactionalHistory,
    topic: str,
    names: Collection[str],
) -> list[str]:
    """The producers of these transactional ids start again, which aborts what they had open; each commits the
    offsets of a group of its name. Empty: all is well. Errors: StoreError."""
    if topic not in shard.state.topics.by_name:
        return [f"topic {topic} is lost"]
    await _start_again(shard, names)
    everything: dict[Place, list[Read]] = {}
    committed: dict[Place, list[Read]] = {}
    for log in shard.state.topics.by_name[topic].partitions:
        if log.last_stable != log.high_watermark:
            history.complain(f"the last stable offset {log.last_stable} of {log.index} is stuck")
        found = await written_records(Opened(shard.state, segments), log)
        everything[topic, log.index] = [_read(one) for one, _ in found]
        committed[topic, log.index] = [_read(one) for one, head in found if _is_seen(log, one, head)]
    offsets = {
        name: held.offset for name in names for held in shard.state.groups.offsets.get(name, {}).values()
    }
    history.compare(everything, committed, offsets)
    return history.wrong


async def _start_again(shard: Shard, names: Iterable[str]) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT_S
    for name in names:
        begun = await shard.ask(InitTransactionalId(name, TIMEOUT_MS), deadline)
        assert isinstance(begun, ProducerEpoch)


def _read(found: Found) -> Read:
    return Read(found.offset, found.value)


def _is_seen(log: PartitionLog, found: Found, header: BatchHeader) -> bool:
    """By readers of committed records, once no transaction is open."""
    return not any(
        aborted.producer_id == header.producer_id and aborted.first <= found.offset < aborted.last
        for aborted in log.isolation.aborted
    )
