"""Random messages for the codec's tests, made from the schema that the codec is compiled from."""

from random import Random
from typing import Any

from gateway.wire.errors import ErrorCode
from gateway.wire.schema import FIXED, Field, Schema

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UNSIGNED_BITS = {"uint16": 16, "uint32": 32}
TEXTS = ["", "a", "orders", "Büyükelçi", "تُرجُمان", "🗝", "\x00", "x" * 126, "y" * 127, "é" * 200]
# kio keeps 64-bit times as datetimes, so these stay within the year 9999.
LATEST_MS = 10**14


def populated(schema: Schema, version: int, rng: Random) -> Any:
    """A message with every field of this version set, nulls, empty and long values among them."""
    return _struct(schema, schema.root, version, rng)


def _struct(schema: Schema, struct: type, version: int, rng: Random) -> Any:
    made = struct()
    for field in schema.structs[struct]:
        if not field.is_in(version) or (field.is_tagged(version) and rng.random() < 0.3):
            continue
        setattr(made, field.name, _value(schema, field, version, rng))
    return made


def _value(schema: Schema, field: Field, version: int, rng: Random) -> Any:
    if field.is_nullable(version) and rng.random() < 0.25:
        return None
    if not field.array:
        return _scalar(schema, field, version, rng)
    # Now and then more than fits a one-byte count or a prepared format.
    plain = isinstance(field.kind, str)
    count = rng.choice((33, 130)) if plain and rng.random() < 0.1 else rng.randrange(4)
    return [_scalar(schema, field, version, rng) for _ in range(count)]


def _scalar(schema: Schema, field: Field, version: int, rng: Random) -> Any:
    if isinstance(field.kind, type):
        return _struct(schema, field.kind, version, rng)
    if field.kind in FIXED:
        return _fixed(field.name, field.kind, rng)
    if field.kind == "string":
        return rng.choice(TEXTS)
    return rng.randbytes(rng.choice((0, 1, 61, 126, 127, 300)))


def _fixed(name: str, kind: str, rng: Random) -> Any:
    if name.endswith("error_code"):
        return int(rng.choice(list(ErrorCode)))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "uuid":
        return rng.randbytes(16) if rng.random() < 0.8 else bytes(16)
    if kind == "float64":
        return rng.choice((0.0, -1.5, 1e300, rng.random()))
    if kind in UNSIGNED_BITS:
        return rng.choice((0, 1, rng.getrandbits(UNSIGNED_BITS[kind]), (1 << UNSIGNED_BITS[kind]) - 1))
    if name == "port":
        return rng.randrange(1 << 16)
    if kind == "int64" and name.endswith("_ms"):
        return rng.randrange(LATEST_MS)
    half = 1 << (BITS[kind] - 1)
    return rng.choice((-half, -1, 0, 1, half - 1, rng.randrange(-half, half)))
