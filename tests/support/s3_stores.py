"""The S3 adapters over the servers of the tests."""

from typing import Final

from adapters.blobs.s3 import S3Blobs
from adapters.metadata.s3 import S3Metadata
from adapters.s3.client import Limits
from adapters.s3.opening import open_client

UNHEDGED: Final = Limits(hedge_share=0.0)
"""A request that is sent twice may meet its own effect: tests that count outcomes exactly do without."""


def s3_blobs(url: str, limits: Limits = UNHEDGED) -> S3Blobs:
    client, address = open_client(url, limits)
    return S3Blobs(client, address.prefix)


def s3_metadata(url: str, limits: Limits = UNHEDGED) -> S3Metadata:
    client, address = open_client(url, limits)
    return S3Metadata(client, address.prefix)
