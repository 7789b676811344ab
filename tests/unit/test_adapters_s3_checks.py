"""The client of the checks of a bucket, in memory instead of boto3's."""

from collections.abc import Sequence
from typing import Any

import boto3
import pytest

from adapters.s3.address import parse_address
from adapters.s3.checks import BucketChecks
from adapters.s3.credentials import CredentialChain
from adapters.threads import StoreThreads
from ledger.errors import StoreUnavailable


class Client:
    """Its bucket has this time."""

    def __init__(self, date: str) -> None:
        self.date = date
        self.is_closed = False

    def head_bucket(self, **_: object) -> dict[str, Any]:
        assert not self.is_closed
        return {"ResponseMetadata": {"HTTPHeaders": {"date": self.date}}}

    def close(self) -> None:
        self.is_closed = True


class Session(boto3.Session):  # type: ignore[misc] # boto3 is Any to mypy
    """Makes one client."""

    def __init__(self, client: Client, secret: str = "secret") -> None:
        super().__init__("key", secret, region_name="us-east-1")
        self.clients = [client]

    def client(self, *_: object, **__: object) -> Any:
        return self.clients.pop()


class Chain(CredentialChain):
    """Finds a session after the other."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        super().__init__("s3://bucket/", StoreThreads("credentials", 1), sessions[0])
        self._sessions = list(sessions)

    def forget(self) -> None:
        self._sessions.pop(0)
        self._given = self._sessions[0]


def clients() -> list[Client]:
    return [Client(f"Thu, 01 Jan 1970 00:00:0{second} GMT") for second in (1, 2)]


async def test_credentials_that_were_replaced_are_those_of_the_next_check() -> None:
    first, second = clients()
    chain = Chain([Session(first), Session(second)])
    checks = BucketChecks(parse_address("s3://bucket"), chain)
    assert [await checks.unix_ms() for _ in range(2)] == [1_000, 1_000]
    chain.forget()
    assert [await checks.unix_ms() for _ in range(2)] == [2_000, 2_000]
    assert first.is_closed and not second.is_closed
    checks.shut()
    assert second.is_closed


async def test_a_check_without_credentials_fails_until_there_are_some() -> None:
    first, second = clients()
    chain = Chain([Session(first, secret=""), Session(second)])
    checks = BucketChecks(parse_address("s3://bucket"), chain)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="no credentials were found"):
            await checks.unix_ms()
    chain.forget()
    assert await checks.unix_ms() == 2_000
    checks.shut()
