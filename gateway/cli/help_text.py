"""Help texts as they are written in the code, made ready for rich, which keeps each line end it is given."""

from typing import Final

INDENT: Final = "    "
KEPT_INDENT: Final = f"[none]{INDENT}[/none]"
"""Blanks at the beginning of a text would be taken away."""


def help_text(text: str) -> str:
    """Prose becomes one line a paragraph, to be wrapped where the terminal ends; lines that are indented are
    examples and stay lines."""
    return "\n\n".join(map(_paragraph, text.strip("\n").split("\n\n")))


def _paragraph(text: str) -> str:
    lines = text.splitlines()
    if all(line.startswith(INDENT) for line in lines):
        return "\n".join(KEPT_INDENT + line.removeprefix(INDENT) for line in lines)
    return " ".join(line.strip() for line in lines)
