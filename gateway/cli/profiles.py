"""Client profiles: where commands connect, by a name of the user's own, from one TOML file.

    default = "test"              # without --profile; may be left out

    [profiles.production]
    bootstrap = "SSL://kafka.example:9093"
    tls_ca = "/etc/ssl/kafka-ca.pem"

A flag wins over the environment, that over a profile, and that over the default.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gateway.settings import ConfigError

FILE_VARIABLE: Final = "DRAGOMAN_CLIENT_CONFIG"
FIELDS: Final = ("bootstrap", "tls_ca", "tls_cert", "tls_key")
MAX_FILE_BYTES: Final = 1 << 20


def profile_file() -> Path:
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "dragoman" / "client.toml"


def profile_values(name: str | None) -> dict[str, str]:
    """Values of flags by FIELDS: of a profile, or of the default one. ConfigError if the one that is named
    does not exist, or the file cannot be used."""
    file = profile_file()
    named_by = f"--profile {name}" if name else FILE_VARIABLE if os.environ.get(FILE_VARIABLE) else ""
    if not _is_there(file, named_by):
        if named_by:
            raise ConfigError(f"{named_by}: there is no file {file}")
        return {}
    content = _read(file)
    profiles = content.get("profiles", {})
    chosen = name or content.get("default")
    if not isinstance(profiles, Mapping) or not content.keys() <= {"default", "profiles"}:
        raise ConfigError(f'{file}: expected default = "NAME", and tables [profiles.NAME]')
    if chosen is None:
        return {}
    if not isinstance(chosen, str) or chosen not in profiles:
        there = ", ".join(sorted(profiles)) or "none"
        raise ConfigError(f"there is no profile {chosen} in {file}; there are: {there}")
    return _checked(profiles[chosen], chosen, file)


def profile_names() -> list[str]:
    """None where the file cannot be read."""
    try:
        profiles = _read(profile_file()).get("profiles", {})
    except ConfigError:
        return []
    return list(profiles) if isinstance(profiles, Mapping) else []


def defaults_of(command: Any, values: Mapping[str, str]) -> dict[str, Any]:
    """`values` as `default_map` wants the defaults of a command, or of a group and all below it."""
    below = getattr(command, "commands", None)
    if below is None:
        return dict(values)
    return {name: defaults_of(one, values) for name, one in below.items()}


def _is_there(file: Path, named_by: str) -> bool:
    """ConfigError if that cannot be seen and something names the file. Otherwise it is not there: a directory
    of another user, whose HOME a command was given, has no profiles for this one."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if named_by:
            raise ConfigError(f"{named_by}: cannot read {file}: {error.strerror}") from None
        return False
    return True


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            return tomllib.loads(opened.read(MAX_FILE_BYTES).decode())
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{file} is no TOML: {error}") from None


def _checked(profile: Any, name: str, file: Path) -> dict[str, str]:
    if not isinstance(profile, Mapping):
        raise ConfigError(f"profile {name} in {file}: expected a table")
    for field, value in profile.items():
        if field not in FIELDS:
            raise ConfigError(f"profile {name} in {file}: unknown {field}; there are {', '.join(FIELDS)}")
        if not isinstance(value, str):
            raise ConfigError(f"profile {name} in {file}: {field} is no text")
    return dict(profile)
