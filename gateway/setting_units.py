"""Units of the settings' values, and the mark of a secret one."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
SECRET: Final = "secret"
"""Key in `Meta.extra` of a setting that is never shown."""
