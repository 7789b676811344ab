"""The effects of one step of a group, collected until the step is done."""

from collections.abc import Callable

from gateway.groups.classic.members import LiveMember, Roster
from gateway.groups.machine import Complete, Effect, Note, RebalanceReason, Store, Ticket
from gateway.groups.messages import JoinResult, SyncResult
from ledger.groups.state import Group


class Effects:
    """What must happen outside of the machine."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._effects: list[Effect] = []
        self._must_store = False

    def store(self) -> None:
        """The group as it is at the end of the step must become durable."""
        self._must_store = True

    def complete(self, ticket: Ticket, result: JoinResult | SyncResult) -> None:
        self._effects.append(Complete(ticket, result))

    def complete_join(self, member: LiveMember, result: JoinResult) -> bool:
        """Complete the member's JoinGroup. False if none waits."""
        ticket = self._roster.end_join(member)
        if ticket is not None:
            self.complete(ticket, result)
        return ticket is not None

    def complete_sync(self, member: LiveMember, result: SyncResult) -> bool:
        """Complete the member's SyncGroup. False if none waits."""
        ticket, member.syncing = member.syncing, None
        if ticket is not None:
            self.complete(ticket, result)
        return ticket is not None

    def note(self, event: str, member_id: str, reason: str) -> None:
        self._effects.append(Note(event, member_id, reason))

    def note_rebalance(self, member_id: str, reason: RebalanceReason, details: str) -> None:
        """A rebalance begins. `details` are the client's own words."""
        text = f"{reason}: {details}" if details else str(reason)
        self._effects.append(Note("preparing_rebalance", member_id, text, reason))

    def take(self, stored: Callable[[], Group]) -> list[Effect]:
        """End the step. `stored` gives the group's durable form."""
        effects, self._effects = self._effects, []
        if self._must_store:
            self._must_store = False
            # First, since no result of this step may leave before it is durable.
            effects.insert(0, Store(stored()))
        return effects
