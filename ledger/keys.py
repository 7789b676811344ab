"""Keys of stores: how many parts each kind has, and UUIDv7 (RFC 9562) for keys that carry their creation time
and sort by age. Ids in keys are lower-case hex."""

import re
import uuid
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

KEY_PARTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "archive": 3,
        "claim": 3,
        "cluster-id": 1,
        "journal": 3,
        "journal-start": 2,
        "proof": 3,
        "snapshot": 3,
        "wal": 3,
    }
)
"""By its first part, how many parts a key has. All keys of a kind have the same number, so none is a folder
of another. Every kind of key must be here."""

RANDOM_BYTES = 10
_VERSION_7 = 0x7 << 76
_VARIANT = 0x2 << 62
_RAND_A_MASK = 0xFFF
_RAND_B_MASK = (1 << 62) - 1
_UUID_TEXT = 36
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def uuid7(created_ms: int, random: bytes) -> uuid.UUID:
    """The UUIDv7 of a unix time in ms and 10 random bytes."""
    noise = int.from_bytes(random[:RANDOM_BYTES], "big")
    value = (created_ms & ((1 << 48) - 1)) << 80
    value |= _VERSION_7 | ((noise >> 62) & _RAND_A_MASK) << 64
    value |= _VARIANT | (noise & _RAND_B_MASK)
    return uuid.UUID(int=value)


@lru_cache(maxsize=1024)
def created_ms(locator: str) -> int:
    """Creation time in unix ms that a locator carries. ValueError if it carries none."""
    name = locator.rsplit("/", 1)[-1].split(".", 1)[0][-_UUID_TEXT:]
    if _UUID.fullmatch(name) is None or (value := uuid.UUID(name)).version != 7:
        raise ValueError(f"{locator!r} carries no creation time")
    return value.int >> 80
