"""The settings `storage.*`: where metadata and records are kept, and how stores elsewhere are reached."""

from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.limit_settings import GIB, KIB, MIB, SECRET


class Storage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data_dir: Annotated[
        str,
        Meta(min_length=1, description="Directory of the embedded stores, and of the lock that guards them"),
    ] = "data"
    metadata: Annotated[
        str,
        Meta(
            description="URL of the metadata store: file:DIR (a local log), sqlite:PATH, "
            "s3://BUCKET/PREFIX[?endpoint=URL&region=R], etcd://HOST[,HOST]/PREFIX, filer://HOST/ROOT "
            "(SeaweedFS) or memory:; empty = where the data directory has it, in a new one its local log"
        ),
    ] = ""
    data: Annotated[
        str,
        Meta(
            description="URL of the record data: file:DIR, s3://BUCKET/PREFIX[?endpoint=URL&region=R] or "
            "memory:; empty = file: in the data directory"
        ),
    ] = ""
    image: Annotated[
        str,
        Meta(
            description="Where the state is kept for a fast restart: none, or sqlite:PATH, which may be "
            "lost; empty = image.db in the data directory if metadata or data is on this host, else none",
        ),
    ] = ""
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
    inline_bytes: Annotated[
        int,
        Meta(
            ge=-1,
            le=256 * KIB,
            description="Drafts of up to this size are written inside of their journal entry and moved into "
            "objects later: one write less for each; 0 = none are, -1 = up to 256 KiB where the metadata is "
            "in S3, 16 KiB in etcd or a filer, none on this host. Needs ledger.feature_level 5",
        ),
    ] = -1
    inline_rate: Annotated[
        int,
        Meta(
            ge=1024,
            le=1024 * MIB,
            description="Bytes a second that are written so at most; drafts beyond go into objects",
        ),
    ] = MIB
    etcd_user: Annotated[str, Meta(max_length=256, description="User of etcd; empty = none")] = ""
    etcd_password: Annotated[
        str,
        Meta(
            description="Password of the user of etcd; set it in the environment, never on the command line",
            extra={SECRET: True},
        ),
    ] = ""
    etcd_password_file: Annotated[
        str, Meta(description="File whose first line is the password of the user of etcd")
    ] = ""
    etcd_ca: Annotated[
        str,
        Meta(
            description="PEM file of the CAs of etcd's certificate. With this or etcd_certificate the "
            "connections are encrypted; without it by the CAs of this machine"
        ),
    ] = ""
    etcd_certificate: Annotated[
        str, Meta(description="PEM file of the client certificate for etcd, where it asks for one")
    ] = ""
    etcd_key: Annotated[str, Meta(description="PEM file of its private key")] = ""
    etcd_quota_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1024 * GIB,
            description="Quota of etcd (its --quota-backend-bytes): at 60 % there is a warning, from 80 % on "
            "there are no new topics; 0 = what etcd reports (3.6 and newer), else its default of 2 GiB",
        ),
    ] = 0
    filer_ca: Annotated[
        str,
        Meta(
            description="PEM file of the CAs of the filer's certificate. With this or filer_certificate the "
            "connection is encrypted; without it by the CAs of this machine"
        ),
    ] = ""
    filer_certificate: Annotated[
        str, Meta(description="PEM file of the client certificate for the filer, where it asks for one")
    ] = ""
    filer_key: Annotated[str, Meta(description="PEM file of its private key")] = ""
    s3_ca: Annotated[
        str,
        Meta(
            description="PEM file of the CAs of the S3 endpoint's certificate; empty = those of this machine"
        ),
    ] = ""
    s3_path_style: Annotated[
        str,
        Meta(
            pattern="^(auto|true|false)$",
            description="Whether the bucket is in the path of a request (true) or in its host (false); "
            "auto = in the host for Amazon's own endpoints",
        ),
    ] = "auto"
    s3_kms_key: Annotated[
        str,
        Meta(
            max_length=2048,
            description="Id or ARN of the KMS key that all objects are encrypted with; empty = as the bucket "
            "does by default",
        ),
    ] = ""

    def __repr__(self) -> str:
        # Settings may end up in a log; the password must not.
        return f"Storage(data_dir={self.data_dir!r}, metadata={self.metadata!r}, data={self.data!r})"
