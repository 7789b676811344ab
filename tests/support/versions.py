"""The versions that tests run against, read from `versions.toml` at the root of the tree."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"


def tool_version(tool: str, key: str = "version") -> str:
    """Errors: KeyError when `versions.toml` does not name it."""
    with (ROOT / "versions.toml").open("rb") as file:
        return str(tomllib.load(file)[tool][key])
