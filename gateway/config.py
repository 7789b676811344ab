"""Every setting once: name, type, default, bound and doc are the fields of the classes below.

A setting is named `section.key`. A value comes from a flag, else the environment
(`DRAGOMAN_<SECTION>_<KEY>`), else the TOML file, else the default. Broker settings keep Kafka's names
(`broker.num.partitions`), with the dots as underscores in the environment.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
ENVIRONMENT_PREFIX: Final = "DRAGOMAN_"
SECRET: Final = "secret"
# Switches of the test suite, which a gateway started by a test inherits.
FOREIGN_PREFIX: Final = "DRAGOMAN_TEST_"
CLIENT_VARIABLES: Final = frozenset(
    ENVIRONMENT_PREFIX + name for name in ("BOOTSTRAP", "CLIENT_TLS_CA", "CLIENT_TLS_CERT", "CLIENT_TLS_KEY")
)
"""Read by the commands that speak Kafka (`gateway/cli/client_commands.py`), nothing to a gateway."""
# What Kubernetes puts into every pod of a namespace for each of its Services: for one that is called
# dragoman, or dragoman-admin, that is DRAGOMAN_SERVICE_HOST, DRAGOMAN_ADMIN_PORT_9644_TCP_ADDR, ...
_SERVICE_LINK: Final = re.compile(
    r"DRAGOMAN_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINKED_PORT: Final = re.compile(r"DRAGOMAN_(\w+_)?PORT=(tcp|udp|sctp)://.*", re.DOTALL)
NEAR: Final = 0.75
"""How alike a name must be to be proposed in the place of a wrong one (`difflib` ratio)."""


class ConfigError(Exception):
    """A setting is unknown, of the wrong type or out of bounds; the message says what is allowed."""


class Listeners(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    listen: Annotated[
        tuple[str, ...],
        Meta(
            min_length=1,
            max_length=16,
            description="Where clients connect, each NAME://HOST:PORT; port 0 = any, no host = all "
            "addresses, 0.0.0.0 = all of IPv4, [::] = all of IPv6",
        ),
    ] = ("PLAINTEXT://127.0.0.1:9092",)
    advertise: Annotated[
        tuple[str, ...],
        Meta(
            max_length=16,
            description="What clients are told to connect to, HOST:PORT for each listener in order",
        ),
    ] = ()


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of all SSL:// listeners. SIGHUP reads the files again, for connections from then on."""

    certificate: Annotated[
        str, Meta(description="PEM file of the gateway's certificate, and of those between it and its CA")
    ] = ""
    key: Annotated[
        str, Meta(description="PEM file of the private key; empty = in the file of the certificate")
    ] = ""
    key_password: Annotated[
        str,
        Meta(
            description="Password of the private key; set it in the environment, never on the command line",
            extra={SECRET: True},
        ),
    ] = ""
    key_password_file: Annotated[
        str, Meta(description="File whose first line is the password of the private key")
    ] = ""
    ca: Annotated[str, Meta(description="PEM file of the CAs whose client certificates are taken")] = ""
    client_auth: Annotated[
        str,
        Meta(
            pattern="^(none|optional|required)$",
            description="Client certificates: none, optional (checked if there is one) or required",
        ),
    ] = "none"
    min_version: Annotated[
        str, Meta(pattern=r"^(1\.2|1\.3)$", description="Oldest TLS version that is spoken: 1.2 or 1.3")
    ] = "1.2"

    def __repr__(self) -> str:
        # Settings may end up in a log; the password must not.
        return f"Tls(certificate={self.certificate!r}, client_auth={self.client_auth!r})"


class Storage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data_dir: Annotated[
        str,
        Meta(min_length=1, description="Directory of the embedded stores, and of the lock that guards them"),
    ] = "data"
    metadata: Annotated[
        str, Meta(description="URL of the metadata store; empty = sqlite: in the data directory")
    ] = ""
    data: Annotated[str, Meta(description="URL of the record data; empty = file: in the data directory")] = ""
    allow_unsafe_acks: Annotated[
        bool, Meta(description="Accept stores whose acknowledgement does not survive loss of power")
    ] = False
    min_free_bytes: Annotated[
        int,
        Meta(ge=0, le=1024 * GIB, description="With less free in the data directory, /readyz says not ready"),
    ] = 256 * MIB
    reserve_bytes: Annotated[
        int,
        Meta(
            ge=-1,
            le=1024 * GIB,
            description="With less free where records or the journal are written, Produce is refused, so "
            "that deletions still work; -1 = the smaller of 64 MiB and 5 % of the file system, 0 = none",
        ),
    ] = -1


