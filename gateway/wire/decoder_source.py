"""Writes and compiles the decoder of one message in one version.

In the written code `b` is the frame, `p` the position, `e` the end, and `n` the elements of arrays. Fields
of fixed width, length prefixes and first varint bytes that follow each other are read by one `unpack_from`,
which checks the bounds itself; every other read is checked against `e` before anything is made from it.

There are three forms of the same code. That of responses counts nothing. Requests have two: the *small* form
raises NeedsSlices before it makes more elements than are decoded at once; the *sliced* form is a generator,
which yields its weight every few hundred units (counted in `c`), so that other requests run in between. Both
count tagged fields in `g`.
"""

from collections.abc import Callable, Generator
from enum import Enum, auto
from struct import calcsize, unpack_from
from struct import error as struct_error
from typing import Any

from gateway.wire.errors import Malformed, NeedsSlices
from gateway.wire.primitives import (
    CHUNK_ITEMS,
    MAX_STRING_BYTES,
    SHORT_ITEMS,
    SMALL_BYTES,
    count_items,
    count_small,
    count_tags,
    read_uvarint,
    skip_tags,
)
from gateway.wire.schema import FIXED, WIDTH, Field, Schema
from gateway.wire.source import Source

Decoder = Callable[[memoryview], tuple[Any, int]]
Decoding = Generator[int, None, tuple[Any, int]]
"""Yields the units of weight done since its last yield."""
SlicedDecoder = Callable[[memoryview, int, list[Any]], Decoding]
TEXT_BYTES_A_UNIT_SHIFT = 8
FIXED_ITEMS_A_UNIT_SHIFT = 5
_MADE = {"string": "str({}, 'utf-8', 'replace')", "bytes": "bytes({})", "records": "{}"}


class _Form(Enum):
    RESPONSE = auto()
    SMALL = auto()
    SLICED = auto()


def compile_decoder(schema: Schema, version: int) -> Decoder:
    """The decoder of this version of a response: frame -> (message, position after it). It raises Malformed
    alone."""
    schema.check(version)
    return _DecoderSource(schema, version, _Form.RESPONSE).compiled()


def compile_small_decoder(schema: Schema, version: int) -> Decoder:
    """The same of a request; it raises NeedsSlices if that has more elements or bytes than are decoded at
    once."""
    schema.check(version)
    return _DecoderSource(schema, version, _Form.SMALL).compiled()


def compile_sliced_decoder(schema: Schema, version: int) -> SlicedDecoder:
    """The same in slices: (frame, the most elements that the request may have, where all long lists are kept,
    each as soon as it is there) -> generator."""
    schema.check(version)
    return _DecoderSource(schema, version, _Form.SLICED).compiled()


