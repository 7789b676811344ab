"""Writes gateway/wire/messages/generated from the message definitions inside a kafka-clients jar.

    python tools/generate_messages.py [KAFKA_CLIENTS_JAR] [--into DIRECTORY]

Takes facts alone: names, types, version ranges, tags, defaults. Which APIs and versions are written is what
`gateway.wire.apis.codec_range` says; struct and field ranges are clipped to it, and fields that no such
version carries are left out. The same jar gives the same bytes.
"""

import argparse
import json
import keyword
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gateway.wire.apis import FIRST_FLEXIBLE, ApiKey, codec_range  # noqa: E402

GENERATED = ROOT / "gateway" / "wire" / "messages" / "generated"
JAR = Path.home() / ".m2/repository/org/apache/kafka/kafka-clients/4.3.1/kafka-clients-4.3.1.jar"
JAR_SETTING = "DRAGOMAN_KAFKA_CLIENTS_JAR"

PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "uuid": "bytes",
    "bytes": "bytes",
    "records": "bytes | memoryview | None",
} | dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), "int")
ZEROS = {
    "bool": "False",
    "float64": "0.0",
    "string": '""',
    "uuid": "ZERO_UUID",
    "bytes": 'b""',
    "records": "None",
}
NEVER = (1, 0)
Versions = tuple[int, int]


@dataclass
class FieldFacts:
    name: str
    kind: str
    is_struct: bool
    array: bool
    versions: Versions
    nullable: Versions
    tag: int
    tagged: Versions
    default: str | None  # as Python source; None where the kind's zero holds


@dataclass
class MessageFacts:
    root: str
    versions: Versions
    structs: dict[str, list[FieldFacts]] = field(default_factory=dict)  # nested before nesting, root last


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the message modules from a kafka-clients jar.")
    parser.add_argument("jar", nargs="?", type=Path, default=Path(os.environ.get(JAR_SETTING) or JAR))
    parser.add_argument("--into", type=Path, default=GENERATED)
    arguments = parser.parse_args()
    for name, text in modules(arguments.jar):
        (arguments.into / name).write_text(text)


def modules(jar: Path) -> Iterator[tuple[str, str]]:
    """(file name, source) of every generated module."""
    definitions = read_definitions(jar)
    for key in ApiKey:
        versions = codec_range(key)
        if versions is None:
            continue
        request = message_facts(definitions[key, "request"], versions)
        response = message_facts(definitions[key, "response"], versions)
        tell_apart(request, response)
        yield f"{key.name.lower()}.py", module_source(key, request, response)


def read_definitions(jar: Path) -> dict[tuple[int, str], dict[str, Any]]:
    found = {}
    with ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"(?m)^\s*//.*$", "", archive.read(name).decode())
                definition = json.loads(text)
                if definition["type"] in ("request", "response"):
                    found[definition["apiKey"], definition["type"]] = definition
    return found


def message_facts(definition: dict[str, Any], versions: Versions) -> MessageFacts:
    message = MessageFacts(definition["name"], versions)
    common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}
    collect(message, definition["name"], definition["fields"], common)
    return message


def collect(message: MessageFacts, struct: str, fields: list[dict[str, Any]], common: dict[str, Any]) -> None:
    """Adds a struct and, before it, those that it contains."""
    facts = []
    for definition in fields:
        fact = field_facts(definition, message.versions)
        if fact is None:
            continue
        if fact.is_struct and fact.kind not in message.structs:
            collect(message, fact.kind, definition.get("fields") or common[fact.kind], common)
        facts.append(fact)
    message.structs[struct] = facts


def field_facts(definition: dict[str, Any], bounds: Versions) -> FieldFacts | None:
    versions = clipped(definition["versions"], bounds)
    if versions == NEVER:
        return None
    array = definition["type"].startswith("[]")
    kind = definition["type"].removeprefix("[]")
    is_struct = kind not in PYTHON_TYPES
    nullable = clipped(definition.get("nullableVersions", "none"), versions)
    return FieldFacts(
        name=snake_case(definition["name"]),
        kind=kind,
        is_struct=is_struct,
        array=array,
        versions=versions,
        nullable=nullable,
        tag=definition.get("tag", -1),
        tagged=clipped(definition.get("taggedVersions", "none"), versions),
        default=default_source(kind, array, is_struct, definition.get("default")),
    )


def clipped(text: str, bounds: Versions) -> Versions:
    if text == "none":
        return NEVER
    first, _, last = text.partition("-")
    low = max(int(first.rstrip("+")), bounds[0])
    high = bounds[1] if first.endswith("+") else min(int(last or first), bounds[1])
    return (low, high) if low <= high else NEVER


