"""Object keys that carry their creation time: UUIDv7 (RFC 9562), so that keys sort by age."""

import uuid
from functools import lru_cache

RANDOM_BYTES = 10
_VERSION_7 = 0x7 << 76
_VARIANT = 0x2 << 62
_RAND_A_MASK = 0xFFF
_RAND_B_MASK = (1 << 62) - 1
_UUID_TEXT = 36


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
    value = uuid.UUID(name)
    if value.version != 7:
        raise ValueError(f"{locator!r} carries no creation time")
    return value.int >> 80
