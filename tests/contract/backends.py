"""The metadata stores that the contract suites run over."""

from adapters.metadata.memory import MemoryMetadata
from adapters.open import open_metadata
from ledger.ports import MetadataStore

AS_S3 = "memory as S3"
"""Promises no more than S3 does: shared, and its versions are hashes of the values."""
METADATA = ["memory:", AS_S3, "sqlite:{dir}/metadata.sqlite3"]
DURABLE_METADATA = [url for url in METADATA if not url.startswith("memory")]


def opened_metadata(url: str) -> MetadataStore:
    if url == AS_S3:
        return MemoryMetadata(exclusive=False, unique_versions=False)
    return open_metadata(url)
