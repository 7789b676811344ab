"""Metadata in memory, for tests and for trying things out: gone with the process."""

import hashlib
from bisect import bisect_left, insort
from collections.abc import Sequence

from adapters.names import check_key
from ledger.ports import SCAN_BYTES, Lost, PutOutcome, Versioned, Won


class MemoryMetadata:
    """A MetadataStore in a dictionary. May be shared within one event loop; then it is not exclusive."""

    durable_ack = False

    def __init__(self, exclusive: bool = True, unique_versions: bool = True) -> None:
        """With neither it promises no more than S3 does: versions are then hashes of the values."""
        self._exclusive = exclusive
        self._unique_versions = unique_versions
        self._values: dict[str, Versioned] = {}
        self._keys: list[str] = []
        self._version = 0

    @property
    def exclusive(self) -> bool:
        return self._exclusive

    @property
    def unique_versions(self) -> bool:
        return self._unique_versions

    async def get(self, key: str) -> Versioned | None:
        return self._values.get(check_key(key))

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        first = bisect_left(self._keys, max(prefix, start))
        found: list[tuple[str, Versioned]] = []
        size = 0
        for key in self._keys[first : first + max(limit, 0)]:
            if not key.startswith(prefix):
                break
            found.append((key, self._values[key]))
            size += len(self._values[key].value)
            if size >= SCAN_BYTES:
                break
        return found

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        present = self._values.get(check_key(key))
        if (None if present is None else present.version) != expect:
            return Lost()
        if present is None:
            insort(self._keys, key)
        version = self._new_version(value)
        self._values[key] = Versioned(bytes(value), version)
        return Won(version)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if self._values.pop(check_key(key), None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    async def close(self) -> None:
        return None

    def _new_version(self, value: bytes) -> str:
        if not self._unique_versions:
            return hashlib.sha256(value).hexdigest()
        self._version += 1
        return str(self._version)
