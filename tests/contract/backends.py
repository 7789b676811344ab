"""The stores that the contract suites run over."""

from itertools import count
from pathlib import Path
from typing import Final

import pytest

from adapters.metadata.memory import MemoryMetadata
from adapters.open import open_blobs, open_metadata
from ledger.ports import Blobs, MetadataStore
from tests.support.s3_servers import S3_SERVERS, s3_server_named

AS_S3: Final = "memory as S3"
"""Promises no more than S3 does: shared, and its versions are hashes of the values."""
ETCD: Final = "etcd"
"""A real one, each test with a prefix of its own."""
FILER: Final = "filer"
"""The same, of SeaweedFS. It syncs nothing."""
METADATA: Final = ["memory:", AS_S3, "sqlite:{dir}/metadata.sqlite3", ETCD, FILER]
S3: Final = "s3"
ON_S3: Final = [f"{S3}: {server}" for server in S3_SERVERS]
"""Real ones, each test with a prefix of its own."""
DURABLE_METADATA: Final = [*(url for url in METADATA if not url.startswith("memory")), *ON_S3]
SHARED: Final = (AS_S3, ETCD, FILER, S3)
HASHES: Final = (AS_S3, S3)
"""Their versions are hashes of the values."""
BLOBS: Final = ["memory:", "file:{dir}", *ON_S3]
DURABLE_BLOBS: Final = [url for url in BLOBS if not url.startswith("memory:")]
S3_ACKNOWLEDGEMENTS: Final = 150
"""Of a writer that is killed: a put over HTTP takes longer than one to a local disk."""

_roots = count()


def kind_of(url: str) -> str:
    """Of a store that several processes may use: as in SHARED."""
    return url.partition("://")[0]


def acknowledgements(url: str) -> int:
    return S3_ACKNOWLEDGEMENTS if kind_of(url) == S3 else 1000


def blobs_url(request: pytest.FixtureRequest, directory: Path) -> str:
    """Of the blobs that the parameter of the fixture names."""
    if request.param in ON_S3:
        return s3_server_named(request, request.param.removeprefix(f"{S3}: ")).url()
    return str(request.param.format(dir=directory))


def opened_blobs(url: str) -> Blobs:
    if kind_of(url) == S3:
        # Imported here, since its packages are an extra.
        from tests.support.s3_stores import s3_blobs

        return s3_blobs(url)
    return open_blobs(url)


def metadata_url(request: pytest.FixtureRequest, directory: Path) -> str:
    """Of the store that the parameter of the fixture names."""
    if request.param in (ETCD, FILER):
        pytest.importorskip("adapters.rpc.channel", reason="needs grpcio: pip install dragoman[etcd]")
    if request.param == ETCD:
        return str(request.getfixturevalue("etcd").url())
    if request.param == FILER:
        port = request.getfixturevalue("weed").filer_grpc_port
        return f"filer://127.0.0.1:{port}/metadata/{next(_roots)}"
    return blobs_url(request, directory)


def opened_metadata(url: str) -> MetadataStore:
    if url == AS_S3:
        return MemoryMetadata(exclusive=False, unique_versions=False)
    if url.startswith("etcd:"):
        # Imported here, since gRPC is an extra.
        from adapters.metadata.etcd import EtcdMetadata
        from tests.support.rpc_limits import PATIENT

        return EtcdMetadata(url, limits=PATIENT)
    if kind_of(url) == S3:
        from tests.support.s3_stores import s3_metadata

        return s3_metadata(url)
    if url.startswith("filer:"):
        from adapters.metadata.filer import FilerMetadata
        from tests.support.rpc_limits import PATIENT

        return FilerMetadata(url, limits=PATIENT)
    return open_metadata(url)
