"""Taking a shard over again after its epoch was lost: the newest state, then an epoch and its claim.

Others may have pruned what this gateway has not applied. Then it begins again with the newest snapshot, as a
gateway that joins does (docs/decisions/0020).
"""

import structlog

from gateway.coordination.claim import claim_data, verify_data
from gateway.coordination.journal import PrunedMeanwhile
from gateway.coordination.recovery import recover
from gateway.coordination.shard import Shard
from ledger.ports import Blobs

log = structlog.get_logger(__name__)


async def take_over(
    shard: Shard, blobs: Blobs, gateway: int, deadline: float, *, is_lasting: bool = True
) -> None:
    """Begin another epoch with all applied that others have written since, and claim the data as a start
    does; a journal that is not kept (not `is_lasting`) claims nothing. Raises as `recover`, `verify_data` and
    `Shard.begin_again`; nothing of that is final but StoreDamaged, StoreTooNew and StoreLocked."""
    async with shard.taking_over:
        shard.check_lost()
        await catch_up(shard, blobs)
        await verify_data(shard.journal, blobs, shard.state)

        async def claim() -> None:
            await claim_data(shard, blobs, is_lasting=is_lasting)

        await shard.begin_again(gateway, deadline, claim)


async def catch_up(shard: Shard, blobs: Blobs) -> None:
    """Apply what the journal has after the last entry applied, or take the state from a snapshot: also where
    an entry was applied in part before."""
    replica, journal = shard.replica, shard.journal
    reason = f"entry {replica.state.applied} was applied in part"
    if replica.state.is_whole:
        try:
            await replica.follow(journal)
        except PrunedMeanwhile as error:
            reason = str(error)
        else:
            return
    log.info("shard.begins_with_a_snapshot", entries=replica.state.applied, reason=reason)
    recovered = await recover(journal, None, blobs)
    await replica.replace(recovered.state, recovered.nonce, recovered.journal_bytes)
