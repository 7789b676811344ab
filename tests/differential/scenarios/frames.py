"""Frames and headers that are wrong, and requests that no endpoint answers here."""

import random
import struct

from gateway.wire.apis import RANGES, ApiKey
from tests.differential.exchange import Exchange, Frame
from tests.support.raw import frame, request

KEY = ApiKey.API_VERSIONS
LARGEST = 100 * 1024 * 1024
METADATA_OF_ALL = request(ApiKey.METADATA, 1, b"\xff\xff\xff\xff")
SERVED = (
    ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS, ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_CLUSTER,
)  # fmt: skip
UNKNOWN_KEYS = (-32768, -1, 93, 94, 1000, 32767)
NOT_FOR_CLIENTS = (4, 5, 6, 7, 52, 53, 54, 56, 59, 62, 63, 67, 70, 82)


def _frame(name: str, data: bytes, hang_up: bool = False) -> Exchange:
    return Exchange(f"frames: {name}", KEY, 0, Frame(data, hang_up))


def _size(size: int) -> bytes:
    return struct.pack(">i", size)


def _random(seed: int, most: int) -> bytes:
    generator = random.Random(seed)
    return generator.randbytes(generator.randrange(8, most))


def _header(*parts: bytes) -> bytes:
    return frame(b"".join(parts))


_SIZES = [
    *(_frame(f"a size of {n}", _size(n) + b"\0" * 16) for n in (-1, -2, -(2**31), LARGEST + 1, 2**31 - 1)),
    *(_frame(f"a frame of {n} bytes", frame(METADATA_OF_ALL[4 : 4 + n])) for n in range(8)),
    _frame("only half a size", b"\0\0", hang_up=True),
    _frame("only a size", _size(50), hang_up=True),
    _frame("a size of the largest frame, and little of it", _size(LARGEST) + b"\0\3\0\1", hang_up=True),
    _frame("half a request", METADATA_OF_ALL[:9], hang_up=True),
    _frame("a request without its last byte", METADATA_OF_ALL[:-1], hang_up=True),
    _frame("nothing at all", b"", hang_up=True),
    _frame("HTTP", b"GET / HTTP/1.1\r\nHost: kafka.example\r\n\r\n"),
    _frame("TLS", bytes.fromhex("16030100a5010000a10303") + _random(5, 100)),
    _frame("zeros", b"\0" * 64),
    _frame("ones", b"\xff" * 64),
]
_RANDOM = [_frame(f"random bytes, seed {seed}", _random(seed, 300), hang_up=True) for seed in range(8)]
_RANDOM += [
    _frame(f"a frame of random bytes, seed {seed}", frame(b"\x7e" + _random(seed, 300))) for seed in range(8)
]
_KEYS = [
    *(_frame(f"API key {key}", request(key, 0, b"\0" * 8)) for key in UNKNOWN_KEYS),
    *(_frame(f"API key {key}, not for clients", request(key, 0, b"\0" * 8)) for key in NOT_FOR_CLIENTS),
    _frame("an envelope", request(ApiKey.ENVELOPE, 0, b"\0\0\0", flexible=True)),
]
_VERSIONS = [
    Exchange(
        f"frames: {key.name.lower()} in version {version}",
        key,
        version,
        Frame(request(key, version, b"\0" * 12)),
    )
    for key in SERVED
    for version in (RANGES[key][0] - 1, RANGES[key][1] + 1, 32767)
] + [
    Exchange(
        f"frames: produce in version {v}, advertised but refused",
        ApiKey.PRODUCE,
        v,
        Frame(request(0, v, b"\xff\xff\0\1\0\0\1\0\0\0\0\0")),
    )
    for v in (0, 1, 2)
]
_ALL = b"\xff\xff\xff\xff"
_FIXED_V1 = struct.pack(">hhi", ApiKey.METADATA, 1, 77)
_FIXED_V9 = struct.pack(">hhi", ApiKey.METADATA, 9, 77)
_NO_TOPICS_V9 = b"\x01\0\0\0\0"


def _metadata(name: str, version: int, data: bytes) -> Exchange:
    return Exchange(f"frames: {name}", ApiKey.METADATA, version, Frame(data))


_HEADERS = [
    _metadata("a null client id", 1, _header(_FIXED_V1, b"\xff\xff", b"\0\0\0\0")),
    _metadata("an empty client id", 1, _header(_FIXED_V1, b"\0\0", b"\0\0\0\0")),
    _metadata("a client id of -2 bytes", 1, _header(_FIXED_V1, b"\xff\xfe", b"\0\0\0\0")),
    _metadata("a client id beyond the frame", 1, _header(_FIXED_V1, b"\x7f\xff", b"\0\0\0\0")),
    _metadata("a client id that is not UTF-8", 1, _header(_FIXED_V1, b"\0\2\xff\xfe", b"\0\0\0\0")),
    _metadata("no client id", 1, _header(_FIXED_V1)),
    _metadata("half a client id's length", 1, _header(_FIXED_V1, b"\0")),
    _metadata(
        "a tagged field in the header", 9, _header(_FIXED_V9, b"\0\1a", b"\x01\x05\x02hi", _NO_TOPICS_V9)
    ),
    _metadata(
        "two tagged fields in the header",
        9,
        _header(_FIXED_V9, b"\0\1a", b"\x02\x05\x01h\x09\0", _NO_TOPICS_V9),
    ),
    _metadata("tags beyond the frame", 9, _header(_FIXED_V9, b"\0\1a", b"\x01\x05\x7fhi", _NO_TOPICS_V9)),
    _metadata(
        "more tags than bytes", 9, _header(_FIXED_V9, b"\0\1a", b"\xff\xff\xff\xff\x07", _NO_TOPICS_V9)
    ),
    _metadata("one tag twice", 9, _header(_FIXED_V9, b"\0\1a", b"\x02\x05\x01h\x05\x01h", _NO_TOPICS_V9)),
    _metadata(
        "a tag count of six bytes",
        9,
        _header(_FIXED_V9, b"\0\1a", b"\xff\xff\xff\xff\xff\x01", _NO_TOPICS_V9),
    ),
    _metadata("no tags where they belong", 9, _header(_FIXED_V9, b"\0\1a")),
    _metadata(
        "a negative correlation id",
        1,
        _header(struct.pack(">hhi", ApiKey.METADATA, 1, -9), b"\xff\xff", b"\0\0\0\0"),
    ),
]

EXCHANGES = [*_SIZES, *_RANDOM, *_KEYS, *_VERSIONS, *_HEADERS]
