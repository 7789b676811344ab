"""How `dragoman consume` prints a record: its value, key and value, JSON, or a format string."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from gateway.cli.fetching import Consumed
from gateway.cli.output import UsageError, printable_json
from gateway.cli.record_input import raw, unescaped
from ledger.types import Buffer


class Format(StrEnum):
    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"


Printer = Callable[[Consumed], bytes]
"""What is written of a record, with the end of its line."""

_TOKEN: Final = re.compile(r"%(.?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """`format`: a Format, or a format string. `null`: printed for a null key or value."""

    format: str = Format.VALUE
    key_separator: str = "\t"
    null: str = ""


def printer_for(options: OutputOptions) -> Printer:
    """UsageError."""
    null = raw(options.null)
    if "%" in options.format:
        return _formatted(options.format, null)
    match options.format:
        case Format.JSON:
            return _json_line
        case Format.KEY_VALUE:
            separator = raw(unescaped(options.key_separator))
            return lambda consumed: (
                _or(null, consumed.record.key) + separator + _or(null, consumed.record.value) + b"\n"
            )
        case Format.VALUE:
            return lambda consumed: _or(null, consumed.record.value) + b"\n"
    raise UsageError(
        f"--format {options.format}: expected one of {', '.join(Format)}, or a format string such as "
        r"'%t-%p@%o %k: %v\n'"
    )


def _formatted(text: str, null: bytes) -> Printer:
    fields: dict[str, Printer] = {
        "t": lambda one: one.topic.encode(),
        "p": lambda one: b"%d" % one.partition,
        "o": lambda one: b"%d" % one.offset,
        "T": lambda one: b"%d" % one.timestamp_ms,
        "k": lambda one: _or(null, one.record.key),
        "K": lambda one: _length(one.record.key),
        "v": lambda one: _or(null, one.record.value),
        "s": lambda one: _or(null, one.record.value),
        "V": lambda one: _length(one.record.value),
        "S": lambda one: _length(one.record.value),
        "h": lambda one: _headers(one, null),
        "%": lambda one: b"%",
    }
    parts: list[Printer] = []
    at = 0
    for token in _TOKEN.finditer(text):
        if token[1] not in fields:
            raise UsageError(
                f"--format: {token[0]} is unknown; there are {', '.join(f'%{f}' for f in fields)}"
            )
        parts += [_constant(text[at : token.start()]), fields[token[1]]]
        at = token.end()
    parts.append(_constant(text[at:]))
    return lambda consumed: b"".join(part(consumed) for part in parts)


def _constant(text: str) -> Printer:
    data = raw(unescaped(text))
    return lambda consumed: data


def _or(null: bytes, data: Buffer | None) -> bytes:
    return null if data is None else bytes(data)


def _length(data: Buffer | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _headers(consumed: Consumed, null: bytes) -> bytes:
    return b",".join(
        header.key.encode("utf-8", "surrogateescape") + b"=" + _or(null, header.value)
        for header in consumed.record.headers
    )


def _json_line(consumed: Consumed) -> bytes:
    return printable_json(json.dumps(_as_json(consumed), ensure_ascii=False)).encode() + b"\n"


def _as_json(consumed: Consumed) -> dict[str, Any]:
    record = consumed.record
    return {
        "topic": consumed.topic,
        "partition": consumed.partition,
        "offset": consumed.offset,
        "timestamp_ms": consumed.timestamp_ms,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [
            {**_text("name", header.key.encode("utf-8", "surrogateescape")), **_text("value", header.value)}
            for header in record.headers
        ],
    }


def _text(name: str, data: Buffer | None) -> dict[str, str | None]:
    """As text where it is UTF-8, else as `<name>_base64`."""
    if data is None:
        return {name: None}
    try:
        return {name: bytes(data).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
