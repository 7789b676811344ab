"""Blobs in memory, for tests and for trying things out: gone with the process."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from adapters.names import check_key
from ledger.errors import AlreadyExists, NotFound
from ledger.ports import BlobInfo
from ledger.types import Buffer


class MemoryBlobs:
    """Blobs in a dictionary. May be shared within one event loop."""

    durable_ack = False

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._keys: list[str] = []

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if check_key(key) in self._blobs:
            raise AlreadyExists(f"blob {key} is there already")
        self._blobs[key] = b"".join(parts)
        insort(self._keys, key)

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        blob = self._blobs.get(check_key(key))
        if blob is None:
            raise NotFound(f"there is no blob {key}")
        end = len(blob) if size is None else start + size
        if not 0 <= start <= end <= len(blob):
            raise NotFound(f"blob {key} has {len(blob)} bytes, no range from {start} to {end}")
        return blob[start:end]

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[BlobInfo]:
        first = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        found: list[BlobInfo] = []
        for key in self._keys[first : first + max(limit, 0)]:
            if not key.startswith(prefix):
                break
            found.append(BlobInfo(key, len(self._blobs[key])))
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if self._blobs.pop(check_key(key), None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    async def close(self) -> None:
        return None
