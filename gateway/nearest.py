"""Which known name was meant by a wrong one."""

import difflib
from collections.abc import Sequence
from typing import Final

NEAR: Final = 0.75
"""How similar a name must be to be proposed instead of a wrong one (`difflib` ratio)."""


def did_you_mean(wrong: str, right: Sequence[str]) -> str:
    """A clause to end a message with; empty if no name is near enough."""
    close = difflib.get_close_matches(wrong, right, n=1, cutoff=NEAR)
    # A name without its section: data_dir, DATA_DIR.
    close = close or [name for name in right if name.endswith((f".{wrong}", f"_{wrong}"))]
    return f"; did you mean {close[0]}?" if len(close) == 1 else ""
