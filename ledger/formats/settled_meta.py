"""The `meta.json` of a settled ledger: what a reader finds first, as text that people read too.

`settled/{topic id}/{partition}/{uuidv7}.log`, `.index` and `.json` belong together. They are put once each,
the `.json` last, so that a reader that finds it finds the others. The newest `.json` of a partition is
the one that the journal names, or one that a job has written and the journal does not name yet: both are
right.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.formats.settled import VERSION
from ledger.types import Buffer

_FORMAT: Final = "dragoman settled ledger"


@dataclass(frozen=True, slots=True)
class SettledMeta:
    """One partition as of one entry of the journal: `entry` entries were applied."""

    cluster_id: str
    topic_id: str
    """32 hexadecimal digits."""
    topic: str
    partition: int
    entry: int
    entry_time_ms: int
    layout_version: int
    log_start: int
    high_watermark: int
    created_ms: int
    log: str
    log_bytes: int
    index: str
    index_bytes: int
    runs: int
    objects: int


def encode_meta(meta: SettledMeta) -> bytes:
    fields = {"format": _FORMAT, "version": VERSION} | asdict(meta)
    return json.dumps(fields, indent=1, ensure_ascii=False).encode() + b"\n"


def decode_meta(data: Buffer, where: str) -> SettledMeta:
    """StoreDamaged unless it has all fields of this version; StoreTooNew. Fields besides them are ignored."""
    try:
        fields: Any = json.loads(bytes(data))
    except (ValueError, RecursionError):
        raise StoreDamaged(f"{where} is damaged: it is no JSON") from None
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
        raise StoreDamaged(f"{where} is damaged: it describes no settled ledger")
    version = fields.get("version")
    if isinstance(version, int) and version > VERSION:
        raise StoreTooNew(f"{where} has format version {version}; this build reads {VERSION}")
    if version != VERSION:
        raise StoreDamaged(f"{where} is damaged: version {version!r} is not written here")
    values: dict[str, Any] = {name: fields.get(name) for name in SettledMeta.__slots__}
    for name, kind in SettledMeta.__annotations__.items():
        if type(values[name]) is not kind:
            raise StoreDamaged(f"{where} is damaged: its {name} is {values[name]!r}")
    return SettledMeta(**values)
