"""Which cluster the stored data belongs to: a blob beside it says so.

What no journal knows is deleted as an orphan after the grace. Data that another journal knows must never
be taken for that: not with a new metadata store beside old data, not with two gateways on one data URL.
A copy of the right metadata store is found by `gateway/coordination/claim.py`.
"""

from contextlib import suppress

from gateway.coordination.journal import Journal
from ledger.errors import AlreadyExists, NotFound, StoreDamaged
from ledger.ports import Blobs

CLUSTER_KEY = "cluster-id"
MOST_TOLD = 64


async def check_unclaimed(journal: Journal, blobs: Blobs) -> None:
    """Before a first entry is written: an empty journal begins a new cluster. StoreDamaged if the data
    belongs to one already."""
    owner = await _owner(blobs)
    if owner is not None and await journal.start() == 0 and await journal.is_absent(0):
        raise StoreDamaged(_foreign(owner, "the metadata store is empty"))


async def check_cluster(blobs: Blobs, cluster_id: str) -> None:
    """StoreDamaged if the data belongs to another cluster than this."""
    owner = await _owner(blobs)
    if owner is not None and owner != cluster_id:
        raise StoreDamaged(_foreign(owner, f"the metadata is of cluster {cluster_id}"))


async def claim_data(blobs: Blobs, cluster_id: str, *, lasting: bool) -> None:
    """Make sure that the data is this cluster's; unclaimed data becomes so, if the cluster itself is
    `lasting`. StoreDamaged if it is another's."""
    if lasting and await _owner(blobs) is None:
        with suppress(AlreadyExists):
            await blobs.put(CLUSTER_KEY, [cluster_id.encode()])
    await check_cluster(blobs, cluster_id)


def _foreign(owner: str, metadata: str) -> str:
    return (
        f"the data belongs to another cluster ({owner[:MOST_TOLD]}), and {metadata}: give it the metadata "
        "store that it was written with, restored from a backup if need be (--metadata, --data-dir), or "
        "choose another place for the data (--data)"
    )


async def _owner(blobs: Blobs) -> str | None:
    try:
        return (await blobs.get(CLUSTER_KEY)).decode(errors="replace")
    except NotFound:
        return None
