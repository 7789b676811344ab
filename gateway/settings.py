"""The settings: name, type, default, bounds and description of each, once.

A section is a class, a setting one of its fields; `gateway/config.py` loads them. Settings of sections that
are renamed have the names of Kafka's configs (`broker.num.partitions`).
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from gateway.limit_settings import GIB, HOUR, KIB, MIB, MINUTE, SECOND
from gateway.limit_settings import SECRET as SECRET
from gateway.limit_settings import ConfigError as ConfigError
from gateway.limit_settings import Limits as Limits
from gateway.storage_settings import Storage as Storage

NEWEST_FEATURE_LEVEL: Final = 6
"""As `ledger.records` has it, which a connection need not load."""


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
            description="Addresses that clients connect to, HOST:PORT for each listener in order",
        ),
    ] = ()


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of all SSL:// listeners. SIGHUP reads the files again, for new connections."""

    certificate: Annotated[
        str, Meta(description="PEM file of the gateway's certificate and the intermediate ones up to its CA")
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
    ca: Annotated[str, Meta(description="PEM file of the CAs whose client certificates are accepted")] = ""
    client_auth: Annotated[
        str,
        Meta(
            pattern="^(none|optional|required)$",
            description="Client certificates: none, optional (checked if there is one) or required",
        ),
    ] = "none"
    min_version: Annotated[
        str, Meta(pattern=r"^(1\.2|1\.3)$", description="Oldest TLS version that is accepted: 1.2 or 1.3")
    ] = "1.2"

    def __repr__(self) -> str:
        # Settings may end up in a log; the password must not.
        return f"Tls(certificate={self.certificate!r}, client_auth={self.client_auth!r})"


class Internal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The internal listener, for jobs that rewrite what is stored. Who connects may change all data."""

    socket: Annotated[
        str,
        Meta(
            description="Unix socket for jobs of the gateway's own user on this host; empty = internal.sock "
            "in the data directory, if there is one; none = no socket"
        ),
    ] = ""
    listen: Annotated[
        tuple[str, ...],
        Meta(
            max_length=16,
            description="Where jobs of other hosts connect, each SSL://HOST:PORT (9094 by convention), with "
            "client certificates of internal.principals; PLAINTEXT://HOST:PORT on loopback alone, where "
            "every user of this host may change all data",
        ),
    ] = ()
    principals: Annotated[
        str,
        Meta(
            description="Principals of client certificates that may use the SSL:// listeners of "
            "internal.listen, separated by semicolons: User:CN=jobs,O=Example;User:CN=other"
        ),
    ] = ""
    ca: Annotated[
        str, Meta(description="PEM file of the CAs of these client certificates; empty = tls.ca")
    ] = ""
    connections: Annotated[
        int, Meta(ge=1, le=10_000, description="Internal connections; further ones are closed")
    ] = 64


class Ledger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shards: Annotated[
        int, Meta(ge=1, le=1, description="Number of journals; more than one is not supported yet")
    ] = 1
    draft_bytes: Annotated[
        int, Meta(ge=64 * KIB, le=256 * MIB, description="A draft is written when it holds this many bytes")
    ] = 8 * MIB
    draft_batches: Annotated[
        int, Meta(ge=1, le=3000, description="A draft is written when it holds this many batches")
    ] = 1000
    drafts_in_flight: Annotated[
        int,
        Meta(
            ge=1,
            le=256,
            description="Drafts that are written at the same time; over local files at most 4",
        ),
    ] = 32
    upload_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=4 * GIB,
            description="Bytes of drafts that are written at the same time; one draft may have more alone. "
            "With what waits for the journal at most four times as many",
        ),
    ] = 64 * MIB
    linger_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=MINUTE,
            description="While a draft is being written to `s3://` or `objects+...`, one that is not full "
            "begins this long after it; 0 = when it is written. Not used over local files",
        ),
    ] = 5
    feature_level: Annotated[
        int,
        Meta(
            ge=0,
            le=NEWEST_FEATURE_LEVEL,
            description="Raise the ledger's feature level to this one, for ever: older versions of "
            "Dragoman refuse the ledger then; 0 = leave it as it is (a new ledger has the newest)",
        ),
    ] = 0
    orphan_grace_ms: Annotated[
        int, Meta(ge=MINUTE, le=7 * 24 * HOUR, description="How long dead or orphaned objects stay")
    ] = HOUR
    takeover_wait_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=10 * MINUTE,
            description="A gateway that finds that others have taken the shard over twice within a minute "
            "waits this long, or up to twice as long, before it does so itself; at least 30 s if it owned "
            "the shard before; 0 = it never waits",
        ),
    ] = 30 * SECOND
    time_is_right_until: Annotated[
        str,
        Meta(
            description="Entry times up to this one, YYYY-MM-DDTHH:MM:SSZ, are right: after a jump ahead of "
            "more than an hour nothing counts as older for it until this says so, or a day has passed",
        ),
    ] = ""
    snapshot_bytes: Annotated[
        int, Meta(ge=MIB, le=64 * GIB, description="Journal bytes after which a snapshot is made")
    ] = 64 * MIB
    commit_timeout_ms: Annotated[
        int,
        Meta(ge=100, le=5 * MINUTE, description="How long topic changes and barriers wait for the journal"),
    ] = 10 * SECOND


class Housekeeping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    merge_runs: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000_000,
            description="With more runs of record batches than this outside of segments, or when four of "
            "five of at least 1,000 objects are small, a child process of low priority merges them; "
            "0 = never",
        ),
    ] = 100_000


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1024 * GIB,
            description="Memory for record batches that were written recently, and for objects of `s3://` "
            "and `objects+...` that were read or are being read; while both need it, each has half",
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
            description="Connections of that address; a further one replaces the one that has waited "
            "for a request the longest",
        ),
    ] = 64
    request_head_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=5 * MINUTE,
            description="A connection is closed that sends no request head for longer; a body that is not "
            "whole in as long is answered with 408",
        ),
    ] = 10 * SECOND
    tls: Annotated[
        bool,
        Meta(description="That address speaks TLS alone, with tls.certificate: https:// for probes, too"),
    ] = False
    principals: Annotated[
        str,
        Meta(
            description="With admin.tls: principals of client certificates that may use the console without "
            "a token, separated by semicolons: User:CN=ann,O=Example;User:CN=other"
        ),
    ] = ""
    ca: Annotated[
        str, Meta(description="PEM file of the CAs of these client certificates; empty = tls.ca")
    ] = ""
    console: Annotated[
        bool,
        Meta(
            description="The web console at / of that address; beyond loopback its data need "
            "admin.token_file or admin.principals"
        ),
    ] = True
    token_file: Annotated[
        str,
        Meta(
            description="File whose first line is the token of the console, at least 16 characters; with it "
            "the console needs the token on loopback too"
        ),
    ] = ""
    hosts: Annotated[
        tuple[str, ...],
        Meta(
            max_length=64,
            description="Host names in the URLs under which browsers reach the console; IP addresses and "
            "localhost always work",
        ),
    ] = ()
    read_records: Annotated[
        bool, Meta(description="The console shows keys, values and headers of records")
    ] = False
    write: Annotated[bool, Meta(description="The console may reset the offsets of groups")] = False


class Metrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topics: Annotated[
        bool,
        Meta(
            description="/metrics has series for each topic, partition and consumer group, the lag of groups "
            "among them"
        ),
    ] = False
    series: Annotated[
        int,
        Meta(
            ge=100,
            le=100_000,
            description="With metrics.topics: series with the name of a topic or group, at most. What does "
            "not fit is left out, topics and groups as a whole, and counted",
        ),
    ] = 10_000


class Traces(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    endpoint: Annotated[
        str,
        Meta(
            description="URL of a collector of OpenTelemetry for traces (OTLP over HTTP), such as "
            "http://127.0.0.1:4318/v1/traces; needs the extra otel; empty = no traces"
        ),
    ] = ""
    one_in: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000_000,
            description="One of so many Produce requests is traced, and at most 100 a second",
        ),
    ] = 1000


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

    node_id: Annotated[int, Meta(ge=0, le=2**31 - 1, description="Id of this gateway, as clients see it")] = 1
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
        int, Meta(ge=100, le=HOUR, description="How often retention is checked")
    ] = 5 * MINUTE
    message_max_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=2**31 - 1,
            description="Largest record batch, where the topic does not set max.message.bytes",
        ),
    ] = MIB + 12


class Groups(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=_kafka_name):
    """Consumer groups, under the names of Kafka's broker configs."""

    group_initial_rebalance_delay_ms: Annotated[
        int, Meta(ge=0, le=5 * MINUTE, description="How long an empty group waits for more members to join")
    ] = 3 * SECOND
    group_min_session_timeout_ms: Annotated[
        int, Meta(ge=1, le=HOUR, description="Shortest session timeout of a member")
    ] = 6 * SECOND
    group_max_session_timeout_ms: Annotated[
        int, Meta(ge=1, le=24 * HOUR, description="Longest session timeout of a member")
    ] = 30 * MINUTE
    group_max_size: Annotated[
        int, Meta(ge=1, le=100_000, description="Members that a group may have; further ones are refused")
    ] = 10_000
    offset_metadata_max_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=16 * KIB,
            description="Longest metadata text of a committed offset, in UTF-16 units as Kafka counts",
        ),
    ] = 4 * KIB
    offsets_retention_minutes: Annotated[
        int,
        Meta(
            ge=1,
            le=100 * 366 * 24 * 60,
            description="How long committed offsets stay that no consumer uses, in minutes",
        ),
    ] = 7 * 24 * 60
    offsets_retention_check_interval_ms: Annotated[
        int, Meta(ge=100, le=24 * HOUR, description="How often committed offsets are checked for expiry")
    ] = 10 * MINUTE


