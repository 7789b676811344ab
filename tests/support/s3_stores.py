"""The S3 adapters over the servers of the tests."""

from typing import Final

from adapters.blobs.s3 import S3Blobs
from adapters.metadata.s3 import S3Metadata
from adapters.s3.bucket import open_bucket
from adapters.s3.client import Limits

PATIENT: Final = Limits(hedge_share=0.0, attempt_s=60.0, deadline_s=120.0)
"""No outcome is unknown since a server stands still for a while on a busy machine. A request that is sent
twice may meet its own effect: tests that count outcomes exactly do without."""


def s3_blobs(url: str) -> S3Blobs:
    return open_bucket(url, PATIENT).blobs()


def s3_metadata(url: str) -> S3Metadata:
    return open_bucket(url, PATIENT).metadata()
