"""`dragoman debug bundle`: what helps to find a fault, in one archive, without secrets.

No content of records is in it. Names of topics, groups, clients and hosts are.
"""

import importlib.metadata
import io
import os
import platform
import re
import resource
import shutil
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.cli.admin_pages import admin_page
from gateway.cli.client import ClientError
from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint
from gateway.cli.exits import Exit
from gateway.cli.groups import describe_group, found_groups
from gateway.cli.output import UsageError, counted, json_text, talk
from gateway.cli.resource_configs import BROKER_RESOURCE, TOPIC_RESOURCE, described_configs
from gateway.cli.transactions import (
    ENDED,
    ListOptions,
    describe_transaction,
    found_transactions,
)
from gateway.config import SETTINGS
from gateway.settings import ConfigError, Settings
from gateway.version import product_version

MAX_LOG_BYTES: Final = 16 << 20
MAX_TOPICS: Final = 2_000
MAX_GROUPS: Final = 500
MAX_TRANSACTIONS: Final = 500
PACKAGES: Final = ("aiohttp", "uvloop", "msgspec", "structlog", "obstore", "grpcio", "crc32c", "typer")
PAGES: Final = ("/readyz", "/version", "/debug/shards", "/metrics")
HIDDEN: Final = "<secret>"
MIN_SECRET: Final = 4
"""Shorter values would be replaced all over the text, and protect nothing."""
_SECRET_NAME: Final = re.compile(r"PASSW|SECRET|TOKEN|CREDENTIAL|ACCESS_KEY|API_?KEY", re.IGNORECASE)
_USER_OF_URL: Final = re.compile(r"(?<=://)[^/@\s\"']+@")
_QUERY_OF_URL: Final = re.compile(r"(?<=[?&])([\w.-]+)=[^&\s\"']+")
_USER_IN_BYTES: Final = re.compile(_USER_OF_URL.pattern.encode())
_QUERY_IN_BYTES: Final = re.compile(_QUERY_OF_URL.pattern.encode())
_SWITCHES: Final = frozenset({"true", "false", "none", "null"})
_SHORT_NUMBER: Final = re.compile(r"[0-9.]{1,5}")


@dataclass(frozen=True, slots=True)
class BundleOptions:
    """`settings`: those of the gateway, as its flags, environment and file give them. `logs`: files."""

    to: str
    settings: Callable[[], Settings]
    admin: str | None
    logs: Sequence[str]


