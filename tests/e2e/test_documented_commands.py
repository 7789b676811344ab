"""Every `dragoman` command of the pages exists, with the flags that it is given there."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from gateway.cli.main import app
from tests.support.versions import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/examples").rglob("*.md")),
]
FENCE = re.compile(r"^ *```(?:\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(dragoman [^`\n]+)`")
BEGINNING = re.compile(r"(?:^|[$|(;]|do |until )\s*(dragoman (?:--profile \w+ )?[a-z].*)")
ENDS = frozenset({"|", "||", "&&", ";", ">", "<", "#", "\\", "do", "done", "...", "…"})
COMMAND: Any = typer.main.get_command(app)


def lines_of(page: Path) -> Iterator[str]:
    """Commands as they are written, of code blocks and of code in sentences."""
    text = page.read_text("utf-8")
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            found = BEGINNING.search(line)
            if found and not line.startswith("dragoman:"):
                yield found[1]
    yield from INLINE.findall(FENCE.sub("", text))


def words_of(line: str) -> list[str]:
    """Up to the end of the command."""
    cut = re.split(r"\s#\s|\s[|<>;&]|;|\)(?:[\s.]|$)", line)[0]
    try:
        words = shlex.split(cut)
    except ValueError:
        return []
    return [word for word in words if word not in ENDS]


def problem_of(line: str) -> str | None:
    """What is wrong with a command; None if nothing is."""
    words = words_of(line)[1:]
    command, path = COMMAND, ["dragoman"]
    while words and getattr(command, "commands", None) and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"{' '.join(path)} has no {words[0]}"
        command = command.commands[words[0]]
        path.append(words.pop(0))
        if not words:
            break
    known = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    if command is COMMAND:
        known |= {"--install-completion", "--show-completion"}
        return None if not words or words[0].split("=")[0] in known else f"dragoman has no {words[0]}"
    for word in words:
        flag = word.split("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]*", flag) and flag not in known:
            return f"{' '.join(path)} has no {flag}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist(page: Path) -> None:
    wrong = [f"{line}: {problem}" for line in lines_of(page) if (problem := problem_of(line))]
    assert wrong == []


def test_a_command_that_does_not_exist_is_found() -> None:
    assert problem_of("dragoman topics trim orders --before 5 | wc") is None
    assert problem_of("dragoman topics prune orders") == "dragoman topics has no prune"
    assert problem_of("dragoman topics trim orders --until 5") == "dragoman topics trim has no --until"
    assert problem_of("dragoman --prefile x") == "dragoman has no --prefile"


def test_the_pages_have_commands() -> None:
    assert sum(len(list(lines_of(page))) for page in PAGES) > 100
