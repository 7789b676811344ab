"""How many groups there may be."""

from typing import Final

ORDINARY_ID_CHARS: Final = 1024
MAX_LONG_IDS: Final = 1 / 32
"""Share of the bound on groups: the longest id that the protocol carries is 32 times an ordinary one."""


def exceeds_max_groups(group_id: str, known: int, max_groups: int) -> bool:
    """Whether a further group of this id would exceed `max_groups`, when `known` exist.

    Kafka takes ids of any length. Here longer ones than any client uses in earnest are taken only while there
    are few groups, so that all ids together have a bound in bytes.
    """
    is_long = len(group_id) > ORDINARY_ID_CHARS
    return known >= max_groups * (MAX_LONG_IDS if is_long else 1)
