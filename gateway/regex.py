"""Regular expressions of clients: RE2, as Kafka matches them with RE2/J.

RE2 takes time linear in the text, but not in slices, so what one match may cost on the event loop is bounded.
Where RE2 and RE2/J take different patterns, RE2/J's choice holds (`tests/differential/test_patterns.py`).
"""

import re
from typing import Final

MAX_CHARS: Final = 2_000
MAX_MEMORY: Final = 1 << 18
"""Bytes of a compiled pattern, with what it has found out about texts. The library keeps the last 128."""
MAX_REPEATED: Final = 10_000
"""All counted repetitions together. RE2 writes each out before it sees that the program becomes too large."""
MAX_STEPS: Final = 1_000_000
"""Of one match at worst, up to 12 ns each on a slow processor: the size of the program times the characters
of the text."""
STEPS_A_UNIT: Final = 1_000
"""A unit of work is some us (`gateway/scheduling/slices.py`)."""
_DIFFERENT: Final = re.compile(
    r"""
      \\Q(?:.*?\\E|.*)                        # literal
    | \\[pPx]\{[^}]*(?:\}|(?P<open_name>\Z))
    | \\.
    | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]           # a class
    | (?P<open_class>\[)
    | \{(?P<least>\d+)(?:,(?P<most>\d*))?\}
    | \(\?P?<(?P<name>\w+)>
    | (?P<brace>\{(?=[*+?]|\{\d+(?:,\d*)?\}))
    """,
    re.DOTALL | re.VERBOSE,
)
"""What RE2 and RE2/J may differ in, and what hides it."""
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


class InvalidPattern(ValueError):
    """The pattern is no regular expression of RE2/J, or too large."""


class TooLong(InvalidPattern):
    """The text is too long for the pattern: to match them could hold the event loop."""


class Pattern:
    """Matches whole texts."""

    def __init__(self, pattern: str) -> None:
        """Raises InvalidPattern."""
        if len(pattern) > MAX_CHARS:
            raise InvalidPattern(f"longer than {MAX_CHARS} characters")
        # Only here: few clients ever send a pattern, and it takes memory.
        import re2

        options = re2.Options()
        options.never_capture = True
        options.max_mem = MAX_MEMORY
        options.log_errors = False
        try:
            self._compiled = re2.compile(_DIFFERENT.sub(_Translation(), pattern), options)
        except re2.error as error:
            raise InvalidPattern("RE2 does not take it") from error

    def units(self, text: str) -> int:
        """The work of a match, in units. TooLong if that is too much for the event loop."""
        steps = int(self._compiled.programsize) * len(text)
        if steps > MAX_STEPS:
            raise TooLong(f"too large for a text of {len(text)} characters")
        return 1 + steps // STEPS_A_UNIT

    def matches(self, text: str) -> bool:
        """Whether it matches all of the text."""
        return self._compiled.fullmatch(text) is not None


class _Translation:
    """Of one pattern from RE2/J to RE2, part by part."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._repeated = 0

    def __call__(self, found: re.Match[str]) -> str:
        # What is not closed is refused here: to look for its end at each place would take the square of the
        # length.
        if found["open_class"] or found["open_name"] is not None:
            raise InvalidPattern("a class or a name that is not closed")
        if found["least"]:
            self._repeated += max(_count_of(found["least"]), _count_of(found["most"]))
            if self._repeated > MAX_REPEATED:
                raise InvalidPattern(f"more than {MAX_REPEATED} repetitions")
            return found[0]
        name = found["name"]
        if name is not None and name in self._names:
            raise InvalidPattern(f"two groups are called {name}")
        if found["brace"]:
            raise InvalidPattern("{ that is no bound, before an operator")
        if name is not None:
            self._names.add(name)
        is_literal = found[0].startswith("\\Q")
        return found[0] if is_literal else _ESCAPED.sub(_unescaped, found[0])


def _count_of(digits: str | None) -> int:
    """Of a bound on repetitions; RE2 refuses those of more than four digits."""
    return int(digits[:5]) if digits else 0


def _unescaped(found: re.Match[str]) -> str:
    """A letter that is not of ASCII is itself when it is escaped."""
    char = found[1]
    if char == "C":
        raise InvalidPattern("\\C, a single byte, is not of RE2/J")
    return found[0] if char.isascii() else str(char)
