"""Help texts as they are written in the code, prepared for rich, which keeps every line end."""

from typing import Final

INDENT: Final = "    "
KEPT_INDENT: Final = f"[none]{INDENT}[/none]"
"""Rich removes plain blanks at the beginning of a text."""


def help_text(text: str) -> str:
    """Joins the lines of a paragraph, so that it is wrapped at the width of the terminal. Indented lines are
    examples, and stay lines. ValueError for a paragraph of both."""
    return "\n\n".join(map(_paragraph, text.strip("\n").split("\n\n")))


def _paragraph(text: str) -> str:
    lines = text.splitlines()
    if all(line.startswith(INDENT) for line in lines):
        return "\n".join(KEPT_INDENT + line.removeprefix(INDENT) for line in lines)
    if any(line.startswith(INDENT) for line in lines):
        raise ValueError(f"examples and sentences in one paragraph of a help text: {text!r}")
    return " ".join(line.strip() for line in lines)
