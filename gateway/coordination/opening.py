"""From opened stores to a shard that this gateway owns."""

import asyncio
import base64
from collections.abc import Awaitable, Callable

import structlog

from gateway.coordination.commit_delay import CommitDelay
from gateway.coordination.damping import Damping
from gateway.coordination.journal import PrunedMeanwhile
from gateway.coordination.recovery import Recovered, recover
from gateway.coordination.shard import Shard
from gateway.host import RandomBytes, random_bytes, uuid4_of
from ledger.cluster.requests import Description
from ledger.ports import Blobs, ImageStore, Journal
from ledger.records import NEWEST_LEVEL
from ledger.state import LedgerState

log = structlog.get_logger()

OPEN_SECONDS = 30.0


async def open_shard(  # noqa: PLR0913 - the stores of a gateway
    journal: Journal,
    blobs: Blobs | None,
    image: ImageStore | None,
    node_id: int,
    clock: Callable[[], int],
    commit_delay: CommitDelay | None = None,
    verify: Callable[[LedgerState], Awaitable[None]] | None = None,
    elapsed: Callable[[], int] | None = None,
    feature_level: int = 0,
    random: RandomBytes = random_bytes,
    described: Description | None = None,
    damping: Damping | None = None,
    *,
    yields: bool = False,
) -> Shard:
    """Recover the shard's state and begin a new epoch. The caller closes the shard before the stores.

    `clock` gives unix ms, `elapsed` ms on a monotonic clock. `verify` may refuse the recovered state
    before anything is written. `feature_level` and `described`: see `BecomeOwner`. `damping` may wait before.
    `yields`: as `Shard.start` has it. Ids and nonces are from `random`. Raises StoreDamaged, StoreLocked,
    StoreTooNew, StoreUnavailable with one sentence each.
    """
    recovered = await _recovered(journal, blobs, image, verify)
    if damping is not None and await damping.wait(journal, recovered.state):
        # Two states would take twice the memory.
        del recovered
        recovered = await _recovered(journal, blobs, image, verify)
    while True:
        opened = Shard(journal, recovered.state, clock, commit_delay, elapsed, random, described)
        opened.replica.last_nonce = recovered.nonce
        opened.replica.journal_bytes = recovered.journal_bytes
        try:
            deadline = asyncio.get_running_loop().time() + OPEN_SECONDS
            await opened.start(node_id, new_cluster_id(random), deadline, feature_level, yields=yields)
            _note_older_level(opened.state.feature_level)
            return opened
        except PrunedMeanwhile as error:
            log.info("shard.opened_again", shard=journal.shard, reason=str(error))
            await opened.owner.close()
        except BaseException:
            await opened.close()
            raise
        recovered = await _recovered(journal, blobs, image, verify)


async def _recovered(
    journal: Journal,
    blobs: Blobs | None,
    image: ImageStore | None,
    verify: Callable[[LedgerState], Awaitable[None]] | None,
) -> Recovered:
    recovered = await recover(journal, image, blobs)
    if verify is not None:
        await verify(recovered.state)
    return recovered


def _note_older_level(level: int) -> None:
    if level < NEWEST_LEVEL:
        log.info(
            "ledger.older_feature_level",
            level=level,
            newest=NEWEST_LEVEL,
            remedy=f"set ledger.feature_level = {NEWEST_LEVEL} once no older version of Dragoman has to read "
            "this ledger any more",
        )


def new_cluster_id(random: RandomBytes) -> str:
    """22 characters of URL-safe base64, as Kafka writes its cluster ids."""
    return base64.urlsafe_b64encode(uuid4_of(random).bytes).decode().rstrip("=")
