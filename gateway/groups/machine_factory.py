"""Chooses the machine of a group: the classic one, until groups of KIP-848 are there too."""

from gateway.groups.classic.group import ClassicGroup
from gateway.groups.machine import GroupCoordinatorConfig, GroupMachine
from ledger.groups.state import Group


def restored_machine(
    group_id: str, config: GroupCoordinatorConfig, stored: Group | None, now: float
) -> GroupMachine:
    """The machine of a group as the journal has it, or of a new one. `now`: in ms on the machine's clock."""
    group = ClassicGroup(group_id, config)
    if stored is not None:
        group.restore(stored, now)
    return group
