"""Writes and compiles the encoder of one message in one version.

In the written code the message is `o`, nested ones `o<n>`, and `w` appends bytes to what is joined at
the end. Fields of fixed width, length prefixes and short varints that follow each other are packed by one
`pack`. The *sliced* form is the same as a generator: it yields its weight every few hundred elements. There
a list that several elements in a row share (the configs of new topics) is encoded twice, then copied.
"""

from collections.abc import Callable, Generator, Sequence
from struct import Struct, pack
from struct import error as struct_error
from typing import Any

from gateway.wire.errors import Unencodable
from gateway.wire.primitives import CHUNK_ITEMS, SHORT_ITEMS, encode_uvarint, string_bytes
from gateway.wire.schema import FIXED, Field, Schema
from gateway.wire.source import Source

Encoder = Callable[[Any], bytes]
Encoding = Generator[int, None, bytes]
"""Yields the units of weight done since its last yield."""
SlicedEncoder = Callable[[Any, list[Any]], Encoding]
SHARED_ITEMS = 8
"""Fewer elements are encoded again rather than looked for."""
COPIED_BYTES_A_UNIT = 1024
_SMALL = 32


def compile_encoder(schema: Schema, version: int) -> Encoder:
    """The encoder of this version. It raises Unencodable for values that the version cannot carry."""
    schema.check(version)
    return _EncoderSource(schema, version).compiled()


def compile_sliced_encoder(schema: Schema, version: int) -> SlicedEncoder:
    """The same in slices: (message, where all its long lists are kept) -> generator."""
    schema.check(version)
    return _EncoderSource(schema, version, is_sliced=True).compiled()


