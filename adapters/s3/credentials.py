"""Credentials of a bucket, by boto3's chain: environment, profile, web identity, container or instance
role."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from adapters.threads import StoreThreads
from ledger.errors import StoreUnavailable

T = TypeVar("T")

USED_FOR: Final = timedelta(minutes=10)
"""After half of this obstore asks again. botocore renews temporary credentials long before they expire."""


RENEWED_AFTER_S: Final = 5.0
"""Credentials that the store refuses are looked for again at most this often."""


class CredentialChain:
    """What obstore calls for credentials. Its repr shows none."""

    def __init__(self, store: str, threads: StoreThreads, session: boto3.Session | None = None) -> None:
        """`session`: None for a new one of the environment. StoreUnavailable if a profile is unknown."""
        self._store = store
        self._threads = threads
        self.error: str | None = None
        """Why there are none now, in one sentence."""
        self._given = session
        self._found: boto3.Session | None = None
        self._region = self.session.region_name

    @property
    def session(self) -> boto3.Session:
        """Errors: StoreUnavailable."""
        if self._given is not None:
            return self._given
        # Another thread may forget it meanwhile.
        found = self._found
        if found is None:
            try:
                found = self._found = boto3.Session()
            except BotoCoreError as error:
                raise StoreUnavailable(self._sentence(error)) from None
        return found

    def forget(self) -> None:
        """Go through the chain again when credentials are next needed."""
        self._found = None

    def check(self) -> None:
        """Errors: StoreUnavailable if there are no credentials now. Blocks: a role may be asked for them."""
        self._frozen()

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Errors: StoreUnavailable."""
        return await self._threads.read(call)

    @property
    def region(self) -> str | None:
        return None if self._region is None else str(self._region)

    def __repr__(self) -> str:
        return f"CredentialChain({self._store})"

    async def __call__(self) -> dict[str, Any]:
        """In a thread: a role may be asked for over the network. Errors: StoreUnavailable, which obstore
        takes for an error of any kind; `error` keeps its sentence."""
        try:
            found = await self._threads.read(self._frozen)
        except StoreUnavailable as error:
            self.error = str(error)
            raise
        self.error = None
        return found

    def _frozen(self) -> dict[str, Any]:
        try:
            found = self.session.get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailable(self._sentence(error)) from None
        if frozen is None or not frozen.access_key or not frozen.secret_key:
            raise StoreUnavailable(
                f"{self._store}: no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "name a profile (AWS_PROFILE), or give the machine a role"
            )
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + USED_FOR,
        }

    def _sentence(self, error: Exception) -> str:
        # Of botocore's errors the kind alone is repeated: a text may quote a file or a response.
        return (
            f"{self._store}: the credentials could not be loaded ({type(error).__name__}); check AWS_PROFILE "
            "and the files of AWS tools, and the machine's role"
        )
