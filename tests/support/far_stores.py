"""Far stores for a whole gateway: a fresh, empty place in each of the rows of FAR_ROWS.

    def test_something(far: FarPlace, tmp_path: Path) -> None:  # runs once for each row
        with far_gateway(far, tmp_path / "first") as gateway:  # `dragoman serve`, with nothing on disk
            ...  # gateway.bootstrap, gateway.kill9(), gateway.restart()
        with far_gateway(far, tmp_path / "second") as gateway:  # an empty machine, the same stores
            ...

One row alone: `@pytest.mark.parametrize("far", ["etcd+s3"], indirect=True)`. A second place in one test:
`far_place(request, "bucket")`. In one process: `running_gateway(load_settings(far.settings(), {}))` of
`gateway.assembly`, with what a test sets besides. `far.options()` are the flags of `serve`. The credentials
are in the environment, which the fixture sets for this process and its children (`s3_servers.py`).

The servers (`weed` for S3 and filer, etcd) are shared by the tests of one process of pytest. A test that
kills one starts its own, and makes its place by hand: `FarPlace(row, metadata_url, data_url)`.
"""

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.gateway import NO_ENVIRONMENT, Gateway
from tests.support.s3_servers import BUCKET
from tests.support.weed import REGION, Weed

BUCKET_ALONE: Final = "bucket"
ETCD_S3: Final = "etcd+s3"
FILER_S3: Final = "filer+s3"
FAR_ROWS: Final = (BUCKET_ALONE, ETCD_S3, FILER_S3)
FAR_READY_TIMEOUT_S: Final = 90.0
"""The proof at the start is some hundred requests, and its libraries take a while to load."""
READ_ONLY: Final = Path("/proc")
"""A directory in which root, too, can make nothing."""


@dataclass(frozen=True, slots=True)
class FarPlace:
    """Where one cluster keeps everything."""

    row: str
    metadata: str
    data: str

    def settings(self) -> dict[str, object]:
        """Of `load_settings`."""
        # A filer of its own store (leveldb) syncs nothing.
        unsafe = {"storage.allow_unsafe_acks": True} if self.row == FILER_S3 else {}
        return {"storage.metadata": self.metadata, "storage.data": self.data, **unsafe}

    def options(self) -> list[str]:
        """Flags of `serve`."""
        unsafe = ["--set", "storage.allow_unsafe_acks=true"] if self.row == FILER_S3 else []
        return ["--metadata", self.metadata, "--data", self.data, *unsafe]


class FarGateway(Gateway):
    """One that works where nothing can be written. `directory` takes its log and ready file alone."""

    tree = READ_ONLY if sys.platform == "linux" else Gateway.tree

    def __init__(
        self,
        place: FarPlace,
        directory: Path,
        options: Sequence[str] = (),
        env: Mapping[str, str] = NO_ENVIRONMENT,
    ) -> None:
        super().__init__(directory, [*place.options(), *options], env, data_dir=Path("data"))

    def wait_until_ready(self, timeout_s: float = FAR_READY_TIMEOUT_S) -> None:
        super().wait_until_ready(max(timeout_s, FAR_READY_TIMEOUT_S))


@contextmanager
def far_gateway(
    place: FarPlace, directory: Path, options: Sequence[str] = (), env: Mapping[str, str] = NO_ENVIRONMENT
) -> Iterator[FarGateway]:
    gateway = FarGateway(place, directory, options, env)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.stop()


@pytest.fixture(params=FAR_ROWS)
def far(request: pytest.FixtureRequest) -> FarPlace:
    return far_place(request, request.param)


def far_place(request: pytest.FixtureRequest, row: str) -> FarPlace:
    """An empty one. The servers that it needs are started by its first use."""
    request.getfixturevalue("weed_s3")
    weed: Weed = request.getfixturevalue("weed")
    name = f"far-{uuid.uuid4().hex}"
    match row:
        case "bucket":
            metadata = s3_url(weed, f"{name}/metadata")
        case "etcd+s3":
            metadata = request.getfixturevalue("etcd").url()
        case "filer+s3":
            metadata = f"filer://{weed.host}:{weed.filer_grpc_port}/{name}"
        case _:
            raise ValueError(row)
    return FarPlace(row, metadata, s3_url(weed, f"{name}/data"))


def s3_url(weed: Weed, prefix: str) -> str:
    return f"s3://{BUCKET}/{prefix}?endpoint={weed.s3_endpoint}&region={REGION}"
