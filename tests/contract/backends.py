"""The metadata stores that the contract suites run over."""

from pathlib import Path
from typing import Final

import pytest

from adapters.metadata.memory import MemoryMetadata
from adapters.open import open_metadata
from ledger.ports import MetadataStore

AS_S3: Final = "memory as S3"
"""Promises no more than S3 does: shared, and its versions are hashes of the values."""
ETCD: Final = "etcd"
"""A real one, each test with a prefix of its own."""
METADATA: Final = ["memory:", AS_S3, "sqlite:{dir}/metadata.sqlite3", ETCD]
DURABLE_METADATA: Final = [url for url in METADATA if not url.startswith("memory")]
SHARED: Final = (AS_S3, ETCD)


def metadata_url(request: pytest.FixtureRequest, directory: Path) -> str:
    """Of the store that the parameter of the fixture names."""
    if request.param == ETCD:
        pytest.importorskip("adapters.rpc.channel", reason="needs the extra etcd: pip install dragoman[etcd]")
        return str(request.getfixturevalue("etcd").url())
    return str(request.param.format(dir=directory))


def opened_metadata(url: str) -> MetadataStore:
    if url == AS_S3:
        return MemoryMetadata(exclusive=False, unique_versions=False)
    if url.startswith("etcd:"):
        # Imported here, since gRPC is an extra.
        from adapters.metadata.etcd import EtcdMetadata

        return EtcdMetadata(url)
    return open_metadata(url)
