"""The keys that a store accepts, the same in every backend: what every S3, file system and etcd keeps
apart."""

import re

from ledger.keys import KEY_PARTS

MAX_KEY_BYTES = 1024
MAX_PART_BYTES = 200
_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def check_key(key: str) -> str:
    """The key, of a blob or of a metadata store.

    ValueError unless it is a `/`-separated relative path of at most 1024 bytes whose parts match
    `[A-Za-z0-9_-][A-Za-z0-9._-]*` and have at most 200 bytes each. A first part of `KEY_PARTS` decides the
    number of parts, so that no key is a folder of another: a store over a file system could not keep both.
    """
    parts = key.split("/")
    if len(key) > MAX_KEY_BYTES:
        raise ValueError(f"key {key[:MAX_PART_BYTES]!r}...: at most {MAX_KEY_BYTES} bytes are allowed")
    for part in parts:
        if len(part) > MAX_PART_BYTES or _PART.fullmatch(part) is None:
            raise ValueError(f"key {key!r}: {part!r} cannot be a part of it")
    if KEY_PARTS.get(parts[0], len(parts)) != len(parts):
        raise ValueError(f"key {key!r}: a key {parts[0]}/... has {KEY_PARTS[parts[0]]} parts")
    return key


def check_prefix(prefix: str, what: str) -> str:
    """A prefix of keys. ValueError if it is none, which does not repeat it: a URL may hold a secret."""
    try:
        return check_key(prefix)
    except ValueError:
        raise ValueError(
            f"{what} has parts of letters, digits, - _ and ., and does not begin as a key of Dragoman does"
        ) from None