class Ledger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shards: Annotated[
        int, Meta(ge=1, le=1, description="Number of journals; more than one is not there yet")
    ] = 1
    draft_bytes: Annotated[
        int, Meta(ge=64 * KIB, le=256 * MIB, description="A draft is written when it holds this many bytes")
    ] = 8 * MIB
    draft_batches: Annotated[
        int, Meta(ge=1, le=3000, description="A draft is written when it holds this many batches")
    ] = 1000
    drafts_in_flight: Annotated[
        int, Meta(ge=1, le=64, description="Drafts that are written at the same time")
    ] = 4
    orphan_grace_ms: Annotated[
        int, Meta(ge=MINUTE, le=7 * 24 * HOUR, description="How long dead or orphaned bytes stay")
    ] = HOUR
    snapshot_bytes: Annotated[
        int, Meta(ge=MIB, le=64 * GIB, description="Journal bytes after which a snapshot is made")
    ] = 64 * MIB
    commit_timeout_ms: Annotated[
        int,
        Meta(ge=100, le=5 * MINUTE, description="How long topic changes and barriers wait for the journal"),
    ] = 10 * SECOND


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    frame_bytes: Annotated[
        int, Meta(ge=KIB, le=2 * GIB - 1, description="Largest request; a larger one closes its connection")
    ] = 100 * MIB
    connections: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="Client connections of all listeners; further ones are closed"),
    ] = 10_000
    address_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Client connections from one address (IPv6: one /64); further ones are closed",
        ),
    ] = 5_000
    connection_rate: Annotated[
        int,
        Meta(ge=1, le=100_000, description="New connections a second of all listeners; further ones wait"),
    ] = 1_000
    address_connection_rate: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="New connections a second from one address; further ones wait, at most 10 s long",
        ),
    ] = 500
    tls_handshake_ms: Annotated[
        int,
        Meta(ge=100, le=5 * MINUTE, description="A connection whose TLS handshake takes longer is closed"),
    ] = 10 * SECOND
    requests_in_flight: Annotated[
        int, Meta(ge=1, le=10_000, description="Unanswered requests of a connection before reading pauses")
    ] = 100
    total_requests_in_flight: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Unanswered requests of all connections, waiting fetches too, before reading pauses",
        ),
    ] = 100_000
    connection_bytes: Annotated[
        int,
        Meta(
            ge=64 * KIB,
            le=2 * GIB,
            description="Bytes of unanswered requests of a connection before reading pauses",
        ),
    ] = 64 * MIB
    buffer_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=64 * GIB,
            description="Bytes of unanswered requests and unread answers of all connections before reading "
            "pauses; who holds most of them without moving is closed, at once when there are a quarter more. "
            "With at least 32 KiB for each of limits.connections, small requests pass all the same",
        ),
    ] = 512 * MIB
    decompressed_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=2 * GIB,
            description="Largest batch, unpacked, that a topic with keys, bounds or a codec takes, "
            "and that a lookup by time opens",
        ),
    ] = 64 * MIB
    send_bytes: Annotated[
        int, Meta(ge=KIB, le=GIB, description="Unsent answer bytes of a connection before reading pauses")
    ] = 4 * MIB
    idle_ms: Annotated[
        int,
        Meta(
            ge=SECOND,
            le=24 * HOUR,
            description="A connection is closed after so long without a whole request; to send a request or "
            "read an answer it may take longer by 1 s for each 16 KiB of it",
        ),
    ] = 10 * MINUTE
    request_timeout_ms: Annotated[
        int,
        Meta(
            ge=SECOND, le=HOUR, description="Longest timeout that a request may ask for; longer is shortened"
        ),
    ] = 2 * MINUTE
    request_elements: Annotated[
        int,
        Meta(
            ge=1_000,
            le=10_000_000,
            description="Elements of all arrays of a request together; one of more closes its connection. "
            "Requests that name all partitions (ListOffsets, Metadata, DescribeTopicPartitions, OffsetFetch, "
            "OffsetCommit, OffsetForLeaderEpoch, Fetch) may besides have twice as many as limits.partitions",
        ),
    ] = 50_000
    response_bytes: Annotated[
        int,
        Meta(
            ge=4 * KIB,
            le=GIB,
            description="Memory for a response that is longer than its request; what does not fit is "
            "refused. 16 MiB hold the configs of about 7,000 topics with synonyms, those of 13,000 without",
        ),
    ] = 16 * MIB
    request_memory_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=64 * GIB,
            description="Memory of all large requests together, for what they are decoded to and for their "
            "responses in the making; further ones wait, in turn by address",
        ),
    ] = 256 * MIB
    drain_ms: Annotated[
        int, Meta(ge=0, le=10 * MINUTE, description="How long a stop waits for requests that are under way")
    ] = 20 * SECOND
    fetch_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=64 * GIB,
            description="Bytes of records that all fetches together hold, from before they are read until "
            "they are sent. Further fetches wait, addresses and connections in turn; those of at most 64 KiB "
            "have an eighth to themselves. While fetches wait for 0.5 s, a client that reads nothing of its "
            "answers for 1 s is closed",
        ),
    ] = 256 * MIB
    fetch_sessions: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Incremental fetch sessions that are kept")
    ] = 1000
    fetch_partitions: Annotated[
        int,
        Meta(
            ge=10_000,
            le=100_000_000,
            description="Partitions that fetch sessions keep together, about 700 bytes each, and again as "
            "many for fetches under way of more than 256. Further sessions are not made, fetches wait",
        ),
    ] = 500_000
    topic_partitions: Annotated[
        int, Meta(ge=1, le=100_000, description="Partitions that a topic may have")
    ] = 10_000
    partitions: Annotated[
        int, Meta(ge=1, le=10_000_000, description="Partitions that all topics together may have")
    ] = 200_000
    producers: Annotated[
        int,
        Meta(
            ge=1_000,
            le=100_000_000,
            description="Idempotent producers that are remembered, each once in every partition, 1 KiB each; "
            "when there are nearly so many, those silent for 15 minutes go, and where none is, a new one is "
            "told to try again",
        ),
    ] = 100_000
    partition_producers: Annotated[
        int, Meta(ge=100, le=100_000_000, description="The same in one partition")
    ] = 20_000
    groups: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Consumer groups; a join to one more is refused",
        ),
    ] = 100_000
    offset_bytes: Annotated[
        int,
        Meta(
            ge=64 * KIB,
            le=1024 * GIB,
            description="Memory for committed offsets of all groups, each 256 bytes and its text; when it "
            "is full, an offset is taken only where it replaces one that is no shorter",
        ),
    ] = 2 * GIB
    members_bytes: Annotated[
        int,
        Meta(
            ge=64 * KIB,
            le=64 * GIB,
            description="All members of all groups, with what they tell of themselves; when there are more, "
            "no new one is taken",
        ),
    ] = GIB
    group_bytes: Annotated[
        int,
        Meta(
            ge=KIB,
            le=MIB,
            description="All members of a group, with what they tell of themselves; one more is refused",
        ),
    ] = 768 * KIB


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1024 * GIB,
            description="Memory for record batches that were written lately, or read from objects",
        ),
    ] = 256 * MIB


