"""Asks far stores what they hold, as a gateway that starts reads it, while another one goes on writing."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from adapters.far import FarStores
from adapters.open import open_blobs, open_journal, open_metadata, open_segments, with_inline
from gateway.coordination.recovery import recover
from ledger.state import LedgerState
from tests.faults.load import Found, Place
from tests.faults.recovered import Opened, records_in
from tests.support.far_stores import FarPlace


@dataclass(frozen=True, slots=True)
class Held:
    """By the stores at one moment."""

    state: LedgerState
    log: dict[Place, list[Found]]

    def offset(self, group: str, topic: str, partition: int) -> int:
        """That the group has committed; -1 if none."""
        topic_id = self.state.topics.by_name[topic].topic_id
        committed = self.state.groups.offsets.get(group, {}).get((topic_id, partition))
        return committed.offset if committed is not None else -1


async def ask_stores(place: FarPlace) -> Held:
    """Nothing is written. Errors: StoreError; StoreDamaged if bytes that the journal names are missing."""
    async with AsyncExitStack() as stack:
        far = FarStores()
        metadata = open_metadata(place.metadata, far=far)
        stack.push_async_callback(metadata.close)
        segments = open_segments(place.data, far=far)
        stack.push_async_callback(segments.close)
        blobs = open_blobs(place.data, far=far)
        stack.push_async_callback(blobs.close)
        journal = open_journal(metadata)
        state = (await recover(journal, None, blobs)).state
        return Held(state, await records_in(Opened(state, with_inline(segments, journal))))
