"""How many groups there may be, and the settings by which groups and their offsets are refused.

Kafka has one error for all of them (GROUP_MAX_SIZE_REACHED), so the log names the setting.
"""

from typing import Final

ORDINARY_ID_CHARS: Final = 1024
MAX_LONG_IDS: Final = 1 / 32
"""Share of the bound on groups: the longest id that the protocol carries is 32 times an ordinary one."""

MAX_SIZE: Final = "groups.group.max.size"
GROUP_BYTES: Final = "limits.group_bytes"
MEMBERS_BYTES: Final = "limits.members_bytes"
MAX_GROUPS: Final = "limits.groups"
OFFSET_BYTES: Final = "limits.offset_bytes"


def exceeds_max_groups(group_id: str, known: int, max_groups: int) -> bool:
    """Whether a further group of this id would exceed `max_groups`, when `known` exist.

    Kafka takes ids of any length. Here longer ones than any client uses in earnest are taken only while there
    are few groups, so that all ids together have a bound in bytes.
    """
    is_long = len(group_id) > ORDINARY_ID_CHARS
    return known >= max_groups * (MAX_LONG_IDS if is_long else 1)
