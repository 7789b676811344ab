"""The field's words stay: identifiers and words that were retired (decision 0018) do not come back.

`tests/retired_identifiers.txt` lists the identifiers, one a line. The change log, decisions and generated
code keep the words of their time.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.versions import ROOT

CODE = ("gateway", "ledger", "adapters", "pipeline", "tests", "tools", "bench")
PRODUCT = ("gateway", "ledger", "adapters", "pipeline")
GENERATED = frozenset({ROOT / "gateway/wire/messages/generated", ROOT / "adapters/rpc/generated"})
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "deploy")
DECISIONS = ROOT / "docs/decisions"
RETIRED_WORDS = re.compile(r"\b(told|untold|whoever|anew|knock(?:s|ed|ing)?)\b", re.IGNORECASE)
THIS = Path(__file__).resolve()


def retired_identifiers() -> frozenset[str]:
    lines = (ROOT / "tests/retired_identifiers.txt").read_text().splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def modules(packages: tuple[str, ...]) -> Iterator[Path]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            if GENERATED.isdisjoint(path.parents) and path != THIS:
                yield path


def pages() -> Iterator[Path]:
    for name in PAGES:
        place = ROOT / name
        for path in [place] if place.is_file() else sorted(place.rglob("*.md")):
            if DECISIONS not in path.parents:
                yield path


def tokens(source: str, *types: int) -> Iterator[tokenize.TokenInfo]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in types:
            yield token


def retired_in_code(source: str, retired: frozenset[str]) -> list[tuple[int, str]]:
    return [(name.start[0], name.string) for name in tokens(source, tokenize.NAME) if name.string in retired]


def retired_in_text(text: str) -> list[tuple[int, str]]:
    return [
        (number, found[0])
        for number, line in enumerate(text.splitlines(), 1)
        for found in RETIRED_WORDS.finditer(line)
    ]


def retired_in_messages(source: str) -> list[tuple[int, str]]:
    """In strings and comments: messages, help, docstrings and what is said to the reader."""
    return [
        (token.start[0] + line - 1, word)
        for token in tokens(source, tokenize.STRING, tokenize.COMMENT)
        for line, word in retired_in_text(token.string)
    ]


def places(path: Path, found: list[tuple[int, str]]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{line}: {word}" for line, word in found]


def test_no_retired_identifier_comes_back() -> None:
    retired = retired_identifiers()
    assert len(retired) > 100
    found = [
        place for path in modules(CODE) for place in places(path, retired_in_code(path.read_text(), retired))
    ]
    assert not found, "\n".join(["docs/decisions/0018 names what to write instead:", *found])


def test_pages_use_the_fields_words() -> None:
    found = [place for path in pages() for place in places(path, retired_in_text(path.read_text()))]
    assert not found, "\n".join(found)


def test_messages_and_docstrings_use_the_fields_words() -> None:
    found = [
        place for path in modules(PRODUCT) for place in places(path, retired_in_messages(path.read_text()))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("room = FetchRoom()  # told", [(1, "FetchRoom")]),
        ("'FetchRoom'", []),
        ("FetchRooms = 1", []),
    ],
)
def test_identifiers_are_found_as_whole_names(source: str, found: list[tuple[int, str]]) -> None:
    assert retired_in_code(source, frozenset({"FetchRoom"})) == found


def test_words_are_found_in_strings_and_comments_alone() -> None:
    source = 'told = 1\nsay("the client\\nis told")  # anew, and renewed\n"""One line.\n\nWhoever asks."""\n'
    assert retired_in_messages(source) == [(2, "told"), (2, "anew"), (5, "Whoever")]
