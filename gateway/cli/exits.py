"""Exit codes, and the sentence that goes with an error."""

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    """Failed while running."""
    USAGE = 2
    """Wrong flag, setting or address."""
    FINDINGS = 3
    """A check found something that needs an operator."""
    STORE = 4
    """A store is out of reach, damaged or of a newer version."""
    IN_USE = 5
    """The data directory is locked, a port is in use, or another gateway has taken the shard over."""
    INTERRUPTED = 130
