"""kio and kafka-python as independent codecs: they take and give our message classes.

Both keep a version's fields in the order of Kafka's definition, as our schema does, so fields are paired by
position; names are compared as well, as far as the libraries keep Kafka's.
"""

import importlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Protocol, Union, get_args, get_origin
from uuid import UUID

from kafka.protocol.api_message import ApiMessage
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from gateway.wire.apis import ApiKey
from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class Oracle(Protocol):
    name: str

    def knows(self, key: ApiKey, side: str, version: int) -> bool: ...

    def tame(self, key: ApiKey, side: str, message: Any) -> None:
        """Changes what the library, by choice of its own, does not carry; no more than that."""

    def encode(self, key: ApiKey, side: str, version: int, schema: Schema, message: Any) -> bytes: ...

    def decode(self, key: ApiKey, side: str, version: int, schema: Schema, raw: bytes) -> Any: ...


class Kio:
    name = "kio"

    def knows(self, key: ApiKey, side: str, version: int) -> bool:
        versions: Any = schema_name_map.get(api_key_map.get(key, ""), {})
        return EntityType[side] in versions.get(version, {})

    def tame(self, key: ApiKey, side: str, message: Any) -> None:
        pass

    def encode(self, key: ApiKey, side: str, version: int, schema: Schema, message: Any) -> bytes:
        entity = self._entity(key, side, version)
        out = io.BytesIO()
        entity_writer(entity)(out, _to_kio(schema, version, entity, message))
        return out.getvalue()

    def decode(self, key: ApiKey, side: str, version: int, schema: Schema, raw: bytes) -> Any:
        theirs, consumed = entity_reader(self._entity(key, side, version))(raw, 0)
        assert consumed == len(raw)
        return _from_kio(schema, version, schema.root, theirs)

    def _entity(self, key: ApiKey, side: str, version: int) -> Any:
        entities: Mapping[Any, str] = schema_name_map[api_key_map[key]][version]
        module, _, name = entities[EntityType[side]].partition(":")
        return getattr(importlib.import_module(module), name)


class KafkaPython:
    name = "kafka-python"

    def knows(self, key: ApiKey, side: str, version: int) -> bool:
        known = _kafka_python_classes().get((int(key), side))
        return known is not None and version <= known.max_version

    def tame(self, key: ApiKey, side: str, message: Any) -> None:
        if key is ApiKey.API_VERSIONS and side == "response":
            # It reads any body with an error as version 0, as KIP-511 answers a version that is too new.
            message.error_code = 0

    def encode(self, key: ApiKey, side: str, version: int, schema: Schema, message: Any) -> bytes:
        known = _kafka_python_classes()[int(key), side]
        values = _to_kafka_python(schema, version, known._struct, message)
        encoded: bytes = known(version=version, **values).encode()
        return encoded

    def decode(self, key: ApiKey, side: str, version: int, schema: Schema, raw: bytes) -> Any:
        known = _kafka_python_classes()[int(key), side]
        return _from_kafka_python(
            schema, version, schema.root, known._struct, known.decode(raw, version=version)
        )


ORACLES: tuple[Oracle, ...] = (Kio(), KafkaPython())


def _paired(schema: Schema, version: int, struct: type, theirs: list[Any]) -> Iterator[tuple[Field, Any]]:
    ours = [field for field in schema.structs[struct] if field.is_in(version)]
    for field, other in zip(ours, theirs, strict=True):
        known = other.name.replace("_", "")
        assert known in field.name.replace("_", ""), f"{field.name} against {other.name}"
        yield field, other


# kio: one frozen dataclass a struct and version; times are datetimes and timedeltas, error codes an enum.


def _to_kio(schema: Schema, version: int, entity: Any, message: Any) -> Any:
    values: dict[str, Any] = {}
    for field, other in _paired(schema, version, type(message), list(fields(entity))):
        value = getattr(message, field.name)
        bare = _bare(other.type)
        if value is None:
            values[other.name] = None
        elif is_dataclass(bare):
            values[other.name] = (
                tuple(_to_kio(schema, version, bare, item) for item in value)
                if field.array
                else _to_kio(schema, version, bare, value)
            )
        elif field.array:
            values[other.name] = tuple(_kio_value(other, item) for item in value)
        else:
            values[other.name] = _kio_value(other, value)
    return entity(**values)