class Admin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    listen: Annotated[
        str, Meta(description="HOST:PORT of health, metrics and version pages; port 0 = any, empty = none")
    ] = "127.0.0.1:9644"
    connections: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Connections of that address; one more takes the place of the one that has been "
            "waiting for a request the longest",
        ),
    ] = 64
    request_head_ms: Annotated[
        int,
        Meta(
            ge=100, le=5 * MINUTE, description="A connection that takes longer to begin a request is closed"
        ),
    ] = 10 * SECOND


class Log(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: Annotated[
        str, Meta(pattern="^(debug|info|warning|error)$", description="debug, info, warning or error")
    ] = "info"
    format: Annotated[
        str, Meta(pattern="^(auto|text|json)$", description="text, json, or auto: text on a terminal")
    ] = "auto"


def _kafka_name(field: str) -> str:
    return field.replace("_", ".")


class Broker(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=_kafka_name):
    """Broker configs under Kafka's names, as far as they have an effect here."""

    node_id: Annotated[
        int, Meta(ge=0, le=2**31 - 1, description="Id that clients are told for this gateway")
    ] = 1
    auto_create_topics_enable: Annotated[
        bool,
        Meta(
            description="A metadata request for an unknown topic creates it, if the client allows: any "
            "client may then create topics, and the quota controller_mutation_rate bounds how fast"
        ),
    ] = True
    delete_topic_enable: Annotated[bool, Meta(description="Topics may be deleted")] = True
    num_partitions: Annotated[
        int, Meta(ge=1, le=100_000, description="Partitions of a topic that is created without a number")
    ] = 1
    log_retention_check_interval_ms: Annotated[
        int, Meta(ge=100, le=HOUR, description="How often partitions are looked at for what retention ends")
    ] = 5 * MINUTE
    message_max_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=2**31 - 1,
            description="Largest record batch, where the topic does not say (max.message.bytes)",
        ),
    ] = MIB + 12