class Transactions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=_kafka_name):
    """Transactions, under the names of Kafka's broker configs."""

    transaction_max_timeout_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=2**31 - 1,
            description="Longest time that a producer may have for a transaction, in its "
            "`transaction.timeout.ms`; one that wants more is refused",
        ),
    ] = 15 * MINUTE
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=HOUR,
            description="How often open transactions are checked; one that takes longer than its producer "
            "said is aborted, and the producer fenced",
        ),
    ] = 10 * SECOND
    transactional_id_expiration_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=2**31 - 1,
            description="How long a transactional id is remembered that no producer uses; never forgotten "
            "while a transaction is open",
        ),
    ] = 7 * 24 * HOUR
    transaction_remove_expired_transaction_cleanup_interval_ms: Annotated[
        int, Meta(ge=100, le=24 * HOUR, description="How often transactional ids are checked for expiry")
    ] = HOUR


class Quotas(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=_kafka_name):
    """How usage is measured for client quotas."""

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
            description="Rates that are kept; beyond that the one that was not used for the longest starts "
            "again",
        ),
    ] = 10_000


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings, checked."""

    listeners: Listeners = Listeners()
    tls: Tls = Tls()
    internal: Internal = Internal()
    storage: Storage = Storage()
    ledger: Ledger = Ledger()
    limits: Limits = Limits()
    housekeeping: Housekeeping = Housekeeping()
    cache: Cache = Cache()
    metrics: Metrics = Metrics()
    traces: Traces = Traces()
    admin: Admin = Admin()
    log: Log = Log()
    broker: Broker = Broker()
    groups: Groups = Groups()
    transactions: Transactions = Transactions()
    quotas: Quotas = Quotas()
