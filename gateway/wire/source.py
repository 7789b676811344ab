"""Lines of Python in the making: what the decoder's and the encoder's source have in common."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any


class Source:
    """Indented lines, fresh variable names, and the objects that the code refers to by name."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self._lines: list[str] = []
        self._depth = 0
        self._fresh = 0
        self._known: dict[tuple[str, str], str] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def position(self) -> tuple[int, int]:
        """Where the next line goes, for `line_at`."""
        return len(self._lines), self._depth

    def line_at(self, position: tuple[int, int], text: str) -> None:
        """Puts a line where another one is now."""
        index, depth = position
        self._lines.insert(index, "    " * depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self, prefix: str = "v") -> str:
        self._fresh += 1
        return f"{prefix}{self._fresh}"

    def constant(self, value: Any, prefix: str = "k") -> str:
        """A name under which the code finds `value`."""
        name = self.variable(prefix)
        self.names[name] = value
        return name

    def struct_method(self, method: str, codes: str) -> str:
        """The name of a bound `pack` or `unpack_from` of this big-endian format, made once."""
        known = self._known.get((method, codes))
        if known is None:
            known = self.constant(getattr(Struct(">" + codes), method), method[0].upper())
            self._known[method, codes] = known
        return known

    def compiled(self, function: str) -> Callable[..., Any]:
        """Runs the lines and returns the function of that name which they define."""
        text = "\n".join(self._lines)
        exec(compile(text, f"<{function}>", "exec"), self.names)
        made: Callable[..., Any] = self.names[function]
        return made
