"""Offsets of a group in a file: what `dragoman groups describe --json` or `reset-offsets --json` prints."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gateway.cli.output import UsageError

MAX_FILE_BYTES: Final = 256 << 20
MAX_PARTITION: Final = 2**31 - 1
MAX_OFFSET: Final = 2**63 - 1
FLAG: Final = "--to-file"

Partition = tuple[str, int]


def offsets_of_file(path: str) -> dict[Partition, int]:
    """By topic and partition; partitions without an offset are left out. UsageError."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{FLAG} {path}: cannot read the file: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{FLAG} {path}: it has more than {MAX_FILE_BYTES} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{FLAG} {path}: no JSON ({error})") from None
    offsets = {}
    for line in _lines(document, path):
        partition, offset = _read(line, path)
        if offset is not None:
            if partition in offsets:
                raise UsageError(f"{FLAG} {path}: {partition[0]}-{partition[1]} is in it twice")
            offsets[partition] = offset
    return offsets


def _lines(document: Any, path: str) -> Sequence[Any]:
    """The lines of the one group in it, or of a plain list of offsets."""
    if isinstance(document, list) and document and all(_is_group(one) for one in document):
        if len(document) > 1:
            names = ", ".join(str(one.get("group")) for one in document)
            raise UsageError(f"{FLAG} {path}: it has several groups ({names}); leave one in it")
        document = document[0]
    lines = document["offsets"] if _is_group(document) else document
    if not isinstance(lines, list):
        raise UsageError(f"{FLAG} {path}: expected what dragoman groups describe --json prints")
    return lines


def _is_group(value: Any) -> bool:
    return isinstance(value, Mapping) and "offsets" in value


def _read(line: Any, path: str) -> tuple[Partition, int | None]:
    """A plan of reset-offsets has `new_offset`, and there that is what counts."""
    if not isinstance(line, Mapping):
        raise UsageError(f"{FLAG} {path}: an offset is no JSON object")
    topic, partition = line.get("topic"), line.get("partition")
    offset = line.get("new_offset", line.get("offset"))
    is_partition = _is_number(partition, MAX_PARTITION)
    if (
        not isinstance(topic, str)
        or not is_partition
        or not (offset is None or _is_number(offset, MAX_OFFSET))
    ):
        raise UsageError(f"{FLAG} {path}: {json.dumps(line)[:100]} is not a topic, a partition and an offset")
    return (topic, int(str(partition))), offset


def _is_number(value: Any, highest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= highest
