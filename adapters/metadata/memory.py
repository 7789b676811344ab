"""Metadata in memory, for tests and for trying things out: gone with the process."""

from bisect import bisect_left, insort
from collections.abc import Sequence

from adapters.names import check_metadata_key
from ledger.ports import SCAN_BYTES, Lost, PutOutcome, Versioned, Won


class MemoryMetadata:
    """A MetadataStore in a dictionary. May be shared within one event loop; then it is not exclusive."""

    durable_ack = False

    def __init__(self, exclusive: bool = True) -> None:
        self._exclusive = exclusive
        self._values: dict[str, Versioned] = {}
        self._keys: list[str] = []
        self._version = 0

    @property
    def exclusive(self) -> bool:
        return self._exclusive

    async def get(self, key: str) -> Versioned | None:
        return self._values.get(check_metadata_key(key))

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
        present = self._values.get(check_metadata_key(key))
        if (None if present is None else present.version) != expect:
            return Lost()
        if present is None:
            insort(self._keys, key)
        self._version += 1
        self._values[key] = Versioned(bytes(value), str(self._version))
        return Won(str(self._version))

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if self._values.pop(check_metadata_key(key), None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    async def close(self) -> None:
        return None
