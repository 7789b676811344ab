"""Far stores of one gateway: S3, etcd, a SeaweedFS filer. Their libraries are loaded for the URLs that need
them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from adapters.proof import all_of, prove_blobs, prove_metadata
from adapters.rpc.tls import Tls
from ledger.errors import StoreError, StoreUnavailable, StoreUnfit
from ledger.ports import Blobs, MetadataStore

if TYPE_CHECKING:
    from adapters.s3.address import S3Address
    from adapters.s3.bucket import S3Bucket

log = structlog.get_logger(__name__)

A = TypeVar("A")
T = TypeVar("T")

EXTRAS: Final = {"s3": "s3", "etcd": "etcd", "filer": "seaweedfs"}
"""By the scheme of a URL, what its packages come with."""
PACKAGES: Final = ("boto3", "botocore", "obstore", "grpc", "google")
"""The first names of their modules."""
PROOF_DEADLINE_S: Final = 60.0


class UnknownStore(ValueError):
    """The URL names no backend that this installation has, or not in the form that the backend wants. The
    message repeats no part of it that may be a secret."""


@dataclass(frozen=True, slots=True)
class FarOptions:
    """What a URL does not say, as the settings `storage.*` of the same names. Paths are PEM files; empty:
    not set."""

    etcd_user: str = ""
    etcd_password: str = field(default="", repr=False)
    etcd_ca: str = ""
    etcd_certificate: str = ""
    etcd_key: str = ""
    filer_ca: str = ""
    filer_certificate: str = ""
    filer_key: str = ""
    s3_ca: str = ""
    s3_path_style: bool | None = None
    """None: as the endpoint wants it."""
    s3_kms_key: str = ""


@dataclass(slots=True)
class Inspection:
    """Sentences of `doctor`."""

    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class FarStores:
    """Opens far stores and proves them. One client for each bucket, however many stores are in it."""

    def __init__(self, options: FarOptions | None = None) -> None:
        self._options = options or FarOptions()
        self._buckets: dict[S3Address, S3Bucket] = {}
        """By their addresses without a prefix."""
        self._metadata: list[tuple[MetadataStore, str]] = []
        """Each with its name for messages."""
        self._blobs: dict[tuple[str, str], tuple[Blobs, S3Bucket]] = {}
        """By name and prefix: segments and snapshots are in the same ones, which are proved once."""
        self._places: dict[tuple[str, str], tuple[S3Bucket, str]] = {}
        """Of metadata too: the prefixes that are used, by the same."""
        self.failing_places: dict[str, str] = {}
        """Buckets that topics were adopted from and that are out of reach, each with the reason."""

    @property
    def options(self) -> FarOptions:
        """What URLs do not say."""
        return self._options

    def metadata(self, url: str) -> MetadataStore:
        """`s3://`, `etcd://` or `filer://`. Errors: UnknownStore, and those of `adapters/open.py`."""
        scheme = url.partition(":")[0]
        with _with_extra(scheme):
            match scheme:
                case "s3":
                    opened = self._s3(url)
                case "etcd":
                    opened = self._etcd(url)
                case _:
                    opened = self._filer(url)
        self._metadata.append(opened)
        return opened[0]

    def blobs(self, url: str) -> Blobs:
        """`s3://`. Errors: as `metadata`."""
        with _with_extra("s3"):
            bucket, prefix = self._bucket(url)
            store = bucket.blobs(prefix)
        self._blobs[bucket.client.name, prefix] = store, bucket
        return store

    async def unix_ms(self) -> int | None:
        """The time of a bucket's store, to the second; None if there is no bucket, or it does not tell.
        Errors: StoreUnavailable."""
        for bucket in self._buckets.values():
            return await bucket.checks.unix_ms()
        return None

    async def prove(self, deadline_s: float = PROOF_DEADLINE_S) -> None:
        """All stores that were opened. StoreUnfit names the promise that one of them broke, or the rule of
        its bucket that would delete objects; StoreUnavailable and OutcomeUnknown if one fails meanwhile, or
        is too slow."""
        checks = [bucket.checks.refuse_unfit(prefix) for bucket, prefix in self._places.values()]
        proofs = self._proofs()
        try:
            async with asyncio.timeout(deadline_s):
                await all_of([*(proof() for _, proof in proofs), *checks])
        except TimeoutError:
            raise StoreUnavailable(
                f"the proof of {' and '.join(name for name, _ in proofs)} took more than {deadline_s:g} s: "
                "look at the load of the store, and at the network"
            ) from None

    async def prove_uploads(self, deadline_s: float = PROOF_DEADLINE_S) -> None:
        """Large objects go in parts from now on, where that proves to be create-only; until then, and where
        it does not, each goes in one PUT. Never fails."""
        for (name, prefix), (_, bucket) in self._blobs.items():
            try:
                async with asyncio.timeout(deadline_s):
                    await bucket.prove_multipart(prefix)
            except (TimeoutError, StoreError) as error:
                log.warning("s3.multipart_unproved", store=name, error=str(error) or "it took too long")
            except Exception:
                # Nobody waits for this, and a gateway does without.
                log.exception("s3.multipart_unproved", store=name)

    async def inspect(self) -> Inspection:
        """For `doctor`: the same proof, one store after the other, and what the settings of buckets mean.
        Unfinished uploads of long ago are aborted. Errors: StoreUnavailable and OutcomeUnknown."""
        inspection = Inspection()
        for name, proof in self._proofs():
            try:
                await proof()
            except StoreUnfit as error:
                inspection.findings.append(f"proof: {error}")
            else:
                inspection.notes.append(f"proof: {name} keeps what the ledger rests on")
        for bucket, prefix in self._places.values():
            found = await bucket.checks.inspect(prefix)
            name = f"{replace(bucket.address, prefix=prefix)}"
            inspection.findings += [f"{name}: {text}" for text in (*found.refusals, *found.findings)]
            inspection.notes += [f"{name}: {text}" for text in found.notes]
        for (_, prefix), (_, bucket) in self._blobs.items():
            await bucket.prove_multipart(prefix)
            if bucket.multipart.unfit:
                inspection.findings.append(f"uploads in parts: {bucket.multipart.unfit}")
            how = (
                "in parts" if bucket.transport.multipart is not None else "in one PUT, as it proved no other"
            )
            inspection.notes.append(f"uploads: large objects go to {bucket.client.name} {how}")
        return inspection

    def _proofs(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """Each with what is proved."""
        proofs: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        for metadata, name in self._metadata:
            proofs.append((f"the metadata in {name}", partial(prove_metadata, metadata, name)))
        for (name, _), (blobs, _) in self._blobs.items():
            proofs.append((f"the data in {name}", partial(prove_blobs, blobs, name)))
        return proofs

    def _bucket(self, url: str) -> tuple["S3Bucket", str]:
        """The bucket of a URL, and the prefix of its keys."""
        from adapters.s3.address import parse_address
        from adapters.s3.bucket import open_bucket
        from adapters.s3.options import S3Options

        address = _parsed(parse_address, url)
        whole = replace(address, prefix="")
        if whole not in self._buckets:
            options = self._options
            given = S3Options(_path(options.s3_ca), options.s3_path_style, options.s3_kms_key)
            self._buckets[whole] = _parsed(partial(open_bucket, options=given), whole)
        bucket = self._buckets[whole]
        self._places[bucket.client.name, address.prefix] = bucket, address.prefix
        return bucket, address.prefix

    def _s3(self, url: str) -> tuple[MetadataStore, str]:
        bucket, prefix = self._bucket(url)
        return bucket.metadata(prefix), bucket.client.name

    def _etcd(self, url: str) -> tuple[MetadataStore, str]:
        from adapters.metadata.etcd import EtcdMetadata
        from adapters.metadata.etcd_address import Login, address_of

        options = self._options
        address = _parsed(address_of, url)
        tls = _tls(options.etcd_ca, options.etcd_certificate, options.etcd_key)
        login = Login(options.etcd_user, options.etcd_password) if options.etcd_user else None
        return EtcdMetadata(url, tls=tls, login=login), str(address)

    def _filer(self, url: str) -> tuple[MetadataStore, str]:
        from adapters.metadata.filer import FilerMetadata
        from adapters.metadata.filer_client import address_of

        options = self._options
        address = _parsed(address_of, url)
        tls = _tls(options.filer_ca, options.filer_certificate, options.filer_key)
        return FilerMetadata(url, tls=tls), str(address)


def _path(path: str) -> Path | None:
    return Path(path) if path else None


def _tls(ca: str, certificate: str, key: str) -> Tls | None:
    """None: nothing is encrypted."""
    return Tls(_path(ca), _path(certificate), _path(key)) if ca or certificate else None


def _parsed(parse: Callable[[A], T], given: A) -> T:
    """Errors: UnknownStore for a ValueError."""
    try:
        return parse(given)
    except ValueError as error:
        raise UnknownStore(str(error)) from None


@contextmanager
def _with_extra(scheme: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        raise UnknownStore(
            f"{scheme}: needs the package {error.name}, which is not installed: "
            f"pip install 'dragoman[{EXTRAS[scheme]}]'"
        ) from None
