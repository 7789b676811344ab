"""A bucket as a store: its client, the adapters over it, and the proof that it keeps their promises."""

import os
from dataclasses import dataclass
from typing import Final

import boto3

from adapters.blobs.s3 import S3Blobs
from adapters.metadata.s3 import S3Metadata
from adapters.proof import RACES, prove_blobs, prove_metadata
from adapters.s3.address import S3Address, completed, parse_address
from adapters.s3.checks import BucketChecks
from adapters.s3.client import Limits, S3Client
from adapters.s3.credentials import CredentialChain
from adapters.s3.multipart import Multipart
from adapters.s3.multipart_proof import is_create_only
from adapters.s3.options import S3Options, check_options
from adapters.s3.transport import ObstoreTransport
from adapters.threads import StoreThreads

CREDENTIALS_DEADLINE_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class S3Bucket:
    """One client, which all adapters of the bucket share; the last one that is closed closes it."""

    address: S3Address
    client: S3Client
    transport: ObstoreTransport
    multipart: Multipart
    checks: BucketChecks

    def blobs(self, prefix: str | None = None) -> S3Blobs:
        """`prefix` of their keys: that of the address, if none is given."""
        return S3Blobs(self.client, self.address.prefix if prefix is None else prefix)

    def metadata(self, prefix: str | None = None) -> S3Metadata:
        return S3Metadata(self.client, self.address.prefix if prefix is None else prefix)

    async def prove(self, metadata: S3Metadata, blobs: S3Blobs, races: int = RACES) -> None:
        """For start and doctor. From then on large objects go in parts, if the store keeps those create-only.
        Errors: StoreUnfit names the promise that the store broke; StoreUnavailable and OutcomeUnknown if it
        fails meanwhile."""
        await prove_metadata(metadata, self.client.name, races)
        await prove_blobs(blobs, self.client.name, races)
        await self.prove_multipart(self.address.prefix)

    async def prove_multipart(self, prefix: str) -> None:
        """By keys with this prefix. Large objects go in parts from now on, if the store keeps those
        create-only."""
        proved = await is_create_only(self.client, self.multipart, prefix)
        self.transport.multipart = self.multipart if proved and not self.multipart.unfit else None


def open_bucket(
    url: str | S3Address,
    limits: Limits | None = None,
    session: boto3.Session | None = None,
    options: S3Options | None = None,
) -> S3Bucket:
    """Nothing is sent yet. `session`: of the environment if there is none. Errors: BadAddress, and
    StoreUnavailable for a profile that does not exist, or a file of the options that cannot be used."""
    address = completed(parse_address(url) if isinstance(url, str) else url, os.environ)
    options = options or S3Options()
    check_options(address, options)
    name = str(address)
    threads = StoreThreads(f"the credentials of {name}", 1, CREDENTIALS_DEADLINE_S)
    chain = CredentialChain(name, threads, session)
    transport = ObstoreTransport(address, chain, options)
    multipart, checks = Multipart(address, chain, options), BucketChecks(address, chain, options)

    def close() -> None:
        threads.shut()
        multipart.shut()
        checks.shut()

    client = S3Client(transport, name, limits, on_close=close)
    return S3Bucket(address, client, transport, multipart, checks)
