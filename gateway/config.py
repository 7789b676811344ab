"""Loads the settings from flags, environment and file, and checks them.

A setting is named `section.key`. A value comes from a flag, else the environment
(`DRAGOMAN_<SECTION>_<KEY>`), else the TOML file, else the default. Broker settings keep Kafka's names
(`broker.num.partitions`), with the dots as underscores in the environment.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Meta

from gateway.nearest import did_you_mean
from gateway.settings import SECRET, ConfigError, Settings, Storage

ENVIRONMENT_PREFIX: Final = "DRAGOMAN_"
# Switches of the test suite, which a gateway started by a test inherits.
FOREIGN_PREFIX: Final = "DRAGOMAN_TEST_"
CLIENT_VARIABLES: Final = frozenset(
    ENVIRONMENT_PREFIX + name
    for name in (
        *("BOOTSTRAP", "CLIENT_CONFIG", "CLIENT_PROFILE"),
        *("CLIENT_TLS_CA", "CLIENT_TLS_CERT", "CLIENT_TLS_KEY"),
    )
)
"""Read by the client commands (`gateway/cli/client_commands.py`), ignored by a gateway."""
# Kubernetes sets variables in every pod of a namespace for each of its Services: for one that is called
# dragoman, or dragoman-admin, these are DRAGOMAN_SERVICE_HOST, DRAGOMAN_ADMIN_PORT_9644_TCP_ADDR, ...
_SERVICE_LINK: Final = re.compile(
    r"DRAGOMAN_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINKED_PORT: Final = re.compile(r"DRAGOMAN_(\w+_)?PORT=(tcp|udp|sctp)://.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table of settings. `type` is what msgspec checks, bounds included."""

    section: str
    key: str
    type: Any
    default: Any
    doc: str
    is_secret: bool
    """Its value is never shown, and not accepted on the command line, which every user of the machine can
    read."""

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"

    @property
    def environment_name(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.replace(".", "_").upper()

    @property
    def is_list(self) -> bool:
        return isinstance(self.default, tuple)


def _table() -> dict[str, Setting]:
    settings = {}
    for section in msgspec.structs.fields(Settings):
        for field in msgspec.structs.fields(section.type):
            default = getattr(section.default, field.name)
            meta = next(m for m in field.type.__metadata__ if isinstance(m, Meta))
            is_secret = SECRET in (meta.extra or {})
            setting = Setting(
                section.name, field.encode_name, field.type, default, meta.description or "", is_secret
            )
            settings[setting.name] = setting
    return settings


SETTINGS: Final[Mapping[str, Setting]] = _table()
_BY_ENVIRONMENT: Final = {setting.environment_name: setting for setting in SETTINGS.values()}
_SECTION_PREFIXES: Final = tuple(
    sorted({f"{ENVIRONMENT_PREFIX}{setting.section.upper()}_" for setting in SETTINGS.values()})
)


def load_settings(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    file: Path | None = None,
) -> Settings:
    """Settings from flags (`section.key` to value; text is parsed), environment and TOML file.

    Raises ConfigError with one sentence that names the setting and where its value came from.
    """
    values: dict[str, Any] = {}
    if file is not None:
        values.update({name: _checked(name, value, str(file), text=False) for name, value in read_toml(file)})
    for variable, value in environment.items():
        if variable in _BY_ENVIRONMENT:
            name = _BY_ENVIRONMENT[variable].name
            values[name] = _checked(name, value, f"environment variable {variable}", text=True)
        elif _is_ours(variable, value) and _is_mistaken(variable):
            raise ConfigError(f"unknown environment variable {variable}{_nearest_variable(variable)}")
    for name, value in flags.items():
        if name in SETTINGS and SETTINGS[name].is_secret:
            raise ConfigError(
                f"{name}: other users of the machine can read the command line; "
                f"set {SETTINGS[name].environment_name} in the environment"
            )
        values[name] = _checked(name, value, "command line", text=isinstance(value, str))
    return _build(values)


def parse_time(text: str) -> int:
    """Unix ms of `ledger.time_is_right_until`; 0 if it is empty. Raises ConfigError."""
    if not text:
        return 0
    try:
        parsed = datetime.strptime(f"{text} +0000", "%Y-%m-%dT%H:%M:%SZ %z")
    except ValueError:
        raise ConfigError(
            f"ledger.time_is_right_until = {text!r}: expected a time in UTC, YYYY-MM-DDTHH:MM:SSZ"
        ) from None
    return int(parsed.timestamp() * 1000)


def secret_of(value: str, file: str, setting: str) -> bytes:
    """A secret, or the first line of the file that the setting names. Raises ConfigError if that cannot be
    read."""
    if not file:
        return value.encode()
    check_readable(setting, file)
    lines = Path(file).read_bytes().splitlines()
    return lines[0] if lines else b""


def check_readable(setting: str, path: str) -> None:
    """Raises ConfigError unless the file can be read."""
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise ConfigError(f"{setting} = {path}: cannot read the file: {error.strerror}") from error


def unknown_variables(environment: Mapping[str, str]) -> Sequence[str]:
    """Variables with our prefix that resemble no setting, so another program may have set them: a reason for
    a warning, not for an error."""
    return [
        variable
        for variable, value in environment.items()
        if variable not in _BY_ENVIRONMENT and _is_ours(variable, value) and not _is_mistaken(variable)
    ]


def read_toml(file: Path) -> Sequence[tuple[str, Any]]:
    """`section.key` and value of each line; nested tables join by dots, so Kafka's names need no quotes."""
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error
    return list(_flatten("", document))


def parse_assignment(text: str) -> tuple[str, str]:
    """`section.key=value` of a --set flag."""
    name, sign, value = text.partition("=")
    if not sign:
        raise ConfigError(f"--set {text}: expected section.key=value")
    return name.strip(), value.strip()


def given_by_command(flags: Mapping[str, object], assignments: Sequence[str]) -> dict[str, object]:
    """The settings of a command line by their names: those that have flags of their own, and those of --set.
    Errors: ConfigError for a setting that is given both ways, since one of them would be overruled."""
    given: dict[str, object] = dict(parse_assignment(text) for text in assignments)
    for name in flags:
        if name in given:
            raise ConfigError(f"{name} is given twice: by --set and by its own flag; leave one of them out")
    return given | dict(flags)


def _flatten(prefix: str, table: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            pairs.extend(_flatten(f"{prefix}{key}.", value))
        else:
            pairs.append((prefix + key, value))
    return pairs


def _is_ours(variable: str, value: str) -> bool:
    """Whether a variable can be meant for a gateway."""
    return (
        variable.startswith(ENVIRONMENT_PREFIX)
        and not variable.startswith(FOREIGN_PREFIX)
        and variable not in CLIENT_VARIABLES
        and _SERVICE_LINK.fullmatch(variable) is None
        and _LINKED_PORT.fullmatch(f"{variable}={value}") is None
    )


def _is_mistaken(variable: str) -> bool:
    """Whether a variable that is not a setting was certainly meant to be one."""
    return variable.startswith(_SECTION_PREFIXES) or bool(_nearest_variable(variable))


def _nearest_variable(variable: str) -> str:
    """Compared without the prefix, which would make all of them alike."""
    near = did_you_mean(
        variable.removeprefix(ENVIRONMENT_PREFIX),
        [name.removeprefix(ENVIRONMENT_PREFIX) for name in _BY_ENVIRONMENT],
    )
    return near.replace("did you mean ", f"did you mean {ENVIRONMENT_PREFIX}")


def _checked(name: str, value: Any, source: str, *, text: bool) -> Any:
    setting = SETTINGS.get(name)
    if setting is None:
        raise ConfigError(f"unknown setting {name} ({source}){did_you_mean(name, list(SETTINGS))}")
    if text and setting.is_list:
        value = [part.strip() for part in value.split(",") if part.strip()]
    try:
        return msgspec.convert(value, setting.type, strict=not text)
    except msgspec.ValidationError as error:
        reason = str(error).split(" - at ")[0]
        shown = "..." if setting.is_secret else repr(value)
        raise ConfigError(f"{name} = {shown} ({source}): {_lower_first(reason)}") from None


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _build(values: Mapping[str, Any]) -> Settings:
    sections: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        setting = SETTINGS[name]
        sections.setdefault(setting.section, {})[setting.key] = value
    settings = msgspec.convert(sections, Settings)
    _check_together(settings)
    return settings


def _check_together(settings: Settings) -> None:
    parse_time(settings.ledger.time_is_right_until)
    limits = settings.limits
    if limits.frame_bytes > limits.buffer_bytes:
        raise ConfigError(
            f"limits.frame_bytes = {limits.frame_bytes} is more than limits.buffer_bytes = "
            f"{limits.buffer_bytes}: the largest request must fit into what all requests may hold"
        )
    groups = settings.groups
    if groups.group_min_session_timeout_ms > groups.group_max_session_timeout_ms:
        raise ConfigError(
            f"groups.group.min.session.timeout.ms = {groups.group_min_session_timeout_ms} is more than "
            f"groups.group.max.session.timeout.ms = {groups.group_max_session_timeout_ms}"
        )
    _check_storage(settings.storage)
    _check_endpoint(settings.traces.endpoint)
    tls = settings.tls
    if tls.key_password and tls.key_password_file:
        raise ConfigError("tls.key_password and tls.key_password_file are both set: give one of them")
    if tls.client_auth != "none" and not tls.ca:
        raise ConfigError(f"tls.client_auth = {tls.client_auth} needs tls.ca, the CAs of client certificates")


def _check_endpoint(endpoint: str) -> None:
    scheme, _, rest = endpoint.partition("://")
    authority = rest.partition("/")[0]
    if endpoint and (scheme not in ("http", "https") or not authority or "@" in authority):
        raise ConfigError(
            "traces.endpoint is no URL http://HOST:PORT/PATH or https://...; credentials go into "
            "OTEL_EXPORTER_OTLP_HEADERS"
        )


def _check_storage(storage: Storage) -> None:
    scheme, _, path = storage.image.partition(":")
    if storage.image not in ("", "none") and (scheme != "sqlite" or not path):
        raise ConfigError(f"storage.image = {storage.image!r}: expected none, or sqlite:PATH")
    if storage.etcd_password and storage.etcd_password_file:
        raise ConfigError(
            "storage.etcd_password and storage.etcd_password_file are both set: give one of them"
        )
    if bool(storage.etcd_user) != bool(storage.etcd_password or storage.etcd_password_file):
        raise ConfigError(
            "storage.etcd_user and its password (storage.etcd_password or storage.etcd_password_file) belong "
            "together: only one of them is set"
        )
    for store, certificate, key in (
        ("etcd", storage.etcd_certificate, storage.etcd_key),
        ("filer", storage.filer_certificate, storage.filer_key),
    ):
        if bool(certificate) != bool(key):
            raise ConfigError(
                f"storage.{store}_certificate and storage.{store}_key belong together: only one of them is "
                "set"
            )