def bundle(contact: Contact, options: BundleOptions) -> Exit:
    """Write what can be had; what cannot is named in it. An existing file is left as it is."""
    failures: dict[str, str] = {}
    settings = _tried("settings", options.settings, failures)
    members = _members(contact, options, settings, failures)
    members["failures.json"] = json_text(failures).encode()
    secrets = secret_values(settings, os.environ)
    name = f"dragoman-debug-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    content = _archive(name, {path: without_secrets(data, secrets) for path, data in members.items()})
    try:
        descriptor = os.open(options.to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(f"--to {options.to} exists: name another file") from None
    except OSError as error:
        raise UsageError(f"--to {options.to}: cannot be written: {error.strerror}") from None
    with open(descriptor, "wb") as file:
        file.write(content)
    for what, why in failures.items():
        talk(f"Not in it: {what}: {why}")
    talk(
        f"Wrote {counted(len(members), 'file')} to {options.to}. No records are in it, and no secrets of the "
        "settings or the environment of this command, but names of topics, groups, clients and hosts: "
        "look through it before you pass it on."
    )
    return Exit.OK


def secret_values(settings: Settings | None, environment: Mapping[str, str]) -> list[bytes]:
    """Everything that must not be in a bundle, the longest first."""
    values = {value for name, value in environment.items() if _SECRET_NAME.search(name)}
    for setting in SETTINGS.values() if settings is not None else ():
        if setting.is_secret:
            values.add(str(_value(settings, setting.name)))
    # Values of the environment need not be UTF-8.
    return sorted((os.fsencode(value) for value in values if _may_be_secret(value)), key=len, reverse=True)


def _may_be_secret(value: str) -> bool:
    """Other values are those of switches, and would be replaced wherever they stand."""
    return len(value) >= MIN_SECRET and value.lower() not in _SWITCHES and not _SHORT_NUMBER.fullmatch(value)


def without_secrets(data: bytes, secrets: Sequence[bytes]) -> bytes:
    """With secret values, and users and parameters of URLs, replaced."""
    for secret in secrets:
        data = data.replace(secret, HIDDEN.encode())
    return _QUERY_IN_BYTES.sub(rb"\1=" + HIDDEN.encode(), _USER_IN_BYTES.sub(HIDDEN.encode() + b"@", data))


def url_without_secrets(text: str) -> str:
    """A setting with a URL, without its user and the values of its parameters."""
    return _QUERY_OF_URL.sub(rf"\1={HIDDEN}", _USER_OF_URL.sub(f"{HIDDEN}@", text))


def _members(
    contact: Contact, options: BundleOptions, settings: Settings | None, failures: dict[str, str]
) -> dict[str, bytes]:
    members = {"host.json": json_text(_host(settings)).encode()}
    if settings is not None:
        members["settings.json"] = json_text(_shown_settings(settings)).encode()
    if options.admin is not None:
        for page in PAGES:
            found = _tried(f"admin page {page}", partial(admin_page, options.admin, page, contact), failures)
            if found is not None:
                members[f"admin{page}"] = found[1]
    endpoint = _tried("endpoint", partial(_endpoint, contact, failures), failures)
    for path, value in (endpoint or {}).items():
        members[f"endpoint/{path}.json"] = json_text(value).encode()
    for at, log in enumerate(options.logs):
        if settings is None:
            failures[f"log {log}"] = "the settings could not be read, so it is not known what in it is secret"
            continue
        tail = _tried(f"log {log}", partial(_tail, Path(log)), failures)
        if tail is not None:
            members[f"logs/{at}-{Path(log).name}"] = tail
    return members


def _tried(what: str, work: Callable[[], Any], failures: dict[str, str]) -> Any:
    try:
        return work()
    except (ClientError, ConfigError, OSError) as error:
        failures[what] = str(error)
        return None


def _host(settings: Settings | None) -> dict[str, Any]:
    directory = None if settings is None else settings.storage.data_dir
    try:
        disk = None if directory is None else shutil.disk_usage(directory)._asdict()
    except OSError:
        disk = None
    return {
        "dragoman": product_version(),
        "python": sys.version,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
        "time_unix": time.time(),
        "open_files_limit": resource.getrlimit(resource.RLIMIT_NOFILE),
        "disk_of_data_directory": disk,
        "packages": {name: _version_of(name) for name in PACKAGES},
        "variables": sorted(name for name in os.environ if name.startswith("DRAGOMAN_")),
    }


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _shown_settings(settings: Settings) -> dict[str, Any]:
    """All of them; of a secret only whether it is set."""
    shown = {}
    for name, setting in SETTINGS.items():
        value = _value(settings, name)
        if setting.is_secret:
            shown[name] = HIDDEN if value else ""
        elif isinstance(value, str):
            shown[name] = url_without_secrets(value)
        else:
            shown[name] = value
    return shown


def _value(settings: Settings | None, name: str) -> Any:
    section, _, key = name.partition(".")
    return msgspec.to_builtins(getattr(settings, section))[key]


def _endpoint(contact: Contact, failures: dict[str, str]) -> dict[str, Any]:
    with Endpoint(contact) as endpoint:
        metadata = endpoint.metadata()
        names = sorted(topic.name for topic in metadata.topics)[:MAX_TOPICS]
        groups = [line.group for line in found_groups(endpoint)]
        brokers = [str(broker.node_id) for broker in metadata.brokers]
        found = {
            "metadata": metadata,
            "topic_configs": _configs(endpoint, TOPIC_RESOURCE, names),
            "broker_configs": {
                broker: _configs(endpoint, BROKER_RESOURCE, [broker], int(broker)) for broker in brokers
            },
            "transactions": _tried("transactions", partial(_transactions, endpoint, failures), failures),
            "groups": {
                group: _tried(f"group {group}", partial(describe_group, endpoint, group), failures)
                for group in groups[:MAX_GROUPS]
            },
        }
    if len(groups) > MAX_GROUPS or len(metadata.topics) > MAX_TOPICS:
        failures["all groups and topics"] = f"at most {MAX_GROUPS} groups and configs of {MAX_TOPICS} topics"
    return found


def _transactions(endpoint: Endpoint, failures: dict[str, str]) -> dict[str, Any]:
    """How many transactional ids are in which state, and the open transactions by their ids."""
    lines = found_transactions(endpoint, ListOptions())
    ongoing = [line.transactional_id for line in lines if line.state not in ENDED]
    if len(ongoing) > MAX_TRANSACTIONS:
        failures["all transactions"] = f"at most {MAX_TRANSACTIONS} that are open"
    return {
        "states": Counter(line.state for line in lines),
        "open": {
            name: _tried(f"transaction {name}", partial(describe_transaction, endpoint, name), failures)
            for name in ongoing[:MAX_TRANSACTIONS]
        },
    }


def _configs(endpoint: Endpoint, kind: int, names: Sequence[str], node: int | None = None) -> Any:
    return {
        name: {one.name: HIDDEN if one.is_sensitive else one.value for one in configs}
        for name, configs in described_configs(endpoint, kind, names, node).items()
    }


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, io.SEEK_END) - MAX_LOG_BYTES))
        return file.read(MAX_LOG_BYTES)


def _archive(name: str, members: Mapping[str, bytes]) -> bytes:
    """A .tar.gz."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for path, data in members.items():
            info = tarfile.TarInfo(f"{name}/{path}")
            info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
            archive.addfile(info, io.BytesIO(data))
    return content.getvalue()