class Groups(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=_kafka_name):
    """Consumer groups, under the names of Kafka's broker configs."""

    group_initial_rebalance_delay_ms: Annotated[
        int, Meta(ge=0, le=5 * MINUTE, description="How long an empty group waits for more members to join")
    ] = 3 * SECOND
    group_min_session_timeout_ms: Annotated[
        int, Meta(ge=1, le=HOUR, description="Shortest session timeout that a member may ask for")
    ] = 6 * SECOND
    group_max_session_timeout_ms: Annotated[
        int, Meta(ge=1, le=24 * HOUR, description="Longest session timeout that a member may ask for")
    ] = 30 * MINUTE
    group_max_size: Annotated[
        int, Meta(ge=1, le=100_000, description="Members that a group may have; further ones are refused")
    ] = 10_000
    offset_metadata_max_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=16 * KIB,
            description="Longest text beside a committed offset, in UTF-16 units as Kafka counts",
        ),
    ] = 4 * KIB
    offsets_retention_minutes: Annotated[
        int,
        Meta(
            ge=1,
            le=100 * 366 * 24 * 60,
            description="How long committed offsets stay that nobody reads on from, in minutes",
        ),
    ] = 7 * 24 * 60
    offsets_retention_check_interval_ms: Annotated[
        int, Meta(ge=100, le=24 * HOUR, description="How often committed offsets are looked at for expiry")
    ] = 10 * MINUTE


class Quotas(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=_kafka_name):
    """How use is measured against client quotas."""

    quota_window_num: Annotated[int, Meta(ge=2, le=3600, description="Samples that a rate is taken over")] = (
        11
    )
    quota_window_size_seconds: Annotated[
        int, Meta(ge=1, le=3600, description="Length of a sample in seconds")
    ] = 1
    meters: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Rates that are kept; beyond it that of the client silent for longest begins anew",
        ),
    ] = 10_000


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings, checked."""

    listeners: Listeners = Listeners()
    tls: Tls = Tls()
    storage: Storage = Storage()
    ledger: Ledger = Ledger()
    limits: Limits = Limits()
    cache: Cache = Cache()
    admin: Admin = Admin()
    log: Log = Log()
    broker: Broker = Broker()
    groups: Groups = Groups()
    quotas: Quotas = Quotas()


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table of settings. `type` is what msgspec checks, bounds included."""

    section: str
    key: str
    type: Any
    default: Any
    doc: str
    is_secret: bool
    """Its value is never shown, and not taken from the command line, which everyone may read."""

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


def unknown_variables(environment: Mapping[str, str]) -> Sequence[str]:
    """Variables that begin like ours and are like none of them, so that somebody else may have set them: a
    reason for a warning, not for an end."""
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
    """Whether a variable that is no setting was certainly meant to be one."""
    return variable.startswith(_SECTION_PREFIXES) or bool(_nearest_variable(variable))


def _nearest_variable(variable: str) -> str:
    """Compared without the prefix, which would make all of them alike."""
    near = _nearest(
        variable.removeprefix(ENVIRONMENT_PREFIX),
        [name.removeprefix(ENVIRONMENT_PREFIX) for name in _BY_ENVIRONMENT],
    )
    return near.replace("did you mean ", f"did you mean {ENVIRONMENT_PREFIX}")


def _checked(name: str, value: Any, source: str, *, text: bool) -> Any:
    setting = SETTINGS.get(name)
    if setting is None:
        raise ConfigError(f"unknown setting {name} ({source}){_nearest(name, list(SETTINGS))}")
    if text and setting.is_list:
        value = [part.strip() for part in value.split(",") if part.strip()]
    try:
        return msgspec.convert(value, setting.type, strict=not text)
    except msgspec.ValidationError as error:
        reason = str(error).split(" - at ")[0]
        shown = "..." if setting.is_secret else repr(value)
        raise ConfigError(f"{name} = {shown} ({source}): {_lower_first(reason)}") from None


def _nearest(wrong: str, right: Sequence[str]) -> str:
    close = difflib.get_close_matches(wrong, right, n=1, cutoff=NEAR)
    # A name without its section: data_dir, DATA_DIR.
    close = close or [name for name in right if name.endswith((f".{wrong}", f"_{wrong}"))]
    return f"; did you mean {close[0]}?" if len(close) == 1 else ""


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
    tls = settings.tls
    if tls.key_password and tls.key_password_file:
        raise ConfigError("tls.key_password and tls.key_password_file are both set: give one of them")
    if tls.client_auth != "none" and not tls.ca:
        raise ConfigError(f"tls.client_auth = {tls.client_auth} needs tls.ca, the CAs of client certificates")