class _EncoderSource:
    def __init__(self, schema: Schema, version: int, is_sliced: bool = False) -> None:
        self._schema = schema
        self._is_sliced = is_sliced
        self._version = version
        self._compact = schema.is_flexible(version)
        self._src = Source(
            {
                "Unencodable": Unencodable,
                "encode_uvarint": encode_uvarint,
                "string_bytes": string_bytes,
                "struct_error": struct_error,
            }
        )
        self._run: list[tuple[str, str]] = []
        self._write = "w"
        self._depth = 0
        """Arrays of structs around what is written."""
        self._shared: list[tuple[str, str]] = []
        """Variables of each inner array: the list encoded last, and its bytes if it came twice."""
        self._packers: dict[tuple[str, bool], str] = {}

    def compiled(self) -> Callable[..., Any]:
        src = self._src
        with src.block("def encode(o, kept):" if self._is_sliced else "def encode(o):"):
            src.line("out = []")
            src.line("w = out.append")
            if self._is_sliced:
                src.line("c = 0")
                src.line("done = []")
            start = src.position()
            with src.block("try:"):
                self._struct(self._schema.root, "o")
                self._flush()
                if self._is_sliced:
                    src.line("done.append(b''.join(out))")
                src.line(f"return b''.join({'done' if self._is_sliced else 'out'})")
            with src.block("except (struct_error, AttributeError, TypeError, UnicodeEncodeError) as wrong:"):
                label = f"{self._schema.root.__name__} v{self._version}"
                src.line(f"raise Unencodable(f'{label}: {{wrong}}') from wrong")
            if self._is_sliced:
                src.line("yield 0")  # is never reached, and makes of every sliced form a generator
            for last, encoded in self._shared:
                src.line_at(start, f"{last} = {encoded} = None")
        return src.compiled("encode")

    def _struct(self, struct: type, owner: str) -> None:
        for field in self._schema.untagged(struct, self._version):
            self._field(field, f"{owner}.{field.name}")
        if not self._compact:
            return
        tagged = self._schema.tagged(struct, self._version)
        if tagged:
            self._tagged_fields(tagged, owner)
        else:
            self._run.append(("B", "0"))

    def _field(self, field: Field, value: str) -> None:
        if field.array:
            self._array(field, value)
        elif isinstance(field.kind, type):
            self._nested(field, field.kind, value)
        elif field.kind in FIXED:
            self._run.append((FIXED[field.kind], value))
        else:
            self._sized(field, value)

    def _flush(self) -> None:
        if self._run:
            self._src.line(self._packed(self._run))
            self._run = []

    def _packed(self, run: list[tuple[str, str]]) -> str:
        packer = self._src.struct_method("pack", "".join(code for code, _ in run))
        return f"{self._write}({packer}({', '.join(value for _, value in run)}))"

    def _length(self, length: str, code: str) -> None:
        """Writes what is pending and a length, already raised by one if compact."""
        src = self._src
        if not self._compact:
            self._run.append((code, length))
            self._flush()
            return
        run, self._run = self._run, []
        with src.block(f"if {length} < 128:"):
            src.line(self._packed([*run, ("B", length)]))
        with src.block("else:"):
            if run:
                src.line(self._packed(run))
            src.line(f"{self._write}(encode_uvarint({length}))")

    def _measured(self, field: Field, value: str, made: str, empty: str) -> tuple[str, str]:
        """Variables of the content and its length prefix, null taken into account where it is allowed."""
        src, content, length = self._src, self._src.variable(), self._src.variable("n")
        src.line(f"{content} = {value}")
        counted = f"len({content}) + 1" if self._compact else f"len({content})"
        if not field.is_nullable(self._version):
            if made:
                src.line(f"{content} = {made.format(content)}")
            src.line(f"{length} = {counted}")
            return content, length
        with src.block(f"if {content} is None:"):
            src.line(f"{content} = {empty}")
            src.line(f"{length} = {0 if self._compact else -1}")
        with src.block("else:"):
            if made:
                src.line(f"{content} = {made.format(content)}")
            src.line(f"{length} = {counted}")
        return content, length

    def _sized(self, field: Field, value: str) -> None:
        """A string, bytes or records."""
        is_string = field.kind == "string"
        content, length = self._measured(field, value, "string_bytes({})" if is_string else "", "b''")
        self._length(length, "h" if is_string else "i")
        self._src.line(f"{self._write}({content})")

    def _nested(self, field: Field, struct: type, value: str) -> None:
        src, owner = self._src, self._src.variable("o")
        src.line(f"{owner} = {value}")
        if not field.is_nullable(self._version):
            self._struct(struct, owner)
            return
        self._flush()
        with src.block(f"if {owner} is None:"):
            src.line(f"{self._write}(b'\\xff')")
        with src.block("else:"):
            self._run.append(("b", "1"))
            self._struct(struct, owner)
            self._flush()

    def _array(self, field: Field, value: str) -> None:
        src = self._src
        code = FIXED.get(field.kind) if isinstance(field.kind, str) else None
        if code is not None:
            self._flush()
            src.line(f"{self._write}({self._packer(code, field.is_nullable(self._version))}({value}))")
            return
        items, count = self._measured(field, value, "", "()")
        if self._is_sliced and self._depth and self._write == "w":
            self._shared_items(field, items, count)
        else:
            self._items(field, items, count)

    def _shared_items(self, field: Field, items: str, count: str) -> None:
        """The array's length and elements, copied if they are those of the element before and were copied or
        encoded as a repeat there."""
        src = self._src
        last, encoded, first, slices = (src.variable(prefix) for prefix in "sbfd")
        self._shared.append((last, encoded))
        self._flush()
        with src.block(f"if {items} is {last} and {encoded} is not None:"):
            src.line(f"w({encoded})")
            src.line(f"c += len({encoded}) // {COPIED_BYTES_A_UNIT}")
        with src.block("else:"):
            src.line(f"{first} = len(out)")
            src.line(f"{slices} = len(done)")
            self._items(field, items, count)
            with src.block(f"if {items} is not {last}:"):
                src.line(f"{last} = {items}")
                src.line(f"{encoded} = None")
            # What a slice has ended in is not whole in `out`.
            with src.block(f"elif {count} >= {SHARED_ITEMS} and len(done) == {slices}:"):
                src.line(f"{encoded} = b''.join(out[{first}:])")

    def _items(self, field: Field, items: str, count: str) -> None:
        src = self._src
        self._length(count, "i")
        item = src.variable("o")
        if self._is_sliced:
            with src.block(f"if {count} > {SHORT_ITEMS}:"):
                src.line(f"kept.append({items})")
        with src.block(f"for {item} in {items}:"):
            if self._is_sliced:
                src.line("c += 1")
                with src.block(f"if c >= {CHUNK_ITEMS}:"):
                    # Joined, since pieces take several times what they hold.
                    src.line("done.append(b''.join(out))")
                    src.line("out.clear()")
                    src.line("yield c")
                    src.line("c = 0")
            # An element is never null, whatever the array is.
            self._depth += 1
            self._field(field._replace(array=False, nullable=(1, 0)), item)
            self._flush()
            self._depth -= 1

    def _packer(self, code: str, nullable: bool) -> str:
        known = self._packers.get((code, nullable))
        if known is None:
            known = self._src.constant(_array_packer(code, self._compact, nullable), "A")
            self._packers[code, nullable] = known
        return known

    def _tagged_fields(self, tagged: list[Field], owner: str) -> None:
        """Those that differ from their default, each with its tag and size, after their number."""
        src, parts, count = self._src, self._src.variable("t"), self._src.variable("n")
        self._flush()
        src.line(f"{parts} = []")
        src.line(f"{count} = 0")
        for field in tagged:
            default = src.constant(field.initial)
            value = f"{owner}.{field.name}"
            with src.block(f"if {value} != {default}:"):
                content = self._apart(field, value)
                src.line(f"{count} += 1")
                src.line(f"{parts} += encode_uvarint({field.tag}), encode_uvarint(len({content})), {content}")
        self._run.append(("B", count))
        self._flush()
        with src.block(f"if {count}:"):
            src.line(f"{self._write}(b''.join({parts}))")

    def _apart(self, field: Field, value: str) -> str:
        """Encodes a field into bytes of its own; the variable that holds them."""
        src, pieces, outer = self._src, self._src.variable("t"), self._write
        self._write = src.variable("w")
        src.line(f"{pieces} = []")
        src.line(f"{self._write} = {pieces}.append")
        self._field(field, value)
        self._flush()
        self._write = outer
        src.line(f"{pieces} = b''.join({pieces})")
        return pieces


def _array_packer(code: str, compact: bool, nullable: bool) -> Callable[[Sequence[Any] | None], bytes]:
    """Packs an array of fixed-width elements with its count; short ones by a format that is ready."""

    def layout(count: int) -> str:
        return code * count if code == "16s" else f"{count}{code}"

    prefix, one_more = ("B", 1) if compact else ("i", 0)
    ready = [Struct(f">{prefix}{layout(count)}").pack for count in range(_SMALL)]
    null = b"\x00" if compact else b"\xff\xff\xff\xff"

    def packed(items: Sequence[Any] | None) -> bytes:
        if items is None and nullable:
            return null
        count = len(items)  # type: ignore[arg-type]  # a None that is not allowed: TypeError, so Unencodable
        if count < _SMALL:
            return ready[count](count + one_more, *items)  # type: ignore[misc]
        head = encode_uvarint(count + 1) if compact else pack(">i", count)
        return head + pack(f">{layout(count)}", *items)  # type: ignore[misc]

    return packed
