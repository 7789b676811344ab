"""The cluster that the stored data belongs to, by its id in a blob next to the data.

An object that no journal entry names is deleted as an orphan after the grace. Objects of another journal must
never be taken for orphans: neither with a new metadata store and old data, nor with two gateways on one data
URL. A copy of the right metadata store has the same id; `gateway/coordination/claim.py` detects it.
"""

import base64
from contextlib import suppress

from ledger.errors import AlreadyExists, NotFound, StoreDamaged
from ledger.ports import Blobs, Journal

CLUSTER_KEY = "cluster-id"
MAX_SHOWN = 64
ID_BYTES = 16


async def verify_unclaimed(journal: Journal, blobs: Blobs) -> None:
    """Call this before the first entry is written: an empty journal begins a new cluster. StoreDamaged if the
    data belongs to a cluster already."""
    owner = await cluster_id_in(blobs)
    if owner is not None and await journal.start() == 0 and await journal.get(0) is None:
        raise StoreDamaged(_foreign(owner, "the metadata store is empty"))


async def verify_cluster_id(blobs: Blobs, cluster_id: str) -> None:
    """StoreDamaged if the data belongs to another cluster than this."""
    owner = await cluster_id_in(blobs)
    if owner is not None and owner != cluster_id:
        raise StoreDamaged(_foreign(owner, f"the metadata is of cluster {cluster_id}"))


async def claim_cluster_id(blobs: Blobs, cluster_id: str, *, lasting: bool) -> None:
    """Make unclaimed data this cluster's, if the cluster itself is `lasting`. StoreDamaged if the data
    belongs to another cluster."""
    if lasting and await cluster_id_in(blobs) is None:
        with suppress(AlreadyExists):
            await blobs.put(CLUSTER_KEY, [cluster_id.encode()])
    await verify_cluster_id(blobs, cluster_id)


def _foreign(owner: str, metadata: str) -> str:
    return (
        f"the data belongs to another cluster ({owner[:MAX_SHOWN]}), and {metadata}: give it the metadata "
        "store that it was written with, restored from a backup if need be (--metadata, --data-dir), or "
        "choose another place for the data (--data)"
    )


async def cluster_id_bytes(blobs: Blobs) -> bytes:
    """The 16 bytes that the id of the data's cluster stands for; empty if it is unclaimed, or is no such
    id."""
    owner = await cluster_id_in(blobs)
    try:
        found = base64.urlsafe_b64decode(f"{owner or ''}==")
    except ValueError:
        return b""
    return found if len(found) == ID_BYTES else b""


async def cluster_id_in(blobs: Blobs) -> str | None:
    """Of the data; None if it is unclaimed."""
    try:
        return (await blobs.get(CLUSTER_KEY)).decode(errors="replace")
    except NotFound:
        return None