def _from_kio(schema: Schema, version: int, struct: type, theirs: Any) -> Any:
    made = struct()
    for field, other in _paired(schema, version, struct, list(fields(theirs))):
        value = getattr(theirs, other.name)
        items = value if field.array else [value]
        if isinstance(field.kind, type):
            if value is not None:
                items = [_from_kio(schema, version, field.kind, item) for item in items]
        elif items is not None:
            items = [_value_of_kio(other, item) for item in items]
        setattr(made, field.name, items if field.array or items is None else items[0])
    return made


def _bare(annotation: Any) -> Any:
    """The element or present type of `tuple[X, ...] | None`."""
    while get_origin(annotation) is not None:
        arguments = get_args(annotation)
        if get_origin(annotation) in (UnionType, Union):
            arguments = tuple(argument for argument in arguments if argument is not NoneType)
        annotation = arguments[0]
    return annotation


def _kio_value(other: Any, value: Any) -> Any:
    match other.metadata["kafka_type"]:
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return EPOCH + timedelta(milliseconds=value)
        case "error_code":
            return KioErrorCode(value)
        case "uuid":
            return _uuid(value)
    return value


def _value_of_kio(other: Any, value: Any) -> Any:
    match other.metadata["kafka_type"]:
        case "timedelta_i32" | "timedelta_i64":
            return value // MILLISECOND
        case "datetime_i64":
            return round((value - EPOCH) / MILLISECOND)  # kio goes through float seconds
        case "error_code":
            return value.value
        case "uuid":
            return _uuid_bytes(value)
    return value


# kafka-python: one class a struct over all versions; authorized operations are sets of bit numbers.


@cache
def _kafka_python_classes() -> dict[tuple[int, str], Any]:
    for package in ("admin", "consumer", "metadata", "producer", "sasl"):
        importlib.import_module(f"kafka.protocol.{package}")
    return {
        (known.API_KEY, known.type): known
        for known in ApiMessage.__subclasses__()
        if known._class_version is None
    }


def _to_kafka_python(schema: Schema, version: int, described: Any, message: Any) -> dict[str, Any]:
    values = {}
    theirs = [field for field in described._fields if field.for_version_q(version)]
    for field, other in _paired(schema, version, type(message), theirs):
        value = getattr(message, field.name)
        if field.is_tagged(version) and value == field.initial:
            continue
        if isinstance(field.kind, type) and value is not None:
            items = [
                other.data_class(version=version, **_to_kafka_python(schema, version, _inner(other), item))
                for item in (value if field.array else [value])
            ]
            value = items if field.array else items[0]
        elif field.kind == "uuid":
            value = [_uuid(item) for item in value] if field.array else _uuid(value)
        elif other.type_str == "bitfield":
            value = {bit for bit in range(32) if value >> bit & 1}
        values[other.name] = value
    return values


def _from_kafka_python(schema: Schema, version: int, struct: type, described: Any, theirs: Any) -> Any:
    made = struct()
    known = [field for field in described._fields if field.for_version_q(version)]
    for field, other in _paired(schema, version, struct, known):
        value = getattr(theirs, other.name)
        if isinstance(field.kind, type):
            if field.is_tagged(version) and value is None:
                continue
            if value is not None:
                inner = _inner(other)
                items = [
                    _from_kafka_python(schema, version, field.kind, inner, item)
                    for item in (value if field.array else [value])
                ]
                value = items if field.array else items[0]
        elif field.kind == "uuid":
            value = [_uuid_bytes(item) for item in value] if field.array else _uuid_bytes(value)
        elif other.type_str == "bitfield":
            raw = sum(1 << bit for bit in ({31} if value is None else value))
            value = raw - (1 << 32) if raw >= 1 << 31 else raw
        elif isinstance(value, memoryview):
            value = bytes(value)
        setattr(made, field.name, value)
    return made


def _inner(other: Any) -> Any:
    return other.array_of if other.is_struct_array() else other


def _uuid(raw: bytes) -> UUID | None:
    return None if raw == ZERO_UUID else UUID(bytes=raw)


def _uuid_bytes(value: UUID | None) -> bytes:
    return ZERO_UUID if value is None else value.bytes
