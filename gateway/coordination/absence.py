"""A gateway that is started for a job alone owns the shard only if no other gateway can be alive.

Where one process alone can write the journal, its lock shows that. Elsewhere an idle owner writes nothing, so
that silence says nothing either. What does: the last mark of an owner that has ended in order, for the newest
entry of the journal; and the silence of a job's gateway, which writes an entry every ten seconds
(docs/decisions/0052).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.coordination.damping import LOOK_S, SILENT_S, JournalEnd
from gateway.coordination.mark import newest_mark
from gateway.settings import ConfigError
from ledger.cluster.owners import Epoch, Owners
from ledger.errors import StoreLocked
from ledger.ports import Blobs, Journal
from ledger.state import LedgerState

REMEDY: Final = (
    "If it runs, name its internal.listen and give --tls-cert; if it was killed, start a gateway and stop it "
    "again, or leave it running for the job"
)

NO_LEDGER: Final = (
    "there is no ledger in the metadata store that is named: a job needs one that a gateway has begun "
    "(--metadata, --data-dir)"
)


class Absence:
    """Of one start."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` gets a sentence for the operator before a wait."""
        self._tell = tell

    async def verify(self, journal: Journal, blobs: Blobs, state: LedgerState) -> None:
        """With the state at the journal's end, before anything is written. StoreLocked if a gateway may be
        alive; ConfigError where no gateway has ever been, as a job must not begin a ledger."""
        if not state.applied:
            raise ConfigError(NO_LEDGER)
        if journal.exclusive or await _has_ended(journal, blobs, state):
            return
        owner = _owner_of(state)
        if owner is None or not owner.is_of_job:
            raise StoreLocked(
                f"{owner or 'a gateway'} owns this ledger, and nothing shows that it has ended. {REMEDY}"
            )
        self._tell(
            f"The gateway of another job ({owner.host}) has not ended in order: waiting {SILENT_S:.0f} s for "
            "a sign of its life."
        )
        await _wait_for_silence(journal, state, owner)


async def _has_ended(journal: Journal, blobs: Blobs, state: LedgerState) -> bool:
    _, mark = await newest_mark(blobs, journal.shard, state)
    return mark is not None and mark.has_ended and mark.entry == state.applied - 1


def _owner_of(state: LedgerState) -> Epoch | None:
    """The owner of the newest epoch; None if it did not describe itself."""
    epochs = state.part(Owners).epochs
    return epochs[-1] if epochs and epochs[-1].number == state.epoch else None


async def _wait_for_silence(journal: Journal, state: LedgerState, owner: Epoch) -> None:
    end, loop = JournalEnd(journal, state.applied), asyncio.get_running_loop()
    due = loop.time() + SILENT_S
    while True:
        if await end.has_moved():
            raise StoreLocked(
                f"another job runs on this ledger, with a gateway of its own ({owner.host}): wait for its end"
            )
        if (left_s := due - loop.time()) <= 0:
            return
        await asyncio.sleep(min(LOOK_S, left_s))
