"""The log of what clients of groups cause at any rate: refusals by a setting, states that are not stored."""

from typing import Final

from gateway.groups.limits import GROUP_BYTES, MAX_SIZE
from gateway.telemetry.logs import QuietLog
from ledger.errors import ErrorName

QUIET_S: Final = 60.0
OF_ONE_GROUP: Final = frozenset({MAX_SIZE, GROUP_BYTES})
"""Bounds that each group has by itself. The others hold for all together, and the group is an example."""

quiet = QuietLog(QUIET_S, keyed_by=("setting",))
quiet_by_group = QuietLog(QUIET_S, keyed_by=("setting", "group"))


def log_limit(setting: str, group_id: str) -> None:
    """A member, a group or an offset is refused because of this setting."""
    log = quiet_by_group if setting in OF_ONE_GROUP else quiet
    log.warning("group.limit_reached", setting=setting, group=group_id)


def log_not_stored(group_id: str, error: ErrorName, message: str) -> None:
    """The state of a group could not be made durable; its members join again."""
    quiet_by_group.warning("group.not_stored", group=group_id, error=error, message=message)
