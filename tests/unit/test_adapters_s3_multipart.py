"""Uploads in parts, one thread beside the other, through a client in memory instead of boto3's."""

import asyncio
import threading
import tracemalloc
from typing import Any

import boto3
from botocore.exceptions import ClientError

from adapters.s3.address import parse_address
from adapters.s3.credentials import CredentialChain
from adapters.s3.multipart import Multipart
from adapters.s3.results import Failed, Stored
from adapters.threads import StoreThreads

PART_BYTES = 64 * 1024
PARTS = 40


class Client:
    """Of one session."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.is_closed = False

    def create_multipart_upload(self, **_: object) -> dict[str, Any]:
        if self.error:
            response = {"Error": {"Code": self.error}, "ResponseMetadata": {"HTTPStatusCode": 400}}
            raise ClientError(response, "CreateMultipartUpload")
        return {"UploadId": "1"}

    def upload_part(self, Body: bytes, **_: object) -> dict[str, Any]:  # boto3's name
        assert isinstance(Body, bytes)
        return {"ETag": str(len(Body))}

    def complete_multipart_upload(self, **_: object) -> dict[str, Any]:
        return {"ETag": "done"}

    def close(self) -> None:
        self.is_closed = True


class Session(boto3.Session):  # type: ignore[misc] # boto3 is Any to mypy
    """Makes clients only when it may."""

    def __init__(self, *clients: Client) -> None:
        super().__init__("key", "secret", region_name="us-east-1")
        self.clients = list(clients)
        self.is_asked = threading.Event()
        self.may = threading.Event()

    def client(self, *_: object, **__: object) -> Any:
        self.is_asked.set()
        assert self.may.wait(60.0)
        return self.clients.pop(0)


class Chain(CredentialChain):
    """Finds a session after the other."""

    def __init__(self, *sessions: Session) -> None:
        super().__init__("s3://bucket/", StoreThreads("credentials", 1), sessions[0])
        self._sessions = list(sessions)

    def forget(self) -> None:
        self._sessions.pop(0)
        self._given = self._sessions[0]


def uploads(*sessions: Session) -> Multipart:
    chain = Chain(*sessions)
    return Multipart(parse_address("s3://bucket"), chain, above=PART_BYTES, part_bytes=PART_BYTES)


async def test_an_upload_beside_the_first_one_waits_for_the_client() -> None:
    session = Session(Client())
    multipart = uploads(session)
    first = asyncio.ensure_future(multipart.put("a", b"a"))
    await asyncio.to_thread(session.is_asked.wait)
    second = asyncio.ensure_future(multipart.put("b", b"b"))
    done, _ = await asyncio.wait([second], timeout=0.05)
    session.may.set()
    assert not done
    assert [await first, await second] == [Stored("done"), Stored("done")]
    multipart.shut()


async def test_credentials_that_have_expired_are_looked_for_again() -> None:
    sessions = Session(Client("ExpiredToken")), Session(Client())
    for session in sessions:
        session.may.set()
    multipart = uploads(*sessions)
    refused = await multipart.put("a", b"a")
    assert isinstance(refused, Failed)
    assert "the credentials have expired" in refused.reason
    assert await multipart.put("a", b"a") == Stored("done")
    multipart.shut()


async def test_a_client_is_closed_with_its_uploads() -> None:
    client = Client()
    session = Session(client)
    session.may.set()
    multipart = uploads(session)
    await multipart.put("a", b"a")
    assert not client.is_closed
    multipart.shut()
    assert client.is_closed


async def test_of_a_large_object_only_the_parts_under_way_are_copied() -> None:
    session = Session(Client())
    session.may.set()
    multipart = uploads(session)
    data = bytes(PARTS * PART_BYTES)
    await multipart.put("warm", b"a")
    tracemalloc.start()
    try:
        assert await multipart.put("a", data) == Stored("done")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    multipart.shut()
    assert peak < len(data) / 2
