"""What the generated message modules say about bytes: structs, their fields, and the versions these are in.

A schema is compiled once per version into straight-line Python (`decoder_source`, `encoder_source`), at the
first use of that version. Facts of KIP-482 (flexible versions) apply: in a flexible version every string,
bytes and array is compact and every struct ends with tagged fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.wire.errors import UnsupportedVersion
from gateway.wire.primitives import ZERO_UUID

Versions = tuple[int, int]
NEVER: Versions = (1, 0)
ZERO = ...

# Field kinds of fixed width: their `struct` format, big-endian. A bool is true for any byte but 0, as Kafka
# reads it.
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
ZEROS: Mapping[str, Any] = dict.fromkeys(FIXED, 0) | {
    "bool": False,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "bytes": b"",
    "records": None,
}
WIDTH = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}


class Field(NamedTuple):
    """One field of a struct. `kind` is a primitive's Kafka name or the class of a nested struct.

    Version ranges are inclusive; NEVER is the empty one. `default` is a literal, None for null, or ZERO for
    the kind's own zero: 0, false, "", no bytes, an empty list, a struct of defaults; of records it is null.
    """

    name: str
    kind: str | type
    versions: Versions
    array: bool = False
    nullable: Versions = NEVER
    default: Any = ZERO
    tag: int = -1
    tagged: Versions = NEVER

    @property
    def initial(self) -> Any:
        """The default as a value: a new object each time."""
        if self.default is not ZERO:
            return self.default
        if self.array:
            return []
        return self.kind() if isinstance(self.kind, type) else ZEROS[self.kind]

    def is_in(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def is_nullable(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]

    def is_tagged(self, version: int) -> bool:
        return self.tagged[0] <= version <= self.tagged[1]


Structs = Mapping[type, tuple[Field, ...]]


@dataclass(frozen=True, slots=True)
class Schema:
    """One message over its versions; `structs` holds the fields of `root` and of every struct below it."""

    root: type
    versions: Versions
    flexible: int
    structs: Structs

    def check(self, version: int) -> None:
        """Raises UnsupportedVersion outside the range."""
        if not self.versions[0] <= version <= self.versions[1]:
            raise UnsupportedVersion(f"{self.root.__name__} has no version {version}")

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible

    def untagged(self, struct: type, version: int) -> list[Field]:
        return [f for f in self.structs[struct] if f.is_in(version) and not f.is_tagged(version)]

    def tagged(self, struct: type, version: int) -> list[Field]:
        """In the order of their tags, in which they are written."""
        fields = [f for f in self.structs[struct] if f.is_in(version) and f.is_tagged(version)]
        return sorted(fields, key=lambda f: f.tag)

    def least_bytes(self, field: Field, version: int) -> int:
        """The fewest bytes that a field of this version takes."""
        compact = self.is_flexible(version)
        if field.array or field.kind in ("bytes", "records"):
            return 1 if compact else 4
        if isinstance(field.kind, type):
            return 1 if field.is_nullable(version) else self.least_struct_bytes(field.kind, version)
        if field.kind == "string":
            return 1 if compact else 2
        return WIDTH[FIXED[field.kind]]

    def least_struct_bytes(self, struct: type, version: int) -> int:
        least = sum(self.least_bytes(f, version) for f in self.untagged(struct, version))
        return least + (1 if self.is_flexible(version) else 0)

    def least_item_bytes(self, field: Field, version: int) -> int:
        """The fewest bytes of an element of an array field: at least 1, so that a count is always bounded."""
        return max(1, self.least_bytes(field._replace(array=False, nullable=NEVER), version))