class _DecoderSource:
    def __init__(self, schema: Schema, version: int, form: _Form) -> None:
        self._schema = schema
        self._version = version
        self._form = form
        self._compact = schema.is_flexible(version)
        self._src = Source(
            {
                "Malformed": Malformed,
                "NeedsSlices": NeedsSlices,
                "count_items": count_items,
                "count_small": count_small,
                "count_tags": count_tags,
                "read_uvarint": read_uvarint,
                "skip_tags": skip_tags,
                "struct_error": struct_error,
                "unpack_from": unpack_from,
            }
        )
        self._run: list[tuple[str, str]] = []
        self._label = schema.root.__name__

    def compiled(self) -> Callable[..., Any]:
        src = self._src
        with src.block("def decode(b, most, kept):" if self._form is _Form.SLICED else "def decode(b):"):
            src.line("e = len(b)")
            if self._form is _Form.SMALL:
                with src.block(f"if e > {SMALL_BYTES}:"):
                    src.line("raise NeedsSlices")
            src.line("p = n = g = c = 0" if self._form is _Form.SLICED else "p = n = g = 0")
            with src.block("try:"):
                src.line(f"return {self._struct(self._schema.root)}, p")
            with src.block("except struct_error as wrong:"):
                src.line(f"raise Malformed(f'{self._label} v{self._version}: {{wrong}}') from None")
            if self._form is _Form.SLICED:
                src.line("yield 0")  # is never reached, and makes of every sliced form a generator
        return src.compiled("decode")

    def _struct(self, struct: type) -> str:
        """Reads all fields; the expression, for the very next line, that makes the object of them."""
        read = {field.name: self._field(field) for field in self._schema.untagged(struct, self._version)}
        if self._compact:
            read |= self._tagged_fields(struct)
        self._flush()
        fields = self._schema.structs[struct]
        arguments = [read.get(field.name) or self._default(field) for field in fields]
        return f"{self._name_of(struct)}({', '.join(arguments)})"

    def _field(self, field: Field) -> str:
        """Reads one field; the variable that holds it."""
        if field.array:
            return self._array(field)
        if isinstance(field.kind, type):
            return self._nested(field, field.kind)
        if field.kind in FIXED:
            return self._fixed(FIXED[field.kind])
        return self._sized(field)

    def _fixed(self, code: str) -> str:
        variable = self._src.variable()
        self._run.append((code, variable))
        return variable

    def _flush(self) -> None:
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        unpack = self._src.struct_method("unpack_from", codes)
        self._src.line(f"{', '.join(variable for _, variable in self._run)}, = {unpack}(b, p)")
        self._src.line(f"p += {calcsize('>' + codes)}")
        self._run.clear()

    def _uvarint(self) -> str:
        variable = self._fixed("B")
        self._flush()
        with self._src.block(f"if {variable} > 127:"):
            self._src.line(f"{variable}, p = read_uvarint(b, p - 1)")
        return variable

    def _length(self, code: str) -> str:
        """Reads a length or count; its variable is negative for null."""
        if self._compact:
            variable = self._uvarint()
            self._src.line(f"{variable} -= 1")
            return variable
        variable = self._fixed(code)
        self._flush()
        return variable

    def _refuse(self, field: Field, wrong: str) -> None:
        self._src.line(f"raise Malformed('{self._label} v{self._version}: {field.name} {wrong}')")

    def _null(self, field: Field, length: str, variable: str) -> None:
        with self._src.block(f"if {length} < 0:"):
            if field.is_nullable(self._version):
                self._src.line(f"{variable} = None")
            else:
                self._refuse(field, "is null")

    def _sized(self, field: Field) -> str:
        """A string, bytes or records."""
        src, variable, end = self._src, self._src.variable(), self._src.variable("q")
        length = self._length("h" if field.kind == "string" else "i")
        self._null(field, length, variable)
        with src.block("else:"):
            src.line(f"{end} = p + {length}")
            limit = f" or {length} > {MAX_STRING_BYTES}" if field.kind == "string" else ""
            with src.block(f"if {end} > e{limit}:"):
                self._refuse(field, "is cut off or too long")
            if self._form is _Form.SLICED and field.kind != "records":
                src.line(f"c += {length} >> {TEXT_BYTES_A_UNIT_SHIFT}")
            src.line(f"{variable} = {_MADE[str(field.kind)].format(f'b[p:{end}]')}")
            src.line(f"p = {end}")
        return variable

    def _nested(self, field: Field, struct: type) -> str:
        src, variable = self._src, self._src.variable()
        if not field.is_nullable(self._version):
            src.line(f"{variable} = {self._struct(struct)}")
            return variable
        presence = self._fixed("b")
        self._flush()
        self._null(field, presence, variable)
        with src.block("else:"):
            src.line(f"{variable} = {self._struct(struct)}")
        return variable

    def _array(self, field: Field) -> str:
        src, variable = self._src, self._src.variable()
        count = self._length("i")
        self._null(field, count, variable)
        with src.block("else:"):
            least = self._schema.least_item_bytes(field, self._version)
            with src.block(f"if {count} * {least} > e - p:"):
                self._refuse(field, "counts more than there is")
            if self._form is _Form.SMALL:
                src.line(f"n = count_small(n, {count})")
            elif self._form is _Form.SLICED:
                src.line(f"n = count_items(n, {count}, most)")
            code = FIXED.get(field.kind) if isinstance(field.kind, str) else None
            if code is None:
                self._items(field, variable, count)
            elif code == "16s":
                src.line(f"{variable} = [bytes(b[i : i + 16]) for i in range(p, p + {count} * 16, 16)]")
            else:
                src.line(f"{variable} = list(unpack_from(f'>{{{count}}}{code}', b, p))")
            if code is not None:
                src.line(f"p += {count} * {WIDTH[code]}")
                if self._form is _Form.SLICED:
                    with src.block(f"if {count} > {SHORT_ITEMS}:"):
                        src.line(f"kept.append({variable})")
                    src.line(f"c += {count} >> {FIXED_ITEMS_A_UNIT_SHIFT}")
        return variable

    def _items(self, field: Field, variable: str, count: str) -> None:
        src = self._src
        src.line(f"{variable} = []")
        if self._form is _Form.SLICED:
            with src.block(f"if {count} > {SHORT_ITEMS}:"):
                src.line(f"kept.append({variable})")
        with src.block(f"for _ in range({count}):"):
            if self._form is _Form.SLICED:
                src.line("c += 1")
                with src.block(f"if c >= {CHUNK_ITEMS}:"):
                    src.line("yield c")
                    src.line("c = 0")
            if isinstance(field.kind, type):
                item = self._struct(field.kind)
            else:
                # An element is never null, whatever the array is.
                item = self._sized(field._replace(array=False, nullable=(1, 0)))
            src.line(f"{variable}.append({item})")

    def _tagged_fields(self, struct: type) -> dict[str, str]:
        src, known = self._src, self._schema.tagged(struct, self._version)
        count = self._fixed("B")
        self._flush()
        variables = {field.name: src.variable() for field in known}
        for field in known:
            src.line(f"{variables[field.name]} = {self._default(field)}")
        with src.block(f"if {count}:"):
            src.line(f"{count}, p = read_uvarint(b, p - 1)")
            if self._form is not _Form.RESPONSE:
                src.line(f"g = count_tags(g, {count})")
            if known:
                self._known_tags(known, variables, count)
            else:
                src.line(f"p = skip_tags(b, p, {count})")
        return variables

    def _known_tags(self, known: list[Field], variables: dict[str, str], count: str) -> None:
        src, tag, end = self._src, self._src.variable("t"), self._src.variable("q")
        with src.block(f"for _ in range({count}):"):
            src.line(f"{tag}, p = read_uvarint(b, p)")
            src.line(f"{end}, p = read_uvarint(b, p)")
            src.line(f"{end} += p")
            with src.block(f"if {end} > e:"):
                src.line(f"raise Malformed('{self._label} v{self._version}: tagged field beyond the end')")
            for field in known:
                with src.block(f"if {tag} == {field.tag}:"):
                    value = self._field(field)
                    self._flush()
                    src.line(f"{variables[field.name]} = {value}")
                    with src.block(f"if p != {end}:"):
                        self._refuse(field, "has another size than its tag says")
            # Unknown tags are skipped; for known ones p is there already.
            src.line(f"p = {end}")

    def _default(self, field: Field) -> str:
        """An expression that makes the default: a new object each time where it is mutable."""
        initial = field.initial
        if isinstance(field.kind, type) and not field.array and initial is not None:
            return f"{self._name_of(field.kind)}()"
        return repr(initial)

    def _name_of(self, struct: type) -> str:
        self._src.names[struct.__name__] = struct
        return struct.__name__
