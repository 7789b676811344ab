"""The records on stdin of `dragoman produce`: lines of text, or what `consume --json` prints."""

import base64
import binascii
import json
import os
import re
import select
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from gateway.cli.output import UsageError
from ledger.batch.records import RecordHeader

LINGER_S: Final = 0.05
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
READ_BYTES: Final = 64 * 1024
MAX_TIMESTAMP_MS: Final = 2**63 - 1
NO_TIMESTAMP: Final = -1
FIELDS: Final = frozenset(
    ("topic", "partition", "offset", "timestamp_ms", "key", "key_base64", "value", "value_base64", "headers")
)
"""Fields of a record in JSON. `topic` and `offset` say where it was consumed, and are ignored."""
HEADER_FIELDS: Final = frozenset(("name", "name_base64", "value", "value_base64"))
_ESCAPES: Final = {r"\t": "\t", r"\n": "\n", r"\0": "\0"}


class InputFormat(StrEnum):
    LINES = "lines"
    JSON = "json"


class BadLine(Exception):
    """A line is no record. The message continues "line 7"."""


@dataclass(frozen=True, slots=True)
class Given:
    """A record as it was given. `partition` and `timestamp_ms` are None if it has none."""

    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


Parser = Callable[[bytes], Given | None]
"""From a line to its record; None for an empty line. BadLine."""


def parser_for(format_: str, separator: str, null: str | None) -> Parser:
    """UsageError for flags that contradict each other."""
    if format_ not in tuple(InputFormat):
        raise UsageError(f"--format {format_}: expected one of {', '.join(InputFormat)}")
    if format_ == InputFormat.LINES:
        return _line_parser(raw(unescaped(separator)), None if null is None else raw(null))
    if separator or null is not None:
        raise UsageError("--format json says itself what is a key and what is null: leave -K and --null out")
    return parse_json


def unescaped(text: str) -> str:
    r"""`\t`, `\n` and `\0` as a shell passes them on."""
    return re.sub(r"\\[tn0]", lambda found: _ESCAPES[found[0]], text)


def raw(argument: str) -> bytes:
    """The bytes of an argument as the shell gave them, UTF-8 or not."""
    return argument.encode("utf-8", "surrogateescape")


def lines_of(descriptor: int) -> Iterator[bytes | None]:
    """Lines without their end. None after a line if no further one came within LINGER_S. BadLine."""
    rest = b""
    unsent = False
    while True:
        if unsent and not select.select([descriptor], [], [], LINGER_S)[0]:
            yield None
            unsent = False
        part = os.read(descriptor, READ_BYTES)
        if not part:
            break
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line
            unsent = True
        if len(rest) > MAX_LINE_BYTES:
            raise BadLine(f"is longer than {MAX_LINE_BYTES} bytes; split it")
    if rest:
        yield rest


def _line_parser(separator: bytes, null: bytes | None) -> Parser:
    def parse(line: bytes) -> Given:
        key, value = _split(line, separator)
        return Given(None if key == null else key, None if value == null else value)

    return parse


def _split(line: bytes, separator: bytes) -> tuple[bytes | None, bytes]:
    if not separator:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        raise BadLine(
            f"has no {separator.decode(errors='replace')!r} between key and value (give every line a key, or "
            "leave --key-separator out)"
        )
    return key, value


def parse_json(line: bytes) -> Given | None:
    """A record as `consume --json` prints it; `value` alone is enough. BadLine."""
    if not line.strip():
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"is no JSON ({error})") from None
    if not isinstance(record, dict):
        raise BadLine("is no JSON object")
    _check_fields(record, FIELDS, "a record")
    if "value" not in record and "value_base64" not in record:
        raise BadLine('has neither "value" nor "value_base64"; a null value is written as null')
    headers = record.get("headers")
    if headers is not None and not isinstance(headers, list):
        raise BadLine('has "headers" that are no list')
    return Given(
        _bytes(record, "key"),
        _bytes(record, "value"),
        tuple(map(_header, headers or ())),
        _number(record, "partition", 0, 2**31 - 1),
        _number(record, "timestamp_ms", NO_TIMESTAMP, MAX_TIMESTAMP_MS),
    )


def _header(header: Any) -> RecordHeader:
    if not isinstance(header, dict):
        raise BadLine("has a header that is no JSON object")
    _check_fields(header, HEADER_FIELDS, "a header")
    name = _bytes(header, "name")
    if name is None:
        raise BadLine("has a header without a name")
    return RecordHeader(name.decode("utf-8", "surrogateescape"), _bytes(header, "value"))


def _check_fields(found: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    for name in found:
        if name not in known:
            raise BadLine(f"has a field {name!r}; {what} has {', '.join(sorted(known))}")


def _bytes(found: Mapping[str, Any], name: str) -> bytes | None:
    """The bytes of the field `name`, or of `name_base64`."""
    encoded = found.get(f"{name}_base64")
    text = found.get(name)
    if encoded is not None and text is not None:
        raise BadLine(f"has {name} and {name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise BadLine(f"has a {name}_base64 that is no base64") from None
    if text is None:
        return None
    if not isinstance(text, str):
        raise BadLine(f"has a {name} that is neither text nor null; JSON in it has to be quoted")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadLine(f"has a {name} that is no Unicode text; use {name}_base64") from None


def _number(found: Mapping[str, Any], name: str, lowest: int, highest: int) -> int | None:
    number = found.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not lowest <= number <= highest:
        raise BadLine(f"has a {name} that is no number from {lowest} to {highest}")
    return number
