"""S3 servers on loopback for tests of adapters: SeaweedFS, and moto for quick runs (fixture `s3_server`).

Both take the credentials that the fixture puts into the environment, where boto3's chain and child processes
find them. A server is shared by the tests of one process of pytest: a test takes a prefix of its own.
"""

import os
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pytest

from tests.support.weed import ACCESS_KEY, HOST, REGION, SECRET_KEY, Weed

BUCKET: Final = "tests"
MOTO: Final = "moto"
SEAWEEDFS: Final = "SeaweedFS"
S3_SERVERS: Final = (MOTO, SEAWEEDFS)
ENVIRONMENT: Final = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    # Nothing on loopback is behind a proxy. Some read the one name, some the other.
    "NO_PROXY": HOST,
    "no_proxy": HOST,
}
FOREIGN_VARIABLES: Final = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
"""Of the person who runs the tests."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """One bucket."""

    name: str
    endpoint: str

    def url(self, prefix: str | None = None) -> str:
        """With a prefix of its own, unless one is given."""
        return f"s3://{BUCKET}/{prefix or uuid.uuid4().hex}?endpoint={self.endpoint}&region={REGION}"

    def boto3_client(self) -> Any:
        """Sends each request once. May be used by several threads."""
        return _boto3_client(self.endpoint)


@lru_cache
def _boto3_client(endpoint: str) -> Any:
    """Cached, since it takes a while to make."""
    import boto3
    from botocore.config import Config

    once = Config(
        retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=20, s3={"addressing_style": "path"}
    )
    session = boto3.Session(ACCESS_KEY, SECRET_KEY, region_name=REGION)
    return session.client("s3", endpoint_url=endpoint, config=once)


@pytest.fixture(scope="session")
def aws_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        for name in FOREIGN_VARIABLES:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def weed_s3(weed: Weed, aws_environment: None) -> S3Server:
    server = S3Server(SEAWEEDFS, weed.s3_endpoint)
    server.boto3_client().create_bucket(Bucket=BUCKET)
    return server


@pytest.fixture(scope="session")
def moto_s3(aws_environment: None) -> Iterator[S3Server]:
    """Serves one request at a time: moto compares and writes in two steps, which two threads would mix up."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):  # type: ignore[misc] # werkzeug is Any to mypy
        def log(self, *args: object) -> None:
            """No line a request."""

    application = DomainDispatcherApplication(create_backend_app)
    listener = make_server(HOST, 0, application, threaded=False, request_handler=Silent)
    thread = threading.Thread(target=listener.serve_forever, name="moto", daemon=True)
    thread.start()
    server = S3Server(MOTO, f"http://{HOST}:{listener.server_port}")
    server.boto3_client().create_bucket(Bucket=BUCKET)
    yield server
    listener.shutdown()
    thread.join(10.0)
    listener.server_close()


@pytest.fixture(params=S3_SERVERS)
def s3_server(request: pytest.FixtureRequest) -> S3Server:
    return s3_server_named(request, request.param)


def s3_server_named(request: pytest.FixtureRequest, name: str) -> S3Server:
    """Started by its first use."""
    server = request.getfixturevalue("moto_s3" if name == MOTO else "weed_s3")
    assert isinstance(server, S3Server)
    return server
