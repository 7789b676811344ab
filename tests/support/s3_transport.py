"""A bucket in memory behind the port that the S3 client sends its requests through, for virtual time.

    transport.plan += [Answer(after_s=0.5), Answer(Trouble.LOST)]

The next requests behave as planned, one after the other; all others are answered after `usual_s`.
"""

import asyncio
import hashlib
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from adapters.s3.failures import Request, failure_of_status, uncertain
from adapters.s3.results import (
    Absent,
    Failed,
    Found,
    GetResult,
    Listed,
    OutOfRange,
    Page,
    PutResult,
    Refused,
    Stored,
)
from adapters.s3.transport import PAGE, Accept

T = TypeVar("T")
STORE = "s3://bucket/"


class Trouble(Enum):
    """What happens to a request."""

    NONE = "it has its effect and is answered"
    LOST = "it has its effect, and the connection breaks"
    CUT = "the connection breaks before the effect"
    SLOW_DOWN = "503 before the effect"
    ERROR_AFTER = "500 after the effect"
    CONFLICT = "409"
    DENIED = "403"
    LATE = "it has its effect only after the answer would have been due, which never comes"


@dataclass(frozen=True, slots=True)
class Answer:
    trouble: Trouble = Trouble.NONE
    after_s: float = 0.0
    """Virtual seconds until it is answered."""


class MemoryTransport:
    def __init__(self, usual_s: float = 0.0) -> None:
        self.objects: dict[str, bytes] = {}
        self.plan: deque[Answer] = deque()
        self.usual_s = usual_s
        self.bytes_a_s = math.inf
        """How fast the bytes of an object come, after the headers."""
        self.sent: list[str] = []
        """Operation and key of every request."""
        self.as_directories = False
        """List in the order of a file system, as SeaweedFS does."""

    async def put(self, key: str, data: bytes, expect: str | None) -> PutResult:
        def effect() -> PutResult:
            present = self.objects.get(key)
            if (None if present is None else etag_of(present)) != expect:
                return Refused()
            self.objects[key] = data
            return Stored(etag_of(data))

        return await self._send("put", key, effect)

    async def get(self, key: str, start: int, size: int | None, accept: Accept) -> GetResult:
        def effect() -> GetResult:
            found = self.objects.get(key)
            if found is None:
                return Absent()
            end = len(found) if size is None else start + size
            if end > len(found):
                return OutOfRange(len(found))
            return Found(found[start:end], etag_of(found))

        result = await self._send("get", key, effect)
        if not isinstance(result, Found):
            return result
        if (failed := accept(len(result.value))) is not None:
            return failed
        await asyncio.sleep(len(result.value) / self.bytes_a_s)
        return result

    async def size(self, key: str) -> int | Absent | Failed:
        def effect() -> int | Absent | Failed:
            return len(self.objects[key]) if key in self.objects else Absent()

        return await self._send("get", key, effect)

    async def page(self, directory: str, after: str) -> Page | Failed:
        def effect() -> Page | Failed:
            keys = [key for key in self._ordered() if key.startswith(directory)]
            follow = [key for key in keys if self._place(key) > self._place(after)] if after else keys
            return Page([Listed(key, len(self.objects[key])) for key in follow[:PAGE]])

        return await self._send("list", directory, effect)

    async def level(self, directory: str) -> Page | Failed:
        def effect() -> Page | Failed:
            names = [key[len(directory) :] for key in self._ordered() if key.startswith(directory)]
            objects = [Listed(directory + name, 1) for name in names if "/" not in name]
            below = {f"{directory}{name.partition('/')[0]}/": None for name in names if "/" in name}
            return Page(objects, list(below))

        return await self._send("list", directory, effect)

    async def delete(self, keys: Sequence[str]) -> int | Failed:
        def effect() -> int | Failed:
            for key in keys:
                self.objects.pop(key, None)
            return len(keys)

        return await self._send("delete", keys[0], effect)

    async def _send(self, operation: str, key: str, effect: Callable[[], T]) -> T | Failed:
        self.sent.append(f"{operation} {key}")
        answer = self.plan.popleft() if self.plan else Answer(after_s=self.usual_s)
        request = Request(STORE, operation, key)
        if answer.trouble in (Trouble.NONE, Trouble.LOST, Trouble.ERROR_AFTER):
            result = effect()
        if answer.trouble is Trouble.LATE:
            asyncio.get_running_loop().call_later(answer.after_s, effect)
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(answer.after_s)
        match answer.trouble:
            case Trouble.LOST | Trouble.CUT:
                return uncertain(request, "the store broke the connection off")
            case Trouble.SLOW_DOWN:
                return failure_of_status(request, 503)
            case Trouble.ERROR_AFTER:
                return failure_of_status(request, 500)
            case Trouble.CONFLICT:
                return failure_of_status(request, 409)
            case Trouble.DENIED:
                return failure_of_status(request, 403)
        return result

    def _ordered(self) -> list[str]:
        return sorted(self.objects, key=self._place)

    def _place(self, key: str) -> list[str]:
        return key.split("/") if self.as_directories else [key]


def etag_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
