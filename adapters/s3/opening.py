"""From the URL of a bucket to its client. Nothing is sent yet."""

from typing import Final

import boto3

from adapters.s3.address import S3Address, parse_address
from adapters.s3.client import Limits, S3Client
from adapters.s3.credentials import CredentialChain
from adapters.s3.transport import ObstoreTransport
from adapters.threads import StoreThreads

CREDENTIALS_DEADLINE_S: Final = 20.0


def open_client(
    url: str, limits: Limits | None = None, session: boto3.Session | None = None
) -> tuple[S3Client, S3Address]:
    """`session`: of the environment if there is none. Errors: BadAddress, and StoreUnavailable for a profile
    that does not exist."""
    address = parse_address(url)
    name = str(address)
    threads = StoreThreads(f"the credentials of {name}", 1, CREDENTIALS_DEADLINE_S)
    transport = ObstoreTransport(address, CredentialChain(name, threads, session))
    return S3Client(transport, name, limits, on_close=threads.shut), address
