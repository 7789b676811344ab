"""Listings in the order of keys, also from a store that lists in another order.

S3 lists keys by code point: `b-c` before `b/a`. SeaweedFS lists directories as a file system does: `b/` with
all that is below, then `b-c`. Within one directory both have the same order. So directories are listed one by
one, sorted here, and only the lowest ones, which may have millions of objects, are read page by page in the
order of the store. `KEY_PARTS` says which those are; below a kind that it does not name, every directory is
read wholly.
"""

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from adapters.names import check_key
from adapters.s3.client import S3Client
from adapters.s3.results import Absent, Listed
from adapters.s3.transport import PAGE
from ledger.keys import JOB_PREFIXES, KEY_PARTS

_SOUND: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_JOB_PATH: Final = re.compile(rf"(?:[0-9a-f]+/)*{_SOUND.pattern}")
"""Below the prefix of what jobs write."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Keys with this prefix that are > `first`, or equal to it if it is included."""

    prefix: str
    first: str = ""
    included: bool = False

    def has(self, key: str) -> bool:
        above = key >= self.first if self.included else key > self.first
        return above and key.startswith(self.prefix)

    def may_be_below(self, directory: str) -> bool:
        on_the_way = directory.startswith(self.prefix) or self.prefix.startswith(directory)
        return on_the_way and (directory > self.first or self.first.startswith(directory))

    def name_before(self, directory: str) -> str:
        """A name in the directory that no wanted key's name precedes or equals; empty if there is none."""
        candidates = [""]
        if self.first.startswith(directory):
            name = self.first[len(directory) :]
            # What is included must lie after the name.
            candidates.append(_sound(name[:-1] if self.included else name))
        if self.prefix.startswith(directory):
            candidates.append(_sound(self.prefix[len(directory) :][:-1]))
        return max(candidates)


class Listing:
    """The keys of one prefix of a bucket, without that prefix."""

    def __init__(self, client: S3Client, root: str) -> None:
        self._client = client
        self._root = root

    async def objects(self, wanted: Wanted) -> AsyncGenerator[Listed, None]:
        """Ascending by key. What has no key that a store takes is left out: another program put it there."""
        directory = wanted.prefix.rpartition("/")[0]
        if directory:
            directory += "/"
        if wanted.may_be_below(directory):
            async for listed in self._below(directory, wanted):
                yield listed

    async def _below(self, directory: str, wanted: Wanted) -> AsyncGenerator[Listed, None]:
        if _is_lowest(directory):
            found = self._pages(directory, wanted, wanted.name_before(directory))
        elif (path := _path_before(directory, wanted)) is not None:
            found = self._pages(directory, wanted, path)
        else:
            found = self._level(directory, wanted)
        async for listed in found:
            yield listed

    async def _level(self, directory: str, wanted: Wanted) -> AsyncGenerator[Listed, None]:
        page = await self._client.level(self._root + directory)
        objects = {listed.key.removeprefix(self._root): listed for listed in page.objects}
        directories = {path.removeprefix(self._root) for path in page.directories}
        for key in sorted({*objects, *directories}):
            if key in directories:
                if wanted.may_be_below(key):
                    async for listed in self._below(key, wanted):
                        yield listed
            elif wanted.has(key) and _is_sound(key) and await self._is_object(objects[key]):
                yield Listed(key, objects[key].size)

    async def _is_object(self, listed: Listed) -> bool:
        """SeaweedFS lists a directory that has become empty as an object without bytes."""
        return listed.size > 0 or not isinstance(await self._client.size(listed.key), Absent)

    async def _pages(self, directory: str, wanted: Wanted, before: str) -> AsyncGenerator[Listed, None]:
        """`before`: a name or path in the directory that no wanted key's precedes or equals; or empty."""
        after = f"{self._root}{directory}{before}" if before else ""
        while True:
            page = await self._client.page(self._root + directory, after)
            for listed in page.objects:
                key = listed.key.removeprefix(self._root)
                if wanted.has(key) and _is_sound(key):
                    yield Listed(key, listed.size)
                elif key > wanted.prefix and not key.startswith(wanted.prefix):
                    return
            if len(page.objects) < PAGE:
                return
            after = page.objects[-1].key


def _is_lowest(directory: str) -> bool:
    """No key has a directory below this one."""
    return KEY_PARTS.get(directory.partition("/")[0]) == directory.count("/") + 1


def _is_whole(key: str) -> bool:
    """No directory has this name."""
    return _is_lowest(key.rpartition("/")[0] + "/")


def _path_before(directory: str, wanted: Wanted) -> str | None:
    """A path in a directory of what jobs write that no wanted key's precedes or equals; empty if there is
    none. None if all below it cannot be read page by page from there: stores differ in what comes after a
    directory."""
    if not directory.startswith(JOB_PREFIXES):
        return None
    if not wanted.first.startswith(directory):
        return ""
    first = wanted.first[:-1] if wanted.included else wanted.first
    path = first[len(directory) :]
    return path if _JOB_PATH.fullmatch(path) is not None and _is_whole(first) else None


def _sound(name: str) -> str:
    """As much of the beginning of a name as a name of a key may have: what is cut off sorts behind it."""
    found = _SOUND.match(name)
    return found[0] if found else ""


def _is_sound(key: str) -> bool:
    try:
        check_key(key)
    except ValueError:
        return False
    return True
