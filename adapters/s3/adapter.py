"""What the stores in a bucket have in common: a client that they share, a prefix, and their end."""

from collections.abc import Sequence

from adapters.names import check_key
from adapters.s3.client import S3Client
from adapters.s3.listing import Listing
from ledger.errors import StoreUnavailable


class S3Adapter:
    durable_ack = True

    def __init__(self, client: S3Client, prefix: str = "") -> None:
        """`prefix` of every key: empty, or with a `/` at the end."""
        self._client = client
        self._prefix = prefix
        self._listing = Listing(client, prefix)
        self._closed = False
        client.enter()

    async def delete(self, keys: Sequence[str]) -> None:
        paths = [self._prefix + check_key(key) for key in keys]
        await self._open().delete(paths)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._client.leave()

    def _open(self) -> S3Client:
        if self._closed:
            raise StoreUnavailable(f"the store in {self._client.name} is closed")
        return self._client