def snake_case(name: str) -> str:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return split + "_" if keyword.iskeyword(split) else split


def default_source(kind: str, array: bool, is_struct: bool, given: Any) -> str | None:
    if given is None or given == "":
        return None
    if given == "null":
        return "None"
    if array or is_struct:
        raise ValueError(f"default {given!r} of a {kind}")
    if kind == "bool":
        made = str(given).lower() == "true"
        return repr(made) if made else None
    if kind == "string":
        return json.dumps(given)
    value = float(given) if kind == "float64" else int(str(given), 0)
    return repr(value) if value else None


def tell_apart(request: MessageFacts, response: MessageFacts) -> None:
    """Puts the message's name before the struct names that both sides have."""
    for name in set(request.structs) & set(response.structs):
        for message in (request, response):
            renamed = message.root + name
            message.structs = {renamed if s == name else s: fields for s, fields in message.structs.items()}
            for fact in (fact for fields in message.structs.values() for fact in fields):
                if fact.is_struct and fact.kind == name:
                    fact.kind = renamed


def module_source(key: ApiKey, request: MessageFacts, response: MessageFacts) -> str:
    flexible = FIRST_FLEXIBLE.get(key)
    low, high = request.versions
    span = f"versions {low} to {high}" if low != high else f"version {low}"
    since = "never flexible" if flexible is None else f"flexible from {flexible}"
    title = request.root.removesuffix("Request")
    body = []
    for message in (request, response):
        body += [class_source(name, fields) for name, fields in message.structs.items()]
    body.append(schema_source("REQUEST", request, flexible))
    body.append(schema_source("RESPONSE", response, flexible))
    head = [
        f'"""{title}, API key {key.value}: {span}, {since}.\n\n'
        'Written by tools/generate_messages.py from Kafka 4.3.1\'s definitions; never by hand.\n"""\n',
        imports_source("".join(body)),
    ]
    return "\n".join(head) + "\n\n" + "\n\n".join(body)


def imports_source(body: str) -> str:
    made = "dataclass, field" if "field(default_factory" in body else "dataclass"
    lines = [f"from dataclasses import {made}", ""]
    if "ZERO_UUID" in body:
        lines.append("from gateway.wire.primitives import ZERO_UUID")
    used = ["Field"] if "Field(" in body else []
    return "\n".join([*lines, f"from gateway.wire.schema import {', '.join([*used, 'Schema'])}", ""])


def class_source(name: str, fields: list[FieldFacts]) -> str:
    lines = ["@dataclass(slots=True)", f"class {name}:"]
    lines += [f"    {fact.name}: {annotation(fact)} = {initial(fact)}" for fact in fields] or ["    pass"]
    return "\n".join(lines) + "\n"


def annotation(fact: FieldFacts) -> str:
    plain = fact.kind if fact.is_struct else PYTHON_TYPES[fact.kind]
    if fact.array:
        plain = f"list[{plain}]"
    can_be_null = fact.nullable != NEVER or fact.default == "None"
    return f"{plain} | None" if can_be_null and fact.kind != "records" else plain


def initial(fact: FieldFacts) -> str:
    if fact.default is not None:
        return fact.default
    if fact.array:
        return "field(default_factory=list)"
    if fact.is_struct:
        return f"field(default_factory={fact.kind})"
    return ZEROS.get(fact.kind, "0")


def schema_source(name: str, message: MessageFacts, flexible: int | None) -> str:
    never = message.versions[1] + 1
    lines = [f"{name} = Schema(", f"    {message.root},", f"    {message.versions},"]
    lines += [f"    {never if flexible is None else flexible},", "    {"]
    for struct, fields in message.structs.items():
        lines.append(f"        {struct}: (")
        lines += [f"            {field_source(fact)}," for fact in fields]
        lines.append("        ),")
    return "\n".join([*lines, "    },", ")", ""])


def field_source(fact: FieldFacts) -> str:
    parts = [f'"{fact.name}"', fact.kind if fact.is_struct else f'"{fact.kind}"', str(fact.versions)]
    if fact.array:
        parts.append("array=True")
    if fact.nullable != NEVER:
        parts.append(f"nullable={fact.nullable}")
    if fact.default is not None:
        parts.append(f"default={fact.default}")
    if fact.tagged != NEVER:
        parts.append(f"tag={fact.tag}, tagged={fact.tagged}")
    return f"Field({', '.join(parts)})"


if __name__ == "__main__":
    main()
